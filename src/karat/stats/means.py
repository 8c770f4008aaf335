"""The interval of a mean: Gaffke's where values have a least and a greatest, else by resampling.

Both are monotone: raising a value never lowers an end, so a system that is at least as good on
every query never has the worse interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from karat.errors import UsageError
from karat.stats.distributions import tail
from karat.stats.resampling import (
    Places,
    Resampling,
    Values,
    count_of_units,
    members,
    percentile_intervals,
    rows_of,
    sums_by,
)

# Values and weights are multiples of 2^-26, and a row of weights sums to 1: a sum of products
# is a multiple of 2^-52 and at most 1, so float64 holds it exactly.
_ONE = 2.0**26

# Cells of the table of weights that are held at one time, 8 MB a table.
_CELLS = 1_000_000

Range = tuple[float, float]


def mean_intervals(
    columns: Values,
    plan: Resampling,
    *,
    ranges: Sequence[Range | None] | None = None,
    groups: Places | None = None,
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
    found = np.full((len(rows), 2), np.nan)
    if count_of_units(rows.shape[1], groups) < 2:
        return found
    bounded = [] if plan.method == "percentile" else [j for j, r in enumerate(ranges) if r]
    others = [j for j in range(len(rows)) if j not in set(bounded)]
    if others:
        found[others] = percentile_intervals(columns[:, others], plan, groups=groups)[0]
    if bounded:
        found[bounded] = _gaffke(rows[bounded], [ranges[j] for j in bounded], plan, groups)
    return found


def _gaffke(
    rows: Values, ranges: Sequence[Range | None], plan: Resampling, groups: Places | None
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
    ends = _least_means(np.concatenate([shares, 1 - shares]), plan, groups)
    from_least, from_most = ends[: len(rows)], ends[len(rows) :]
    low = least[:, 0] + span[:, 0] * from_least
    high = most[:, 0] - span[:, 0] * from_most
    return np.asarray(np.clip(np.stack([low, high], axis=1), least, most))


def _least_means(shares: Values, plan: Resampling, groups: Places | None) -> Values:
    """Return the lower end for each row of values between 0 and 1."""
    n = shares.shape[1]
    member = members(n, groups, plan.seed)
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


def _weights(n: int, plan: Resampling) -> Iterator[tuple[Values, Values]]:
    """Yield the weights of the point at the end, and of n values, some resamples at a time.

    The first is drawn evenly from all parts of its distribution, so that a column of equal
    values has hardly any error from the draws.
    """
    rng = np.random.default_rng([plan.seed, n, 26])
    places = (rng.permutation(plan.resamples) + 1) / (plan.resamples + 1)
    of_point = np.rint(-np.expm1(np.log1p(-places) / n) * _ONE)
    at_once = max(1, _CELLS // n)
    for start in range(0, plan.resamples, at_once):
        first = of_point[start : start + at_once]
        ends = rng.standard_exponential((len(first), n))
        np.cumsum(ends, axis=1, out=ends)
        ends *= ((_ONE - first) / ends[:, -1])[:, None]
        np.rint(ends, out=ends)
        ends[:, 1:] -= ends[:, :-1].copy()
        yield first, ends
