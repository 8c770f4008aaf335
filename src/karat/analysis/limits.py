"""A limit held against what was measured: which number counts, what would pass, who could.

One measure over some of the queries. Verdicts and their words are the business of ``gates``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.measures import numbers
from karat.measures.intervals import plan_of
from karat.measures.names import Measure
from karat.measures.numbers import NOTHING, Evidence, Values
from karat.measures.overall import number_of, percentile_of
from karat.measures.scores import Scores, Summary
from karat.stats.means import Range, mean_intervals, rows_for_perfect
from karat.stats.proportions import clopper_pearson
from karat.stats.quantiles import tail

# How finely a mean that would pass is searched for, and how many are tried at a time.
_STEPS, _AT_ONCE = 1024, 32


@dataclass(frozen=True, slots=True)
class Limit:
    """At least (at most, if ``upper``) this number; beyond it, if ``strict``."""

    number: float
    upper: bool = False
    strict: bool = False

    def met_by(self, value: float) -> bool:
        """Whether a value is on the right side; a rounding error decides nothing."""
        if same(value, self.number):
            return not self.strict
        return value < self.number if self.upper else value > self.number

    def end_of(self, ci: tuple[float, float]) -> float:
        """The end of an interval that has to be on the right side."""
        return ci[1] if self.upper else ci[0]


def same(a: float, b: float) -> bool:
    """Whether two numbers differ by no more than the rounding of a sum."""
    return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12)


@dataclass(frozen=True, eq=False)
class Held:
    """A limit held against a measure over the marked queries: against its interval, or its mean."""

    limit: Limit
    on_mean: bool
    measure: Measure
    scores: Scores
    mask: NDArray[np.bool_]
    summary: Summary

    @property
    def value(self) -> float | None:
        """What is held against the limit."""
        ci = self.summary.ci
        if self.on_mean:
            return self.summary.mean
        return None if ci is None else self.limit.end_of(ci)

    @property
    def best(self) -> float | None:
        """The best that any system could reach on these queries, where that is known."""
        definition = self.measure.definition
        if definition.better == "none":
            return None
        if self.limit.upper:
            return 0.0
        if definition.better == "lower":
            return 1.0 if definition.bounded else None
        return self.summary.ceiling

    @property
    def unreachable(self) -> bool:
        """Whether no system passes on this gold, however many queries like these there are."""
        if self.best is None:
            return False
        if not self.limit.met_by(self.best):
            return True
        # Even a perfect result has an interval, which ends short of the best value at any n.
        on_the_edge = not self.on_mean and same(self.limit.number, self.best)
        return on_the_edge and self.perfect is not None and not self.limit.met_by(self.perfect)

    @cached_property
    def perfect(self) -> float | None:
        """The end of the interval if every query had its best value."""
        ideal = self._ideal
        if ideal is None:
            return None
        name = str(self.measure)
        scores = replace(
            self.scores,
            measures=(self.measure,),
            table=pl.DataFrame({name: np.where(self.rows, ideal[0], np.nan)}, nan_to_null=True),
            evidence={name: ideal[1]},
            tied={},
        )
        ci = scores.summarise(self.mask)[name].ci
        return None if ci is None else self.limit.end_of(ci)

    def queries_for_perfect(self) -> int | None:
        """How many queries a perfect result needs to pass, where a formula tells."""
        ideal = self._ideal
        grouped = self.scores.groups is not None
        if ideal is None or grouped or self._counts_keys:
            return None
        if np.ptp(ideal[0][self.rows]) > 0:
            return None
        share = self.limit.number / self.top
        share = 1 - share if self.limit.upper else share
        return rows_for_perfect(share, plan_of(self.scores.conventions))

    def queries_for_interval(self) -> int:
        """How many queries the measure needs for any interval at all."""
        share = percentile_of(self.measure)
        if share is None:
            return 2
        each_side = tail(self.scores.conventions.ci)
        return math.ceil(math.log(each_side) / math.log(max(share, 1 - share)))

    @property
    def needed(self) -> float | None:
        """The mean that would pass at this n; None where that is beyond the best."""
        if self.passing is None or self.best is None:
            return self.passing
        beyond = self.passing < self.best if self.limit.upper else self.passing > self.best
        return None if beyond and not same(self.passing, self.best) else self.passing

    @cached_property
    def passing(self) -> float | None:
        """The mean that would just pass; None where not even the best values would.

        For a share it is counted out. Any other mean is found by moving the measured values in
        equal proportion: towards the best that each query could have, or where they pass
        already, towards the worst. A number without bounds moves in proportion to itself.
        """
        mean, value = self.summary.mean, self.value
        if self.on_mean:
            return self.limit.number
        if mean is None or value is None:
            return None
        if self._counts_keys and self.share_of is not None:
            return self._passing_keys(self.share_of)
        bounds = self._range
        if bounds is None or number_of(self.measure) is not numbers.mean:
            if value * self.limit.number > 0:
                return mean * self.limit.number / value
            return self.limit.number + (mean - value)
        if self.share_of is not None:
            return self._passing_share(self.share_of)
        return self._passing_mean(bounds, self.limit.met_by(value))

    def _passing_keys(self, n: int) -> float | None:
        def passes(at: list[int]) -> list[bool]:
            counts = [n - k if self.limit.upper else k for k in at]
            ends = [clopper_pearson(k, n, confidence=self.scores.conventions.ci) for k in counts]
            return [self.limit.met_by(self.limit.end_of(one)) for one in ends]

        at = _first(n, passes)
        return None if at is None else (n - at if self.limit.upper else at) / n

    def _passing_share(self, n: int) -> float | None:
        def column(at: int) -> Values:
            found = n - at if self.limit.upper else at
            return np.where(np.arange(n) < found, self.top, 0.0)

        at = _first(n, lambda some: self._pass([column(one) for one in some]))
        return None if at is None else (n - at if self.limit.upper else at) / n * self.top

    def _passing_mean(self, bounds: Range, passes: bool) -> float | None:
        own = self.scores.values(str(self.measure))[self.rows]
        ideal = self._ideal
        best = np.full(len(own), bounds[0 if self.limit.upper else 1])
        if ideal is not None:
            best = ideal[0][self.rows]
        best = np.minimum(own, best) if self.limit.upper else np.maximum(own, best)
        worst = np.full(len(own), bounds[1 if self.limit.upper else 0])
        start, end = (worst, own) if passes else (own, best)

        def column(at: int) -> Values:
            return np.asarray(start + (end - start) * (at / _STEPS))

        at = _first(_STEPS, lambda some: self._pass([column(one) for one in some]))
        return None if at is None else numbers.mean(column(at))

    def _pass(self, columns: list[Values]) -> list[bool]:
        """Whether each of these columns would pass in the place of the measured values."""
        groups = self.scores.groups
        ends = mean_intervals(
            np.stack(columns, axis=1),
            plan_of(self.scores.conventions),
            ranges=[self._range] * len(columns),
            groups=None if groups is None else groups[self.rows],
        )
        return [self.limit.met_by(self.limit.end_of((low, high))) for low, high in ends.tolist()]

    @property
    def _range(self) -> Range | None:
        return self.scores.range_of(self.measure, self.rows)

    @cached_property
    def share_of(self) -> int | None:
        """The number of things of which the mean is a share, where that alone decides its interval.

        A mean of values that are all 0 or ``top`` is a share times ``top``.
        """
        if self._counts_keys:
            return numbers.independent_keys(self._evidence.of(self.rows))
        own = self.scores.values(str(self.measure))[self.rows]
        counted = number_of(self.measure) is numbers.mean and np.isin(own, (0, self.top)).all()
        plain = self.scores.groups is None and self.scores.conventions.interval != "percentile"
        return len(own) if counted and plain and self.measure.definition.bounded else None

    @cached_property
    def top(self) -> float:
        """The highest value that any of these queries could have, for a measure from 0 to 1."""
        name = str(self.measure)
        if name not in self.scores.ceilings or self._counts_keys or not self.rows.any():
            return 1.0
        return float(np.nanmax(self.scores.ceilings[name][0][self.rows], initial=0.0)) or 1.0

    @cached_property
    def rows(self) -> NDArray[np.bool_]:
        """The queries that have a value."""
        return self.mask & ~np.isnan(self.scores.values(str(self.measure)))

    @property
    def _ideal(self) -> tuple[Values, Evidence] | None:
        """The best value of every query, and the evidence behind it."""
        if self.best is None:
            return None
        if self.limit.upper:
            nothing = np.zeros(len(self._evidence.value))
            return np.zeros(len(self.mask)), replace(self._evidence, value=nothing)
        if str(self.measure) in self.scores.ceilings:
            return self.scores.ceilings[str(self.measure)]
        return np.full(len(self.mask), self.best), self._evidence

    @property
    def _evidence(self) -> Evidence:
        return self.scores.evidence.get(str(self.measure), NOTHING)

    @property
    def _counts_keys(self) -> bool:
        return number_of(self.measure) is numbers.share_of_keys


def _first(last: int, passes: Callable[[list[int]], list[bool]]) -> int | None:
    """The first of the places 0 to ``last`` that passes, where all after it do too."""
    low, high = -1, last + 1
    while high - low > 1:
        step = max(1, (high - low) // _AT_ONCE)
        places = list(range(low + step, high, step))
        found = passes(places)
        at = found.index(True) if True in found else len(places)
        low, high = (places[at - 1] if at else low), (places[at] if at < len(places) else high)
    return None if high > last else high
