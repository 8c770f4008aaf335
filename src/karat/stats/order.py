"""Intervals for percentiles from the order of the values alone, whatever their distribution."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from karat.stats.quantiles import tail

Values = NDArray[np.float64]


def percentile_interval(
    values: Values, share: float, *, confidence: float = 0.95
) -> tuple[float, float] | None:
    """Two of the values between which the percentile lies; None where there are too few.

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
    """The ranks of the two ends, counted from 1; 0 or n + 1 where there is no such value."""
    counts, chances = _binomial(n, share)
    # P(count ≤ k) in `below` and P(count ≥ k) in `above`, each summed from its own tail.
    below = np.cumsum(chances)
    above = np.cumsum(chances[::-1])[::-1]
    first = counts[0] + np.count_nonzero(below <= each_side)
    last = counts[-1] + 1 - np.count_nonzero(above <= each_side)
    return int(first), int(last)


def chance_of_at_least(k: int, n: int, share: float) -> float:
    """Return the chance of ``k`` or more successes in ``n`` tries; rises with the share.

    >>> chance_of_at_least(2, 2, 0.5)
    0.25
    """
    if k <= 0 or share >= 1:
        return 1.0
    if share <= 0:
        return 0.0
    counts, chances = _binomial(n, share)
    return float(chances[counts >= k].sum())


def _binomial(n: int, share: float) -> tuple[NDArray[np.int64], Values]:
    """Counts around the likeliest one and their chances; the rest has less than 1e-30 together.

    Built from the ratios of neighbours, which neither overflow nor need factorials.
    """
    reach = 30 + math.ceil(12 * math.sqrt(n * share * (1 - share)))
    centre = min(n, int((n + 1) * share))
    counts = np.arange(max(0, centre - reach), min(n, centre + reach) + 1)
    lower = counts[:-1]
    steps = np.log((n - lower) / (lower + 1)) + math.log(share / (1 - share))
    logs = np.concatenate(([0.0], np.cumsum(steps)))
    chances = np.exp(logs - logs.max())
    return counts, chances / chances.sum()
