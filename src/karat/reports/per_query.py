"""One row a system and query, one column a measure: as CSV and as Parquet."""

from __future__ import annotations

import io

import polars as pl

from karat.reports.csv_cells import csv_table
from karat.reports.document import Report


def per_query(report: Report) -> pl.DataFrame:
    """All systems' values; a measure that a system does not have is null there."""
    frames = [
        system.scores.table.select(
            pl.lit(system.name).alias("system"),
            "query_id",
            system.scores.status.cast(pl.String).alias("status"),
            pl.exclude("query_id"),
        )
        for system in report.systems
    ]
    return pl.concat(frames, how="diagonal")


def to_csv(report: Report) -> bytes:
    """Comma-separated with a header; what was not measured is empty."""
    return csv_table(per_query(report))


def to_parquet(report: Report) -> bytes:
    """The same table as Parquet."""
    buffer = io.BytesIO()
    per_query(report).write_parquet(buffer)
    return buffer.getvalue()
