"""Comparing numbers that are no means of queries' values: percentiles, geometric means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from karat.measures import numbers
from karat.measures.conventions import Conventions
from karat.measures.intervals import Interval, plan_of
from karat.measures.names import Measure
from karat.measures.numbers import Values
from karat.measures.overall import number_of, percentile_of
from karat.stats.bootstrap import resampled_means
from karat.stats.exact import Places
from karat.stats.order import percentile_interval
from karat.stats.paired import agreeing_with_p, randomisation
from karat.stats.percentiles import resampled_percentiles, swapped_differences


@dataclass(frozen=True, slots=True)
class Difference:
    """The intervals of a difference, and the chance of one as large if there were none."""

    ci: Interval
    ci_same: Interval
    p: float | None


def compare_numbers(
    measure: Measure, a: Values, b: Values, conventions: Conventions, groups: Places | None
) -> Difference | None:
    """The difference between the numbers of two systems; None where no test is known."""
    if len(a) < 2:
        return None
    share = percentile_of(measure)
    if share is not None:
        return _of_percentiles(a, b, share, conventions, groups)
    if number_of(measure) is numbers.geometric_mean:
        return _of_geometric_means(a, b, conventions, groups)
    return None


def _of_percentiles(
    a: Values, b: Values, share: float, conventions: Conventions, groups: Places | None
) -> Difference:
    """Queries resampled for the interval; for p, which system is which swapped at random."""
    observed = abs(np.percentile(b, 100 * share) - np.percentile(a, 100 * share))
    boot, seed = conventions.boot, conventions.seed
    swapped = swapped_differences(
        a, b, share, resamples=conventions.permutations, seed=seed, groups=groups
    )
    hits = int((np.abs(swapped) >= observed * (1 - 1e-12)).sum())
    p = (1 + hits) / (1 + len(swapped)) if (a != b).any() else 1.0
    units = np.arange(len(a) if groups is None else len(np.unique(groups)), dtype=np.float64)
    if percentile_interval(units, share, confidence=conventions.ci) is None:
        # Too few to place the percentile of one system, let alone the difference of two.
        return Difference(None, None, p)
    both = np.stack([a, b], axis=1)
    drawn = resampled_percentiles(both, share, resamples=boot, seed=seed, groups=groups)
    difference = float(np.percentile(b, 100 * share) - np.percentile(a, 100 * share))
    return _difference(drawn[:, 1] - drawn[:, 0], difference, p, conventions)


def _of_geometric_means(
    a: Values, b: Values, conventions: Conventions, groups: Places | None
) -> Difference:
    logs = np.log(np.maximum(np.stack([a, b], axis=1), numbers.SMALLEST))
    means = np.concatenate(list(resampled_means(logs, plan_of(conventions), groups=groups)))
    drawn = np.exp(means[:, 1]) - np.exp(means[:, 0])
    change = (logs[:, 1] - logs[:, 0])[:, None]
    p = randomisation(
        change, resamples=conventions.permutations, seed=conventions.seed, groups=groups
    )
    first, second = np.exp(logs.mean(axis=0)).tolist()
    return _difference(drawn, second - first, float(p[0]), conventions)


def _difference(drawn: Values, difference: float, p: float, conventions: Conventions) -> Difference:
    """The interval at the confidence asked for and the one for sameness, in one story with p."""
    if conventions.interval == "none":
        return Difference(None, None, p)
    ends = []
    for level in (1 - conventions.ci, 2 * (1 - conventions.ci)):
        low, high = np.quantile(drawn, [level / 2, 1 - level / 2]).tolist()
        ends.append(agreeing_with_p((low, high), p, round(level, 12), difference))
    return Difference(ends[0], ends[1], p)
