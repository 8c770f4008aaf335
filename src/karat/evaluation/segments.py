"""Segments: the queries grouped by one of their attributes, or by two of them crossed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.data.tables import Corpus, Gold, Queries
from karat.errors import UsageError, unknown
from karat.measure.scores import Scores, Summary

# value of the column -> measure -> summary, in the order in which a reader looks for a value
Segments = Mapping[str, Mapping[str, Summary]]

NONE = "(none)"
CROSS = " × "
# Below this many queries a segment is marked as small: its interval is wide whatever it holds.
SMALL = 20
MOST_VALUES = 1_000


@dataclass(frozen=True, slots=True)
class By:
    """The grouping: one column of the queries, or two crossed.

    >>> str(By.parse("language*difficulty")), By.parse("language").columns
    ('language × difficulty', ('language',))
    """

    columns: tuple[str, ...]

    @classmethod
    def parse(cls, text: str | By) -> By:
        """Read a ``--by``: a column, or two with a ``*`` between them."""
        if isinstance(text, By):
            return text
        columns = tuple(part.strip() for part in text.replace("×", "*").split("*"))
        if not all(columns) or len(columns) > 2 or len(set(columns)) < len(columns):
            raise UsageError(
                f"by {text!r}: name one column, or two to cross, as in 'language*topic'"
            )
        return cls(columns)

    def __str__(self) -> str:
        return CROSS.join(self.columns)


@dataclass(frozen=True, eq=False)
class Segment:
    """Some of the queries: ``where`` says which values they share, ``mask`` which rows they are."""

    where: Mapping[str, str]
    mask: NDArray[np.bool_]

    @property
    def name(self) -> str:
        """Return its values as text: ``pt-BR × hard``."""
        return CROSS.join(self.where.values())


def segments_by(query_ids: pl.Series, queries: Queries | None, by: By | str) -> list[Segment]:
    """Return the segments that hold at least one of these queries, in reading order.

    A list puts its query into several segments; a query without a value is in ``(none)``.
    """
    by = By.parse(by)
    columns = []
    for column in by.columns:
        rows = _rows_by_value(query_ids, _with_column(queries, column).frame, column)
        masks = {value: np.zeros(len(query_ids), dtype=bool) for value in rows}
        for value in rows:
            masks[value][rows[value]] = True
        columns.append({value: masks[value] for value in sorted(rows, key=_reading_order)})
    segments = []
    for values in product(*columns):
        chosen = [masks[value] for masks, value in zip(columns, values, strict=True)]
        mask = np.logical_and.reduce(chosen)
        if mask.any():
            segments.append(Segment(dict(zip(by.columns, values, strict=True)), mask))
    return segments


def segment_means(scores: Scores, queries: Queries | None, by: By | str) -> Segments:
    """Return the measures for each segment."""
    return {
        segment.name: scores.summarise(segment.mask)
        for segment in segments_by(scores.table["query_id"], queries, by)
    }


def check_by(queries: Queries | None, by: Sequence[By]) -> None:
    """Refuse a missing column before any run is scored."""
    for grouping in by:
        for column in grouping.columns:
            _with_column(queries, column)


def _with_column(queries: Queries | None, column: str) -> Queries:
    """Return the queries, if they have the column."""
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


def segment_names(query_ids: pl.Series, queries: Queries, column: str) -> list[str]:
    """Return the values of a column that these queries have, none where they are too many."""
    try:
        return list(_rows_by_value(query_ids, queries.frame, column))
    except UsageError:
        return []


def _rows_by_value(query_ids: pl.Series, frame: pl.DataFrame, column: str) -> dict[str, list[int]]:
    """Return, for each value as text, the rows of the score table that it holds for."""
    values = dict(zip(frame["query_id"].to_list(), frame[column].to_list(), strict=True))
    rows: dict[str, list[int]] = {}
    for row, query_id in enumerate(query_ids.to_list()):
        for text in dict.fromkeys(_names(values.get(query_id))):
            rows.setdefault(text, []).append(row)
    if len(rows) > MOST_VALUES:
        raise UsageError(
            f"by {column!r}: {len(rows):,} different values, one for every"
            f" {len(query_ids) / len(rows):.1f} queries; a segment column has few"
        )
    return rows


def _names(value: Any) -> Iterator[str]:
    """Yield the segments of a value: a list is in several, nothing is in one of its own."""
    if isinstance(value, list) and value:
        for element in value:
            yield from _names(element)
    else:
        yield NONE if value in (None, "", []) else segment_name(value)


def segment_name(value: object) -> str:
    """Return the name of a segment: the value as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _reading_order(text: str) -> tuple[int, float, str]:
    """Return a key that sorts numbers by size, then words, and the queries without a value last."""
    if text == NONE:
        return (2, 0.0, text)
    try:
        number = float(text)
    except ValueError:
        return (1, 0.0, text)
    return (0, number, text) if math.isfinite(number) else (1, 0.0, text)


VERSION = "version"


def with_versions(
    queries: Queries | None, gold: Gold, corpus: Corpus | None, by: Sequence[By]
) -> Queries | None:
    """Return the queries with the versions of their relevant gold, where segments ask for them."""
    by_version = any(VERSION in grouping.columns for grouping in by)
    if not by_version or (queries is not None and VERSION in queries.frame.columns):
        return queries
    rows = gold.frame.filter(pl.col("grade") > 0)
    if VERSION not in rows.columns and corpus is not None and VERSION in corpus.frame.columns:
        item_versions = corpus.frame.select("item_id", VERSION)
        rows = rows.join(item_versions, on="item_id", how="left", maintain_order="left")
    if VERSION not in rows.columns or rows[VERSION].dtype.is_nested():
        return queries
    each = rows.drop_nulls(VERSION).group_by("query_id", maintain_order=True)
    versions = each.agg(pl.col(VERSION).cast(pl.String).unique().sort())
    if queries is None:
        ids = list(gold.query_ids)
        queries = Queries(pl.DataFrame({"query_id": ids, "text": [""] * len(ids)}), gold.source)
    frame = queries.frame.join(versions, on="query_id", how="left", maintain_order="left")
    return replace(queries, frame=frame)
