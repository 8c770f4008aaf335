"""Normal, t, beta and binomial distributions, the standard error, and intervals of a share."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from karat.errors import UsageError

Values = NDArray[np.float64]
Ints = NDArray[np.int64]

NORMAL = NormalDist()
# Up to so many throws of a coin all ways are counted.
_COUNTED_THROWS = 1000


def tail(confidence: float) -> float:
    """Return the probability that is left to each side of an interval."""
    if not 0 < confidence < 1:
        raise UsageError(f"confidence is {confidence}; it lies between 0 and 1, such as 0.95")
    # 1 - 0.95 is a little more than 0.05 in floats, and an index computed from it can be one off.
    return round(1 - confidence, 12) / 2


def two_sided_z(confidence: float) -> float:
    """Return how many standard errors a normal interval reaches to each side."""
    return NORMAL.inv_cdf(1 - tail(confidence))


def two_sided_t(confidence: float, df: int) -> float:
    """Return the same for Student's t, by the series in 1/df of Cornish and Fisher.

    At 95 % it is right to 0.001 from 4 degrees of freedom on and to 0.3 % from 3 on, which
    serves an interval from resamples; tests and power need ``t_quantile``.

    >>> round(two_sided_t(0.95, 19), 3)
    2.093
    """
    z = two_sided_z(confidence)
    first = z**3 + z
    second = 5 * z**5 + 16 * z**3 + 3 * z
    third = 3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z
    fourth = 79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z
    whole = z + first / (4 * df) + second / (96 * df**2)
    return whole + third / (384 * df**3) + fourth / (92160 * df**4)


def t_quantile(share: float, df: float) -> float:
    """Return the value below which a t variable falls with this chance.

    >>> round(t_quantile(0.975, 19), 6)
    2.093024
    """
    if not (0 < share < 1 and df > 0):
        return math.nan
    if share <= 0.5:
        return -t_quantile(1 - share, df) if share < 0.5 else 0.0
    # From below, where the normal's is, Newton's steps lead up to it and never beyond.
    t, step = NORMAL.inv_cdf(share), math.inf
    while step > 4e-16 * t:
        whole = df + t * t
        density = _beta_front(df / 2, 0.5, df / whole, t * t / whole) / t
        step = (_t_tail(t, df) - (1 - share)) / density
        t += max(step, 0.0)
    return t


def _t_tail(t: float, df: float) -> float:
    """Return the chance that a t variable exceeds t, which is 0 or more."""
    whole = df + t * t
    return beta_share(df / 2, 0.5, df / whole, t * t / whole) / 2


def t_p(mean: float, standard_error: float, df: float) -> float:
    """Return the two-sided p of a mean under the hypothesis that it is 0.

    >>> round(t_p(2.093024, 1.0, 19), 6)
    0.05
    """
    if standard_error == 0:
        return 1.0 if mean == 0 else 0.0
    if df <= 0 or math.isnan(standard_error):
        return 1.0
    return min(1.0, 2 * _t_tail(abs(mean) / standard_error, df))


def heads_at_most(k: int, n: int) -> float:
    """Return the chance of ``k`` or fewer heads in ``n`` throws of a coin, by counting if few.

    >>> heads_at_most(1, 3)
    0.5
    """
    if n > _COUNTED_THROWS:
        return beta_share(n - k, k + 1, 0.5, 0.5) if k < n else 1.0
    ways, found = 1, 0
    for heads in range(k + 1):
        found += ways
        ways = ways * (n - heads) // (heads + 1)
    return found / (1 << n)


def beta_share(a: float, b: float, x: float, rest: float) -> float:
    """Return the regularised incomplete beta function at x, where ``rest`` is 1 - x.

    Evaluates its continued fraction by Lentz's method; the relative error is about 1e-13.

    >>> round(beta_share(2, 1, 0.5, 0.5), 12)
    0.25
    """
    if x <= 0 or rest <= 0:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_share(b, a, rest, x)
    # Where x = a / (a + b), in the middle, this is 0; the smaller of x and rest has more digits.
    beyond = (a + b) * x - a if x < rest else b - (a + b) * rest
    c = fraction = a * (1 - beyond) / (a + 1)
    d, change, m = 0.0, 0.0, 0
    while abs(change - 1) > 2e-16:
        m += 1
        odd = a + 2 * m - 1
        above = (a + m - 1) * (a + b + m - 1) * m * (b - m) * (x / odd) ** 2
        below = m + m * (b - m) * x / odd + (a + m) * (1 - beyond + m * (1 + rest)) / (odd + 2)
        d, c = 1 / (below + above * d), below + above / c
        change = c * d
        fraction *= change
    return _beta_front(a, b, x, rest) / fraction


def _beta_front(a: float, b: float, x: float, rest: float) -> float:
    """Return x^a (1 - x)^b / B(a, b), as a binomial chance by Loader's saddle points.

    Powers and gamma functions of large a and b cancel; their logarithms would lose digits.
    """
    n = a + b
    beyond = n * x - a if x < rest else b - n * rest
    logs = _stirling_error(n) - _stirling_error(a) - _stirling_error(b)
    logs -= _deviance(a, n * x, -beyond) + _deviance(b, n * rest, beyond)
    return math.exp(logs) * math.sqrt(a * b / (2 * math.pi * n))


def _stirling_error(n: float) -> float:
    """Return the logarithm of the gamma function of n + 1, less Stirling's formula for it."""
    if n < 16:
        return math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - math.log(2 * math.pi) / 2
    s = n * n
    return (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / s) / s) / s) / s) / n


def _deviance(k: float, mean: float, more: float) -> float:
    """Return k log(k / mean) - more for a k that is ``more`` than the mean, also if close to it."""
    away = more / (k + mean)
    if abs(away) >= 0.1:
        return k * math.log(k / mean) - more
    total, power, at = more * away, 2 * k * away, 1
    while True:
        power, at, before = power * away * away, at + 2, total
        total += power / at
        if total == before:
            return total


def units_of(n: int, groups: Ints | None) -> Ints:
    """Return the number of the unit that each row belongs to: its group, or the row itself."""
    return np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]


def standard_error(delta: Values, groups: Ints | None = None) -> tuple[float, int]:
    """Return the standard error of the mean and its degrees of freedom; NaN below two units.

    With ``groups`` the rows of a group may depend on each other in any way (the cluster-robust
    estimate); with one row per group it is the plain one.
    """
    member = units_of(len(delta), groups)
    units = int(member.max(initial=-1)) + 1
    if units < 2:
        return math.nan, max(0, units - 1)
    pulls = np.bincount(member, weights=delta - delta.mean())
    return math.sqrt(units / (units - 1) * float((pulls**2).sum())) / len(delta), units - 1


def binomial(n: int, share: float) -> tuple[Ints, Values]:
    """Return counts around the likeliest one with their chances; all others are negligible.

    Built from the ratios of neighbours, which neither overflow nor need factorials.
    """
    if share in (0, 1):
        return np.array([round(n * share)]), np.ones(1)
    reach = 30 + math.ceil(12 * math.sqrt(n * share * (1 - share)))
    centre = min(n, int((n + 1) * share))
    counts = np.arange(max(0, centre - reach), min(n, centre + reach) + 1)
    lower = counts[:-1]
    steps = np.log((n - lower) / (lower + 1)) + math.log(share / (1 - share))
    logs = np.concatenate(([0.0], np.cumsum(steps)))
    chances = np.exp(logs - logs.max())
    return counts, chances / chances.sum()


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
    low = _where(lambda share: chance_of_at_least(k, n, share), each_side)
    high = _where(lambda share: chance_of_at_least(k + 1, n, share), 1 - each_side)
    return (0.0 if k == 0 else low), (1.0 if k == n else high)


def _where(rising: Callable[[float], float], level: float) -> float:
    """Return the share at which a rising function reaches the level."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < level else (low, middle)
    return (low + high) / 2


def share_interval(
    found: int, whole: int, independent: int, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Return Clopper and Pearson's interval for a share that rests on fewer independent things.

    >>> share_interval(160, 200, 40) == clopper_pearson(32, 40)
    True
    """
    counts = found * independent // whole, -(-found * independent // whole)
    low, high = (clopper_pearson(k, independent, confidence=confidence) for k in counts)
    return low[0], high[1]


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
