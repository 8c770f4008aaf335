"""Means by segment: the queries grouped by one of their attributes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from karat.errors import UsageError, unknown
from karat.measures.scores import Scores, Summary
from karat.tables import Queries

# value of the column -> measure -> summary, in the order in which a reader looks for a value
Segments = Mapping[str, Mapping[str, Summary]]

NONE = "(none)"


def segment_means(scores: Scores, queries: Queries | None, column: str) -> Segments:
    """The measures for each value of a column of the queries.

    A list puts its query into several segments; a query without a value is in ``(none)``.
    """
    frame = check_column(queries, column).frame
    rows = _rows_by_value(scores.table["query_id"], frame, column)
    segments = {}
    for value in sorted(rows, key=_reading_order):
        mask = np.zeros(scores.table.height, dtype=np.bool_)
        mask[rows[value]] = True
        segments[value] = scores.summarise(mask)
    return segments


def check_column(queries: Queries | None, column: str) -> Queries:
    """The queries, if they have the column: worth asking before any run is scored."""
    if queries is None:
        raise UsageError(f"by {column!r} needs the queries' attributes; give a queries file")
    if column in queries.segments:
        return queries
    name = queries.source.name
    if not queries.segments:
        raise UsageError(f"by {column!r}: the queries in {name} have no attributes, only texts")
    nearest = str(unknown("column", column, queries.segments, inside=name))
    if "did you mean" in nearest:
        nearest += f" (known: {', '.join(queries.segments)})"
    raise UsageError(nearest)


def _rows_by_value(query_ids: pl.Series, frame: pl.DataFrame, column: str) -> dict[str, list[int]]:
    """For each value, as text, the rows of the score table that it holds for."""
    values = dict(zip(frame["query_id"].to_list(), frame[column].to_list(), strict=True))
    rows: dict[str, list[int]] = {}
    for row, query_id in enumerate(query_ids.to_list()):
        for text in dict.fromkeys(_texts(values.get(query_id))):
            rows.setdefault(text, []).append(row)
    return rows


def _texts(value: Any) -> Iterator[str]:
    """A value as segment names: a list is several, nothing is a segment of its own."""
    if isinstance(value, list) and value:
        for one in value:
            yield from _texts(one)
    elif value is None or value == [] or value == "":
        yield NONE
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, float):
        yield f"{value:g}"
    else:
        yield str(value)


def _reading_order(text: str) -> tuple[int, float, str]:
    """Numbers by size, then words by their letters, and the queries without a value last."""
    if text == NONE:
        return (2, 0.0, text)
    try:
        number = float(text)
    except ValueError:
        return (1, 0.0, text)
    return (0, number, text) if math.isfinite(number) else (1, 0.0, text)
