"""Intervals for means by resampling whole rows, or whole groups of rows that belong together.

All sums over resamples are exact, so the same values, seed and plan give the same bits on any
number of threads, however many other columns are resampled with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from karat.errors import UsageError
from karat.stats.exact import Places, Values, on_grid, rows_of, sums_by
from karat.stats.proportions import wilson
from karat.stats.quantiles import NORMAL, tail, two_sided_t

# With less than two rows' worth of success or failure, resamples see too little of an end.
# bench/simulate.py holds this number to account: below 1.75 intervals of reciprocal ranks and
# nDCG miss the truth too often, above 2 those of recalls hold it too often.
_NEAR_AN_END = 2 - 1e-9

# Drawing from a million rows would take minutes; drawing bundles of them does not.
_MANY_ROWS, _BUNDLES = 20_000, 10_000

# Cells of the table of counts that are held at one time, 8 MB a table.
_CELLS = 1_000_000


@dataclass(frozen=True, slots=True)
class Resampling:
    """How often to resample, from which seed, and how the resamples become an interval."""

    confidence: float = 0.95
    resamples: int = 2000
    seed: int = 0
    method: Literal["bca", "percentile"] = "bca"

    def __post_init__(self) -> None:
        tail(self.confidence)
        if self.resamples < 1:
            raise UsageError(f"resamples is {self.resamples}; it is at least 1")
        if self.seed < 0:
            raise UsageError(f"seed is {self.seed}; it is at least 0")
        if self.method not in ("bca", "percentile"):
            raise UsageError(f"unknown method {self.method!r}; known: bca, percentile")


@dataclass(frozen=True, slots=True)
class _Units:
    """What is drawn: rows, bundles of rows, or groups.

    ``sums`` has one row a column of the data and counts in multiples of that row's ``grid``.
    """

    sums: Values
    sizes: Values
    grid: Values

    def __len__(self) -> int:
        return len(self.sizes)

    def of(self, columns: list[int]) -> _Units:
        return _Units(self.sums[columns], self.sizes, self.grid[columns])

    def means(self) -> Values:
        # The same operations as for a resample, so that a resample with equal sums ties.
        return np.asarray(self.sums.sum(axis=1) / self.sizes.sum() * self.grid)


def mean_intervals(
    columns: Values,
    plan: Resampling,
    *,
    tops: Sequence[float | None] | None = None,
    groups: Places | None = None,
) -> Values:
    """The interval of each column's mean as (low, high), one row a column of ``columns``.

    Rows of NaN where there are fewer than two rows (or groups). ``groups`` names the group of
    each row: whole groups are drawn, and a mean is the sum of sums over the sum of sizes.

    ``percentile`` is the plain recipe: the sorted means at alpha/2 and 1 - alpha/2.

    ``bca`` corrects for bias and skew (Efron 1987) and takes Student's quantile with n - 1
    degrees of freedom where the recipe has the normal one, since with 20 rows the spread is
    itself uncertain; the difference is 7 % at 20 rows and 1 % at 100. ``tops[j]`` says that the
    values of column j lie in [0, tops[j]], and then three kinds of column are not resampled:

    - constant, or within two rows' worth of an end: Wilson's interval with the mean over the
      top in the place of a share, which is wider than needed;
    - of two values only, without groups: Wilson's interval for the share of the larger one.

    More than 20,000 rows are drawn as about 10,000 bundles made at random, which for independent
    rows is as good: the spread of a sum of bundles is the spread of the sum of their rows.
    """
    return intervals_at((plan.confidence,), columns, plan, tops=tops, groups=groups)[0]


def intervals_at(
    confidences: Sequence[float],
    columns: Values,
    plan: Resampling,
    *,
    tops: Sequence[float | None] | None = None,
    groups: Places | None = None,
) -> list[Values]:
    """What ``mean_intervals`` gives at several confidences, all from the same resamples."""
    rows = rows_of(columns)
    units = _units(rows, groups, plan.seed)
    if len(units) < 2:
        return [np.full((len(rows), 2), np.nan) for _ in confidences]
    plans = [replace(plan, confidence=one) for one in confidences]
    # A mean on the grid may differ from the true one in its last bits.
    lowest, highest = rows.min(axis=1, keepdims=True), rows.max(axis=1, keepdims=True)
    if plan.method == "percentile":
        means = _sorted_means(units, plan)
        return [np.clip(_percentile(means, one), lowest, highest) for one in plans]
    tops = [None] * len(rows) if tops is None else tops
    n = _effective_number(units) if groups is not None else rows.shape[1]
    known = [
        [_without_resampling(*one, n, groups is not None, plan.confidence) for plan in plans]
        for one in zip(rows, tops, strict=True)
    ]
    left = [j for j, ends in enumerate(known) if ends[0] is None]
    part = units.of(left)
    means = _sorted_means(part, plan) if left else np.empty((0, plan.resamples))
    found = []
    for at, one in enumerate(plans):
        intervals = np.array([ends[at] or (np.nan, np.nan) for ends in known])
        if left:
            ends = _bca(part, means, one, df=n - 1 if groups is not None else len(units) - 1)
            intervals[left] = np.clip(ends, lowest[left], highest[left])
        found.append(intervals)
    return found


def resampled_means(
    columns: Values, plan: Resampling, *, groups: Places | None = None
) -> Iterator[Values]:
    """The means of the resamples, in chunks of (resamples, columns).

    Every column sees the same draws, so a chunk's rows are joint over the columns. The draws
    depend only on the seed and the number of rows (or groups).
    """
    return _resampled(_units(rows_of(columns), groups, plan.seed), plan)


def _units(rows: Values, groups: Places | None, seed: int) -> _Units:
    n = rows.shape[1]
    if groups is not None:
        _, member = np.unique(groups, return_inverse=True)
    elif n > _MANY_ROWS:
        # At random, since neighbours in a file may be alike.
        places = np.random.default_rng([seed, n, n]).permutation(n)
        member = places // math.ceil(n / _BUNDLES)
    else:
        sums, grid = on_grid(rows)
        return _Units(sums, np.ones(n), grid)
    sizes = np.bincount(member).astype(np.float64)
    sums, grid = on_grid(sums_by(member, rows))
    return _Units(sums, sizes, grid)


def _effective_number(units: _Units) -> int:
    """As many equal groups as would spread the mean as widely, if groups hold equal values."""
    return max(1, int(units.sizes.sum() ** 2 / (units.sizes**2).sum()))


def _without_resampling(
    values: Values, top: float | None, n: int, grouped: bool, confidence: float
) -> tuple[float, float] | None:
    """The interval of a column that resamples would misjudge; None for all others."""
    low, high = float(values.min()), float(values.max())
    if top is None or top <= 0:
        return (low, high) if low == high else None
    if low < -1e-9 * top or high > top + 1e-9 * top:
        raise UsageError(f"values from {low} to {high} do not lie between 0 and their top, {top}")
    mean = low if low == high else float(values.mean())
    share = min(max(mean / top, 0.0), 1.0)
    if low == high or n * min(share, 1 - share) < _NEAR_AN_END:
        start, end = wilson(share, n, confidence=confidence)
        return start * top, end * top
    larger = np.count_nonzero(values == high)
    if grouped or larger + np.count_nonzero(values == low) < len(values):
        return None
    start, end = wilson(larger / n, n, confidence=confidence)
    return low + start * (high - low), low + end * (high - low)


def _resampled(units: _Units, plan: Resampling) -> Iterator[Values]:
    n = len(units)
    rng = np.random.default_rng([plan.seed, n])
    table = np.vstack([units.sums, units.sizes]).T
    at_once = max(1, _CELLS // max(n, 1))
    for start in range(0, plan.resamples if n else 0, at_once):
        size = min(at_once, plan.resamples - start)
        drawn = rng.integers(0, n, size=(size, n))
        drawn += np.arange(size)[:, None] * n
        counts = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n)
        totals = counts.astype(np.float64) @ table
        yield totals[:, :-1] / totals[:, -1:] * units.grid


def _sorted_means(units: _Units, plan: Resampling) -> Values:
    return np.sort(np.vstack(list(_resampled(units, plan))).T, axis=1)


def _percentile(means: Values, plan: Resampling) -> Values:
    each_side = tail(plan.confidence)
    places = [int(share * plan.resamples) for share in (each_side, 1 - each_side)]
    return means[:, np.minimum(places, plan.resamples - 1)]


def _bca(units: _Units, means: Values, plan: Resampling, *, df: int) -> Values:
    reach = two_sided_t(plan.confidence, max(1, df))
    intervals = np.empty((len(means), 2))
    places = np.arange(means.shape[1])
    rows = zip(means, units.means(), _acceleration(units).tolist(), strict=True)
    for j, (row, mean, acceleration) in enumerate(rows):
        # Ties count half; a mean beyond all resamples would have an infinite bias.
        below = (np.searchsorted(row, mean, "left") + np.searchsorted(row, mean, "right")) / 2
        bias = NORMAL.inv_cdf(min(max(below, 0.5), len(row) - 0.5) / len(row))
        shares = [_corrected(bias + z, bias, acceleration) for z in (-reach, reach)]
        intervals[j] = np.interp(np.multiply(shares, len(row) - 1), places, row)
    return intervals


def _corrected(shifted: float, bias: float, acceleration: float) -> float:
    """The share of the resamples below an end of the interval."""
    divisor = 1 - acceleration * shifted
    # Past this pole, which only confidences such as 0.999 reach, the end is the last resample.
    return NORMAL.cdf(bias + shifted / divisor if divisor > 0 else math.copysign(99, shifted))


def _acceleration(units: _Units) -> Values:
    """A sixth of the skewness of the means that leave one unit out."""
    totals = units.sums.sum(axis=1, keepdims=True)
    left_out = (totals - units.sums) / (units.sizes.sum() - units.sizes)
    pulls = left_out.mean(axis=1, keepdims=True) - left_out
    squares = (pulls**2).sum(axis=1)
    return np.asarray((pulls**3).sum(axis=1) / (6 * np.where(squares > 0, squares, 1) ** 1.5))
