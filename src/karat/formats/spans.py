"""Gold as character spans: ``doc_id:start-end`` in files, three columns in tables."""

from __future__ import annotations

import polars as pl

_SPAN = r"^(?s)(.+):([0-9]{1,18})-([0-9]{1,18})$"


def split_spans(table: pl.DataFrame) -> pl.DataFrame:
    """``item_id`` as doc, ``start`` and ``end``, if every id of the file is a span.

    One id that is no span means that colons are part of the ids, so none is split.
    """
    if not table.height or "start" in table.columns or table["item_id"].dtype != pl.String:
        return table
    parts = table.select(pl.col("item_id").str.extract_groups(_SPAN).alias("_")).unnest("_")
    doc, start, end = parts.get_columns()
    if doc.null_count():
        return table
    bounds = pl.DataFrame({"start": start.cast(pl.Int64), "end": end.cast(pl.Int64)})
    if not (bounds["start"] < bounds["end"]).all():
        return table
    return table.with_columns(doc.alias("item_id"), bounds["start"], bounds["end"])


def join_spans(table: pl.DataFrame) -> pl.DataFrame:
    """``item_id`` spelled ``doc_id:start-end`` where a row has a span."""
    if "start" not in table.columns or "end" not in table.columns:
        return table
    spelled = pl.format("{}:{}-{}", "item_id", "start", "end")
    return table.with_columns(item_id=pl.coalesce(spelled, "item_id")).drop("start", "end")
