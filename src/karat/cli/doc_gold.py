"""Gold that names documents, held against chunks: every score would be 0, and none be meant."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from karat.columns import doc_of
from karat.errors import InputError
from karat.measures.scores import Scores, prepare, score
from karat.tables import Blocks, Corpus, Gold, Queries


def refuse_documents(
    run: Blocks, scores: Scores, gold: Gold, queries: Queries | None, corpus: Corpus | None
) -> None:
    """Refuse a run that returned no judged item, but chunks of documents that the gold names."""
    trace, conventions = scores.trace, scores.conventions
    if trace is None or conventions.level != "item":
        return
    if len(trace.ranked.hits.rank) or not trace.ranked.returned.any():
        return
    # What is no chunk by its id, nor known as an item, may be a document.
    named = gold.frame.filter(
        (pl.col("grade") >= conventions.rel) & (pl.col("item_id") == doc_of(pl.col("item_id")))
    )
    if corpus is not None:
        named = named.filter(~pl.col("item_id").is_in(corpus.frame["item_id"].implode()))
    if not named.height:
        return
    by_doc = replace(conventions, level="doc", unit="query")
    ready = prepare(replace(gold, frame=named), by_doc, queries=queries, corpus=corpus)
    again = score(run, ready, []).trace
    if again is None or not len(again.ranked.hits.rank):
        return
    hits = again.ranked.hits
    rows, _ = ready.rows_of(hits.query[:1])
    document = ready.rows["item_id"][int(rows[0])]
    raise InputError(
        f"names documents, such as {document!r}, and {scores.system} returned chunks of them, so "
        "no item of the gold is found; count documents: --set level=doc "
        "(settings: {level: doc} in a karat.yaml)",
        where=gold.source.name,
    )
