"""What there is to tell why a query missed: its lists, its call, its gold and the corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.failures.dominance import Dominance, dominance, tops_of
from karat.analysis.failures.gold_index import attributes, in_index, relevant_rows
from karat.analysis.failures.gold_ranks import Best, Way, best_in, way_of
from karat.analysis.failures.kept import Kept, kept_by
from karat.analysis.sources import source_names
from karat.analysis.staged import ORIGINAL, Staged
from karat.analysis.thresholds import Thresholds
from karat.errors import InputError
from karat.measures.kernels.lists import in_time
from karat.measures.numbers import Values
from karat.measures.ranked import Mask
from karat.tables import Queries

ASSESSED = ("scored", "missing", "failed")


@dataclass(frozen=True, eq=False)
class Case:
    """A run to be looked into; what takes long is worked out when a rule first asks for it."""

    staged: Staged
    queries: Queries | None
    lines: Thresholds

    @cached_property
    def way(self) -> Way:
        """Where gold stands, from list to list."""
        return way_of(self.staged)

    @cached_property
    def assessed(self) -> Mask:
        """The queries whose gold is not empty."""
        return self.staged.final.status.is_in(ASSESSED).to_numpy()

    @cached_property
    def misses(self) -> Mask:
        """The queries without gold at the top of the final list."""
        return self.assessed & (self.way.final.rank > self.lines.miss)

    def status(self, name: str) -> Mask:
        """The queries of one status."""
        return (self.staged.final.status == name).to_numpy()

    def call(self, name: str) -> list[Any] | None:
        """What the log says of each query's call, None for a query that it says nothing of.

        None instead of a list where the log never says it.
        """
        calls = self.staged.calls
        if calls is None or name not in calls.columns or not calls[name].count():
            return None
        told: list[Any] = [None] * len(self.staged.gold.query_ids)
        codes = self.staged.gold.code_of(calls["query_id"]).tolist()
        for code, value in zip(codes, calls[name].to_list(), strict=True):
            if code >= 0:
                told[code] = value
        return told

    def asked(self, name: str) -> list[Any] | None:
        """A column of the queries, in the order of the score table; None where there is none."""
        frame = None if self.queries is None else self.queries.frame
        if frame is None or name not in frame.columns or not frame[name].count():
            return None
        values = dict(zip(frame["query_id"].to_list(), frame[name].to_list(), strict=True))
        return [values.get(query_id) for query_id in self.staged.gold.query_ids]

    @cached_property
    def chosen(self) -> list[Any] | None:
        """The source of each call."""
        return self.call("source")

    @cached_property
    def indexed(self) -> Mask | None:
        """The queries with gold that can be found; None without a corpus."""
        known = in_index(self.staged)
        if known is None:
            return None
        gold = self.staged.gold
        right = known & (gold.grade >= gold.conventions.rel)
        has = np.zeros(len(gold.query_ids), dtype=bool)
        has[gold.rows["code"].to_numpy()[right]] = True
        return has

    def right_sources(self, asked: Sequence[int]) -> dict[int, list[str]]:
        """Where the gold of some queries is: by their column source, else by the gold items'."""
        named = {query: self._named_sources(query) for query in asked}
        rows = {q: relevant_rows(self.staged.gold, q) for q, names in named.items() if not names}
        own = attributes(self.staged.gold, chain.from_iterable(rows.values()), "source")
        for query, judged in rows.items():
            told = {source for row in judged for source in own.get(row, ())}
            named[query] = sorted(source for source in told if source)
        return named

    def _named_sources(self, query: int) -> list[str]:
        return [] if self._sources is None else list(source_names(self._sources[query]))

    @cached_property
    def _sources(self) -> list[Any] | None:
        return self.asked("source")

    @cached_property
    def original(self) -> Best | None:
        """Where gold stands in the lists for the original queries; None where none is logged."""
        scores = self.staged.beside.get(ORIGINAL)
        return None if scores is None else best_in(scores, self.staged.gold)

    @cached_property
    def beside(self) -> Mapping[str, Best]:
        """Where gold stands in the lists beside the way to the final one."""
        return {name: best_in(s, self.staged.gold) for name, s in self.staged.beside.items()}

    @cached_property
    def kept(self) -> Kept:
        """What the final lists of misses keep of the last list that has their gold."""
        return kept_by(self.staged, self.way, self.misses & np.isfinite(self.way.last.rank))

    @cached_property
    def tops(self) -> pl.DataFrame | None:
        """The top of each final list; None where it was not kept."""
        return tops_of(self.staged.final, self.lines.miss)

    @cached_property
    def dominance(self) -> Dominance | None:
        """The items that crowd out gold; None where lists were not kept."""
        if self.tops is None:
            return None
        final = self.staged.final
        corpus = self.staged.gold.corpus
        size = None if corpus is None else corpus.height
        return dominance(final, self.tops, self.way.final.rank, self.assessed, self.lines, size)

    @cached_property
    def similarity(self) -> Values:
        """The similarity of the best-placed gold retrieved; NaN where nobody logged it."""
        first = self.way.first
        known = first.number("similarity")
        if self.staged.final.meta.get("score_kind") != "cosine":
            return known
        return np.where(np.isnan(known), first.number("score"), known)

    @cached_property
    def least_similarity(self) -> Values:
        """What the similarity of gold should be: the query's own line, else the common one."""
        common = np.full(len(self.staged.gold.query_ids), self.lines.similarity)
        told = self.asked("min_similarity")
        if told is None or self.queries is None:
            return common
        own = pl.Series(told, strict=False).cast(pl.Float64, strict=False)
        if own.null_count() > sum(value is None for value in told):
            raise InputError(
                "min_similarity holds something that is no number; a number is expected",
                where=self.queries.source.name,
            )
        return own.fill_null(self.lines.similarity).to_numpy()

    @cached_property
    def below_score(self) -> Mask:
        """The queries whose best-placed gold retrieved scores below the line for scores."""
        if self.lines.score is None:
            return np.zeros(len(self.assessed), dtype=bool)
        return np.less(self.way.first.number("score"), self.lines.score)

    @cached_property
    def reranked(self) -> Mask:
        """The queries of which the log says that something reranked their list."""
        meta = self.staged.final.meta
        named = any(str(key).startswith("rerank") and value for key, value in meta.items())
        timed = self.call("latency.rerank") or [None] * len(self.assessed)
        return np.array([named or ms is not None for ms in timed], dtype=bool)

    def in_time(self, version: str | None, query: int) -> float:
        """1 for a version no newer than the query's as_of, 0 for a newer one, NaN if unknown."""
        gold = self.staged.gold
        as_of = gold.as_of[query] if gold.as_of else None
        if not as_of or version is None:
            return float("nan")
        return in_time(version, as_of, gold.conventions.versions)
