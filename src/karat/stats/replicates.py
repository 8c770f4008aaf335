"""Repeated runs of a system that does not answer the same way twice.

A difference between runs is no difference between systems; what it adds to the error of a
mean difference is estimated here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


def between_runs(values: Values) -> float:
    """The variance between the means of runs beyond what noise at single queries explains.

    ``values`` has one row a query and one column a run. From the two-way layout without
    replication: (mean square of runs - residual mean square) / queries, and not below 0.
    NaN below two queries or two runs.
    """
    n: int = values.shape[0]
    runs: int = values.shape[1]
    if n < 2 or runs < 2:
        return math.nan
    of_runs = values.mean(axis=0) - values.mean()
    residual = values - values.mean(axis=1, keepdims=True) - of_runs
    run_square = n * float((of_runs**2).sum()) / (runs - 1)
    residual_square = float((residual**2).sum()) / ((n - 1) * (runs - 1))
    return max(0.0, (run_square - residual_square) / n)


def total_error(
    between_queries: tuple[float, float], variances_and_runs: Sequence[tuple[float, int]]
) -> tuple[float, float]:
    """The standard error of a mean difference and its degrees of freedom.

    To the error from the spread between queries (with its own degrees of freedom) comes
    variance/runs for each system that was run more than once. The degrees of freedom are
    Satterthwaite's: few, where the runs are few and their variance is what matters.
    """
    error, df = between_queries
    parts = [(error**2, df)]
    parts += [(variance / runs, max(1, runs - 1)) for variance, runs in variances_and_runs]
    whole = math.fsum(part for part, _ in parts)
    if not whole > 0:
        return math.sqrt(whole), float(df)
    return math.sqrt(whole), whole**2 / math.fsum(part**2 / own for part, own in parts if part > 0)
