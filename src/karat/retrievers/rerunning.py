"""A system's later stages run again on lists that someone changed.

What the retriever gave is asked for or read from a log; sieves, reranker, diversity and the
cut work on it anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from karat.errors import CallError, UsageError
from karat.formats.yamls import Place
from karat.retrievers.blueprints import Blueprint, parse_systems
from karat.retrievers.items import Items
from karat.retrievers.protocol import Answer, Hit, Hits, Query
from karat.retrievers.runner import Failed, Limits, Runner
from karat.retrievers.searching import is_reusable
from karat.retrievers.system import System
from karat.retrievers.workshop import Workshop
from karat.tables import Run

# Stages that read texts.
_READING = ("rerank", "mmr")
# More than are wanted, since some of the best items by BM25 are the gold.
_MORE = 50


@dataclass(frozen=True, slots=True)
class Start:
    """What the later stages are given: the query as they see it, and the retriever's list."""

    query: Query
    raw: Hits


@dataclass(frozen=True, eq=False)
class Rerunner:
    """A built system that is run again from the retriever's lists on.

    ``k`` is how many hits it returns in the end.
    """

    blueprint: Blueprint
    system: System
    k: int
    workshop: Workshop

    @property
    def stages(self) -> list[str]:
        """The stages that put a list in another order, by name."""
        return [stage.name for stage in self.system.stages]

    @property
    def reranker(self) -> Mapping[str, Any] | None:
        """The model that reranks, if there is one."""
        model: Mapping[str, Any] | None = self.system.meta.get("reranker_model")
        return model if "rerank" in self.stages else None

    @property
    def reads_texts(self) -> bool:
        """Whether a stage needs the texts of items."""
        return any(name in _READING for name in self.stages)

    @property
    def takes_logs(self) -> bool:
        """Whether a log says all that the later stages are given.

        It does not hold texts that a live system returned, nor how deep a filter had to look.
        """
        deeper = bool(self.system.sieves) and self.system.finder.deep
        from_outside = self.blueprint.live and self.reads_texts
        return is_reusable(self.blueprint) and not deeper and not from_outside

    def ask(self, queries: Sequence[Query]) -> Iterator[tuple[Query, Start | Failed]]:
        """What the retriever gives for each query, called as the karat.yaml allows."""
        calls = self.blueprint.calls
        limits = Limits(
            concurrency=calls.concurrency or self.system.concurrency,
            batch=calls.batch or self.system.batch,
            rate=calls.rate,
            retries=calls.retries,
        )
        runner = Runner(_Retrieving(self.system), self.k, limits, redact=self.workshop.redact)
        for query, outcome in runner.outcomes(queries):
            if isinstance(outcome, Failed):
                yield query, outcome
            else:
                yield query, self._start(query, outcome.hits, outcome.rewritten)

    def read(self, log: Run, queries: Sequence[Query]) -> Iterator[tuple[Query, Start]]:
        """What the retriever gave for each query, as the log of a search has it."""
        lists = _lists(log, "raw")
        # A system without later stages logs what it retrieved as what it returned.
        bare = not self.system.sieves and not self.system.stages
        finals = _lists(log, "final") if bare else {}
        rewritten = _rewritten(log)
        for query in queries:
            name = query.query_id
            hits = lists.get(name, finals.get(name, []))
            yield query, self._start(query, hits, rewritten.get(name))

    def _start(self, query: Query, hits: Hits, rewritten: str | None) -> Start:
        text = self.system.rules.apply(query.text) if rewritten is None else rewritten
        once = {hit.item_id: hit for hit in reversed(hits)}
        raw = [once.pop(hit.item_id) for hit in hits if hit.item_id in once]
        return Start(replace(query, text=text), raw)

    def knows(self, start: Start, item_id: str) -> bool:
        """Whether an item is one of the corpus or of the list; without a corpus any may be."""
        items = self.system.items
        return (
            items is None
            or item_id in items.rows
            or any(hit.item_id == item_id for hit in start.raw)
        )

    def hits(self, start: Start, entries: Sequence[tuple[str, float | None]]) -> Hits:
        """Items with scores as the retriever would have returned them.

        Of an item that it did not return, the corpus tells.
        """
        known = {hit.item_id: hit for hit in start.raw}
        items = self.system.items
        return [
            known[item]._replace(score=score) if item in known else _hit(item, score, items)
            for item, score in entries
        ]

    def again(self, start: Start, hits: Hits) -> Answer | Failed:
        """What the later stages make of a list, no longer than the retriever's can be.

        A call that fails is a failed call.
        """
        most = max(self.system.depth(self.k), len(start.raw))
        try:
            return self.system.finish(start.query, hits[:most], self.k)
        except CallError as error:
            return Failed(self.workshop.redact(" ".join(str(error).split())))


class _Retrieving:
    """A system's retriever alone, to be called query by query."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.batch = system.batch
        self.concurrency = system.concurrency
        self.deep = system.deep
        self.meta = system.meta

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """The lists that the later stages would be given."""
        return self._system.retrieve(queries, k)


def mine_negatives(
    workshop: Workshop,
    queries: Sequence[Query],
    count: int,
    *,
    chunker: Mapping[str, Any] | None = None,
) -> dict[str, list[str]]:
    """The best items for each query by BM25, some more than ``count``, gold or not."""
    if not workshop.has_corpus:
        raise UsageError("negatives are mined from a corpus; name one: --corpus items.jsonl")
    cut = {} if chunker is None else {"chunker": dict(chunker)}
    spec = {"retriever": "bm25", **cut}
    system = workshop.build(parse_systems({"bm25": spec}, Place("--negatives"))["bm25"])
    mined = {}
    for query in queries:
        (answer,) = system.find([query], count + _MORE)
        mined[query.query_id] = [hit.item_id for hit in answer.hits]
    return mined


def _hit(item_id: str, score: float | None, items: Items | None) -> Hit:
    row = None if items is None else items.rows.get(item_id)
    if items is None or row is None:
        return Hit(item_id, score)
    (hit,) = items.hits(np.array([row]), np.array([0.0]))
    return hit._replace(score=score)


def _lists(log: Run, stage: str) -> dict[str, Hits]:
    """The hits of one stage by query, best first."""
    if stage != "final" and not log.staged:
        return {}
    hits = log.at(stage).hits if stage in _stages(log) else log.hits.clear()
    told = [name for name in Hit._fields if name in hits.columns]
    lists: dict[str, Hits] = {}
    for row in hits.sort("rank", maintain_order=True).iter_rows(named=True):
        lists.setdefault(row["query_id"], []).append(Hit(**{name: row[name] for name in told}))
    return lists


def _stages(log: Run) -> set[str]:
    return set(log.hits["stage"].unique().to_list()) if log.staged else {"final"}


def _rewritten(log: Run) -> dict[str, str]:
    if log.calls is None or "rewritten" not in log.calls.columns:
        return {}
    told = log.calls.select("query_id", "rewritten").drop_nulls().rows()
    return {str(query_id): str(text) for query_id, text in told}
