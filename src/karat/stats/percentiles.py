"""Percentiles of values: their intervals by order statistics, and under resampling and swapping."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from karat.stats.distributions import tail
from karat.stats.proportions import binomial
from karat.stats.resampling import Places, Values

# Values that are held at one time.
_CELLS = 2_000_000


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
    first, last = _ranks(n, share, tail(confidence))
    if first < 1 or last > n:
        return None
    ends = np.partition(values, (first - 1, last - 1))[[first - 1, last - 1]]
    return float(ends[0]), float(ends[1])


def _ranks(n: int, share: float, each_side: float) -> tuple[int, int]:
    """Return the ranks of the two ends, counted from 1; 0 or n + 1 where there is no such value."""
    counts, chances = binomial(n, share)
    # P(count ≤ k) in `below` and P(count ≥ k) in `above`, each summed from its own tail.
    below = np.cumsum(chances)
    above = np.cumsum(chances[::-1])[::-1]
    first = counts[0] + np.count_nonzero(below <= each_side)
    last = counts[-1] + 1 - np.count_nonzero(above <= each_side)
    return int(first), int(last)


def resampled_percentiles(
    columns: Values, share: float, *, resamples: int, seed: int = 0, groups: Places | None = None
) -> Values:
    """Return a percentile of each column in resamples, of shape (resamples, columns)."""
    member = _members(groups, len(columns))
    units = int(member.max()) + 1
    rng = np.random.default_rng([seed, units])
    order = np.argsort(columns, axis=0, kind="stable")
    parts = []
    for size in _chunks(resamples, len(columns)):
        drawn = rng.integers(0, units, size=(size, units)) + np.arange(size)[:, None] * units
        counts = np.bincount(drawn.ravel(), minlength=size * units).reshape(size, units)
        parts.append(
            np.stack(
                [
                    _percentile(column[rows], counts[:, member[rows]], share)
                    for column, rows in zip(columns.T, order.T, strict=True)
                ],
                axis=1,
            )
        )
    return np.concatenate(parts)


def _percentile(values: Values, counts: Places, share: float) -> Values:
    """Return a percentile of sorted values, each taken as often as a row of counts says."""
    until = np.cumsum(counts, axis=1)
    place = share * (until[:, -1] - 1)
    below, above = (_at(values, until, ends(place)) for ends in (np.floor, np.ceil))
    return np.asarray(below + (above - below) * (place - np.floor(place)))


def _at(values: Values, until: Places, place: Values) -> Values:
    return np.asarray(values[np.argmax(until > place[:, None], axis=1)])


def swapped_differences(
    a: Values,
    b: Values,
    share: float,
    *,
    resamples: int,
    seed: int = 0,
    groups: Places | None = None,
) -> Values:
    """B's percentile minus a's, with the two values of each row swapped or not at random.

    The rows of a group are swapped together.
    """
    n = len(a)
    member = _members(groups, n)
    units = int(member.max()) + 1
    rng = np.random.default_rng([seed, units, 1])
    place = share * (n - 1)
    near, below = _in_reach(a, b, place)
    place -= below
    a, b, member = a[near], b[near], member[near]
    parts = []
    for size in _chunks(resamples, n):
        swap = rng.integers(0, 2, size=(size, units), dtype=np.int8).astype(bool)[:, member]
        first, second = (_between(np.where(swap, *side), place) for side in ((b, a), (a, b)))
        parts.append(second - first)
    return np.concatenate(parts)


def _in_reach(a: Values, b: Values, place: float) -> tuple[Places, int]:
    """Return the rows that can decide the value at a place, and how many are always below.

    Whichever way each row is swapped, what stands there is no less than if every row gave its
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


def _members(groups: Places | None, n: int) -> Places:
    return np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]


def _chunks(resamples: int, n: int) -> Iterator[int]:
    size = max(1, _CELLS // n)
    return (min(size, resamples - start) for start in range(0, resamples, size))
