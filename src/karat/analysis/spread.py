"""What a comparison's error is made of, and so what it can detect: queries, and repeated runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

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
) -> Comparison:
    """The comparison with its effect size and power, widened where runs differ as a whole.

    ``delta`` holds the differences of the ``known`` queries.
    """
    own = standard_error(delta, groups)
    row, error, df = _with_runs(row, delta, own, _repeated(pair, row.measure, known))
    sd = float(delta.std(ddof=1))
    spread = error * math.sqrt(row.n)
    if not spread > NO_DIFFERENCE:
        # Without any spread there is nothing to judge the number of queries by.
        return row
    # More queries cannot make up for few runs: then no number of them is named.
    alone = row.between_runs is None and row.wanted > 0
    return replace(
        row,
        effect=float(delta.mean()) / sd if sd > NO_DIFFERENCE else None,
        detectable=detectable(error, df),
        needed=queries_needed(row.wanted, spread) if alone else None,
    )


@dataclass(frozen=True, slots=True)
class _Runs:
    """A system that was run more than once: how its runs' means vary, and how many there are.

    ``beyond_noise`` is the variance between runs that the noise at single queries does not
    explain, ``in_all`` what is there. The error counts with the latter: it cannot be
    underestimated by chance to nothing, and errs on the safe side.
    """

    beyond_noise: float
    in_all: float
    number: int


def _repeated(pair: Pair, measure: str, known: NDArray[np.bool_]) -> list[_Runs]:
    found = []
    for contender in (pair.baseline, pair.system):
        if len(contender.runs) > 1:
            matrix = contender.matrix(measure)[known]
            whole = matrix[~np.isnan(matrix).any(axis=1)]
            if len(whole) > 1:
                in_all = float(whole.mean(axis=0).var(ddof=1))
                found.append(_Runs(between_runs(whole), in_all, len(contender.runs)))
    return found


def _with_runs(
    row: Comparison, delta: Values, own: tuple[float, float], runs: list[_Runs]
) -> tuple[Comparison, float, float]:
    """What repeated runs add: a difference between runs is no difference between systems."""
    error, df = own
    if not runs:
        return row, error, df
    between = math.sqrt(sum(one.beyond_noise / one.number for one in runs))
    row = replace(row, between_runs=between)
    whole = total_error((error, df), [(one.in_all, one.number) for one in runs])
    if not whole[0] > error:
        return row, error, df
    by_runs = t_p(float(delta.mean()), *whole)
    row = replace(
        row,
        p=max(row.p or 0.0, by_runs),
        t=by_runs,
        ci=_reaching(row.ci, delta, own, whole, 0.975),
        ci_same=_reaching(row.ci_same, delta, own, whole, 0.95),
    )
    return row, *whole


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
