"""Comma-separated values with named columns; ``tsv-with-header`` is the same with tabs.

Column names of other tools are accepted.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from karat.data.columns import Duplicates
from karat.data.tables import Corpus, Gold, Order, Queries, Run
from karat.errors import InputError
from karat.formats.blocks import StreamedRun
from karat.formats.files import CHUNK_BYTES, Input, decode, unreadable, write_frame
from karat.formats.limits import MAX_LINE, check_columns, is_tight, line_too_long
from karat.formats.named_columns import (
    corpus_from,
    gold_from,
    hits_to_write,
    infer_types,
    lists_as_json,
    queries_from,
    run_from,
)

_BATCH_ROWS = 250_000


def read_gold(file: Input, *, duplicates: Duplicates = "agree", separator: str = ",") -> Gold:
    """Read gold from columns such as query_id, item_id, grade, negative, start, end."""
    table, lines = _table(file, separator)
    return gold_from(table, lines, file, duplicates)


def read_queries(file: Input, *, separator: str = ",") -> Queries:
    """Read queries from columns such as query_id, text and attributes."""
    return queries_from(_table(file, separator)[0], file)


def read_corpus(file: Input, *, separator: str = ",") -> Corpus:
    """Read a corpus from columns such as item_id, doc_id, text and attributes."""
    return corpus_from(_table(file, separator)[0], file)


def read_run(file: Input, *, name: str, strict: bool = False, separator: str = ",") -> Run:
    """Read a run into memory."""
    return scan_run(file, name=name, strict=strict, separator=separator).read()


def scan_run(file: Input, *, name: str, strict: bool = False, separator: str = ",") -> StreamedRun:
    """Open a run with columns such as query_id, item_id, score, rank, to read block by block."""

    def batches() -> Iterator[pl.DataFrame]:
        return run_from(_batches(file, separator), file, strict)

    names = column_names(file, separator=separator)
    order: Order = "score" if "score" in names else "rank"
    staged = "stage" in names
    return StreamedRun(name, file.source, batches, order=order, strict=strict, staged=staged)


def column_names(file: Input, *, separator: str = ",") -> list[str]:
    """Return the column names of the header, mapped ones under karat's names."""
    header = file.head().split(b"\n", 1)[0].decode("utf-8", "replace")
    names = [name.strip('"\r') for name in header.split(separator)]
    return file.rename_keys(names)


def _table(file: Input, separator: str) -> tuple[pl.DataFrame, pl.Series]:
    parts = list(_batches(file, separator))
    if not parts:
        raise InputError("holds a header only; at least one row is expected", where=file.name)
    table = infer_types(pl.concat(table for table, _ in parts))
    if table.to_series(-1).null_count():
        _refuse_uneven(file, separator)
    return table, pl.concat(lines for _, lines in parts)


def _batches(file: Input, separator: str) -> Iterator[tuple[pl.DataFrame, pl.Series]]:
    """Yield rows as text, with the lines on which they start."""
    line = 2
    _check_header(file, separator)
    # Polars reads ahead without a limit, which is fast but takes memory.
    parse = _parse_chunks if file.packing or is_tight() else _parse_file
    try:
        for batch in parse(file, separator):
            lines, line = _lines(batch, line)
            blank = pl.all_horizontal(pl.all().is_null())
            keep = ~batch.select(blank).to_series()
            if not keep.all():
                batch, lines = batch.filter(keep), lines.filter(keep)
            yield file.rename_columns(batch), lines
    except (OSError, pl.exceptions.PolarsError) as error:
        _refuse_uneven(file, separator)
        raise unreadable(file.name, error) from None


def _parse_file(file: Input, separator: str) -> Iterator[pl.DataFrame]:
    """Parse a file with Polars' own reader."""
    file.check_lines()
    scan = pl.scan_csv(file.scannable(), separator=separator, infer_schema=False, glob=False)
    return scan.collect_batches(chunk_size=_BATCH_ROWS, maintain_order=True)


def _parse_chunks(file: Input, separator: str) -> Iterator[pl.DataFrame]:
    """Parse a file in chunks of whole rows; Polars would unpack a packed one without limit."""
    names: list[str] = []
    for piece in _whole_rows(file):
        options = {"schema": dict.fromkeys(names, pl.String)} if names else {"infer_schema": False}
        table = pl.scan_csv(piece, separator=separator, has_header=not names, **options).collect()
        names = table.columns
        yield table


def _whole_rows(file: Input) -> Iterator[bytes]:
    """Yield chunks that split no quoted field; a quote that is never closed takes the rest."""
    waiting: list[bytes] = []
    quotes, size = 0, 0
    for chunk in file.chunks():
        waiting.append(chunk)
        quotes += chunk.count(b'"')
        size += len(chunk)
        if quotes % 2 == 0:
            yield b"".join(waiting)
            waiting, size = [], 0
        elif size > max(MAX_LINE.bytes(), 2 * CHUNK_BYTES):
            raise line_too_long(file.name, None, MAX_LINE.bytes())
    if waiting:
        yield b"".join(waiting)


def _check_header(file: Input, separator: str) -> None:
    """Refuse too many columns; Polars would take minutes for each batch."""
    first = file.head()
    if b"\n" not in first:
        first = next(file.chunks(), b"")
    header, _, _ = first.partition(b"\n")
    check_columns(header.count(separator.encode()) + 1, 1, file.name)


def _lines(batch: pl.DataFrame, line: int) -> tuple[pl.Series, int]:
    """Return the line of each row, and that of the next; quoted fields may hold line ends."""
    ends = pl.sum_horizontal(pl.all().str.count_matches("\n", literal=True).fill_null(0))
    height = batch.select((ends + 1).cast(pl.Int64)).to_series()
    next_line = height.cum_sum() + line
    return (next_line - height).alias("line"), int(next_line[-1]) if len(next_line) else line


def _refuse_uneven(file: Input, separator: str) -> None:
    """Raise InputError for the first row with another number of fields than the header."""
    reader = csv.reader(_text_lines(file), delimiter=separator)
    start = 1
    old_limit = csv.field_size_limit(MAX_LINE.bytes())
    try:
        header = next(reader, [])
        start = reader.line_num + 1
        for row in reader:
            if row and len(row) != len(header):
                raise InputError(
                    f"{len(row)} fields; expected {len(header)} as in the header",
                    where=file.name,
                    line=start,
                )
            start = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"not valid CSV: {error}; check the quotes", where=file.name, line=start
        ) from None
    finally:
        csv.field_size_limit(old_limit)


def _text_lines(file: Input) -> Iterator[str]:
    line = 1
    for chunk in file.chunks():
        text = decode(chunk, file, first_line=line)
        line += chunk.count(b"\n")
        yield from io.StringIO(text, newline="")


def write_table(table: Gold | Queries | Corpus, path: str | Path, *, separator: str = ",") -> None:
    """Write every column of a table; lists are written as JSON."""
    write_frame(lists_as_json(table.frame), path, separator=separator)


write_gold = write_queries = write_corpus = write_table


def write_run(run: Run, path: str | Path, *, separator: str = ",") -> None:
    """Write every column of the hits."""
    write_frame(lists_as_json(hits_to_write(run)), path, separator=separator)
