"""Parquet on disks that the workers see themselves: they read its row groups, column by column.

Spark hands over rows one by one, which takes longer than all that is done with them. It says
who reads what, and moves the rows to where their queries are scored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from karat.engines.spark.tables import FILE
from karat.formats.parquet_sizes import check_sizes, rows_in_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "groups string"
# What a worker reads at a time.
_BATCH_ROWS = 1_000_000


def on_one_machine(spark: SparkSession) -> bool:
    """Whether all workers are on this machine."""
    return (spark.conf.get("spark.master", "") or "").startswith("local")


def seen_by_workers(spark: SparkSession, path: str) -> bool:
    """Whether workers are on this machine, and the path is one of it."""
    return on_one_machine(spark) and "://" not in path


def row_groups(
    spark: SparkSession, files: Sequence[str], columns: Sequence[str], *, slices: int
) -> DataFrame:
    """One row for each row group of some files, in order, in so many partitions at most."""
    told = []
    for at, file in enumerate(files):
        own = {"file": file, "at": at if len(files) > 1 else None, "columns": list(columns)}
        with Path(file).open("rb") as opened:
            parts = rows_in_parts(opened, Path(file).name)
        start = 0
        for rows in parts:
            told.append((json.dumps(own | {"start": start, "rows": rows}),))
            start += rows
    groups = spark.sparkContext.parallelize(told, max(min(len(told), slices), 1))
    return spark.createDataFrame(groups, SCHEMA)


def check_files(files: Sequence[str]) -> None:
    """Refuse a damaged file, and one that claims more than a file of its size can hold."""
    for file in files:
        with Path(file).open("rb") as opened:
            check_sizes(opened, Path(file).name)


def first_seen(files: Sequence[str], column: str) -> pl.Series:
    """The different values of a column, as text, in the order in which they come first."""
    texts = pl.col(column).cast(pl.String)
    values = pl.concat(pl.scan_parquet(file, glob=False).select(texts) for file in files)
    return values.unique(maintain_order=True).collect()[column]


def first_rows(files: Sequence[str], most: int) -> pl.DataFrame:
    """The first rows of the first file that has any."""
    for file in files:
        rows = pl.scan_parquet(file, glob=False).head(most).collect()
        if rows.height:
            return rows
    return rows


def read_groups(batches: Iterable[Any]) -> Iterator[pl.DataFrame]:
    """The rows of the row groups that some batches name."""
    for batch in batches:
        for text in batch["groups"].to_pylist():
            told = json.loads(text)
            scan = pl.scan_parquet(told["file"], glob=False).select(told["columns"])
            rows = scan.slice(told["start"], told["rows"])
            for some in rows.collect_batches(chunk_size=_BATCH_ROWS, maintain_order=True):
                if told["at"] is None:
                    yield some
                else:
                    yield some.with_columns(pl.lit(told["at"], pl.Int32).alias(FILE))
