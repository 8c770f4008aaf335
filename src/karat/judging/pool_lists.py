"""A run's lists seen otherwise: on less gold, without unjudged items, with what RBP may hide."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from karat.measures import numbers
from karat.measures.names import Measure
from karat.measures.numbers import NOTHING, Values
from karat.measures.overall import number_of
from karat.measures.prepare import Prepared
from karat.measures.ranked import Ints, Mask, Ranked, Target
from karat.measures.scores import Scores
from karat.measures.valuing import values_of

# Where a band of ranks ends; the last one ends at the depth of the pool.
_ENDS = (5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True, slots=True)
class Band:
    """Some ranks: how many items a run has there, and how many of them anyone judged."""

    first: int
    last: int
    items: int
    judged: int

    @property
    def share(self) -> float | None:
        """The judged share; None where nothing was returned."""
        return self.judged / self.items if self.items else None


@dataclass(frozen=True, slots=True)
class Residual:
    """RBP and what nobody knows of it: the weight of unjudged items, and of ranks below the end."""

    low: float
    unjudged: float
    beyond: float

    @property
    def high(self) -> float:
        """The most that it can be."""
        return min(self.low + self.unjudged + self.beyond, 1.0)


@dataclass(frozen=True, eq=False)
class JudgedRun:
    """One run held against its gold, to be looked at again; every mean is over the same queries."""

    name: str
    scores: Scores
    ranked: Ranked
    gold: Prepared

    @classmethod
    def of(cls, name: str, scores: Scores, gold: Prepared) -> JudgedRun:
        """Scores as they came from the whole gold."""
        if scores.trace is None:
            raise TypeError("scores without a trace cannot be looked at again")
        # A query whose last relevant item goes stays in the mean, with what it has then.
        counted = replace(gold.conventions, empty_gold="zero")
        return cls(name, scores, scores.trace.ranked, replace(gold, conventions=counted))

    def now(self, measure: Measure) -> float | None:
        """The number on the whole gold."""
        return self.scores.number(measure, np.ones(self.ranked.n, dtype=bool))

    def then(self, measure: Measure, ranked: Ranked) -> float | None:
        """The number that other lists, or other gold, give for the queries that have one now."""
        return number_of(measure)(self.values(measure, ranked), NOTHING)

    def values(self, measure: Measure, ranked: Ranked, by: Measure | None = None) -> Values:
        """The values of the queries that have one now, by this measure or another."""
        rows = ~np.isnan(self.scores.values(str(by or measure)))
        values = values_of(measure, ranked, self.gold)[rows]
        return np.where(np.isnan(values), measure.definition.worst, values)

    def contributed(self, depth: int) -> Ints:
        """Which judgments of the gold are of items in the top of the run."""
        hits = self.ranked.hits
        if hits.row is None:
            return np.empty(0, dtype=np.int64)
        return hits.row[hits.rank <= depth]

    def without(self, target: Target, gone: Mask) -> Ranked:
        """The lists on gold that lacks some judgments; ``target`` is that gold."""
        hits = self.ranked.hits
        kept = hits.where(~gone[hits.row]) if hits.row is not None else hits
        kept = replace(kept, row=None)
        return replace(self.ranked, target=target, hits=kept, found=kept)

    def condensed(self) -> Ranked:
        """The lists without what nobody judged: the rest close up."""
        hits = self.ranked.hits.where(self.ranked.hits.grade >= 0)
        everyone = np.ones(len(hits.rank), dtype=bool)
        hits = replace(hits, rank=hits.so_far(everyone))
        length = np.bincount(hits.query, minlength=hits.n)
        return replace(self.ranked, hits=hits, found=hits, returned=length)

    def bands(self, depth: int) -> list[Band]:
        """The judged share by rank, over the queries of which anything is judged."""
        hits, asked = self.ranked.hits, judged_queries(self.ranked.target)
        returned = self.ranked.returned[asked]
        judged = hits.rank[(hits.grade >= 0) & asked[hits.query]]
        ends = [0, *(end for end in _ENDS if end < depth), depth]
        return [
            Band(
                start + 1,
                end,
                int((np.minimum(returned, end) - np.minimum(returned, start)).sum()),
                int(((judged > start) & (judged <= end)).sum()),
            )
            for start, end in pairwise(ends)
        ]

    def residual(self, rbp: Measure) -> Residual | None:
        """What a run's RBP leaves open; None where no query has a value.

        Ranks below the end of a list, or below the cut-off, are as unknown as unjudged items.
        """
        weight = Measure("RBPres", rbp.k, tuple((k, v) for k, v in rbp.params if k == "p"))
        low, whole = self.now(rbp), self.values(weight, self.ranked, by=rbp)
        if low is None:
            return None
        beyond = self.beyond(rbp)[~np.isnan(self.scores.values(str(rbp)))]
        unjudged = np.maximum(whole - beyond, 0.0)
        return Residual(low, numbers.mean(unjudged) or 0.0, numbers.mean(beyond) or 0.0)

    def beyond(self, rbp: Measure) -> Values:
        """The weight of the ranks below the end of each list, or below the cut-off."""
        p = rbp.arguments.get("p", rbp.definition.parameters["p"])
        ends = np.minimum(self.ranked.returned, self.ranked.limit(rbp.k))
        return np.array([p**end for end in ends.tolist()])


def judged_queries(target: Target) -> Mask:
    """Which queries have a judgment, relevant or not."""
    return np.bincount(target.query[target.grade >= 0], minlength=target.n) > 0


def fewer(target: Target, gone: Mask) -> Target:
    """Gold without some of its judgments; every query stays."""
    kept = ~gone
    return replace(
        target, query=target.query[kept], grade=target.grade[kept], unit=target.unit[kept]
    )
