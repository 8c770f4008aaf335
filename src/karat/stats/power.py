"""What tests can detect, and how often a system misses thresholds by chance: by simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from karat.stats.distributions import (
    NORMAL,
    Ints,
    Values,
    binomial,
    t_quantile,
    tail,
    two_sided_z,
    units_of,
)
from karat.stats.means import Resampling, resampled_means

# With fewer differing queries than this, what was seen of them says too little of others.
FEWEST_DIFFERING = 10

# Simulated sets of queries, and the differing queries up to which they are simulated; with more
# of them the sum is normal for all purposes.
_SETS = 600
_SIMULATED_UP_TO = 100

# With a few large differences, as good as fewer than this of one size, signs can be counted.
_FEW = 12

# The largest true difference that is tried, in multiples of the mean size of the differences.
_LARGEST = 4.0

# The largest number of queries to search for.
_MOST_QUERIES = 2**50

# More rows than this are drawn in bundles of neighbours: as valid, and within memory.
_BUNDLES = 20_000
# Means that differ by less are the same mean, added up in another order.
_SAME = 1e-9


@dataclass(frozen=True, eq=False)
class Power:
    """The power of the paired randomisation test for systems that differ as these differences do.

    Simulated systems differ on as many queries as those at hand, and by as much. A true difference
    comes about in two ways: more of the queries differ in one direction, or each of them by the
    same amount more. The result holds for both.
    """

    delta: Values
    groups: Ints | None = None
    confidence: float = 0.95
    power: float = 0.8
    seed: int = 0

    @cached_property
    def why_unknown(self) -> str | None:
        """Return why no difference can be named; None if one can."""
        differing, units = len(self._sizes), self._units
        what = "queries" if self.groups is None else "groups of queries"
        if differing < FEWEST_DIFFERING:
            return (
                f"only {differing} of {units} {what} differ; at least {FEWEST_DIFFERING} must,"
                " to say what a test could detect"
            )
        if self._of(units, _LARGEST) < self.power:
            return (
                f"{units} {what} like these are too few: a few large differences outweigh the rest"
            )
        return None

    def detectable(self) -> float | None:
        """Return the smallest true difference that the test finds with this power, or None."""
        if self.why_unknown is not None:
            return None
        low, high = 0.0, _LARGEST
        while high - low > 0.01 * high:
            middle = (low + high) / 2
            enough = self._of(self._units, middle) >= self.power
            low, high = (low, middle) if enough else (middle, high)
        return high * self._mean

    def queries_needed(self, difference: float) -> int | None:
        """Return the number of queries at which the test finds a true ``difference``, or None."""
        if len(self._sizes) < FEWEST_DIFFERING or not difference > 0:
            return None
        effect = difference / self._mean
        mean, null, rest = self._normal(effect)
        root = (two_sided_z(self.confidence) * null + NORMAL.inv_cdf(self.power) * rest) / mean
        if not root < math.sqrt(_MOST_QUERIES):
            return None
        units = root**2
        if units * len(self._sizes) / self._units <= _SIMULATED_UP_TO:
            units = self._simulated_need(min(effect, _LARGEST), units)
        return math.ceil(units * len(self.delta) / self._units - 1e-9)

    def _simulated_need(self, effect: float, guess: float) -> int:
        high = max(2, math.ceil(guess))
        while self._of(high, effect) < self.power:
            high *= 2
        low = 1
        while high - low > max(1, high // 64):
            middle = (low + high) // 2
            low, high = (low, middle) if self._of(middle, effect) >= self.power else (middle, high)
        return high

    @cached_property
    def _units(self) -> int:
        """Return the number of queries, or of groups of queries."""
        return len(np.unique(units_of(len(self.delta), self.groups)))

    @cached_property
    def _sizes(self) -> Values:
        """Return how far each differing query, or group of queries as a whole, differs."""
        sizes = np.abs(np.bincount(units_of(len(self.delta), self.groups), weights=self.delta))
        return sizes[sizes > 1e-12 * max(1.0, float(sizes.max(initial=0.0)))]

    @property
    def _mean(self) -> float:
        """Return the mean size of the differences, over all queries."""
        return float(self._sizes.sum()) / len(self.delta)

    def _normal(self, effect: float) -> tuple[float, float, float]:
        """Return the mean of a query's (or group's) difference, its spread under the null and not.

        ``effect`` is the true difference in multiples of the mean size.
        """
        mean = effect * float(self._sizes.sum()) / self._units
        square = float((self._sizes**2).sum()) / self._units
        square += mean**2 * self._units / len(self._sizes)
        return mean, math.sqrt(square), math.sqrt(max(0.0, square - mean**2))

    @cached_property
    def _step(self) -> float:
        """Return half the step between possible sums, if all differences are multiples of one."""
        smallest = float(self._sizes.min())
        for parts in (1, 2, 3):
            multiples = self._sizes / smallest * parts
            if multiples.max() < 64 and np.abs(multiples - np.rint(multiples)).max() < 1e-6:
                return smallest / parts
        return 0.0

    def _of(self, units: int, effect: float) -> float:
        """Return the power with so many queries (or groups), the less of the two ways to differ."""
        if units * len(self._sizes) / self._units > _SIMULATED_UP_TO:
            mean, null, rest = self._normal(effect)
            reach = math.sqrt(units) * mean - two_sided_z(self.confidence) * null
            return NORMAL.cdf(reach / max(rest, 1e-300))
        sizes, places = self._own_sets if units == self._units else self._sets(units)
        turned = np.where(places < (1 + effect) / 2, sizes, -sizes)
        more = effect * float(self._sizes.mean())
        moved = np.where(places < 0.5, sizes, -sizes) + np.where(sizes > 0, more, 0.0)
        return min(self._rejected(turned, self._step), self._rejected(moved, 0.0))

    def _rejected(self, deltas: Values, step: float) -> float:
        """Return how many of these sets the randomisation test rejects.

        A sum of random signs is normal, but for its short tails (Cornish and Fisher) and its
        steps. Where very few queries differ by much, not even all signs alike are rare enough.
        """
        squares = deltas**2
        square = squares.sum(axis=1)
        fourth = (squares**2).sum(axis=1) / np.where(square > 0, square, 1.0) ** 2
        z = two_sided_z(self.confidence)
        least = step + (z - (z**3 - 3 * z) / 12 * fourth - 1e-9) * np.sqrt(square)
        total = np.abs(deltas.sum(axis=1))
        rejected = total >= least
        few = np.flatnonzero(rejected & (fourth > 1 / _FEW))
        rejected[few] = self._enough_matter(deltas[few], total[few])
        return float(rejected.mean())

    def _enough_matter(self, deltas: Values, total: Values) -> NDArray[np.bool_]:
        """Return whether enough differences are left beside those that could have any sign.

        The smallest can, up to what speaks against the total already.
        """
        smallest_first = np.cumsum(np.sort(np.abs(deltas), axis=1), axis=1)
        against = (smallest_first[:, -1] - total) / 2 + 1e-9 * smallest_first[:, -1]
        matter = (smallest_first > against[:, None]).sum(axis=1)
        return np.asarray(matter > 1 - math.log2(2 * tail(self.confidence)))

    @cached_property
    def _own_sets(self) -> tuple[Values, Values]:
        return self._sets(self._units)

    def _sets(self, units: int) -> tuple[Values, Values]:
        """Draw sets: the sizes of their differences, and a number each for their direction."""
        rng = np.random.default_rng([self.seed, units, len(self._sizes)])
        counts = rng.binomial(units, len(self._sizes) / self._units, _SETS)
        width = max(1, int(counts.max()))
        sizes = self._sizes[rng.integers(0, len(self._sizes), (_SETS, width))]
        sizes[np.arange(width) >= counts[:, None]] = 0.0
        return sizes, rng.random((_SETS, width))


def detectable_by_t(standard_error: float, df: float, *, confidence: float = 0.95) -> float:
    """Return the true difference that a two-sided t test finds 8 times in 10; NaN without df."""
    if not df > 0:
        return math.nan
    return (t_quantile(1 - tail(confidence), df) + t_quantile(0.8, df)) * standard_error


@dataclass(frozen=True, eq=False)
class MeanThreshold:
    """A mean over rows that must reach ``needed``, or exceed it if ``beyond``; up is good.

    ``values`` are NaN for rows that take no part. ``measured`` is their mean, ``limit`` that of a
    system which is just good enough. ``size`` is given where the mean is a share: the number of
    things it is a share of.
    """

    values: Values
    measured: float
    limit: float
    needed: float
    beyond: bool = False
    size: int | None = None

    def missed(self, true: float, resampled: Values, places: Values) -> NDArray[np.bool_]:
        """Return in which resamples a system with this true mean misses the threshold.

        A share is as spread as its true value makes it: it is drawn from its binomial
        distribution, at the place that the resample has among all. Any other mean is spread
        as the measured one, so its resamples are moved there.
        """
        if self.size is None:
            means = resampled - self.measured + true
        else:
            counts, chances = binomial(self.size, min(max(true, 0.0), 1.0))
            drawn = np.searchsorted(np.cumsum(chances), places)
            means = counts[np.minimum(drawn, len(counts) - 1)] / self.size
        return means <= self.needed + _SAME if self.beyond else means < self.needed - _SAME


def chance_of_missing(
    thresholds: Sequence[MeanThreshold], plan: Resampling, *, groups: Ints | None = None
) -> tuple[float, float] | None:
    """Return the chance that a system misses at least one threshold; None where there is none.

    The first chance is that of a system exactly at every limit, the second that of one as good as
    measured. All thresholds see the same resamples of rows, so that those which are missed
    together are not counted as if each were a chance of its own. Equal means are put into an order
    of chance, the same for thresholds over the same rows: each row brings a number of its own. A
    mean of rows none of which is drawn is the measured one.
    """
    if not thresholds:
        return None
    n = len(thresholds[0].values)
    unit = np.arange(n) // -(-n // _BUNDLES) if groups is None else units_of(n, groups)
    chance = np.random.default_rng(plan.seed).random(len(unit))
    sums = []
    for threshold in thresholds:
        has_value = ~np.isnan(threshold.values)
        for column in (np.where(has_value, threshold.values, 0.0), has_value * chance, has_value):
            sums.append(np.bincount(unit, weights=column))
    drawn = resampled_means(np.stack(sums, axis=1), plan)
    missed = np.zeros((2, len(drawn)), dtype=bool)
    for at, threshold in enumerate(thresholds):
        totals, ties, sizes = drawn[:, 3 * at : 3 * at + 3].T
        some = np.where(sizes > 0, sizes, 1.0)
        means = np.where(sizes > 0, totals / some, threshold.measured)
        places = np.empty(len(means))
        places[np.lexsort((ties / some, means))] = (np.arange(len(places)) + 0.5) / len(places)
        missed[0] |= threshold.missed(threshold.limit, means, places)
        missed[1] |= threshold.missed(threshold.measured, means, places)
    return float(missed[0].mean()), float(missed[1].mean())
