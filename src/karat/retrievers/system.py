"""A system: a retriever with what comes before and after it, every stage timed and listed.

The query is normalised and rewritten, the retriever gives ``raw``, then follow filter,
as_of, threshold, rerank, distinct_docs and mmr, and the cut at k gives ``final``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from karat.retrievers.blueprints import Blueprint
from karat.retrievers.chunkers import Chunker
from karat.retrievers.forms import StagesForm
from karat.retrievers.items import Items
from karat.retrievers.protocol import Answer, Finder, Hit, Hits, Query, queries_from, shares
from karat.retrievers.records import run_of
from karat.retrievers.rewrite import Rewrite
from karat.retrievers.stages import AsOf, DistinctDocs, Filter, Sieve, Stage, Threshold
from karat.retrievers.texts import TextRules
from karat.tables import Queries, Run

if TYPE_CHECKING:
    from karat.retrievers.workshop import Workshop

DEFAULT_K = 50
# Fusion, a reranker or a filter needs more to work on than is finally shown.
_LEAST_RAW = 50
_DEEPER = 4


@dataclass(eq=False)
class System:
    """A retriever with its stages; itself something that finds, so that systems nest."""

    name: str
    finder: Finder
    k: int | None = None
    k_raw: int | None = None
    rules: TextRules = field(default_factory=TextRules)
    rewrite: Rewrite | None = None
    sieves: Sequence[Sieve] = ()
    stages: Sequence[Stage] = ()
    items: Items | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    hide: Callable[[Iterable[Answer]], None] = lambda answers: None

    @classmethod
    def of(
        cls, blueprint: Blueprint, finder: Finder, workshop: Workshop, rules: TextRules
    ) -> System:
        """The system of a blueprint, around its retriever."""
        form = blueprint.stages
        items = workshop.items if workshop.has_corpus else None
        if items is not None:
            items.settle()
        about: dict[str, Any] = {"retriever": blueprint.kind}
        if blueprint.chunker is not None:
            about["chunker"] = Chunker.of(blueprint.chunker).document()
        elif told := blueprint.calls.chunker or blueprint.calls.chunked:
            about["chunker"] = dict(told)
        if blueprint.calls.index_version is not None:
            about["index_version"] = blueprint.calls.index_version
        return cls(
            blueprint.name,
            finder,
            k=form.k,
            k_raw=form.k_raw,
            rules=rules,
            rewrite=None if form.rewrite is None else Rewrite.of(form.rewrite, workshop),
            sieves=_sieves(form, items),
            stages=_stages(form, items, workshop),
            items=items,
            about=about,
            hide=workshop.hide,
        )

    @property
    def batch(self) -> int:
        """As its retriever likes it."""
        return self.finder.batch

    @property
    def concurrency(self) -> int:
        """As its retriever allows."""
        return self.finder.concurrency

    @property
    def deep(self) -> bool:
        """Whether more can be asked for: not where k or a model sets the length."""
        return self.finder.deep and self.k is None and not self.stages

    @property
    def meta(self) -> Mapping[str, Any]:
        """What the log says of it."""
        told: dict[str, Any] = {**self.finder.meta, **self.about}
        for stage in self.stages:
            more = getattr(stage, "meta", {})
            libraries = [one.get("libraries", {}) for one in (told, more)]
            told.update(more)
            if all(isinstance(one, Mapping) and one for one in libraries):
                told["libraries"] = {**libraries[0], **libraries[1]}
        return told

    def depth(self, k: int) -> int:
        """How many hits to retrieve for k in the end."""
        if self.k_raw is not None:
            return max(self.k_raw, k)
        several = len(getattr(self.finder, "parts", ())) > 1
        later = bool(self.sieves or self.stages or several)
        return max(k, _LEAST_RAW) if later else k

    def search(
        self,
        queries: Queries,
        k: int | None = None,
        *,
        advance: Callable[[int], None] = lambda calls: None,
    ) -> Run:
        """A run over a table of queries, in memory; ``advance`` hears of each batch.

        Nothing is tried again or slowed down: that, and the log, is what ``karat search`` does.
        """
        asked = queries_from(queries)
        size = max(1, self.batch)
        answers: list[Answer] = []
        for start in range(0, len(asked), size):
            found = self.find(asked[start : start + size], k or self.k or DEFAULT_K)
            answers += found
            advance(len(found))
        return run_of(self.name, self.meta, asked, answers)

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """One answer a query: retrieved together, then each list on its own."""
        k = k if self.k is None else self.k
        asked = [replace(query, text=self.rules.apply(query.text)) for query in queries]
        rewritten, times = self._rewritten(asked)
        start = time.perf_counter()
        answers = self._found(rewritten, self.depth(k))
        took = shares(_since(start), answers)
        for answer, before, ms in zip(answers, times, took, strict=True):
            answer.latency = {**before, "retrieve": ms, **answer.latency}
            answer.spent = sum(before.values()) + ms
        if self.rewrite is not None:
            self._note_rewrites(asked, rewritten, answers, k)
        for query, answer in zip(rewritten, answers, strict=True):
            start = time.perf_counter()
            self._finish(query, answer, k)
            answer.spent = (answer.spent or 0.0) + _since(start)
        self.hide(answers)
        return answers

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """What the later stages of ``find`` are given: the lists as retrieved, and no stage run.

        A retriever that can is asked for more until enough passes the sieves.
        """
        depth = self.depth(k if self.k is None else self.k)
        asked = [replace(query, text=self.rules.apply(query.text)) for query in queries]
        rewritten, _ = self._rewritten(asked)
        answers = self._found(rewritten, depth)
        for query, answer in zip(rewritten, answers, strict=True):
            answer.hits = self._deep_enough(query, answer.hits, depth)
            if self.rewrite is not None:
                answer.rewritten = query.text
        return answers

    def finish(self, query: Query, raw: Hits, k: int) -> Answer:
        """The later stages on a list that is given; nothing more is retrieved for them.

        ``query`` is as they see it: after the rules for texts, and rewritten.
        """
        answer = Answer(raw)
        self._finish(query, answer, k if self.k is None else self.k, deeper=False)
        return answer

    def _found(self, queries: Sequence[Query], depth: int) -> list[Answer]:
        """Return what the retriever finds, without credentials that it repeats."""
        answers = self.finder.find(queries, depth)
        self.hide(answers)
        return answers

    def _rewritten(self, asked: list[Query]) -> tuple[list[Query], list[dict[str, float]]]:
        """The queries to search for, and what each took to be rewritten."""
        if self.rewrite is None:
            return asked, [{} for _ in asked]
        queries, times = [], []
        for query in asked:
            start = time.perf_counter()
            queries.append(self.rewrite.apply(query))
            times.append({"rewrite": _since(start)})
        return queries, times

    def _note_rewrites(
        self, asked: list[Query], rewritten: list[Query], answers: list[Answer], k: int
    ) -> None:
        """Both texts, and with ``both`` the list that the original text would have given."""
        for new, answer in zip(rewritten, answers, strict=True):
            answer.rewritten = new.text
        if self.rewrite is None or not self.rewrite.both:
            return
        start = time.perf_counter()
        originals = self._found(asked, self.depth(k))
        for query, original, answer in zip(asked, originals, answers, strict=True):
            apart = Answer(original.hits)
            self._finish(query, apart, k)
            answer.lists["original"] = apart.hits
        # Nobody but the log would search for the original as well.
        for answer in answers:
            answer.aside += _since(start) / len(answers)

    def _finish(self, query: Query, answer: Answer, k: int, *, deeper: bool = True) -> None:
        """Sieves, stages and the cut, each with its list and its time."""
        depth = self.depth(k)
        raw = answer.hits
        hits = self._sieved(query, answer, depth, deeper=deeper)
        for stage in self.stages:
            with _timed(answer, stage.name):
                hits = stage.apply(query, hits)
            answer.lists[stage.name] = hits
        if self.sieves or self.stages or len(raw) > k:
            answer.lists = {"raw": raw[:depth], **answer.lists}
        answer.hits = hits[:k]
        if self.items is not None:
            answer.cost.setdefault("tokens", _tokens(answer.hits, self.items))

    def _sieved(self, query: Query, answer: Answer, wanted: int, *, deeper: bool) -> Hits:
        """What passes every sieve, from as deep as it takes unless the list is all there is."""
        if not self.sieves:
            return answer.hits
        start = time.perf_counter()
        hits = self._deep_enough(query, answer.hits, wanted) if deeper else answer.hits
        for at, sieve in enumerate(self.sieves, 1):
            passing = [hit for hit in hits if _passes(self.sieves[:at], query, hit)]
            answer.lists[sieve.name] = passing[:wanted]
        answer.latency["filter"] = _since(start)
        return passing[:wanted]

    def _deep_enough(self, query: Query, hits: Hits, wanted: int) -> Hits:
        """A list of which enough passes the sieves; a retriever that can goes deeper for it."""
        depth = wanted
        while len(self._passing(query, hits)) < wanted and self._has_more(hits, depth):
            depth *= _DEEPER
            hits = self._found([query], depth)[0].hits
        return hits

    def _has_more(self, hits: Hits, depth: int) -> bool:
        """Whether asking for more can give more that passes."""
        return (
            self.finder.deep
            and len(hits) >= depth
            and not any(sieve.ends(hits[-1]) for sieve in self.sieves)
        )

    def _passing(self, query: Query, hits: Hits) -> Hits:
        return [hit for hit in hits if _passes(self.sieves, query, hit)]


def _passes(sieves: Sequence[Sieve], query: Query, hit: Hit) -> bool:
    return all(sieve.keeps(query, hit) for sieve in sieves)


def _sieves(form: StagesForm, items: Items | None) -> list[Sieve]:
    sieves: list[Sieve] = []
    if form.filter:
        sieves.append(Filter(form.filter, items))
    if form.as_of:
        sieves.append(AsOf(form.as_of == "strict", items))
    if form.threshold is not None:
        sieves.append(Threshold(form.threshold))
    return sieves


def _stages(form: StagesForm, items: Items | None, workshop: Workshop) -> list[Stage]:
    stages: list[Stage] = []
    if form.rerank is not None:
        from karat.retrievers.rerank import reranker

        stages.append(reranker(form.rerank, items, workshop))
    if form.distinct_docs is not None:
        stages.append(DistinctDocs(form.distinct_docs, items))
    if form.mmr is not None:
        from karat.retrievers.mmr import Mmr

        stages.append(Mmr.of(form.mmr, items))
    return stages


def _tokens(hits: Hits, items: Items) -> float:
    """How many tokens the texts have that a call returned."""
    rows = (items.rows.get(hit.item_id) for hit in hits)
    return float(sum(items.tokens[row] for row in rows if row is not None))


def _since(start: float) -> float:
    """Milliseconds since then."""
    return (time.perf_counter() - start) * 1000


@contextmanager
def _timed(answer: Answer, stage: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    answer.latency[stage] = _since(start)
