"""Binomial probabilities, and intervals of a share: Clopper and Pearson's, and Wilson's."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from karat.errors import UsageError
from karat.stats.distributions import tail, two_sided_z
from karat.stats.resampling import Places, Values


def clopper_pearson(k: int, n: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval for the true share behind ``k`` of ``n``; it never covers too seldom.

    No end falls when ``k`` rises.

    >>> low, high = clopper_pearson(36, 40)
    >>> round(low, 4), round(high, 4)
    (0.7634, 0.9721)
    """
    if n < 1 or not 0 <= k <= n:
        raise UsageError(f"a share needs a count from 0 to n, not {k} of {n}")
    each_side = tail(confidence)
    low = 0.0 if k == 0 else _where(lambda share: chance_of_at_least(k, n, share), each_side)
    high = (
        1.0 if k == n else _where(lambda share: chance_of_at_least(k + 1, n, share), 1 - each_side)
    )
    return low, high


def share_interval(
    found: int, whole: int, independent: int, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Return Clopper and Pearson's interval for a share that rests on fewer independent things.

    >>> share_interval(160, 200, 40) == clopper_pearson(32, 40)
    True
    """
    low, high = found * independent // whole, -(-found * independent // whole)
    ends = (clopper_pearson(k, independent, confidence=confidence) for k in (low, high))
    return next(ends)[0], next(ends)[1]


def _where(rising: Callable[[float], float], level: float) -> float:
    """Return the share at which a rising function reaches the level."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < level else (low, middle)
    return (low + high) / 2


def wilson(mean: float, n: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval for the true share behind a share of ``mean`` among ``n``.

    >>> low, high = wilson(1.0, 20)
    >>> round(low, 4), high
    (0.8389, 1.0)
    """
    if n < 1 or not 0 <= mean <= 1:
        raise UsageError(f"Wilson's interval needs n of at least 1 and a share, not {n} and {mean}")
    z = two_sided_z(confidence)
    square = z * z
    # At the ends the formula cancels to these values, though not in floats.
    if mean == 1:
        return n / (n + square), 1.0
    if mean == 0:
        return 0.0, square / (n + square)
    centre = mean + square / (2 * n)
    half = z * (mean * (1 - mean) / n + square / (4 * n * n)) ** 0.5
    scale = 1 + square / n
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def chance_of_at_least(k: int, n: int, share: float) -> float:
    """Return the chance of ``k`` or more successes in ``n`` tries; rises with the share.

    >>> chance_of_at_least(2, 2, 0.5)
    0.25
    """
    if k <= 0 or share >= 1:
        return 1.0
    if share <= 0:
        return 0.0
    counts, chances = binomial(n, share)
    return float(chances[counts >= k].sum())


def binomial(n: int, share: float) -> tuple[Places, Values]:
    """Return counts around the likeliest one with their chances; all others are negligible.

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
