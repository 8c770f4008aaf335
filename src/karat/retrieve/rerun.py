"""The stages of a system run again on changed lists; the lists are retrieved or read from a log.

What the retriever gave is asked for or read from a log; filters, reranker, diversity and the
cut work on it anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from karat.data.tables import Run
from karat.errors import CallError, UsageError
from karat.formats.settings import Place
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Answer, Hit, Hits, Query
from karat.retrieve.search import FailedCall, SearchOptions, call_runner, is_reusable
from karat.retrieve.system import SearchSystem, build_system
from karat.retrieve.system_config import SystemConfig, parse_systems

# Stages that read texts.
_READING = ("rerank", "mmr")
# More than are wanted, since some of the best items by BM25 are the gold.
_MORE = 50


@dataclass(frozen=True, slots=True)
class RerunStart:
    """What the later stages get: the query after rewriting, and the retriever's list."""

    query: Query
    raw: Hits


@dataclass(frozen=True, eq=False)
class StageRerun:
    """A built system whose later stages are run again; in the end it returns ``k`` hits."""

    system_config: SystemConfig
    system: SearchSystem
    k: int
    context: BuildContext

    @property
    def stages(self) -> list[str]:
        """The names of the stages that reorder a list."""
        return [stage.name for stage in self.system.stages]

    @property
    def reranker(self) -> Mapping[str, Any] | None:
        """The model that reranks, if there is one."""
        model: Mapping[str, Any] | None = self.system.meta.get("reranker_model")
        return model if "rerank" in self.stages else None

    @property
    def takes_logs(self) -> bool:
        """Whether a log holds all that the later stages need.

        It does not hold texts that a live system returned, nor how deep a filter had to look.
        """
        deeper = bool(self.system.filters) and self.system.finder.deep
        from_outside = self.system_config.live and any(name in _READING for name in self.stages)
        return is_reusable(self.system_config) and not deeper and not from_outside

    def ask(self, queries: Sequence[Query]) -> Iterator[tuple[Query, RerunStart | FailedCall]]:
        """Yield what the retriever returns for each query, within the limits of the config."""
        system, options = self.system, SearchOptions(k=self.k)
        runner = call_runner(system.retrieve, self.system_config, system, options, self.context)
        for query, outcome in runner.outcomes(queries):
            if isinstance(outcome, FailedCall):
                yield query, outcome
            else:
                yield query, self._start(query, outcome.hits, outcome.rewritten)

    def read(self, log: Run, queries: Sequence[Query]) -> Iterator[tuple[Query, RerunStart]]:
        """Yield what the retriever returned for each query, from the log of a search."""
        lists = _lists(log, "raw")
        # A system without later stages logs what it retrieved as what it returned.
        bare = not self.system.filters and not self.system.stages
        finals = _lists(log, "final") if bare else {}
        rewritten: dict[str, str] = {}
        if log.calls is not None and "rewritten" in log.calls.columns:
            rewritten = dict(log.calls.select("query_id", "rewritten").drop_nulls().iter_rows())
        for query in queries:
            name = query.query_id
            hits = lists.get(name, finals.get(name, []))
            yield query, self._start(query, hits, rewritten.get(name))

    def _start(self, query: Query, hits: Hits, rewritten: str | None) -> RerunStart:
        text = self.system.rules.apply(query.text) if rewritten is None else rewritten
        once = {hit.item_id: hit for hit in reversed(hits)}
        raw = [once.pop(hit.item_id) for hit in hits if hit.item_id in once]
        return RerunStart(replace(query, text=text), raw)

    def knows(self, start: RerunStart, item_id: str) -> bool:
        """Return whether an item is in the corpus or the list; True without a corpus."""
        items = self.system.items
        return (
            items is None
            or item_id in items.rows
            or any(hit.item_id == item_id for hit in start.raw)
        )

    def hits(self, start: RerunStart, entries: Sequence[tuple[str, float | None]]) -> Hits:
        """Return items with scores as the retriever's hits, else as the corpus has them."""
        raw_hits = {hit.item_id: hit for hit in start.raw}
        items = self.system.items
        hits = []
        for item, score in entries:
            hit = raw_hits.get(item, Hit(item))
            if item not in raw_hits and items is not None and item in items.rows:
                (hit,) = items.hits(np.array([items.rows[item]]), np.array([0.0]))
            hits.append(hit._replace(score=score))
        return hits

    def again(self, start: RerunStart, hits: Hits) -> Answer | FailedCall:
        """Apply the later stages to a list cut to the retriever's depth; an error is a failure."""
        most = max(self.system.depth(self.k), len(start.raw))
        try:
            return self.system.finish(start.query, hits[:most], self.k)
        except CallError as error:
            return FailedCall(self.context.redact(" ".join(str(error).split())))


def mine_negatives(
    context: BuildContext,
    queries: Sequence[Query],
    count: int,
    *,
    chunker: Mapping[str, Any] | None = None,
) -> dict[str, list[str]]:
    """Return the best items for each query by BM25: a few more than ``count``, gold or not."""
    if context.corpus is None:
        raise UsageError("negatives are mined from a corpus; name one: --corpus items.jsonl")
    cut = {} if chunker is None else {"chunker": dict(chunker)}
    spec = {"retriever": "bm25", **cut}
    system = build_system(parse_systems({"bm25": spec}, Place("--negatives"))["bm25"], context)
    answers = system.find(queries, count + _MORE)
    return {
        query.query_id: [hit.item_id for hit in answer.hits]
        for query, answer in zip(queries, answers, strict=True)
    }


def _lists(log: Run, stage: str) -> dict[str, Hits]:
    """Return the hits of one stage by query, best first."""
    stages = set(log.hits["stage"].unique()) if log.staged else {"final"}
    if stage not in stages:
        return {}
    hits = log.at(stage).hits
    fields = [name for name in Hit._fields if name in hits.columns]
    lists: dict[str, Hits] = {}
    for row in hits.sort("rank", maintain_order=True).iter_rows(named=True):
        lists.setdefault(row["query_id"], []).append(Hit(**{name: row[name] for name in fields}))
    return lists
