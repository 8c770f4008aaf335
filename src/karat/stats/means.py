"""Intervals of means and percentiles, by resampling, Gaffke's weights and order statistics.

Those of means are monotone: raising a value never lowers an end, so a system that is at least as
good on every query never has the worse interval. Rows are drawn alone, or whole groups of them. All
sums are exact, so the same values, seed and plan give the same bits on any number of threads,
however many other columns are resampled with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from karat.errors import UsageError
from karat.stats.distributions import Ints, Values, binomial, tail, units_of

ValueRange = tuple[float, float]
Numbers = NDArray[np.uint32]

# Drawing from a million rows would take minutes; drawing bundles of them does not.
_MANY_ROWS, _BUNDLES = 20_000, 10_000
# Cells of a table of counts, weights or signs that are held at one time, 8 MB a table.
_CELLS = 1_000_000
# More cells of weights than this are never kept; it is 60 MB.
_MOST_KEPT = 15_000_000
# Values and weights are multiples of 2^-26, and a row of weights sums to 1: a sum of products
# is a multiple of 2^-52 and at most 1, so float64 holds it exactly.
_ONE = 2.0**26


@dataclass(frozen=True, slots=True)
class Resampling:
    """How often to draw, from which seed, and how the draws become the interval of a mean."""

    confidence: float = 0.95
    resamples: int = 2000
    seed: int = 0
    method: Literal["gaffke", "percentile"] = "gaffke"


def mean_intervals(
    columns: Values,
    plan: Resampling,
    *,
    ranges: Sequence[ValueRange | None] | None = None,
    groups: Ints | None = None,
) -> Values:
    """Return the interval of each column's mean as (low, high), a row per column.

    Rows of NaN where there are fewer than two rows (or groups). ``ranges[j]`` are the least and
    the greatest value that column j could hold. Columns without a range, and all columns where
    the plan says ``percentile``, get the percentile bootstrap.

    Gaffke's interval draws weights from a flat Dirichlet distribution over the sorted values and
    one more point at an end of the range. The lower end is the alpha/2 quantile of the weighted
    mean with that point at the least value; the upper end is its mirror image. For values of 0
    and 1 it is the interval of Clopper and Pearson. With ``groups`` the weights fall on whole
    groups, and the point at the end counts as one group of mean size. More than 20,000 rows are
    weighted as about 10,000 bundles made at random; the point then still counts as one row.
    """
    rows = rows_of(columns)
    ranges = [None] * len(rows) if ranges is None else ranges
    intervals = np.full((len(rows), 2), np.nan)
    if (rows.shape[1] if groups is None else len(np.unique(groups))) < 2:
        return intervals
    bounded = [] if plan.method == "percentile" else [j for j, r in enumerate(ranges) if r]
    others = [j for j in range(len(rows)) if j not in set(bounded)]
    if others:
        intervals[others] = percentile_intervals(columns[:, others], plan, groups=groups)[0]
    if bounded:
        intervals[bounded] = _gaffke(rows[bounded], [ranges[j] for j in bounded], plan, groups)
    return intervals


def _gaffke(
    rows: Values, ranges: Sequence[ValueRange | None], plan: Resampling, groups: Ints | None
) -> Values:
    least, most = np.array(ranges, dtype=np.float64).T[:, :, None]
    span = np.where(most > least, most - least, 1.0)
    shares = (rows - least) / span
    if shares.min() < -1e-9 or shares.max() > 1 + 1e-9:
        worst = int(np.argmax(np.abs(shares - 0.5).max(axis=1)))
        low, high = rows[worst].min(), rows[worst].max()
        raise UsageError(f"values from {low} to {high} lie outside their range, {ranges[worst]}")
    shares = np.clip(shares, 0.0, 1.0)
    # The distance of either end from its own end of the range, by the same steps: so values
    # turned round have the interval turned round.
    from_least, from_most = np.split(
        _least_means(np.concatenate([shares, 1 - shares]), plan, groups), 2
    )
    low = least[:, 0] + span[:, 0] * from_least
    high = most[:, 0] - span[:, 0] * from_most
    return np.asarray(np.clip(np.stack([low, high], axis=1), least, most))


def _least_means(shares: Values, plan: Resampling, groups: Ints | None) -> Values:
    """Return the lower end for each row of values between 0 and 1."""
    member = _members(shares.shape[1], groups, plan.seed)
    if member is None:
        table, sizes, point = np.sort(np.rint(shares * _ONE), axis=1), None, 1.0
    else:
        counts = np.bincount(member).astype(np.float64)
        largest = counts.max()
        # Sorted by size first: an order within groups of one size keeps the ends monotone.
        sizes = np.sort(np.rint(counts / largest * _ONE))
        sums = np.rint(sums_by(member, shares) / largest * _ONE)
        order = np.lexsort((sums, np.broadcast_to(counts, sums.shape)), axis=1)
        table = np.minimum(np.take_along_axis(sums, order, axis=1), sizes)
        point = float(np.rint((counts.mean() if groups is not None else 1.0) / largest * _ONE))
    columns = table.T if sizes is None else np.column_stack([table.T, sizes])
    means = []
    for of_point, weights in _weights(len(columns), plan):
        sums = weights @ columns
        if sizes is None:
            means.append(sums / _ONE**2)
        else:
            means.append(sums[:, :-1] / (sums[:, -1] + of_point * point)[:, None])
    place = _place(plan)
    return np.asarray(np.partition(np.vstack(means), place, axis=0)[place])


def _weights(n: int, plan: Resampling) -> Iterator[tuple[Values, Values]]:
    """Yield the weights of the point at the end, and of n values, some resamples at a time.

    They are whole numbers. The parts of a report need the same weights, so they are kept: those of
    16 small samples and of one large sample.
    """
    size = n, plan.resamples, plan.seed
    cells = n * plan.resamples
    if cells > _MOST_KEPT:
        yield from _drawn_weights(*size)
        return
    for of_point, weights in (_kept_weights if cells < _CELLS else _kept_once)(*size):
        yield of_point.astype(np.float64), weights.astype(np.float64)


def _as_integers(n: int, resamples: int, seed: int) -> list[tuple[Numbers, Numbers]]:
    """Return all weights at half of their size."""
    drawn = _drawn_weights(n, resamples, seed)
    return [(point.astype(np.uint32), weights.astype(np.uint32)) for point, weights in drawn]


_kept_weights = lru_cache(maxsize=16)(_as_integers)
_kept_once = lru_cache(maxsize=1)(_as_integers)


def _drawn_weights(n: int, resamples: int, seed: int) -> Iterator[tuple[Values, Values]]:
    """Draw weights. The first of each is drawn evenly from all parts of its distribution, so that
    a column of equal values has hardly any error from the draws.
    """
    rng = np.random.default_rng([seed, n, 26])
    places = (rng.permutation(resamples) + 1) / (resamples + 1)
    of_point = np.rint(-np.expm1(np.log1p(-places) / n) * _ONE)
    start = 0
    for size in chunks(resamples, n):
        first = of_point[start : start + size]
        start += size
        ends = rng.standard_exponential((size, n))
        np.cumsum(ends, axis=1, out=ends)
        ends *= ((_ONE - first) / ends[:, -1])[:, None]
        np.rint(ends, out=ends)
        ends[:, 1:] -= ends[:, :-1].copy()
        yield first, ends


def _place(plan: Resampling) -> int:
    """Return the place of the end among the sorted draws, counted as in a test by simulation."""
    return max(1, int(tail(plan.confidence) * (plan.resamples + 1) + 1e-9)) - 1


def rows_for_perfect(minimum: float, plan: Resampling) -> int | None:
    """Return the smallest n at which a column of greatest values has this lower end, or more.

    That end is (alpha/2)^(1/n) of the range.

    >>> rows_for_perfect(0.9, Resampling())
    36
    """
    if minimum >= 1:
        return None
    if minimum <= 0:
        return 1
    level = (_place(plan) + 1) / (plan.resamples + 1)
    return max(1, math.ceil(math.log(level) / math.log(minimum) - 1e-9))


def percentile_intervals(
    columns: Values,
    plan: Resampling,
    *,
    confidences: Sequence[float] | None = None,
    groups: Ints | None = None,
) -> list[Values]:
    """Return (low, high) of each column's mean at each confidence: quantiles of resampled means.

    The plain recipe: the sorted means at alpha/2 and 1 - alpha/2. With fixed draws no end falls
    when a value rises. Rows of NaN where there are fewer than two rows (or groups).
    """
    rows = rows_of(columns)
    levels = (plan.confidence,) if confidences is None else confidences
    if (rows.shape[1] if groups is None else len(np.unique(groups))) < 2:
        return [np.full((len(rows), 2), np.nan) for _ in levels]
    means = np.sort(resampled_means(columns, plan, groups=groups).T, axis=1)
    # A mean on the grid may differ from the true one in its last bits.
    lowest, highest = rows.min(axis=1, keepdims=True), rows.max(axis=1, keepdims=True)
    intervals = []
    for confidence in levels:
        each_side = tail(confidence)
        places = [int(share * plan.resamples) for share in (each_side, 1 - each_side)]
        ends = means[:, np.minimum(places, plan.resamples - 1)]
        intervals.append(np.clip(ends, lowest, highest))
    return intervals


def resampled_means(columns: Values, plan: Resampling, *, groups: Ints | None = None) -> Values:
    """Return the means of the resamples, of shape (resamples, columns); none without rows.

    Every column sees the same draws, so rows are joint over the columns. The draws depend only
    on the seed and the number of rows (or groups). More than 20,000 rows are drawn as about
    10,000 bundles made at random, which for independent rows is as good: the spread of a sum of
    bundles is the spread of the sum of their rows.
    """
    rows = rows_of(columns)
    member = _members(rows.shape[1], groups, plan.seed)
    sizes = np.ones(rows.shape[1])
    if member is not None:
        rows, sizes = sums_by(member, rows), np.bincount(member).astype(np.float64)
    sums, grid = on_grid(rows)
    n = len(sizes)
    rng = np.random.default_rng([plan.seed, n])
    table = np.vstack([sums, sizes]).T
    means = [np.empty((0, len(rows)))]
    for size in chunks(plan.resamples if n else 0, n):
        totals = _draws(rng, size, n).astype(np.float64) @ table
        means.append(totals[:, :-1] / totals[:, -1:] * grid)
    return np.concatenate(means)


def chunks(resamples: int, n: int, *, tables: int = 1) -> Iterator[int]:
    """Yield how many resamples of n units to make at one time, within the memory of tables."""
    size = max(1, tables * _CELLS // max(n, 1))
    return (min(size, resamples - start) for start in range(0, resamples, size))


def _draws(rng: np.random.Generator, size: int, n: int) -> Ints:
    """Return how often each of n units is drawn, one row per resample."""
    drawn = rng.integers(0, n, size=(size, n)) + np.arange(size)[:, None] * n
    return np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n)


def _members(n: int, groups: Ints | None, seed: int) -> Ints | None:
    """Return the number of the group, or of the bundle, of each row; None without groups.

    Bundles are made at random, since neighbours in a file may be alike.
    """
    if groups is not None:
        return units_of(n, groups)
    if n <= _MANY_ROWS:
        return None
    places = np.random.default_rng([seed, n, n]).permutation(n)
    return np.asarray(places // math.ceil(n / _BUNDLES))


def rows_of(columns: Values) -> Values:
    """Return one contiguous row per column: sums along it do not depend on the other columns."""
    rows = np.ascontiguousarray(columns.T, dtype=np.float64)
    if not np.isfinite(rows).all():
        raise UsageError("a column holds NaN or infinity; leave out the rows without a value")
    return rows


def sums_by(member: Ints, rows: Values) -> Values:
    """Return each row's sums over the entries with the same member number, 0 up to the largest."""
    count = int(member.max(initial=-1)) + 1
    sums = [np.bincount(member, weights=row, minlength=count) for row in rows]
    return np.array(sums, dtype=np.float64).reshape(len(rows), count)


def on_grid(rows: Values, terms: int | None = None) -> tuple[Values, Values]:
    """Return each row in whole multiples of its grid, and the grid of each row.

    Any sum of ``terms`` entries of a row (as many as it has, unless said) stays below 2^53
    multiples, so that a matrix product gives the same bits on any number of threads. What
    rounding loses is at most 2^-51 of the largest value times the number of terms.
    """
    terms = rows.shape[-1] if terms is None else terms
    largest = np.abs(rows).max(axis=-1, initial=0.0)
    exponent = np.frexp(largest)[1] + terms.bit_length() - 52
    # Not below the smallest normal number: beneath it there is no grid to speak of.
    grid = np.ldexp(1.0, np.maximum(exponent, -1022))
    return np.rint(rows / grid[..., None]), grid


def percentile_interval(
    values: Values, share: float, *, confidence: float = 0.95
) -> tuple[float, float] | None:
    """Return two of the values between which the percentile lies; None where there are too few.

    There are always too few for the least and the largest of all, shares of 0 and 1.

    The number of values below the true percentile is binomial. The lower end is the largest
    value that lies above it with a chance of at most half of 1 - ``confidence``, the upper end
    its mirror; so each end keeps its level, whatever the distribution.

    >>> percentile_interval(np.arange(1.0, 7.0), 0.5)
    (1.0, 6.0)
    >>> percentile_interval(np.arange(1.0, 6.0), 0.5) is None
    True
    """
    n = len(values)
    if not 0 < share < 1:
        return None
    counts, chances = binomial(n, share)
    # P(count ≤ k) in `below` and P(count ≥ k) in `above`, each summed from its own tail.
    below = np.cumsum(chances)
    above = np.cumsum(chances[::-1])[::-1]
    # The ranks of the two ends, counted from 1; 0 or n + 1 where there is no such value.
    first = int(counts[0] + np.count_nonzero(below <= tail(confidence)))
    last = int(counts[-1] + 1 - np.count_nonzero(above <= tail(confidence)))
    if first < 1 or last > n:
        return None
    ends = np.partition(values, (first - 1, last - 1))[[first - 1, last - 1]]
    return float(ends[0]), float(ends[1])


def resampled_percentiles(
    columns: Values, share: float, *, resamples: int, seed: int = 0, groups: Ints | None = None
) -> Values:
    """Return a percentile of each column in resamples, of shape (resamples, columns)."""
    member = units_of(len(columns), groups)
    units = int(member.max()) + 1
    rng = np.random.default_rng([seed, units])
    order = np.argsort(columns, axis=0, kind="stable")
    parts = []
    for size in chunks(resamples, len(columns)):
        counts = _draws(rng, size, units)
        drawn = [
            _percentile(column[rows], counts[:, member[rows]], share)
            for column, rows in zip(columns.T, order.T, strict=True)
        ]
        parts.append(np.stack(drawn, axis=1))
    return np.concatenate(parts)


def _percentile(values: Values, counts: Ints, share: float) -> Values:
    """Return a percentile of sorted values, each taken as often as a row of counts says."""
    until = np.cumsum(counts, axis=1)
    place = share * (until[:, -1] - 1)
    below, above = (
        values[np.argmax(until > end(place)[:, None], axis=1)] for end in (np.floor, np.ceil)
    )
    return np.asarray(below + (above - below) * (place - np.floor(place)))


def swapped_differences(
    a: Values,
    b: Values,
    share: float,
    *,
    resamples: int,
    seed: int = 0,
    groups: Ints | None = None,
) -> Values:
    """Return b's percentile minus a's, with the two values of each row swapped or not at random.

    The rows of a group are swapped together.
    """
    n = len(a)
    member = units_of(n, groups)
    units = int(member.max()) + 1
    rng = np.random.default_rng([seed, units, 1])
    place = share * (n - 1)
    near, below = _in_reach(a, b, place)
    place -= below
    a, b, member = a[near], b[near], member[near]
    parts = []
    # Draws of single bytes depend on how many are made at one time.
    for size in chunks(resamples, n, tables=2):
        swap = rng.integers(0, 2, size=(size, units), dtype=np.int8).astype(bool)[:, member]
        first, second = (_between(np.where(swap, *side), place) for side in ((b, a), (a, b)))
        parts.append(second - first)
    return np.concatenate(parts)


def _in_reach(a: Values, b: Values, place: float) -> tuple[Ints, int]:
    """Return the rows that can decide the value at a place, and how many are always below.

    Whichever way each row is swapped, the value there is no less than if every row gave its
    smaller value, and no more than if each gave its larger one.
    """
    low, high = np.minimum(a, b), np.maximum(a, b)
    least = np.partition(low, int(place))[int(place)]
    most = np.partition(high, math.ceil(place))[math.ceil(place)]
    return np.flatnonzero((high >= least) & (low <= most)), int((high < least).sum())


def _between(rows: Values, place: float) -> Values:
    """Return the value at a place of each sorted row, interpolated between two places."""
    ends = math.floor(place), math.ceil(place)
    rows.partition(sorted(set(ends)), axis=1)
    below, above = (rows[:, end] for end in ends)
    return np.asarray(below + (above - below) * (place - ends[0]))
