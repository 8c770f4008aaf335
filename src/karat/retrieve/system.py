"""A system: a retriever with the stages before and after it, each timed and logged.

The query is normalised and rewritten, the retriever gives ``raw``, then follow filter,
as_of, threshold, rerank, distinct_docs and mmr, and the cut at k gives ``final``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from karat.data.tables import Queries, Run
from karat.errors import InputError, KaratError, MissingExtraError
from karat.retrieve.build_context import BuildContext, Items
from karat.retrieve.chunking import Chunker
from karat.retrieve.placeholders import credential_names
from karat.retrieve.protocol import Answer, Finder, Hits, Query, queries_from, shares
from karat.retrieve.run_log import run_of
from karat.retrieve.stages import (
    AsOf,
    DistinctDocs,
    Filter,
    Mmr,
    Rewrite,
    Stage,
    Threshold,
    reranker,
)
from karat.retrieve.system_config import SystemConfig, maker, rules_of
from karat.retrieve.text_rules import TextRules

DEFAULT_K = 50
# Fusion, a reranker or a filter needs more to work on than is finally shown.
_LEAST_RAW = 50
_DEEPER = 4


def build_system(config: SystemConfig, context: BuildContext) -> SearchSystem:
    """Build the system of a config, its parts first."""
    context.credentials.update(credential_names(config.spec))
    rules = rules_of(config, context)
    timeout = config.calls.timeout if "timeout" in config.spec else context.timeout
    inside = replace(
        context,
        timeout=context.timeout_given or timeout,
        chunker=config.chunker or context.chunker,
        rules=rules.after(context.rules),
    )
    try:
        parts: dict[str, Finder] = {
            name: build_system(part, inside) for name, part in config.parts.items()
        }
        finder = maker(config.kind).make(config.options, inside, parts)
        items = None if inside.corpus is None else inside.items
        options = config.stages
        filters: list[Stage | None] = [
            Filter(options.filter, items) if options.filter else None,
            AsOf(options.as_of == "strict", items) if options.as_of else None,
            None if options.threshold is None else Threshold(options.threshold),
        ]
        stages: list[Stage | None] = [
            None if options.rerank is None else reranker(options.rerank, items, inside),
            None if options.distinct_docs is None else DistinctDocs(options.distinct_docs, items),
            None if options.mmr is None else Mmr(options.mmr, items),
        ]
        return SearchSystem(
            config.name,
            finder,
            k=options.k,
            k_raw=options.k_raw,
            rules=rules,
            rewrite=None if options.rewrite is None else Rewrite.of(options.rewrite, inside),
            filters=[stage for stage in filters if stage is not None],
            stages=[stage for stage in stages if stage is not None],
            items=items,
            about=_about(config),
            hide=inside.hide,
        )
    except (InputError, MissingExtraError):
        raise
    except KaratError as error:
        raise type(error)(f"{config.place}: system {config.name!r}: {error}") from None


def _about(config: SystemConfig) -> dict[str, Any]:
    """Return what a log says of a system besides what its retriever says."""
    about: dict[str, Any] = {"retriever": config.kind}
    if config.chunker is not None:
        about["chunker"] = Chunker.of(config.chunker).model_dump()
    elif described := config.calls.chunker or config.calls.chunked:
        about["chunker"] = dict(described)
    if config.calls.index_version is not None:
        about["index_version"] = config.calls.index_version
    return about


@dataclass(eq=False)
class SearchSystem:
    """A retriever with its stages; it is a finder itself, so that systems nest."""

    name: str
    finder: Finder
    k: int | None = None
    k_raw: int | None = None
    rules: TextRules = field(default_factory=TextRules)
    rewrite: Rewrite | None = None
    filters: Sequence[Stage] = ()
    stages: Sequence[Stage] = ()
    items: Items | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    hide: Callable[[Iterable[Answer]], None] = lambda answers: None

    @property
    def batch(self) -> int:
        """The batch size of its retriever."""
        return self.finder.batch

    @property
    def concurrency(self) -> int:
        """The concurrency of its retriever."""
        return self.finder.concurrency

    @property
    def deep(self) -> bool:
        """Whether longer lists can be asked for: not if k or a stage sets the length."""
        return self.finder.deep and self.k is None and not self.stages

    @property
    def meta(self) -> Mapping[str, Any]:
        """What the log says of it."""
        meta: dict[str, Any] = {**self.finder.meta, **self.about}
        for stage in self.stages:
            stage_meta = dict(getattr(stage, "meta", {}))
            libraries = {**meta.get("libraries", {}), **stage_meta.pop("libraries", {})}
            meta |= {**stage_meta, **({"libraries": libraries} if libraries else {})}
        return meta

    def depth(self, k: int) -> int:
        """Return the number of hits to retrieve for k in the end."""
        if self.k_raw is not None:
            return max(self.k_raw, k)
        several = len(getattr(self.finder, "parts", ())) > 1
        later = bool(self.filters or self.stages or several)
        return max(k, _LEAST_RAW) if later else k

    def search(
        self,
        queries: Queries,
        k: int | None = None,
        *,
        advance: Callable[[int], None] = lambda calls: None,
    ) -> Run:
        """Return a run over a table of queries; ``advance`` is called after each batch.

        Nothing is tried again or slowed down: that, and the log, is what ``karat search`` does.
        """
        query_list = queries_from(queries)
        size = max(1, self.batch)
        answers: list[Answer] = []
        for start in range(0, len(query_list), size):
            batch_answers = self.find(query_list[start : start + size], k or self.k or DEFAULT_K)
            answers += batch_answers
            advance(len(batch_answers))
        return run_of(self.name, self.meta, query_list, answers)

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """Return one answer per query: retrieved together, then finished one by one."""
        k = self.k or k
        normalised, rewritten, answers = self._raw_answers(queries, k)
        if self.rewrite is not None and self.rewrite.both:
            start = time.perf_counter()
            originals = self._retrieved(normalised, self.depth(k))
            for query, original, answer in zip(normalised, originals, answers, strict=True):
                answer.lists["original"] = self.finish(query, original.hits, k).hits
            # Nobody but the log would search for the original as well.
            for answer in answers:
                answer.aside += _since(start) / len(answers)
        for query, answer in zip(rewritten, answers, strict=True):
            start = time.perf_counter()
            self._finish(query, answer, k)
            answer.spent = (answer.spent or 0.0) + _since(start)
        self.hide(answers)
        return answers

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """Return the lists as retrieved, before the filters and stages of ``find``."""
        _, _, answers = self._raw_answers(queries, self.k or k)
        self.hide(answers)
        return answers

    def finish(self, query: Query, raw: Hits, k: int) -> Answer:
        """Apply filters and stages to a list; ``query`` is normalised and rewritten already."""
        answer = Answer(raw)
        self._finish(query, answer, k if self.k is None else self.k)
        return answer

    def _raw_answers(
        self, queries: Sequence[Query], k: int
    ) -> tuple[list[Query], list[Query], list[Answer]]:
        """Return the queries normalised, then rewritten, and their lists as retrieved, timed."""
        normalised = [replace(query, text=self.rules.apply(query.text)) for query in queries]
        rewritten = list(normalised)
        times: list[dict[str, float]] = [{} for _ in queries]
        if self.rewrite is not None:
            for at, query in enumerate(normalised):
                start = time.perf_counter()
                rewritten[at] = self.rewrite.apply(query)
                times[at]["rewrite"] = _since(start)
        start = time.perf_counter()
        answers = self._retrieved(rewritten, self.depth(k))
        times_ms = shares(_since(start), answers)
        for query, answer, before, ms in zip(rewritten, answers, times, times_ms, strict=True):
            answer.latency = {**before, "retrieve": ms, **answer.latency}
            answer.spent = sum(before.values()) + ms
            if self.rewrite is not None:
                answer.rewritten = query.text
        return normalised, rewritten, answers

    def _retrieved(self, queries: Sequence[Query], depth: int) -> list[Answer]:
        """Retrieve; a retriever that can is asked for more until enough passes the filters."""
        answers = self.finder.find(queries, depth)
        if self.filters and self.finder.deep:
            for query, answer in zip(queries, answers, strict=True):
                answer.hits = self._deep_enough(query, answer.hits, depth)
        return answers

    def _deep_enough(self, query: Query, hits: Hits, enough: int) -> Hits:
        """Ask for longer lists until enough hits pass the filters."""
        depth = enough
        while (
            len(hits) >= depth
            and len(self._filtered(query, hits)[-1]) < enough
            and not any(isinstance(f, Threshold) and f.ends(hits[-1]) for f in self.filters)
        ):
            depth *= _DEEPER
            (answer,) = self.finder.find([query], depth)
            hits = answer.hits
        return hits

    def _filtered(self, query: Query, hits: Hits) -> list[Hits]:
        """Return what is left after each filter."""
        lists = []
        for hit_filter in self.filters:
            hits = hit_filter.apply(query, hits)
            lists.append(hits)
        return lists

    def _finish(self, query: Query, answer: Answer, k: int) -> None:
        """Apply filters, stages and the cut, each with its list and its time."""
        depth = self.depth(k)
        hits = raw = answer.hits
        if self.filters:
            start = time.perf_counter()
            lists = [hits[:depth] for hits in self._filtered(query, raw)]
            answer.latency["filter"] = _since(start)
            answer.lists |= zip((f.name for f in self.filters), lists, strict=True)
            hits = lists[-1]
        for stage in self.stages:
            start = time.perf_counter()
            hits = stage.apply(query, hits)
            answer.latency[stage.name] = _since(start)
            answer.lists[stage.name] = hits
        if self.filters or self.stages or len(raw) > k:
            answer.lists = {"raw": raw[:depth], **answer.lists}
        answer.hits = hits[:k]
        if self.items is not None:
            rows = (self.items.rows.get(hit.item_id) for hit in answer.hits)
            tokens = sum(self.items.tokens[row] for row in rows if row is not None)
            answer.cost.setdefault("tokens", float(tokens))


def _since(start: float) -> float:
    return (time.perf_counter() - start) * 1000
