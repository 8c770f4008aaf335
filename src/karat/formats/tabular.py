"""Named columns on their way in and out of CSV, TSV and Parquet.

CSV has no types, so numbers, truth values and lists are restored where nothing is lost
by it; ids, dates and versions always stay text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from contextlib import nullcontext, suppress
from typing import Any

import polars as pl

from karat.columns import (
    GOLD_NAMES,
    ITEM_NAMES,
    QUERY_NAMES,
    TEXT_NAMES,
    Duplicates,
    finite,
    first_of,
    ids_as_text,
)
from karat.errors import InputError
from karat.formats.files import Input
from karat.formats.missing_gold import no_gold
from karat.formats.ranking import scored
from karat.formats.records import parse, shown, text_id
from karat.formats.sets import Case, gold_of, relevant
from karat.formats.spans import split_spans
from karat.tables import Corpus, Gold, Queries, Run

_TEXTUAL = frozenset(
    (*QUERY_NAMES, *ITEM_NAMES, *TEXT_NAMES, "as_of", "version", "source", "group", "stage")
) | {"title", "rewritten", "doc_version"}

# How people write several ids in one cell; an id with such a sign is a JSON list of one.
_BETWEEN_IDS, _BLANK = re.compile(r"[;|,\n]"), re.compile(r"\s")


def gold_from(table: pl.DataFrame, lines: pl.Series, file: Input, duplicates: Duplicates) -> Gold:
    """Gold from named columns; ``start`` and ``end`` make spans of its rows."""
    refuse_empty(table, "judgments", file)
    if gold_column(table.columns) is not None:
        return _gold_of_queries(table, lines, file, duplicates)
    query = next((name for name in QUERY_NAMES if name in table.columns), None)
    if not any(name in table.columns and name != query for name in ITEM_NAMES) and _asks(table):
        own = (*QUERY_NAMES, *TEXT_NAMES)
        rest = table.head(100).select(pl.exclude(own))
        raise no_gold({column.name: column.to_list() for column in rest}, file.name)
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


def gold_column(names: Collection[str]) -> str | None:
    """The column that lists the relevant items of a row's query, where there is one."""
    return next((name for name in GOLD_NAMES if name in names), None)


def holds_queries(names: Collection[str]) -> bool:
    """Whether each row is a query with its text and its gold."""
    return gold_column(names) is not None and any(name in names for name in TEXT_NAMES)


def _asks(table: pl.DataFrame) -> bool:
    return any(name in table.columns for name in TEXT_NAMES)


def _gold_of_queries(
    table: pl.DataFrame, lines: pl.Series, file: Input, duplicates: Duplicates
) -> Gold:
    """Gold from a table with one row a query, whose relevant items are a list in one cell."""
    table = _identified(table)
    column = gold_column(table.columns) or ""
    query = first_of(table, QUERY_NAMES, "query id", file.source)
    ids = ids_as_text(table, (query,), file.source, lines)[query].to_list()
    marked = table["no_answer"].to_list() if "no_answer" in table.columns else [None] * len(ids)
    places = lines.to_list()
    cells = table[column].to_list()
    own = column if file.renamed is None else file.renamed.own(column)
    told = [_listed(cell, own, file.name, at) for cell, at in zip(cells, places, strict=True)]
    cases = [
        Case(place, name, "", relevant(value, column, 1.0, file.name, place), {"no_answer": answer})
        for place, name, value, answer in zip(places, ids, told, marked, strict=True)
    ]
    return gold_of(cases, file, duplicates)


def _listed(cell: Any, column: str, where: str, line: int) -> Any:
    """What a cell of gold holds: JSON, or one id; a list in any other form is refused.

    >>> _listed('["c0","c12"]', "relevant_ids", "gold.csv", 2), _listed("c0", "gold", "gold.csv", 2)
    (['c0', 'c12'], 'c0')
    """
    if not isinstance(cell, str):
        return cell
    text = cell.strip()
    if text[:1] in ("[", "{"):
        with suppress(InputError):
            return parse(text, where, line)
    parts = [part.strip() for part in _BETWEEN_IDS.split(text)]
    filled = [part for part in parts if part]
    several = len(filled) > 1 and not any(_BLANK.search(part) for part in filled)
    if several or (text[:1] == "[" and text[-1:] == "]"):
        raise InputError(
            f"{column} is {shown(cell)}, which looks like several ids; write a list as JSON, such "
            'as ["c0", "c12"], or one row per relevant item',
            where=where,
            line=line,
        )
    return cell


def _identified(table: pl.DataFrame) -> pl.DataFrame:
    """A table of queries that have ids; those without are known by their texts."""
    text = next((name for name in TEXT_NAMES if name in table.columns), None)
    if text is None or any(name in table.columns for name in QUERY_NAMES):
        return table
    ids = [text_id(str(one or "")) for one in table[text].to_list()]
    return table.with_columns(pl.Series("query_id", ids, dtype=pl.String))


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
    gold = gold_column(table.columns)
    if gold is not None:
        table = _identified(table).drop(gold)
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
            with nullcontext() if file.renamed is None else file.renamed.explaining():
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
