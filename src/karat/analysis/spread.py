"""What a comparison's error is made of, and so what it can detect: queries, and repeated runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from karat.analysis.comparison import NO_DIFFERENCE, Comparison, Pair
from karat.measures.intervals import Interval
from karat.measures.numbers import Values
from karat.stats.paired import agreeing_with_p
from karat.stats.power import Power, detectable_by_t
from karat.stats.replicates import between_runs, total_error
from karat.stats.student import standard_error, t_p, t_quantile


def with_spread(
    row: Comparison,
    pair: Pair,
    delta: Values,
    known: NDArray[np.bool_],
    groups: NDArray[np.int64] | None,
    most: float,
) -> Comparison:
    """The comparison with its effect size and power; by t where runs of a system differ.

    ``delta`` holds the differences of the ``known`` queries, ``most`` the largest possible one.
    """
    sd = float(delta.std(ddof=1))
    effect = float(delta.mean()) / sd if sd > NO_DIFFERENCE else None
    row = replace(row, effect=effect)
    runs = _repeated(pair, row.measure, known)
    if runs:
        between = math.sqrt(sum(one.beyond_noise / one.number for one in runs))
        row = replace(row, between_runs=between)
    if any(one.in_all > 0 for one in runs):
        return _by_t(row, pair, delta, groups, runs, most)
    conventions = pair.baseline.conventions
    power = Power(delta, groups, confidence=conventions.ci, seed=conventions.seed)
    return replace(
        row,
        detectable=power.detectable(),
        # More queries cannot make up for few runs: then no number of them is named.
        needed=None if runs else power.queries_needed(row.wanted),
        power_because=power.why_unknown,
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


def _by_t(
    row: Comparison,
    pair: Pair,
    delta: Values,
    groups: NDArray[np.int64] | None,
    runs: list[_Runs],
    most: float,
) -> Comparison:
    """P, interval and power where runs differ: that is no difference between systems."""
    confidence = pair.baseline.conventions.ci
    own = standard_error(delta, groups)
    error, df = total_error(own, [(one.in_all, one.number) for one in runs])
    mean = float(delta.mean())
    p = t_p(mean, error, df)

    def interval(ends: Interval, level: float) -> Interval:
        if ends is None:
            return None
        reach = error * t_quantile((1 + level) / 2, df)
        low, high = max(mean - reach, -most), min(mean + reach, most)
        return agreeing_with_p((low, high), p, round(1 - level, 12), mean)

    return replace(
        row,
        p=p,
        t=p,
        ci=interval(row.ci, confidence),
        ci_same=interval(row.ci_same, max(0.5, 2 * confidence - 1)),
        detectable=detectable_by_t(error, df, confidence=confidence),
    )
