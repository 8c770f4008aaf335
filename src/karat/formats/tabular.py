"""Named columns on their way in and out of CSV, TSV and Parquet.

CSV has no types, so numbers, truth values and lists are restored where nothing is lost
by it; ids, dates and versions always stay text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import polars as pl

from karat.columns import ITEM_NAMES, QUERY_NAMES, TEXT_NAMES, Duplicates, finite
from karat.errors import InputError
from karat.formats.files import Input
from karat.formats.ranking import scored
from karat.formats.spans import split_spans
from karat.tables import Corpus, Gold, Queries, Run

_TEXTUAL = frozenset(
    (*QUERY_NAMES, *ITEM_NAMES, *TEXT_NAMES, "as_of", "version", "source", "group", "stage")
) | {"title", "rewritten", "doc_version"}


def gold_from(table: pl.DataFrame, lines: pl.Series, file: Input, duplicates: Duplicates) -> Gold:
    """Gold from named columns; ``start`` and ``end`` make spans of its rows."""
    refuse_empty(table, "judgments", file)
    ends = [name for name in ("start", "end") if name in table.columns]
    if len(ends) == 1:
        raise InputError(
            f"has a column {ends[0]} alone; a span has a start and an end", where=file.name
        )
    if ends:
        table = _spans(table, lines, file)
    else:
        names = [name for name in ITEM_NAMES if name in table.columns]
        table = split_spans(table.rename({names[0]: "item_id"})) if names else table
    return Gold.from_frame(table, duplicates=duplicates, lines=lines, source=file.source)


def _spans(table: pl.DataFrame, lines: pl.Series, file: Input) -> pl.DataFrame:
    bounds = table.select(pl.col("start", "end").cast(pl.Int64, strict=False))
    begun = table.select(pl.col("start", "end").is_not_null())
    fine = (begun["start"] == begun["end"]) & (
        ~begun["start"] | (bounds["start"] < bounds["end"]).fill_null(value=False)
    )
    if not fine.all():
        row = int((~fine).arg_true()[0])
        start, end = table["start"][row], table["end"][row]
        raise InputError(
            f"start is {start!r} and end {end!r}; whole numbers with start < end are expected",
            where=file.name,
            line=int(lines[row]),
        )
    return table.with_columns(bounds["start"], bounds["end"])


def queries_from(table: pl.DataFrame, file: Input) -> Queries:
    """Queries from named columns."""
    refuse_empty(table, "queries", file)
    return Queries.from_frame(table, source=file.source)


def corpus_from(table: pl.DataFrame, file: Input) -> Corpus:
    """A corpus from named columns."""
    refuse_empty(table, "items", file)
    return Corpus.from_frame(table, source=file.source)


def run_from(
    batches: Iterator[tuple[pl.DataFrame, pl.Series]], file: Input, strict: bool
) -> Iterator[pl.DataFrame]:
    """Checked hits from batches of named columns and their lines."""
    empty = True
    for table, lines in batches:
        if table.height:
            empty = False
            hits = Run.from_frame(table, lines=lines, source=file.source).hits
            if hits.schema.get("similarity") == pl.String:
                hits = finite(hits, "similarity", "a finite number is expected", file.source, lines)
            yield hits.with_columns(lines.alias("line")) if strict else hits
    if empty:
        raise InputError("holds no hits; at least one row is expected", where=file.name)


def refuse_empty(table: pl.DataFrame, what: str, file: Input) -> None:
    if not table.height:
        raise InputError(f"holds no {what}; at least one row is expected", where=file.name)


def hits_to_write(run: Run) -> pl.DataFrame:
    """A run's hits, with scores that rank them as the run does, since readers go by score."""
    return scored(run) if "score" in run.hits.columns else run.hits


def typed(table: pl.DataFrame) -> pl.DataFrame:
    """Text columns as what they spell, if spelling it again gives the same text."""
    columns = []
    for column in table:
        free = column.dtype == pl.String and column.name not in _TEXTUAL
        columns.append(_typed(column) if free else column)
    return pl.DataFrame(columns)


def _typed(column: pl.Series) -> pl.Series:
    filled = column.drop_nulls()
    if not len(filled):
        return column
    if filled.str.to_lowercase().is_in(["true", "false"]).all():
        return column.str.to_lowercase() == "true"
    if filled.str.contains(r"^-?[0-9]{1,18}$").all():
        numbers = column.cast(pl.Int64, strict=False)
        return numbers if _same(numbers, column) else column
    if filled.str.contains(r"^-?[0-9.]+(?:e[+-]?[0-9]+)?$").all():
        floats = column.cast(pl.Float64, strict=False)
        return floats if _same(floats, column) else column
    if (filled.str.starts_with("[") & filled.str.ends_with("]")).all():
        return _lists(column)
    return column


def _same(values: pl.Series, column: pl.Series) -> bool:
    return bool(values.cast(pl.String).eq_missing(column).all())


def _lists(column: pl.Series) -> pl.Series:
    try:
        lists = [None if text is None else json.loads(text) for text in column]
    except ValueError:
        return column
    flat = all(v is None or all(isinstance(item, str) for item in v) for v in lists)
    return pl.Series(column.name, lists, dtype=pl.List(pl.String)) if flat else column


def spelled(table: pl.DataFrame) -> pl.DataFrame:
    """Lists as JSON text, for formats whose cells hold text only."""
    columns = []
    for column in table:
        if isinstance(column.dtype, pl.List):
            texts = [
                None if v is None else json.dumps(v.to_list(), ensure_ascii=False) for v in column
            ]
            column = pl.Series(column.name, texts, dtype=pl.String)
        columns.append(column)
    return pl.DataFrame(columns)
