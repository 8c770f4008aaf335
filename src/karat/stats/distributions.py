"""Normal and t distributions, and the standard error; scipy loads on the first use of t."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from karat.errors import UsageError

Values = NDArray[np.float64]

NORMAL = NormalDist()


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
    serves an interval from resamples; tests and power take theirs from scipy.

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
    """Return the value below which a t variable falls with this chance."""
    from scipy.special import stdtrit

    return float(stdtrit(df, share))


def t_p(mean: float, standard_error: float, df: float) -> float:
    """Return the two-sided p of a mean under the hypothesis that it is 0."""
    from scipy.special import stdtr

    if standard_error == 0:
        return 1.0 if mean == 0 else 0.0
    if df <= 0 or math.isnan(standard_error):
        return 1.0
    return min(1.0, 2 * float(stdtr(df, -abs(mean) / standard_error)))


def standard_error(delta: Values, groups: NDArray[np.int64] | None = None) -> tuple[float, int]:
    """Return the standard error of the mean and its degrees of freedom; NaN below two units.

    With ``groups`` the rows of a group may depend on each other in any way (the cluster-robust
    estimate); with one row per group it is the plain one.
    """
    n = len(delta)
    if groups is None:
        member, count = np.arange(n), n
    else:
        names, member = np.unique(groups, return_inverse=True)
        count = len(names)
    if count < 2:
        return math.nan, max(0, count - 1)
    pulls = np.bincount(member, weights=delta - delta.mean())
    return math.sqrt(count / (count - 1) * float((pulls**2).sum())) / n, count - 1
