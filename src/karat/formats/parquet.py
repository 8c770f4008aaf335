"""Parquet with named columns; column names of other tools are accepted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from karat.data.columns import Duplicates
from karat.data.tables import Corpus, Gold, Order, Queries, Run
from karat.errors import InputError
from karat.formats.blocks import StreamedRun
from karat.formats.files import Input, unreadable, write_parquet
from karat.formats.limits import block_rows, is_tight, max_table_bytes
from karat.formats.named_columns import (
    corpus_from,
    gold_from,
    hits_to_write,
    queries_from,
    run_from,
)
from karat.formats.parquet_sizes import check_sizes, row_group_sizes

_BATCH_ROWS = 250_000
# The memory of a hit: two short ids and two numbers.
_ROW_BYTES = 50
# Polars panics, instead of raising, on some damage to a file's pages.
_DAMAGE = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException)


def read_gold(file: Input, *, duplicates: Duplicates = "agree") -> Gold:
    """Read gold from columns such as query_id, item_id, grade, negative, start, end."""
    table = _table(file)
    rows = pl.int_range(1, table.height + 1, eager=True)
    return gold_from(table, rows, file, duplicates)


def read_queries(file: Input) -> Queries:
    """Read queries from columns such as query_id, text and attributes."""
    return queries_from(_table(file), file)


def read_corpus(file: Input) -> Corpus:
    """Read a corpus from columns such as item_id, doc_id, text and attributes."""
    return corpus_from(_table(file), file)


def read_run(file: Input, *, name: str, strict: bool = False) -> Run:
    """Read a run into memory."""
    return scan_run(file, name=name, strict=strict).read()


def scan_run(file: Input, *, name: str, strict: bool = False) -> StreamedRun:
    """Open a run with columns such as query_id, item_id, score, rank, to read block by block."""
    names = column_names(file)

    def batches() -> Iterator[pl.DataFrame]:
        return run_from(_batches(file), file, strict)

    order: Order = "score" if "score" in names else "rank"
    staged = "stage" in names
    return StreamedRun(name, file.source, batches, order=order, strict=strict, staged=staged)


def column_names(file: Input) -> list[str]:
    """Return the column names, mapped ones under karat's names."""
    _check(file)
    try:
        scan = pl.scan_parquet(file.scannable(), glob=False)
        if file.mapping is None:
            return scan.collect_schema().names()
        return file.mapping.frame(scan.head(0).collect()).columns
    except _DAMAGE as error:
        raise unreadable(file.name, error) from None


def _check(file: Input) -> None:
    if file.packing is not None:
        raise InputError(
            "is packed around Parquet, which packs its columns by itself; unpack it first",
            where=file.name,
        )
    with file.open() as opened:
        check_sizes(opened, file.name)


def _table(file: Input) -> pl.DataFrame:
    _check(file)
    try:
        table = pl.read_parquet(file.scannable(), glob=False)
    except _DAMAGE as error:
        raise unreadable(file.name, error) from None
    return file.rename_columns(table)


def _batches(file: Input) -> Iterator[tuple[pl.DataFrame, pl.Series]]:
    """Yield rows with their numbers, which stand for lines in messages."""
    row = 1
    with file.open() as opened:
        groups = row_group_sizes(opened, file.name)
    scan = pl.scan_parquet(file.scannable(), glob=False)
    try:
        if _read_ahead_too_large(groups):
            batches = _slices(scan, groups)
        else:
            batches = scan.collect_batches(chunk_size=_BATCH_ROWS, maintain_order=True)
        for batch in batches:
            rows = pl.int_range(row, row + batch.height, eager=True)
            yield file.rename_columns(batch), rows
            row += batch.height
    except _DAMAGE as error:
        raise unreadable(file.name, error) from None


def _read_ahead_too_large(groups: list[int]) -> bool:
    """Return True if the row groups that Polars unpacks ahead would take too much memory."""
    ahead = 2 * pl.thread_pool_size() * max(groups, default=0)
    return is_tight() or ahead * _ROW_BYTES > 2 * max_table_bytes()


def _slices(scan: pl.LazyFrame, groups: list[int]) -> Iterator[pl.DataFrame]:
    """Yield one slice at a time without reading ahead; none crosses the end of a row group."""
    most = max(block_rows(), max_table_bytes() // _ROW_BYTES)
    start = 0
    for rows in groups:
        for skipped in range(0, rows, most):
            yield scan.slice(start + skipped, min(most, rows - skipped)).collect()
        start += rows


def write_table(table: Gold | Queries | Corpus, path: str | Path) -> None:
    """Write every column of a table."""
    write_parquet(table.frame, path)


write_gold = write_queries = write_corpus = write_table


def write_run(run: Run, path: str | Path) -> None:
    """Write every column of the hits."""
    write_parquet(hits_to_write(run), path)
