"""BM25's own lists for some queries of a report, scored as its runs are."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from karat.analysis.staged import KEEP
from karat.errors import MissingInputError
from karat.measures.prepare import Prepared
from karat.measures.results import Scores
from karat.measures.scores import score
from karat.retrievers.corpus_index import CorpusIndex
from karat.tables import Run


def bm25_lists(
    index: CorpusIndex | None, gold: Prepared, asked: Mapping[int, str], depth: int
) -> tuple[Scores | None, str | None]:
    """The lists for queries by their row, to a depth; or None, and what is lacking for them."""
    if index is None:
        return None, "BM25's list needs the items' texts: give --corpus"
    if index.lacks is not None:
        return None, index.lacks
    if not asked:
        return None, "BM25's list needs the queries' texts: give --queries"
    ids = [gold.query_ids[row] for row in asked]
    found = index.bm25(list(asked.values()), depth)
    names = pl.Series("query_id", ids, dtype=pl.String).gather(found["query"])
    hits = found.drop("query").with_columns(names)
    run = Run(hits, calls=pl.DataFrame({"query_id": ids}), order="rank", name="bm25")
    try:
        return score(run, gold, [], keep=KEEP, derived=True), None
    except MissingInputError as error:
        return None, str(error)
