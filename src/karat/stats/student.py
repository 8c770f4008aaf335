"""Student's t, from scipy, which loads on the first call."""

from __future__ import annotations

import math


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
