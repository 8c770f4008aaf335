"""Student's t and the standard error that it goes with; scipy loads on the first call."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


def t_quantile(share: float, df: float) -> float:
    """The value below which a t variable falls with this chance."""
    from scipy.special import stdtrit

    return float(stdtrit(df, share))


def t_p(mean: float, standard_error: float, df: float) -> float:
    """The two-sided p of a mean under the hypothesis that it is 0."""
    from scipy.special import stdtr

    if standard_error == 0:
        return 1.0 if mean == 0 else 0.0
    if df <= 0 or math.isnan(standard_error):
        return 1.0
    return min(1.0, 2 * float(stdtr(df, -abs(mean) / standard_error)))


def standard_error(delta: Values, groups: NDArray[np.int64] | None = None) -> tuple[float, int]:
    """The standard error of the mean and its degrees of freedom; NaN below two rows or groups.

    With ``groups`` the rows of a group may depend on each other in any way (the cluster-robust
    estimate); with one row a group it is the plain one.
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
