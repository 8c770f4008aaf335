"""What a file of scored lines needs from a run that may only have ranks, and the reverse."""

from __future__ import annotations

import polars as pl

from karat.tables import Run


def with_ranks(hits: pl.DataFrame) -> pl.DataFrame:
    """Hits with a ``rank``: their own, else by score descending and item id ascending."""
    if "rank" in hits.columns:
        return hits
    order = (
        hits.select("query_id", "item_id", "score")
        .with_row_index("row")
        .sort(
            ["query_id", "score", "item_id"], descending=[False, True, False], maintain_order=True
        )
        .with_columns(rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("query_id"))
        .sort("row")
    )
    return hits.with_columns(order["rank"])


def scored(run: Run) -> pl.DataFrame:
    """Hits with a ``score`` that ranks them as the run does.

    A run that goes by rank keeps its scores only where they give the same order;
    otherwise the score is 1/rank, since readers of scored files look at nothing else.
    """
    hits = run.hits
    if run.order == "score":
        return hits
    if "score" in hits.columns and not hits["score"].null_count():
        by_score = with_ranks(hits.drop("rank"))["rank"]
        if (by_score == _closed_up(hits)).all():
            return hits
    return hits.with_columns(score=1.0 / pl.col("rank"))


def _closed_up(hits: pl.DataFrame) -> pl.Series:
    """Ranks as 1, 2, 3 … within each query, whatever gaps the log has."""
    return hits.select(pl.col("rank").rank("ordinal").over("query_id").cast(pl.Int64)).to_series()
