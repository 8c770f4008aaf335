"""What a stress test is measured on: which queries, their gold, and the negatives they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.segments import By
from karat.analysis.stress.edits import Entry, seed_of
from karat.measures.conventions import Conventions
from karat.measures.names import Measure
from karat.measures.prepare import Prepared, prepare
from karat.measures.scores import Scores, score
from karat.tables import Corpus, Gold, Queries, Run

# How long the top of a list is where no measure names a cut-off.
_TOP = 5
# What a run may say of a hit that a corpus says of an item.
_TOLD = ("doc_id", "version", "source", "start", "end")

# The items of each query that are gold, with their grades.
Grades = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class Terms:
    """The gold, the conventions and the measures, of which the first decides.

    ``by`` are columns of the queries to report drops for as well.
    """

    gold: Gold
    conventions: Conventions
    measures: Sequence[Measure]
    queries: Queries | None = None
    corpus: Corpus | None = None
    by: Sequence[By] = ()

    @property
    def top(self) -> int:
        """How long the top of a list is, for saying how many negatives are in it."""
        cuts = [measure.k for measure in self.measures if isinstance(measure.k, int)]
        return cuts[0] if cuts else _TOP

    def on(self, query_ids: Sequence[str], **settings: Any) -> Prepared:
        """The gold of some queries, with some conventions changed."""
        wanted = pl.col("query_id").is_in(list(query_ids))
        gold = replace(self.gold, frame=self.gold.frame.filter(wanted), query_ids=tuple(query_ids))
        queries = self.queries
        if queries is not None:
            queries = replace(queries, frame=queries.frame.filter(wanted))
        # A scenario may cut the lists: what it took out is what it is about.
        conventions = replace(self.conventions, short_lists="complete", **settings)
        return prepare(gold, conventions, queries=queries, corpus=self.corpus)

    def grades(self, run: Run, query_ids: Sequence[str]) -> Grades:
        """The items of a ranked run that are gold, however deep they stand."""
        if not run.hits.height or not query_ids:
            return {}
        gold = self.on(query_ids, order="rank", depth=None)
        return grades_in(score(run, gold, [], derived=True))


def grades_in(scores: Scores) -> Grades:
    """The items of scored lists that are gold: those with a grade above 0."""
    if scores.trace is None:
        return {}
    hits = scores.trace.ranked.hits
    grade = hits.grade if hits.best is None else hits.best
    names = scores.table["query_id"].to_list()
    found: dict[str, dict[str, float]] = {}
    items = scores.trace.facts["item_id"].to_list()
    for query, item, value in zip(hits.query.tolist(), items, grade.tolist(), strict=True):
        if value > 0:
            found.setdefault(names[query], {})[item] = value
    return found


def with_gold(prepared: Prepared) -> list[str]:
    """The queries that have anything to find."""
    everyone = prepared.target(np.arange(len(prepared.query_ids)))
    has = everyone.relevant(prepared.conventions.rel) > 0
    return [name for name, own in zip(prepared.query_ids, has.tolist(), strict=True) if own]


def sample(query_ids: Sequence[str], count: int | None, seed: int) -> list[str]:
    """Some of the queries, in their order; which ones depends on the seed and their ids alone."""
    if count is None or count >= len(query_ids):
        return list(query_ids)
    drawn = sorted(query_ids, key=lambda name: (seed_of(seed, f"sample\0{name}"), name))
    chosen = set(drawn[:count])
    return [name for name in query_ids if name in chosen]


def own_negatives(gold: Gold) -> dict[str, list[str]]:
    """The items that the eval set itself says are not relevant: its hard negatives first.

    Spans are no items, so a span of grade 0 cannot be put into a list.
    """
    frame = gold.frame.filter(pl.col("grade") <= 0)
    if "start" in frame.columns:
        frame = frame.filter(pl.col("start").is_null())
    if "negative" in frame.columns:
        hard = pl.col("negative").fill_null(value=False)
        frame = frame.sort(hard, descending=True, maintain_order=True)
    negatives: dict[str, list[str]] = {}
    for query_id, item_id in frame.select("query_id", "item_id").iter_rows():
        negatives.setdefault(query_id, []).append(item_id)
    return negatives


def ranked_lists(scores: Scores) -> dict[str, list[Entry]]:
    """The kept lists of scored queries; those that were not answered are not among them."""
    names = scores.table["query_id"].to_list()
    answered = scores.status.is_in(["scored"]).to_list()
    lists: dict[str, list[Entry]] = {
        name: [] for name, there in zip(names, answered, strict=True) if there
    }
    kept = scores.lists
    if kept is None:
        return lists
    scored = kept["score"] if "score" in kept.columns else pl.repeat(None, kept.height, eager=True)
    for row, item, value in zip(kept["row"], kept["item_id"], scored, strict=True):
        if names[row] in lists:
            lists[names[row]].append((item, value))
    return lists


def edited_run(run: Run, lists: Mapping[str, Sequence[Entry]], corpus: Corpus | None) -> Run:
    """A run of other lists, in their order.

    What the run said of a hit or a call it still says; of new hits the corpus does.
    """
    rows = [
        (name, item, rank, score)
        for name, entries in lists.items()
        for rank, (item, score) in enumerate(entries, 1)
    ]
    kinds = {"query_id": pl.String, "item_id": pl.String, "rank": pl.Int64, "score": pl.Float64}
    hits = pl.DataFrame(rows, schema=kinds, orient="row")
    if hits["score"].null_count():
        hits = hits.drop("score")
    final = run.at("final").hits
    told = [name for name in (*_TOLD, "similarity") if name in final.columns]
    pair = ["query_id", "item_id"]
    known = final.select(*pair, *told, _old=True).unique(pair, keep="first", maintain_order=True)
    hits = hits.join(known, on=pair, how="left", maintain_order="left")
    hits = _of_corpus(hits, [name for name in told if name in _TOLD], corpus).drop("_old")
    calls = pl.DataFrame({"query_id": list(lists)}, schema={"query_id": pl.String})
    if run.calls is not None:
        told_of = run.calls.unique("query_id", keep="first", maintain_order=True)
        calls = calls.join(told_of, on="query_id", how="left", maintain_order="left")
    return replace(run, hits=hits, calls=calls, order="rank")


def _of_corpus(hits: pl.DataFrame, told: Sequence[str], corpus: Corpus | None) -> pl.DataFrame:
    """The hits that the run did not have, with what the corpus says of them."""
    names = [] if corpus is None else [name for name in told if name in corpus.frame.columns]
    if corpus is None or not names:
        return hits
    items = corpus.frame.select(
        "item_id", *(pl.col(name).cast(hits.schema[name]).alias(f"_{name}") for name in names)
    )
    hits = hits.join(items, on="item_id", how="left", maintain_order="left")
    new = pl.col("_old").is_null()
    filled = [
        pl.when(new).then(pl.col(f"_{name}")).otherwise(pl.col(name)).alias(name) for name in names
    ]
    return hits.with_columns(filled).drop([f"_{name}" for name in names])
