"""Gold that names documents, held against chunks: every score would be 0, and none be meant."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from karat.columns import doc_of
from karat.errors import InputError
from karat.measures.conventions import Conventions
from karat.measures.prepare import prepare
from karat.measures.scores import score
from karat.tables import Blocks, Corpus, Gold, Queries


def document_of_chunks(
    run: Blocks,
    gold: Gold,
    conventions: Conventions,
    queries: Queries | None,
    corpus: Corpus | None,
) -> str | None:
    """A document that the gold names and of which the run returned a chunk; None without one."""
    # What is no chunk by its id, nor known as an item, may be a document.
    named = gold.frame.filter(
        (pl.col("grade") >= conventions.rel) & (pl.col("item_id") == doc_of(pl.col("item_id")))
    )
    if corpus is not None:
        named = named.filter(~pl.col("item_id").is_in(corpus.frame["item_id"].implode()))
    if not named.height:
        return None
    by_doc = replace(conventions, level="doc", unit="query")
    ready = prepare(replace(gold, frame=named), by_doc, queries=queries, corpus=corpus)
    again = score(run, ready, []).trace
    if again is None or not len(again.ranked.hits.rank):
        return None
    rows, _ = ready.rows_of(again.ranked.hits.query[:1])
    document: str = ready.rows["item_id"][int(rows[0])]
    return document


def names_documents(document: str, system: str, where: str) -> InputError:
    """What to say of such gold."""
    return InputError(
        f"names documents, such as {document!r}, and {system} returned chunks of them, so "
        "no item of the gold is found; count documents: --set level=doc "
        "(settings: {level: doc} in a karat.yaml)",
        where=where,
    )
