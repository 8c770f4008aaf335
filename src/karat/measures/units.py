"""Which document an item belongs to: the run's word, else the corpus's, else the id's."""

from __future__ import annotations

import polars as pl

from karat.columns import doc_of
from karat.measures.prepare import Prepared


def doc_of_hits(hits: pl.DataFrame, gold: Prepared) -> pl.Series:
    """The document of each hit."""
    known = [pl.col("doc_id").cast(pl.String)] if "doc_id" in hits.columns else []
    if gold.corpus is not None:
        docs = gold.corpus.select("item_id", corpus_doc="doc_id")
        hits = hits.join(docs, on="item_id", how="left", maintain_order="left")
        known.append(pl.col("corpus_doc"))
    return hits.select(doc_id=pl.coalesce(*known, doc_of(pl.col("item_id"))))["doc_id"]
