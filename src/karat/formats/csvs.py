"""Comma-separated values with named columns; other tools' names for them are understood.

``tsvs`` is the same with tabs.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from karat.columns import Duplicates
from karat.errors import InputError
from karat.formats.blocks import Streamed
from karat.formats.files import CHUNK_BYTES, Input, decode, unreadable, write_frame
from karat.formats.limits import LINE, check_columns, too_long_a_line
from karat.formats.room import is_tight
from karat.formats.tabular import (
    corpus_from,
    gold_from,
    hits_to_write,
    queries_from,
    run_from,
    spelled,
    typed,
)
from karat.tables import Corpus, Gold, Order, Queries, Run

_BATCH_ROWS = 250_000


def read_gold(file: Input, *, duplicates: Duplicates = "agree", separator: str = ",") -> Gold:
    """Gold from columns such as query_id, item_id, grade, negative, start, end."""
    table, lines = _table(file, separator)
    return gold_from(table, lines, file, duplicates)


def read_queries(file: Input, *, separator: str = ",") -> Queries:
    """Queries from columns such as query_id, text and attributes."""
    return queries_from(_table(file, separator)[0], file)


def read_corpus(file: Input, *, separator: str = ",") -> Corpus:
    """A corpus from columns such as item_id, doc_id, text and attributes."""
    return corpus_from(_table(file, separator)[0], file)


def scan_run(file: Input, *, name: str, strict: bool = False, separator: str = ",") -> Streamed:
    """A run from columns such as query_id, item_id, score, rank, block by block."""

    def batches() -> Iterator[pl.DataFrame]:
        return run_from(_batches(file, separator), file, strict)

    names = column_names(file, separator=separator)
    order: Order = "score" if "score" in names else "rank"
    staged = "stage" in names
    return Streamed(name, file.source, batches, order=order, strict=strict, staged=staged)


def column_names(file: Input, *, separator: str = ",") -> list[str]:
    """What the header calls the columns, under our names where the user mapped them."""
    header = file.head().split(b"\n", 1)[0].decode("utf-8", "replace")
    names = [name.strip('"\r') for name in header.split(separator)]
    return names if file.renamed is None else file.renamed.keys(names)


def read_run(file: Input, *, name: str, strict: bool = False, separator: str = ",") -> Run:
    """A run in memory."""
    return scan_run(file, name=name, strict=strict, separator=separator).read()


def write_gold(gold: Gold, path: str | Path, *, separator: str = ",") -> None:
    """Every column of the judgments."""
    write_frame(gold.frame, path, separator=separator)


def write_queries(queries: Queries, path: str | Path, *, separator: str = ",") -> None:
    """Every column of the queries; lists are written as JSON."""
    write_frame(spelled(queries.frame), path, separator=separator)


def write_corpus(corpus: Corpus, path: str | Path, *, separator: str = ",") -> None:
    """Every column of the corpus; lists are written as JSON."""
    write_frame(spelled(corpus.frame), path, separator=separator)


def write_run(run: Run, path: str | Path, *, separator: str = ",") -> None:
    """Every column of the hits."""
    write_frame(spelled(hits_to_write(run)), path, separator=separator)


def _table(file: Input, separator: str) -> tuple[pl.DataFrame, pl.Series]:
    parts = list(_batches(file, separator))
    if not parts:
        raise InputError("holds a header only; at least one row is expected", where=file.name)
    table = typed(pl.concat(table for table, _ in parts))
    if table.to_series(-1).null_count():
        _refuse_uneven(file, separator)
    return table, pl.concat(lines for _, lines in parts)


def _batches(file: Input, separator: str) -> Iterator[tuple[pl.DataFrame, pl.Series]]:
    """Rows as text with the lines that they begin on."""
    line = 2
    _check_header(file, separator)
    # Polars reads ahead as it likes, which is fast and takes its room.
    parse = _unpacked if file.packing or is_tight() else _plain
    try:
        for batch in parse(file, separator):
            lines, line = _lines(batch, line)
            blank = pl.all_horizontal(pl.all().is_null())
            keep = ~batch.select(blank).to_series()
            if not keep.all():
                batch, lines = batch.filter(keep), lines.filter(keep)
            yield batch if file.renamed is None else file.renamed.frame(batch), lines
    except (OSError, pl.exceptions.PolarsError) as error:
        _refuse_uneven(file, separator)
        raise unreadable(file.name, error) from None


def _plain(file: Input, separator: str) -> Iterator[pl.DataFrame]:
    """A file that Polars may read where it lies."""
    file.check_lines()
    scan = pl.scan_csv(file.scannable(), separator=separator, infer_schema=False, glob=False)
    return scan.collect_batches(chunk_size=_BATCH_ROWS, maintain_order=True)


def _unpacked(file: Input, separator: str) -> Iterator[pl.DataFrame]:
    """A packed file in pieces of whole rows: Polars would unpack it without any limit."""
    names: list[str] = []
    for piece in _whole_rows(file):
        known = {"schema": dict.fromkeys(names, pl.String)} if names else {"infer_schema": False}
        table = pl.scan_csv(piece, separator=separator, has_header=not names, **known).collect()
        names = table.columns
        yield table


def _whole_rows(file: Input) -> Iterator[bytes]:
    """Chunks that no quoted field reaches out of; a quote that is never closed takes the rest."""
    waiting: list[bytes] = []
    quotes, size = 0, 0
    for chunk in file.chunks():
        waiting.append(chunk)
        quotes += chunk.count(b'"')
        size += len(chunk)
        if quotes % 2 == 0:
            yield b"".join(waiting)
            waiting, size = [], 0
        elif size > max(LINE.bytes(), 2 * CHUNK_BYTES):
            raise too_long_a_line(file.name, None, LINE.bytes())
    if waiting:
        yield b"".join(waiting)


def _check_header(file: Input, separator: str) -> None:
    """Refuse more columns than a table has; Polars would take minutes over each batch."""
    first = file.head()
    if b"\n" not in first:
        first = next(file.chunks(), b"")
    header, _, _ = first.partition(b"\n")
    check_columns(header.count(separator.encode()) + 1, 1, file.name)


def _lines(batch: pl.DataFrame, line: int) -> tuple[pl.Series, int]:
    """The line of each row, when quoted fields may hold line ends themselves."""
    ends = pl.sum_horizontal(pl.all().str.count_matches("\n", literal=True).fill_null(0))
    taken = batch.select((ends + 1).cast(pl.Int64)).to_series()
    after = taken.cum_sum() + line
    return (after - taken).alias("line"), int(after[-1]) if len(after) else line


def _refuse_uneven(file: Input, separator: str) -> None:
    """Name the first row that has not as many fields as the header."""
    reader = csv.reader(_text_lines(file), delimiter=separator)
    start = 1
    usual = csv.field_size_limit(LINE.bytes())
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
        csv.field_size_limit(usual)


def _text_lines(file: Input) -> Iterator[str]:
    line = 1
    for chunk in file.chunks():
        text = decode(chunk, file, first_line=line)
        line += chunk.count(b"\n")
        yield from io.StringIO(text, newline="")
