"""The version of a query's gold as an attribute of the query, so that it can make segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from karat.analysis.segments import By
from karat.tables import Corpus, Gold, Queries

VERSION = "version"


def with_versions(
    queries: Queries | None, gold: Gold, corpus: Corpus | None, by: Sequence[By]
) -> Queries | None:
    """The queries with the versions of their relevant gold, where segments ask for them."""
    asked = any(VERSION in one.columns for one in by)
    if not asked or (queries is not None and VERSION in queries.frame.columns):
        return queries
    versions = _versions(gold, corpus)
    if versions is None:
        return queries
    if queries is None:
        ids = list(gold.query_ids)
        queries = Queries(pl.DataFrame({"query_id": ids, "text": [""] * len(ids)}), gold.source)
    frame = queries.frame.join(versions, on="query_id", how="left", maintain_order="left")
    return replace(queries, frame=frame)


def _versions(gold: Gold, corpus: Corpus | None) -> pl.DataFrame | None:
    """For each query, the versions of its gold in order; None where no one knows them."""
    rows = gold.frame.filter(pl.col("grade") > 0)
    if VERSION not in rows.columns:
        if corpus is None or VERSION not in corpus.frame.columns:
            return None
        known = corpus.frame.select("item_id", VERSION)
        rows = rows.join(known, on="item_id", how="left", maintain_order="left")
    if rows[VERSION].dtype.is_nested():
        return None
    each = rows.drop_nulls(VERSION).group_by("query_id", maintain_order=True)
    return each.agg(pl.col(VERSION).cast(pl.String).unique().sort())
