"""Parquet with named columns; other tools' names for them are understood."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from karat.columns import Duplicates
from karat.errors import InputError
from karat.formats.blocks import Streamed
from karat.formats.files import Input, unreadable
from karat.formats.files import write_parquet as _write
from karat.formats.parquet_sizes import check_sizes, rows_in_parts
from karat.formats.room import block_rows, is_tight, whole_bytes
from karat.formats.tabular import corpus_from, gold_from, hits_to_write, queries_from, run_from
from karat.tables import Corpus, Gold, Order, Queries, Run

_BATCH_ROWS = 250_000
# What a hit takes in memory: two short ids and two numbers.
_ROW_BYTES = 50
# Polars panics, instead of raising, on some damage to a file's pages.
_DAMAGE = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException)


def read_gold(file: Input, *, duplicates: Duplicates = "agree") -> Gold:
    """Gold from columns such as query_id, item_id, grade, negative, start, end."""
    table = _table(file)
    rows = pl.int_range(1, table.height + 1, eager=True)
    return gold_from(table, rows, file, duplicates)


def read_queries(file: Input) -> Queries:
    """Queries from columns such as query_id, text and attributes."""
    return queries_from(_table(file), file)


def read_corpus(file: Input) -> Corpus:
    """A corpus from columns such as item_id, doc_id, text and attributes."""
    return corpus_from(_table(file), file)


def scan_run(file: Input, *, name: str, strict: bool = False) -> Streamed:
    """A run from columns such as query_id, item_id, score, rank, block by block."""
    names = column_names(file)

    def batches() -> Iterator[pl.DataFrame]:
        return run_from(_batches(file), file, strict)

    order: Order = "score" if "score" in names else "rank"
    staged = "stage" in names
    return Streamed(name, file.source, batches, order=order, strict=strict, staged=staged)


def column_names(file: Input) -> list[str]:
    """The names of the columns, under our names where the user mapped them."""
    _check(file)
    try:
        scan = pl.scan_parquet(file.scannable(), glob=False)
        if file.renamed is None:
            return scan.collect_schema().names()
        return file.renamed.frame(scan.head(0).collect()).columns
    except _DAMAGE as error:
        raise unreadable(file.name, error) from None


def read_run(file: Input, *, name: str, strict: bool = False) -> Run:
    """A run in memory."""
    return scan_run(file, name=name, strict=strict).read()


def write_gold(gold: Gold, path: str | Path) -> None:
    """Every column of the judgments."""
    _write(gold.frame, path)


def write_queries(queries: Queries, path: str | Path) -> None:
    """Every column of the queries."""
    _write(queries.frame, path)


def write_corpus(corpus: Corpus, path: str | Path) -> None:
    """Every column of the corpus."""
    _write(corpus.frame, path)


def write_run(run: Run, path: str | Path) -> None:
    """Every column of the hits."""
    _write(hits_to_write(run), path)


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
    return table if file.renamed is None else file.renamed.frame(table)


def _batches(file: Input) -> Iterator[tuple[pl.DataFrame, pl.Series]]:
    """Rows with their numbers, which stand for lines in messages."""
    row = 1
    with file.open() as opened:
        parts = rows_in_parts(opened, file.name)
    scan = pl.scan_parquet(file.scannable(), glob=False)
    try:
        for batch in _pieces(scan, parts) if _too_much(parts) else _streamed(scan):
            rows = pl.int_range(row, row + batch.height, eager=True)
            yield batch if file.renamed is None else file.renamed.frame(batch), rows
            row += batch.height
    except _DAMAGE as error:
        raise unreadable(file.name, error) from None


def _streamed(scan: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    return scan.collect_batches(chunk_size=_BATCH_ROWS, maintain_order=True)


def _too_much(parts: list[int]) -> bool:
    """Whether the parts that Polars unpacks ahead, some for each thread, take too much room."""
    ahead = 2 * pl.thread_pool_size() * max(parts, default=0)
    return is_tight() or ahead * _ROW_BYTES > 2 * whole_bytes()


def _pieces(scan: pl.LazyFrame, parts: list[int]) -> Iterator[pl.DataFrame]:
    """One piece after the other, and nothing ahead; none reaches over the end of a part."""
    most = max(block_rows(), whole_bytes() // _ROW_BYTES)
    start = 0
    for rows in parts:
        for skipped in range(0, rows, most):
            yield scan.slice(start + skipped, min(most, rows - skipped)).collect()
        start += rows
