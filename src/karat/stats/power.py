"""What a paired comparison can detect: standard errors, the smallest difference, the queries."""

from __future__ import annotations

import math
from itertools import count

import numpy as np
from numpy.typing import NDArray

from karat.stats.quantiles import NORMAL, tail, two_sided_z
from karat.stats.student import t_quantile

Values = NDArray[np.float64]

# No set of queries is larger; a search for more than this ends.
_MOST_QUERIES = 2**50


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


def detectable(
    standard_error: float, df: float, *, power: float = 0.8, confidence: float = 0.95
) -> float:
    """The true difference that a two-sided t test finds with this chance; NaN without df."""
    return _reach(df, power, confidence) * standard_error if df > 0 else math.nan


def queries_needed(
    difference: float, sd: float, *, power: float = 0.8, confidence: float = 0.95
) -> int | None:
    """The smallest number of queries, at least 2, that detects a true ``difference``.

    ``sd`` is the spread of the differences between the two systems, query by query. None where
    there is no difference to detect, or no number of queries that would.
    """

    def enough(n: int) -> bool:
        return _reach(n - 1, power, confidence) * sd <= difference * math.sqrt(n)

    if not difference > 0 or math.isnan(sd):
        return None
    # Normal quantiles lie below Student's (at a power of a half and more), and hardly so where
    # queries are many: from here it is a few steps.
    root = (two_sided_z(confidence) + NORMAL.inv_cdf(power)) * sd / difference
    if not root < math.sqrt(_MOST_QUERIES):
        return None
    start = max(2, math.ceil(root**2) - 1)
    return next(n for n in count(start) if enough(n))


def _reach(df: float, power: float, confidence: float) -> float:
    """How many standard errors a true difference must be from 0."""
    return t_quantile(1 - tail(confidence), df) + t_quantile(power, df)
