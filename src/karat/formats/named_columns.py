"""Named columns of CSV, TSV and Parquet: tables from columns, and types from text.

CSV has no types, so numbers, truth values and lists are restored if nothing is lost by it; ids,
dates and versions always stay text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

import polars as pl

from karat.data.columns import (
    GOLD_NAMES,
    ITEM_NAMES,
    QUERY_NAMES,
    TEXT_NAMES,
    Duplicates,
    check_finite,
    find_column,
    ids_as_text,
    split_spans,
)
from karat.data.tables import Corpus, Gold, Queries, Run, with_scores
from karat.errors import InputError
from karat.formats.files import Input
from karat.formats.json_records import parse_json, preview, text_id
from karat.formats.judged_queries import JudgedQuery, gold_of, no_gold_error, parse_relevant

_TEXTUAL = frozenset(
    (*QUERY_NAMES, *ITEM_NAMES, *TEXT_NAMES, "as_of", "version", "source", "group", "stage")
) | {"title", "rewritten", "doc_version"}
# Separators between several ids in one cell; an id that contains one is written as a JSON list.
_SEPARATOR, _BLANK = re.compile(r"[;|,\n]"), re.compile(r"\s")


def gold_from(table: pl.DataFrame, lines: pl.Series, file: Input, duplicates: Duplicates) -> Gold:
    """Return gold from named columns; rows with ``start`` and ``end`` are spans."""
    _refuse_empty(table, "judgments", file)
    if gold_column(table.columns) is not None:
        return _gold_of_queries(table, lines, file, duplicates)
    query = next((name for name in QUERY_NAMES if name in table.columns), None)
    if not any(name in table.columns and name != query for name in ITEM_NAMES) and any(
        name in table.columns for name in TEXT_NAMES
    ):
        rest = table.head(100).select(pl.exclude(*QUERY_NAMES, *TEXT_NAMES))
        raise no_gold_error({column.name: column.to_list() for column in rest}, file.name)
    bounds = [name for name in ("start", "end") if name in table.columns]
    if len(bounds) == 1:
        raise InputError(
            f"has a column {bounds[0]} alone; a span has a start and an end", where=file.name
        )
    if bounds:
        table = _checked_spans(table, lines, file)
    else:
        names = [name for name in ITEM_NAMES if name in table.columns]
        table = split_spans(table.rename({names[0]: "item_id"})) if names else table
    return Gold.from_frame(table, duplicates=duplicates, lines=lines, source=file.source)


def _checked_spans(table: pl.DataFrame, lines: pl.Series, file: Input) -> pl.DataFrame:
    bounds = table.select(pl.col("start", "end").cast(pl.Int64, strict=False))
    given = table.select(pl.col("start", "end").is_not_null())
    valid = (given["start"] == given["end"]) & (
        ~given["start"] | (bounds["start"] < bounds["end"]).fill_null(value=False)
    )
    if not valid.all():
        row = int((~valid).arg_true()[0])
        start, end = table["start"][row], table["end"][row]
        raise InputError(
            f"start is {start!r} and end {end!r}; whole numbers with start < end are expected",
            where=file.name,
            line=int(lines[row]),
        )
    return table.with_columns(bounds["start"], bounds["end"])


def gold_column(names: Collection[str]) -> str | None:
    """Return the column that lists the relevant items of a row's query, or None."""
    return next((name for name in GOLD_NAMES if name in names), None)


def holds_queries(names: Collection[str]) -> bool:
    """Return True if each row is a query with its text and its gold."""
    return gold_column(names) is not None and any(name in names for name in TEXT_NAMES)


def _gold_of_queries(
    table: pl.DataFrame, lines: pl.Series, file: Input, duplicates: Duplicates
) -> Gold:
    """Return gold from a table with one row per query and its relevant items in one cell."""
    table = _with_query_ids(table)
    column = gold_column(table.columns) or ""
    query = find_column(table, QUERY_NAMES, "query id", file.source)
    ids = ids_as_text(table, (query,), file.source, lines)[query].to_list()
    marked = table["no_answer"].to_list() if "no_answer" in table.columns else [None] * len(ids)
    places = lines.to_list()
    cells = table[column].to_list()
    shown = column if file.mapping is None else file.mapping.own(column)
    values = [
        _parse_cell(cell, shown, file.name, at) for cell, at in zip(cells, places, strict=True)
    ]
    queries = [
        JudgedQuery(
            place,
            name,
            "",
            parse_relevant(value, column, 1.0, file.name, place),
            {"no_answer": answer},
        )
        for place, name, value, answer in zip(places, ids, values, marked, strict=True)
    ]
    return gold_of(queries, file, duplicates)


def _parse_cell(cell: Any, column: str, where: str, line: int) -> Any:
    """Return the content of a gold cell, JSON or one id; refuse a list in any other form.

    >>> _parse_cell('["c0","c12"]', "gold", "gold.csv", 2), _parse_cell("c0", "gold", "gold.csv", 2)
    (['c0', 'c12'], 'c0')
    """
    if not isinstance(cell, str):
        return cell
    text = cell.strip()
    if text[:1] in ("[", "{"):
        with suppress(InputError):
            return parse_json(text, where, line)
    parts = [part.strip() for part in _SEPARATOR.split(text)]
    filled = [part for part in parts if part]
    looks_like_ids = len(filled) > 1 and not any(_BLANK.search(part) for part in filled)
    if looks_like_ids or (text[:1] == "[" and text[-1:] == "]"):
        raise InputError(
            f"{column} is {preview(cell)}, which looks like several ids; write a list as JSON, "
            'such as ["c0", "c12"], or one row per relevant item',
            where=where,
            line=line,
        )
    return cell


def _with_query_ids(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table of queries with ids; a query without one gets a hash of its text."""
    text = next((name for name in TEXT_NAMES if name in table.columns), None)
    if text is None or any(name in table.columns for name in QUERY_NAMES):
        return table
    ids = [text_id(str(value or "")) for value in table[text].to_list()]
    return table.with_columns(pl.Series("query_id", ids, dtype=pl.String))


def queries_from(table: pl.DataFrame, file: Input) -> Queries:
    """Return queries from named columns."""
    _refuse_empty(table, "queries", file)
    gold = gold_column(table.columns)
    if gold is not None:
        table = _with_query_ids(table).drop(gold)
    return Queries.from_frame(table, source=file.source)


def corpus_from(table: pl.DataFrame, file: Input) -> Corpus:
    """Return a corpus from named columns."""
    _refuse_empty(table, "items", file)
    return Corpus.from_frame(table, source=file.source)


def run_from(
    batches: Iterator[tuple[pl.DataFrame, pl.Series]], file: Input, strict: bool
) -> Iterator[pl.DataFrame]:
    """Yield checked hits from batches of named columns and their lines."""
    empty = True
    for table, lines in batches:
        if table.height:
            empty = False
            with file.explaining():
                hits = Run.from_frame(table, lines=lines, source=file.source).hits
            if hits.schema.get("similarity") == pl.String:
                hits = check_finite(
                    hits, "similarity", "a finite number is expected", file.source, lines
                )
            yield hits.with_columns(lines.alias("line")) if strict else hits
    if empty:
        raise InputError("holds no hits; at least one row is expected", where=file.name)


def _refuse_empty(table: pl.DataFrame, what: str, file: Input) -> None:
    if not table.height:
        raise InputError(f"holds no {what}; at least one row is expected", where=file.name)


def infer_types(table: pl.DataFrame) -> pl.DataFrame:
    """Return text columns as the type of their values, if that loses nothing."""
    columns = []
    for column in table:
        free = column.dtype == pl.String and column.name not in _TEXTUAL
        columns.append(_infer_type(column) if free else column)
    return pl.DataFrame(columns)


def _infer_type(column: pl.Series) -> pl.Series:
    filled = column.drop_nulls()
    if not len(filled):
        return column
    if filled.str.to_lowercase().is_in(["true", "false"]).all():
        return column.str.to_lowercase() == "true"
    if filled.str.contains(r"^-?[0-9]{1,18}$").all():
        numbers = column.cast(pl.Int64, strict=False)
        return numbers if _is_lossless(numbers, column) else column
    if filled.str.contains(r"^-?[0-9.]+(?:e[+-]?[0-9]+)?$").all():
        floats = column.cast(pl.Float64, strict=False)
        return floats if _is_lossless(floats, column) else column
    if (filled.str.starts_with("[") & filled.str.ends_with("]")).all():
        return _parse_lists(column)
    return column


def _is_lossless(values: pl.Series, column: pl.Series) -> bool:
    return bool(values.cast(pl.String).eq_missing(column).all())


def _parse_lists(column: pl.Series) -> pl.Series:
    try:
        lists = [None if text is None else json.loads(text) for text in column]
    except ValueError:
        return column
    flat = all(v is None or all(isinstance(item, str) for item in v) for v in lists)
    return pl.Series(column.name, lists, dtype=pl.List(pl.String)) if flat else column


def hits_to_write(run: Run) -> pl.DataFrame:
    """Return a run's hits, with scores that rank them as the run does."""
    return with_scores(run) if "score" in run.hits.columns else run.hits


def lists_as_json(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table with its lists as JSON text, for formats without types."""
    columns = []
    for column in table:
        if isinstance(column.dtype, pl.List):
            texts = [
                None if v is None else json.dumps(v.to_list(), ensure_ascii=False) for v in column
            ]
            column = pl.Series(column.name, texts, dtype=pl.String)
        columns.append(column)
    return pl.DataFrame(columns)
