"""How likely a set of gates blocks a release: the price of asking many questions at once.

All gates must pass, so a bad system slips through no more often than past its strictest
gate; what grows with every gate is the chance that a good system is blocked by one of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from karat.analysis.limits import Held
from karat.measures import numbers
from karat.measures.numbers import Values
from karat.measures.overall import number_of, percentile_of
from karat.stats.bootstrap import Resampling, resampled_means
from karat.stats.order import percentile_interval

# More queries than this are drawn in bundles of neighbours: as valid, and within memory.
_BUNDLES = 20_000
# Means that differ by less are the same mean, added up in another order.
_SAME = 1e-9


@dataclass(frozen=True, eq=False)
class Hurdle:
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
        """In which resamples a system with this true mean is blocked.

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
        """The figures as they stand in a report."""
        return {"at_limits": self.at_limits, "as_measured": self.as_measured}

    @property
    def because(self) -> str:
        """The figures in one sentence."""
        gates = "1 gate blocks" if self.gates == 1 else f"{self.gates} gates together block"
        left_out = f"; left out: {self.left_out} that cannot be judged or reached"
        return (
            f"{gates} a system that lies exactly on every limit with a chance of"
            f" {_percent(self.at_limits)}, one that is as good as measured with"
            f" {_percent(self.as_measured)}{left_out if self.left_out else ''}"
        )


def hurdle_of(held: Held) -> Hurdle:
    """A limit as a hurdle; where less is wanted, everything is turned round."""
    own = np.where(held.rows, held.scores.values(str(held.measure)), np.nan)
    if (share := percentile_of(held.measure)) is not None:
        return _percentile_hurdle(held, own, share)
    points = np.array([held.summary.mean, held.limit.number, held.passing], dtype=np.float64)
    number = number_of(held.measure)
    if number is numbers.geometric_mean:
        own, points = (np.log(np.maximum(some, numbers.SMALLEST)) for some in (own, points))
    elif number is numbers.total:
        points = points / held.rows.sum()
    elif number is numbers.share_of_keys:
        # Items are what is counted there, so no query says anything about the share.
        own = np.full(len(own), np.nan)
    elif held.share_of is not None:
        own, points = own / held.top, points / held.top
    if held.limit.upper:
        whole = 0.0 if held.share_of is None else 1.0
        own, points = whole - own, whole - points
    measured, limit, needed = points.tolist()
    return Hurdle(
        own,
        measured,
        limit,
        math.inf if held.passing is None else needed,
        beyond=held.limit.strict and held.on_mean,
        size=held.share_of,
    )


def _percentile_hurdle(held: Held, own: Values, share: float) -> Hurdle:
    """A percentile is within its limit when enough values are: a share that must be reached."""
    limit, n = held.limit, int(held.rows.sum())
    met = [limit.met_by(value) for value in own[held.rows].tolist()]
    within = np.full(len(own), np.nan)
    within[held.rows] = met
    wanted = share if limit.upper else 1 - share
    # Of values 1 to n an interval gives the ranks of its ends.
    ranks = percentile_interval(np.arange(1.0, n + 1), share, confidence=held.scores.conventions.ci)
    if held.on_mean or ranks is None:
        needed = (n - 1) * wanted + 1
    else:
        needed = ranks[1] if limit.upper else n + 1 - ranks[0]
    size = n if held.scores.groups is None else None
    return Hurdle(within, sum(met) / n, wanted, needed / n, size=size)


def chance_of_blocking(
    hurdles: Sequence[Hurdle],
    plan: Resampling,
    *,
    groups: NDArray[np.int64] | None = None,
    left_out: int = 0,
) -> Blocking | None:
    """The chance that at least one of the hurdles is missed; None where there is none.

    All hurdles see the same resamples of queries, so that gates which pass and fail
    together are not counted as if each were a chance of its own.
    """
    if not hurdles:
        return None
    at_limits = np.zeros(plan.resamples, dtype=bool)
    as_measured = np.zeros(plan.resamples, dtype=bool)
    means, ties = _resampled(hurdles, plan, groups)
    for hurdle, resampled, tie in zip(hurdles, means.T, ties.T, strict=True):
        places = np.empty(len(resampled))
        places[np.lexsort((tie, resampled))] = (np.arange(len(places)) + 0.5) / len(places)
        at_limits |= hurdle.blocks(hurdle.limit, resampled, places)
        as_measured |= hurdle.blocks(hurdle.measured, resampled, places)
    return Blocking(float(at_limits.mean()), float(as_measured.mean()), len(hurdles), left_out)


def _resampled(
    hurdles: Sequence[Hurdle], plan: Resampling, groups: NDArray[np.int64] | None
) -> tuple[Values, Values]:
    """Each hurdle's mean in each resample, and a number that puts equal means in an order.

    The order is one of chance, but the same for hurdles over the same queries: each query
    brings a number of its own. A mean of queries none of which is drawn is the measured one.
    """
    unit = _units(len(hurdles[0].values), groups)
    chance = np.random.default_rng(plan.seed).random(len(unit))
    sums = []
    for hurdle in hurdles:
        known = ~np.isnan(hurdle.values)
        for column in (np.where(known, hurdle.values, 0.0), known * chance, known):
            sums.append(np.bincount(unit, weights=column))
    drawn = np.vstack(list(resampled_means(np.stack(sums, axis=1), plan)))
    totals, ties, sizes = (drawn[:, column::3] for column in range(3))
    some = np.where(sizes > 0, sizes, 1.0)
    measured = np.array([hurdle.measured for hurdle in hurdles])
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
