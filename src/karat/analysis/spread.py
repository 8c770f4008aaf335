"""What a comparison's error is made of, and so what it can detect: queries, and repeated runs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from karat.analysis.comparison import NO_DIFFERENCE, Comparison, Pair
from karat.measures.intervals import Interval
from karat.measures.numbers import Values
from karat.stats.power import detectable, queries_needed, standard_error
from karat.stats.replicates import between_runs, t_p, total_error
from karat.stats.student import t_quantile


def with_spread(
    row: Comparison,
    pair: Pair,
    delta: Values,
    known: NDArray[np.bool_],
    groups: NDArray[np.int64] | None,
    *,
    sum_of: int = 1,
) -> Comparison:
    """The comparison with its effect size and power, widened where runs differ as a whole.

    ``delta`` holds the differences of the ``known`` queries, ``sum_of`` their number where the
    measure is a sum and not a mean.
    """
    own = standard_error(delta, groups)
    row, error, df = _with_runs(row, delta, own, _between_runs(pair, row.measure, known))
    sd = float(delta.std(ddof=1))
    spread = error * math.sqrt(row.n)
    if not spread > NO_DIFFERENCE:
        # Without any spread there is nothing to judge the number of queries by.
        return row
    wanted = row.wanted / sum_of
    return replace(
        row,
        effect=float(delta.mean()) / sd if sd > NO_DIFFERENCE else None,
        detectable=detectable(error, df) * sum_of,
        needed=queries_needed(wanted, spread) if wanted > 0 else None,
    )


def _between_runs(pair: Pair, measure: str, known: NDArray[np.bool_]) -> list[tuple[float, int]]:
    """Of each system that was run more than once: the variance between runs, and their number."""
    found = []
    for contender in (pair.baseline, pair.system):
        if len(contender.runs) > 1:
            matrix = contender.matrix(measure)[known]
            whole = matrix[~np.isnan(matrix).any(axis=1)]
            if len(whole) > 1:
                found.append((between_runs(whole), len(contender.runs)))
    return found


def _with_runs(
    row: Comparison, delta: Values, own: tuple[float, float], extra: list[tuple[float, int]]
) -> tuple[Comparison, float, float]:
    """What repeated runs add: a difference between runs is no difference between systems."""
    error, df = own
    if not extra:
        return row, error, df
    between = math.sqrt(sum(variance / runs for variance, runs in extra))
    row = replace(row, between_runs=between)
    if between == 0:
        return row, error, df
    whole_error, whole_df = total_error((error, df), extra)
    by_runs = t_p(float(delta.mean()), whole_error, whole_df)
    row = replace(
        row,
        p=max(row.p or 0.0, by_runs),
        p_adjusted=None if row.p_adjusted is None else max(row.p_adjusted, by_runs),
        ci=_reaching(row.ci, delta, (error, df), (whole_error, whole_df), 0.975),
        ci_same=_reaching(row.ci_same, delta, (error, df), (whole_error, whole_df), 0.95),
    )
    return row, whole_error, whole_df


def _reaching(
    ends: Interval,
    delta: Values,
    own: tuple[float, float],
    whole: tuple[float, float],
    share: float,
) -> Interval:
    """An interval stretched from the error of the queries to the whole error, both ways."""
    if ends is None:
        return None
    centre = float(delta.mean())
    reach = whole[0] * t_quantile(share, whole[1])
    if not own[0] > NO_DIFFERENCE:
        return centre - reach, centre + reach
    factor = reach / (own[0] * t_quantile(share, own[1]))
    low, high = (centre + (end - centre) * factor for end in ends)
    return low, high
