"""A run as the rules of the playbook see it: values where they were measured, ceilings, tests.

Only queries with gold that the run answers take part: a call that failed, or was never made,
says nothing of the ranking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.analysis.failures.gold_ranks import Way, way_of
from karat.analysis.failures.kept import kept_by
from karat.analysis.segments import By
from karat.analysis.staged import RAW, REORDERING, SIEVES, Staged
from karat.analysis.thresholds import Thresholds
from karat.errors import MissingInputError
from karat.measures import numbers
from karat.measures.names import parse_measure
from karat.measures.numbers import Values
from karat.measures.ranked import Listing, Ranked, ideal_of
from karat.measures.scores import Scores
from karat.measures.valuing import values_of
from karat.stats.paired import randomisation
from karat.tables import Queries

Mask = NDArray[np.bool_]

# How far two floats that are equal on paper may lie apart.
_SAME = 1e-9
NO_LISTS = "needs the lists themselves, which a store does not keep"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found: one sentence, its figures as data, and where to look next."""

    rule: str
    sentence: str
    figures: Mapping[str, Any]
    look_at: str

    def document(self) -> dict[str, Any]:
        """The finding as it stands in a report."""
        return {
            "rule": self.rule,
            "sentence": self.sentence,
            "figures": dict(self.figures),
            "look_at": self.look_at,
        }


@dataclass(frozen=True, eq=False)
class Cut:
    """Lists cut at a rank to which they were logged."""

    scores: Scores
    k: int


@dataclass(frozen=True, eq=False)
class Case:
    """What the rules look at. A rule that lacks an input raises MissingInputError."""

    staged: Staged
    queries: Queries | None
    lines: Thresholds
    baseline: Staged | None = None
    by: Sequence[By] = ()
    # What takes a while and more than one rule asks for.
    remembered: dict[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def answered(self) -> Mask:
        """The queries with gold that are in the run and whose call did not fail."""
        return (self.staged.final.status == "scored").to_numpy()

    @property
    def n(self) -> int:
        """How many there are of them."""
        return int(self.answered.sum())

    @property
    def reranked(self) -> bool:
        """Whether the log shows that something gives the retriever's list another order."""
        if self.named_reranker or any(name in self.staged.line for name in REORDERING):
            return True
        return bool(self.before_order) and bool(self.moved.any())

    @property
    def named_reranker(self) -> bool:
        """Whether the log says that there is a reranker: its list, its time or its name."""
        meta, calls = self.staged.final.meta, self.staged.calls
        named = any(str(key).startswith("rerank") and value for key, value in meta.items())
        timed = calls is not None and "latency.rerank" in calls.columns
        return "rerank" in self.staged.line or named or timed

    @cached_property
    def way(self) -> Way:
        """The lists on the way to the final one."""
        if any(one.trace is None for one in (self.staged.final, *self.staged.line.values())):
            raise MissingInputError(NO_LISTS)
        return way_of(self.staged)

    @cached_property
    def before_order(self) -> list[str]:
        """The stages in the log that come before anything puts items in another order."""
        return [name for name in (RAW, *SIEVES) if name in self.staged.line]

    @cached_property
    def moved(self) -> Mask:
        """The queries whose nDCG changed and whose list really got another order.

        A list that holds nothing but items of the one before it, in its order, was filtered or
        cut, and not reranked.
        """
        near = self.near
        before, after = self.sieved("nDCG", near.k), self.values("nDCG", near)
        changed = self.answered & (before != after)
        untold = changed & ~self.way.reordered.there
        moved: Mask = changed & ~kept_by(self.staged, self.way, untold).in_order
        return moved

    @property
    def alpha(self) -> float:
        """The chance of a wrong alarm that a test may have."""
        return self.staged.final.conventions.alpha

    def goes_to(self, scores: Scores) -> int:
        """The last rank of some lists that was measured."""
        known = self.staged.depth(scores).known
        return min(known, scores.conventions.depth or known)

    def reaches(self, scores: Scores, k: int) -> bool:
        """Whether a value at this cut-off was measured."""
        most = scores.conventions.depth
        return self.staged.depth(scores).reaches(k) and (most is None or k <= most)

    @cached_property
    def near(self) -> Cut:
        """The final lists at the near cut-off."""
        return self.within(self.staged.final, self.lines.near, "final")

    @cached_property
    def far(self) -> Cut:
        """The raw lists at the far cut-off, or as deep as they go, at least twice the near one."""
        raw, wanted = self.staged.raw, self.lines.far
        deepest = self.goes_to(raw)
        if not self.reaches(raw, wanted) and deepest >= 2 * self.lines.near:
            return Cut(raw, deepest)
        return self.within(raw, wanted, "raw")

    @cached_property
    def miss(self) -> Cut:
        """The final lists where a query counts as missed, or as deep as they go, if not nearer."""
        final, wanted = self.staged.final, self.lines.miss
        deepest = self.goes_to(final)
        if not self.reaches(final, wanted) and deepest >= self.lines.near:
            return Cut(final, deepest)
        return self.within(final, wanted, "final")

    def within(self, scores: Scores, k: int, what: str) -> Cut:
        """Lists at a cut-off, if they were logged that far."""
        if scores.trace is None:
            raise MissingInputError(NO_LISTS)
        if not self.reaches(scores, k):
            raise MissingInputError(
                f"needs a {what} list of {k}; the log goes to {self.goes_to(scores)}"
            )
        return Cut(scores, k)

    def values(self, name: str, cut: Cut) -> Values:
        """A measure at a cut-off for each query, NaN for those that take no part."""
        found = values_of(parse_measure(f"{name}@{cut.k}"), self._ranked(cut), self.staged.gold)
        return np.where(self.answered, found, np.nan)

    def sieved(self, name: str, k: int) -> Values:
        """The same for each query's last list before anything put it in another order.

        That is the one after the filters that were logged for it, else the raw one.
        """
        found = self.values(name, Cut(self.staged.raw, k))
        for at, scores in enumerate(self.staged.line.values()):
            here = self.way.sieved.at == at
            if here.any():
                found = np.where(here, self.values(name, Cut(scores, k)), found)
        return found

    def ceiling(self, name: str, k: int) -> Values:
        """The best value that the gold of each query allows."""
        gold = self.staged.gold
        ideal = ideal_of(gold.target(np.arange(len(gold.query_ids))))
        found = values_of(parse_measure(f"{name}@{k}"), ideal, gold)
        return np.where(self.answered, found, np.nan)

    def listed_values(self, name: str, cut: Cut) -> Values:
        """The same for a measure that looks at every item in the lists that were kept."""
        lists = kept_lists(cut)
        listing = Listing(lists["row"].to_numpy(), lists["rank"].to_numpy(), lists)
        ranked = replace(self._ranked(cut), listing=listing)
        found = values_of(parse_measure(f"{name}@{cut.k}"), ranked, self.staged.gold)
        return np.where(self.answered, found, np.nan)

    def shown(self, cut: Cut) -> Values:
        """How many of the places down to a cut-off are filled, NaN where none is."""
        filled = np.minimum(self._ranked(cut).returned, cut.k)
        return np.where(filled > 0, filled, np.nan)

    def _ranked(self, cut: Cut) -> Ranked:
        if cut.scores.trace is None:
            raise MissingInputError(NO_LISTS)
        return cut.scores.trace.ranked

    def p_of(self, delta: Values) -> float:
        """The chance of a mean difference as large if there were none; NaN takes no part."""
        known = ~np.isnan(delta)
        conventions, groups = self.staged.final.conventions, self.staged.final.groups
        found = randomisation(
            delta[known][:, None],
            resamples=conventions.permutations,
            seed=conventions.seed,
            groups=None if groups is None else groups[known],
        )
        return float(found[0])


def kept_lists(cut: Cut) -> pl.DataFrame:
    """The items of each list down to a cut-off, if so many were kept."""
    lists, trace = cut.scores.lists, cut.scores.trace
    longest = 0 if trace is None else int(trace.ranked.returned.max(initial=0))
    kept = 0 if lists is None else int(lists["rank"].to_numpy().max(initial=0))
    if lists is None or kept < min(cut.k, longest):
        raise MissingInputError(f"needs the top {cut.k} items of each list; {kept} were kept")
    return lists.filter(lists["rank"] <= cut.k)


def mean(values: Values) -> float:
    """The mean of the values that are known."""
    found = numbers.mean(values)
    if found is None:
        raise MissingInputError("needs a query with gold that the run answers")
    return found


def at_least(value: float, line: float) -> bool:
    """Whether a value reaches a line, give or take the last bits."""
    return value >= line - _SAME


def short(value: float, line: float | None = None) -> str:
    """A share as one says it, with so many decimals that it stays on its side of a line.

    >>> short(0.931), short(1.0), short(0.0), short(0.7962, 0.8)
    ('.93', '1', '0', '.796')
    """
    text = f"{value:.2f}"
    for decimals in (2, 3, 4):
        text = f"{value:.{decimals}f}"
        if line is None or at_least(float(text), line) == at_least(value, line):
            break
    whole = float(text)
    return f"{whole:.0f}" if whole in (0.0, 1.0) else text.removeprefix("0")
