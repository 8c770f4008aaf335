"""Tables with named columns: CSV, TSV with a header, and Parquet.

Column names of other tools are accepted. CSV has no types, so numbers, truth values and lists are
restored if nothing is lost by it; ids, dates and versions always stay text. ``separator`` is None
for Parquet.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from karat.data.columns import (
    GOLD_NAMES,
    ITEM_NAMES,
    QUERY_NAMES,
    TEXT_NAMES,
    Duplicates,
    check_numbers,
    split_spans,
    with_ids,
)
from karat.data.tables import Corpus, Gold, Order, Queries, Run, with_scores
from karat.errors import InputError
from karat.formats.blocks import StreamedRun, memory_budget
from karat.formats.evalset import JudgedQuery, gold_of, no_gold_error, parse_relevant
from karat.formats.field_mapping import explaining
from karat.formats.files import (
    BYTE_ORDER_MARK,
    MAX_LINE,
    MAX_UNPACKED,
    PACKED,
    PARQUET,
    Input,
    check_columns,
    decode,
    unreadable,
    write_frame,
    write_parquet,
)
from karat.formats.json_records import JsonRecord, parse_json, preview, text_id
from karat.formats.registry import Head, Kind

# Columns that stay text, even if all their values look like numbers.
_TEXTUAL = frozenset(
    (*QUERY_NAMES, *ITEM_NAMES, *TEXT_NAMES, "as_of", "version", "source", "group", "stage")
) | {"title", "rewritten", "doc_version"}
# Separators between several ids in one cell; an id that contains one is written as a JSON list.
_SEPARATOR, _BLANK = re.compile(r"[;|,\n]"), re.compile(r"\s")
# The memory of a hit (two short ids and two numbers), and the rows that writers pack together.
_ROW_BYTES, _GROUP_ROWS = 50, 1 << 20
_BATCH_ROWS = 250_000
# The least memory of a value: a number, or the position of a text.
_VALUE_BYTES = 8
# Polars panics, instead of raising, on some damage to the pages of a Parquet file.
_DAMAGE = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException)

Batch = tuple[pl.DataFrame, pl.Series]
"""Rows and their lines; the lines of Parquet are the numbers of its rows."""


def sniff(head: Head, kind: Kind, *, separator: str | None = None) -> bool:
    """Return True for Parquet, and for a header with the columns of this kind."""
    return separator is None or head.has_columns(kind, separator)


def read_gold(
    file: Input, *, duplicates: Duplicates = "agree", separator: str | None = None
) -> Gold:
    """Read gold from columns such as query_id, item_id, grade, negative, start, end."""
    table, lines = read_table(file, separator, "judgments")
    return gold_of_table(table, lines, file, duplicates)


def read_queries(file: Input, *, separator: str | None = None) -> Queries:
    """Read queries from columns such as query_id, text and attributes."""
    table, _ = read_table(file, separator, "queries")
    gold = _gold_column(table.columns)
    if gold is not None:
        table = _with_query_ids(table).drop(gold)
    return Queries.from_frame(table, source=file.source)


def read_corpus(file: Input, *, separator: str | None = None) -> Corpus:
    """Read a corpus from columns such as item_id, doc_id, text and attributes."""
    table, _ = read_table(file, separator, "items")
    return Corpus.from_frame(table, source=file.source)


def read_run(
    file: Input, *, name: str, strict: bool = False, separator: str | None = None
) -> StreamedRun:
    """Open a run with columns such as query_id, item_id, score, rank, to read block by block."""

    def batches() -> Iterator[pl.DataFrame]:
        return hits_of_batches(_batches(file, separator), file, strict)

    names = _column_names(file, separator)
    order: Order = "score" if "score" in names else "rank"
    staged = "stage" in names
    return StreamedRun(name, file.source, batches, order=order, strict=strict, staged=staged)


def holds_queries(file: Input, *, separator: str | None = None) -> bool:
    """Return True if each row is a query with its text and its gold."""
    names = _column_names(file, separator)
    return _gold_column(names) is not None and any(name in names for name in TEXT_NAMES)


def _column_names(file: Input, separator: str | None) -> list[str]:
    """Return the column names, mapped ones under karat's names."""
    if separator is None:
        return _renamed(scan_parquet(file).head(0).collect(), file).columns
    header = file.head.split(b"\n", 1)[0].decode("utf-8", "replace")
    names = [name.strip('"\r') for name in header.split(separator)]
    return names if file.mapping is None else file.mapping.keys(names)


def _renamed(table: pl.DataFrame, file: Input) -> pl.DataFrame:
    return table if file.mapping is None else file.mapping.frame(table)


def read_table(file: Input, separator: str | None, what: str) -> Batch:
    """Return all rows, under karat's names where mapped, and their lines; ``what`` is for messages.

    Raises InputError if there are no rows.
    """
    batches = list(_batches(file, separator))
    if not any(table.height for table, _ in batches):
        raise InputError(f"holds no {what}; at least one row is expected", where=file.name)
    table = pl.concat(table for table, _ in batches)
    if separator is not None:
        columns = [
            _infer_type(column) if column.name not in _TEXTUAL else column for column in table
        ]
        table = pl.DataFrame(columns)
        if table.to_series(-1).null_count():
            _refuse_uneven(file, separator)
    return table, pl.concat(lines for _, lines in batches)


def _batches(file: Input, separator: str | None) -> Iterator[Batch]:
    """Yield rows under karat's names."""
    batches = _parquet_batches(file) if separator is None else _csv_batches(file, separator)
    for table, lines in batches:
        yield _renamed(table, file), lines


def _csv_batches(file: Input, separator: str) -> Iterator[Batch]:
    """Yield rows as text, with the lines on which they start."""
    line, names = 2, dict[str, pl.DataType]()
    try:
        for piece in _whole_rows(file):
            if not names:
                # Polars would take minutes for a table of too many columns.
                check_columns(piece.split(b"\n", 1)[0].count(separator.encode()) + 1, 1, file.name)
            elif piece.startswith(BYTE_ORDER_MARK):
                # It is part of a value here, and Polars drops the first one.
                piece = BYTE_ORDER_MARK + piece
            elif not piece.strip(b"\r\n"):
                # Polars sees no columns at all in blank lines.
                line += piece.count(b"\n")
                continue
            batch = pl.read_csv(
                piece,
                separator=separator,
                has_header=not names,
                schema=names or None,
                infer_schema=False,
            )
            names = dict(batch.schema)
            # Quoted fields may hold line ends.
            ends = pl.sum_horizontal(pl.all().str.count_matches("\n", literal=True).fill_null(0))
            heights = batch.select((ends + 1).cast(pl.Int64)).to_series()
            lines = (heights.cum_sum() - heights + line).alias("line")
            line += int(heights.sum())
            blank = batch.select(pl.all_horizontal(pl.all().is_null())).to_series()
            yield batch.filter(~blank), lines.filter(~blank)
    except (OSError, pl.exceptions.PolarsError) as error:
        _refuse_uneven(file, separator)
        raise unreadable(file.name, error) from None


def _whole_rows(file: Input) -> Iterator[bytes]:
    """Yield chunks that split no quoted field; a quote that is never closed takes the rest."""
    waiting: list[bytes] = []
    quotes, size = 0, 0
    for chunk in file.chunks():
        waiting.append(chunk)
        quotes += chunk.count(b'"')
        if quotes % 2 == 0:
            yield b"".join(waiting)
            waiting, size = [], 0
        # What waits ends inside of a quoted field, which is part of one row.
        elif size > MAX_LINE.bytes():
            raise MAX_LINE.error(file.name)
        size += len(chunk)
    if waiting:
        yield b"".join(waiting)


def _refuse_uneven(file: Input, separator: str) -> None:
    """Raise InputError for the first row with another number of fields than the header."""
    quotes = 0

    def lines() -> Iterator[str]:
        nonlocal quotes
        for text in _text_lines(file):
            quotes += text.count('"')
            yield text

    reader = csv.reader(lines(), delimiter=separator)
    start, old_limit = 1, csv.field_size_limit(MAX_LINE.bytes())
    problem = None
    try:
        header = next(reader, [])
        for row in reader:
            if row and len(row) != len(header):
                fields = "1 field" if len(row) == 1 else f"{len(row)} fields"
                problem = f"{fields}; expected {len(header)} as in the header"
                break
            if quotes % 2:
                problem = 'a lone quote in a field; double it and quote the field: "5"" pipe"'
                break
            start = reader.line_num
    except csv.Error as error:
        problem = f"not valid CSV: {error}; check the quotes"
    finally:
        csv.field_size_limit(old_limit)
    if problem is not None:
        raise InputError(problem, where=file.name, line=start + 1)


def _text_lines(file: Input) -> Iterator[str]:
    line = 1
    for chunk in file.chunks():
        yield from io.StringIO(decode(chunk, file, first_line=line), newline="")
        line += chunk.count(b"\n")


def scan_parquet(file: Input) -> pl.LazyFrame:
    """Open a Parquet file; refuse one that claims more values than a file of its size can hold."""
    with file.open() as stream:
        start = stream.read(len(PARQUET))
    if start.startswith(PACKED):
        raise InputError(
            "is packed around Parquet, which packs its columns by itself; unpack it first",
            where=file.name,
        )
    source = file.path if file.data is None else io.BytesIO(file.data)
    try:
        scan = pl.scan_parquet(source or "", glob=False)
        columns = len(scan.collect_schema())
        rows = scan.select(pl.len()).collect().item()
    except _DAMAGE as error:
        raise _damaged(file, error) from None
    check_columns(columns, 1, file.name)
    if _VALUE_BYTES * rows * columns > MAX_UNPACKED.bytes(packed := _size_of(file)):
        raise MAX_UNPACKED.error(file.name, packed=packed)
    return scan


def _size_of(file: Input) -> int:
    return file.path.stat().st_size if file.path else len(file.data or b"")


def _damaged(file: Input, error: BaseException) -> InputError:
    if isinstance(error, OSError) and not isinstance(error, pl.exceptions.PolarsError):
        return unreadable(file.name, error)
    return InputError("the Parquet file is damaged; copy or write it again", where=file.name)


def _parquet_batches(file: Input) -> Iterator[Batch]:
    """Yield rows with their numbers; refuse a file that unpacks to more than its size allows."""
    scan, packed, size, row = scan_parquet(file), _size_of(file), 0, 1
    # Polars unpacks this many rows ahead, which is fast but takes memory.
    ahead = 2 * pl.thread_pool_size() * _GROUP_ROWS * _ROW_BYTES
    try:
        if ahead > 2 * (budget := memory_budget()).table:
            rows = max(budget.block_rows, min(_GROUP_ROWS, budget.table // _ROW_BYTES))
            starts = range(0, scan.select(pl.len()).collect().item(), rows)
            batches: Iterable[pl.DataFrame] = (scan.slice(at, rows).collect() for at in starts)
        else:
            batches = scan.collect_batches(chunk_size=_BATCH_ROWS, maintain_order=True)
        for batch in batches:
            size += int(batch.estimated_size())
            if size > MAX_UNPACKED.bytes(packed):
                raise MAX_UNPACKED.error(file.name, packed=packed)
            yield batch, pl.int_range(row, row + batch.height, eager=True)
            row += batch.height
    except _DAMAGE as error:
        raise _damaged(file, error) from None


def hits_of_batches(batches: Iterable[Batch], file: Input, strict: bool) -> Iterator[pl.DataFrame]:
    """Yield checked hits, with their lines if ``strict``."""
    for table, lines in batches:
        if table.height:
            with explaining(file.mapping):
                hits = Run.from_frame(table, lines=lines, source=file.source).hits
            if hits.schema.get("similarity") == pl.String:
                hits = check_numbers(
                    hits, "similarity", "a finite number is expected", file.source, lines
                )
            yield hits.with_columns(lines.alias("line")) if strict else hits


def gold_of_table(
    table: pl.DataFrame, lines: pl.Series, file: Input, duplicates: Duplicates
) -> Gold:
    """Return gold from named columns; rows with ``start`` and ``end`` are spans."""
    if _gold_column(table.columns) is not None:
        return _gold_of_queries(table, lines, file, duplicates)
    query = next((name for name in QUERY_NAMES if name in table.columns), None)
    items = [name for name in ITEM_NAMES if name in table.columns and name != query]
    if not items and any(name in table.columns for name in TEXT_NAMES):
        remaining = table.head(100).select(pl.exclude(*QUERY_NAMES, *TEXT_NAMES))
        raise no_gold_error(remaining.to_dicts(), file.name)
    bounds = [name for name in ("start", "end") if name in table.columns]
    if len(bounds) == 1:
        raise InputError(
            f"has a column {bounds[0]} alone; a span has a start and an end", where=file.name
        )
    if bounds:
        table = _checked_spans(table, lines, file)
    elif query and items:
        table = split_spans(table.rename({items[0]: "item_id"}))
    return Gold.from_frame(table, duplicates=duplicates, lines=lines, source=file.source)


def _checked_spans(table: pl.DataFrame, lines: pl.Series, file: Input) -> pl.DataFrame:
    raw_start, raw_end = table["start"], table["end"]
    start, end = (raw.cast(pl.Int64, strict=False) for raw in (raw_start, raw_end))
    absent = raw_start.is_null() & raw_end.is_null()
    wrong = ~(absent | (start < end).fill_null(value=False))
    if wrong.any():
        row = int(wrong.arg_true()[0])
        raise InputError(
            f"start is {raw_start[row]!r} and end {raw_end[row]!r}; whole numbers with "
            "start < end are expected",
            where=file.name,
            line=int(lines[row]),
        )
    return table.with_columns(start, end)


def _gold_column(names: Collection[str]) -> str | None:
    """Return the column that lists the relevant items of a row's query, or None."""
    return next((name for name in GOLD_NAMES if name in names), None)


def _gold_of_queries(
    table: pl.DataFrame, lines: pl.Series, file: Input, duplicates: Duplicates
) -> Gold:
    """Return gold from a table with one row per query and its relevant items in one cell."""
    table = _with_query_ids(table)
    column = _gold_column(table.columns) or ""
    shown = column if file.mapping is None else file.mapping.column_of(column)
    table = with_ids(table, ("query_id",), file.source, lines)
    queries = []
    for row, line in zip(table.iter_rows(named=True), lines, strict=True):
        record = JsonRecord(line, row, file.name)
        relevant = parse_relevant(_parse_cell(row[column], shown, record), column, 1.0, record)
        attributes = {"no_answer": row.get("no_answer")}
        queries.append(JudgedQuery(line, row["query_id"], "", relevant, attributes))
    return gold_of(queries, file, duplicates)


def _parse_cell(cell: Any, column: str, record: JsonRecord) -> Any:
    """Return the content of a gold cell, JSON or one id; refuse a list in any other form.

    >>> record = JsonRecord(2, {}, "gold.csv")
    >>> _parse_cell('["c0","c12"]', "gold", record), _parse_cell("c0", "gold", record)
    (['c0', 'c12'], 'c0')
    """
    if not isinstance(cell, str):
        return cell
    text = cell.strip()
    if text[:1] in ("[", "{"):
        with suppress(InputError):
            return parse_json(text, record.where, record.line)
    filled = [part.strip() for part in _SEPARATOR.split(text) if part.strip()]
    looks_like_ids = len(filled) > 1 and not any(_BLANK.search(part) for part in filled)
    if looks_like_ids or (text[:1] == "[" and text[-1:] == "]"):
        raise record.error(
            f"{column} is {preview(cell)}, which looks like several ids; write a list as JSON, "
            'such as ["c0", "c12"], or one row per relevant item'
        )
    return cell


def _with_query_ids(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table of queries with ids; a query without one gets a hash of its text."""
    text = next((name for name in TEXT_NAMES if name in table.columns), None)
    if text is None or any(name in table.columns for name in QUERY_NAMES):
        return table
    ids = [text_id(str(value or "")) for value in table[text].to_list()]
    return table.with_columns(pl.Series("query_id", ids, dtype=pl.String))


def _infer_type(column: pl.Series) -> pl.Series:
    """Return text as the type of its values, if that loses nothing."""
    filled = column.drop_nulls()
    if not len(filled) or column.dtype != pl.String:
        return column
    if filled.str.to_lowercase().is_in(["true", "false"]).all():
        return column.str.to_lowercase() == "true"
    if (filled.str.starts_with("[") & filled.str.ends_with("]")).all():
        return _parse_lists(column)
    for pattern, kind in (
        (r"^-?[0-9]{1,18}$", pl.Int64),
        (r"^-?[0-9.]+(?:e[+-]?[0-9]+)?$", pl.Float64),
    ):
        if filled.str.contains(pattern).all():
            numbers = column.cast(kind, strict=False)
            return numbers if numbers.cast(pl.String).eq_missing(column).all() else column
    return column


def _parse_lists(column: pl.Series) -> pl.Series:
    try:
        lists = [None if text is None else json.loads(text) for text in column]
    except ValueError:
        return column
    flat = all(v is None or all(isinstance(item, str) for item in v) for v in lists)
    return pl.Series(column.name, lists, dtype=pl.List(pl.String)) if flat else column


def write_table(
    table: Gold | Queries | Corpus, path: str | Path, *, separator: str | None = None
) -> None:
    """Write every column of a table."""
    _write(table.frame, path, separator)


write_gold = write_queries = write_corpus = write_table


def write_run(run: Run, path: str | Path, *, separator: str | None = None) -> None:
    """Write every column of the hits, with scores that rank them as the run does."""
    _write(with_scores(run) if "score" in run.hits.columns else run.hits, path, separator)


def _write(table: pl.DataFrame, path: str | Path, separator: str | None) -> None:
    if separator is None:
        write_parquet(table, path)
        return
    for name, kind in table.schema.items():
        if isinstance(kind, pl.List):
            lists = table[name].to_list()
            texts = [None if v is None else json.dumps(v, ensure_ascii=False) for v in lists]
            table = table.with_columns(pl.Series(name, texts, dtype=pl.String))
    write_frame(table, path, separator=separator)
