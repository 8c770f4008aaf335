"""A gate's limit and what was measured: which number counts, what would pass, and by what chance.

All gates must pass, so a bad system slips through no more often than past its strictest gate; what
grows with every gate is the chance that a good system is blocked by one of them. Verdicts and
their words are in ``gates``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.measures import aggregates
from karat.measures.aggregates import NOTHING, Evidence, Values
from karat.measures.names import Measure
from karat.measures.scores import Scores, Summary, number_of, percentile_of, plan_of
from karat.stats.distributions import tail
from karat.stats.means import Range, mean_intervals, rows_for_perfect
from karat.stats.percentiles import percentile_interval
from karat.stats.proportions import clopper_pearson
from karat.stats.resampling import Resampling, resampled_means

# How finely a mean that would pass is searched for, and how many are tried at a time.
_STEPS, _AT_ONCE = 1024, 32


@dataclass(frozen=True, slots=True)
class Limit:
    """At least (at most, if ``upper``) this number; beyond it, if ``strict``."""

    number: float
    upper: bool = False
    strict: bool = False

    def met_by(self, value: float) -> bool:
        """Return whether a value is on the right side; a rounding error decides nothing."""
        if nearly_equal(value, self.number):
            return not self.strict
        return value < self.number if self.upper else value > self.number

    def end_of(self, ci: tuple[float, float]) -> float:
        """Return the end of an interval that has to be on the right side."""
        return ci[1] if self.upper else ci[0]


def nearly_equal(a: float, b: float) -> bool:
    """Return whether two numbers differ by no more than the rounding of a sum."""
    return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12)


@dataclass(frozen=True, eq=False)
class GateMeasurement:
    """A measure over the marked queries, compared with a limit by its interval or its mean."""

    limit: Limit
    on_mean: bool
    measure: Measure
    scores: Scores
    mask: NDArray[np.bool_]
    summary: Summary

    @property
    def value(self) -> float | None:
        """Return the number that is compared with the limit."""
        ci = self.summary.ci
        if self.on_mean:
            return self.summary.mean
        return None if ci is None else self.limit.end_of(ci)

    @property
    def best(self) -> float | None:
        """Return the best that any system could reach on these queries, where that is known."""
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
        on_the_edge = not self.on_mean and nearly_equal(self.limit.number, self.best)
        return on_the_edge and self.perfect is not None and not self.limit.met_by(self.perfect)

    @cached_property
    def perfect(self) -> float | None:
        """Return the end of the interval if every query had its best value."""
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
        """Return how many queries a perfect result needs to pass, where a formula tells."""
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
        """Return how many queries the measure needs for any interval at all."""
        share = percentile_of(self.measure)
        if share is None:
            return 2
        each_side = tail(self.scores.conventions.ci)
        return math.ceil(math.log(each_side) / math.log(max(share, 1 - share)))

    @property
    def needed(self) -> float | None:
        """Return the mean that would pass at this n; None where that is beyond the best."""
        if self.passing is None or self.best is None:
            return self.passing
        beyond = self.passing < self.best if self.limit.upper else self.passing > self.best
        return None if beyond and not nearly_equal(self.passing, self.best) else self.passing

    @cached_property
    def passing(self) -> float | None:
        """Return the mean that would just pass; None where not even the best values would.

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
        if bounds is None or number_of(self.measure) is not aggregates.mean:
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
        return None if at is None else aggregates.mean(column(at))

    def _pass(self, columns: list[Values]) -> list[bool]:
        """Return whether each of these columns would pass in the place of the measured values."""
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
            return aggregates.independent_keys(self._evidence.of(self.rows))
        own = self.scores.values(str(self.measure))[self.rows]
        counted = number_of(self.measure) is aggregates.mean and np.isin(own, (0, self.top)).all()
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
        """Return the queries that have a value."""
        return self.mask & ~np.isnan(self.scores.values(str(self.measure)))

    @property
    def _ideal(self) -> tuple[Values, Evidence] | None:
        """Return the best value of every query, and the evidence behind it."""
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
        return number_of(self.measure) is aggregates.share_of_keys


def _first(last: int, passes: Callable[[list[int]], list[bool]]) -> int | None:
    """Return the first of the places 0 to ``last`` that passes, where all after it do too."""
    low, high = -1, last + 1
    while high - low > 1:
        step = max(1, (high - low) // _AT_ONCE)
        places = list(range(low + step, high, step))
        found = passes(places)
        at = found.index(True) if True in found else len(places)
        low, high = (places[at - 1] if at else low), (places[at] if at < len(places) else high)
    return None if high > last else high


# More queries than this are drawn in bundles of neighbours: as valid, and within memory.
_BUNDLES = 20_000
# Means that differ by less are the same mean, added up in another order.
_SAME = 1e-9


@dataclass(frozen=True, eq=False)
class GateSimulation:
    """A gate as a mean over queries that must reach ``needed``, or exceed it if ``beyond``.

    ``values`` are NaN for queries that take no part. ``measured`` is their mean, ``limit``
    that of a system which is just good enough; up is good. ``size`` is given where the mean
    is a share: the number of things it is a share of.
    """

    values: Values
    measured: float
    limit: float
    needed: float
    beyond: bool = False
    size: int | None = None

    def blocks(self, true: float, resampled: Values, places: Values) -> NDArray[np.bool_]:
        """Return in which resamples a system with this true mean is blocked.

        A share is as spread as its true value makes it: it is drawn from its binomial
        distribution, at the place that the resample has among all. Any other mean is spread
        as the measured one, so its resamples are moved there.
        """
        if self.size is None:
            means = resampled - self.measured + true
        else:
            from scipy.special import bdtr

            chances = bdtr(np.arange(self.size + 1.0), self.size, min(max(true, 0.0), 1.0))
            means = np.searchsorted(chances, places) / self.size
        return means <= self.needed + _SAME if self.beyond else means < self.needed - _SAME


@dataclass(frozen=True, slots=True)
class Blocking:
    """The chance that at least one gate blocks a system.

    ``at_limits`` is for a system whose true values lie exactly on every limit, ``as_measured``
    for one whose true values are those measured. ``gates`` are counted in, ``left_out`` are
    those that cannot be judged or reached.
    """

    at_limits: float
    as_measured: float
    gates: int
    left_out: int = 0

    def document(self) -> dict[str, float]:
        """Return the figures as they stand in a report."""
        return {"at_limits": self.at_limits, "as_measured": self.as_measured}

    @property
    def because(self) -> str:
        """Return the figures in one sentence."""
        gates = "This gate" if self.gates == 1 else f"These {self.gates} gates"
        left_out = f"; {self.left_out} that cannot be judged or reached are left out"
        return (
            f"{gates} would block a system as good as this one"
            f" {_percent(self.as_measured)} of the time, and a system exactly at every limit"
            f" {_percent(self.at_limits)} of the time{left_out if self.left_out else ''}"
        )


def simulation_of(measurement: GateMeasurement) -> GateSimulation:
    """Return a gate as a mean to reach; where less is better, all signs are turned."""
    own = np.where(measurement.rows, measurement.scores.values(str(measurement.measure)), np.nan)
    if (share := percentile_of(measurement.measure)) is not None:
        return _percentile_simulation(measurement, own, share)
    points = np.array(
        [measurement.summary.mean, measurement.limit.number, measurement.passing], dtype=np.float64
    )
    number = number_of(measurement.measure)
    if number is aggregates.geometric_mean:
        own, points = (np.log(np.maximum(some, aggregates.SMALLEST)) for some in (own, points))
    elif number is aggregates.total:
        points = points / measurement.rows.sum()
    elif number is aggregates.share_of_keys:
        # Items are what is counted there, so no query says anything about the share.
        own = np.full(len(own), np.nan)
    elif measurement.share_of is not None:
        own, points = own / measurement.top, points / measurement.top
    if measurement.limit.upper:
        whole = 0.0 if measurement.share_of is None else 1.0
        own, points = whole - own, whole - points
    measured, limit, needed = points.tolist()
    return GateSimulation(
        own,
        measured,
        limit,
        math.inf if measurement.passing is None else needed,
        beyond=measurement.limit.strict and measurement.on_mean,
        size=measurement.share_of,
    )


def _percentile_simulation(
    measurement: GateMeasurement, own: Values, share: float
) -> GateSimulation:
    """A percentile is within its limit when enough values are: a share that must be reached."""
    limit, n = measurement.limit, int(measurement.rows.sum())
    met = [limit.met_by(value) for value in own[measurement.rows].tolist()]
    within = np.full(len(own), np.nan)
    within[measurement.rows] = met
    wanted = share if limit.upper else 1 - share
    # Of values 1 to n an interval gives the ranks of its ends.
    ranks = percentile_interval(
        np.arange(1.0, n + 1), share, confidence=measurement.scores.conventions.ci
    )
    if measurement.on_mean or ranks is None:
        needed = (n - 1) * wanted + 1
    else:
        needed = ranks[1] if limit.upper else n + 1 - ranks[0]
    size = n if measurement.scores.groups is None else None
    return GateSimulation(within, sum(met) / n, wanted, needed / n, size=size)


def chance_of_blocking(
    simulations: Sequence[GateSimulation],
    plan: Resampling,
    *,
    groups: NDArray[np.int64] | None = None,
    left_out: int = 0,
) -> Blocking | None:
    """Return the chance that at least one gate is missed; None where there is none.

    All gates see the same resamples of queries, so that gates which pass and fail
    together are not counted as if each were a chance of its own.
    """
    if not simulations:
        return None
    at_limits = np.zeros(plan.resamples, dtype=bool)
    as_measured = np.zeros(plan.resamples, dtype=bool)
    means, ties = _resampled(simulations, plan, groups)
    for simulation, resampled, tie in zip(simulations, means.T, ties.T, strict=True):
        places = np.empty(len(resampled))
        places[np.lexsort((tie, resampled))] = (np.arange(len(places)) + 0.5) / len(places)
        at_limits |= simulation.blocks(simulation.limit, resampled, places)
        as_measured |= simulation.blocks(simulation.measured, resampled, places)
    return Blocking(float(at_limits.mean()), float(as_measured.mean()), len(simulations), left_out)


def _resampled(
    simulations: Sequence[GateSimulation], plan: Resampling, groups: NDArray[np.int64] | None
) -> tuple[Values, Values]:
    """Return each gate's mean in each resample, and a number that puts equal means in an order.

    The order is one of chance, but the same for gates over the same queries: each query
    brings a number of its own. A mean of queries none of which is drawn is the measured one.
    """
    unit = _units(len(simulations[0].values), groups)
    chance = np.random.default_rng(plan.seed).random(len(unit))
    sums = []
    for simulation in simulations:
        known = ~np.isnan(simulation.values)
        for column in (np.where(known, simulation.values, 0.0), known * chance, known):
            sums.append(np.bincount(unit, weights=column))
    drawn = np.vstack(list(resampled_means(np.stack(sums, axis=1), plan)))
    totals, ties, sizes = (drawn[:, column::3] for column in range(3))
    some = np.where(sizes > 0, sizes, 1.0)
    measured = np.array([simulation.measured for simulation in simulations])
    return np.where(sizes > 0, totals / some, measured), ties / some


def _units(n: int, groups: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """What is drawn as a whole: each query's group, or where there are many queries a bundle."""
    if groups is not None:
        return np.unique(groups, return_inverse=True)[1]
    return np.arange(n) // -(-n // _BUNDLES)


def _percent(chance: float) -> str:
    if chance < 0.001:
        return "less than 0.1 %"
    return "more than 99.9 %" if chance > 0.999 else f"{100 * chance:.3g} %"
