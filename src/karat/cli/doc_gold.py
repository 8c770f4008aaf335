"""Gold that names documents is refused where the run returned chunks of them."""

from __future__ import annotations

from karat.measures.documents import document_of_chunks, names_documents
from karat.measures.scores import Scores
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
    document = document_of_chunks(run, gold, conventions, queries, corpus)
    if document is not None:
        raise names_documents(document, scores.system, gold.source.name)
