"""Paired tests: randomisation with its interval, all pairs, t, Wilcoxon, sign, corrections.

Random sums are exact, so the same seed gives the same bits on any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from karat.stats.distributions import (
    NORMAL,
    Ints,
    Values,
    heads_at_most,
    standard_error,
    t_p,
    tail,
    units_of,
)
from karat.stats.means import chunks, on_grid, rows_of, sums_by

# Up to this many differences, all ways to swap them are counted: a million at most.
EXACT_UP_TO = 20

# Up to this many rows Wilcoxon's test may be exact.
_EXACT_WILCOXON = 50
# Up to so many rows scipy tries all signs where there are ties or zeros, which takes seconds.
_ALL_SIGNS = 13

# Up to so many rows an interval may be made of all signs: 8,192 pairs of them.
_ALL_AT_ONCE = 14
# The random signs that the ends of an interval are made of; p counts all resamples.
_FOR_ENDS = 10_000

# The eight signs that each byte stands for: -1 for a bit that is set, the highest bit first.
_SIGN_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
_OF_BYTE = 1 - 2 * _SIGN_BITS.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Randomised:
    """The p of each column, and at each confidence the intervals (low, high) of all columns.

    An end is infinite where the signs cannot rule out any difference, however large.
    """

    p: Values
    intervals: list[Values]


def randomisation(
    deltas: Values, *, resamples: int = 10_000, seed: int = 0, groups: Ints | None = None
) -> Values:
    """Return the two-sided p of each column's mean: how often swapping the two systems at random,
    query by query, makes a difference as large. With ``groups`` whole groups are swapped.

    Exact (hits / 2^m) for a column with at most 20 differences that are not 0, otherwise
    (1 + hits) / (1 + resamples). Never 0; 1 where all differences are 0.
    """
    return randomised(deltas, (), resamples=resamples, seed=seed, groups=groups).p


def randomised(
    deltas: Values,
    confidences: Sequence[float],
    *,
    resamples: int = 10_000,
    seed: int = 0,
    groups: Ints | None = None,
) -> Randomised:
    """Return the randomisation test, and the differences that it does not reject.

    A difference is in the interval if the test, with it subtracted from every query, gives a p
    of alpha or more. Each sign vector s and its mirror image bound one such range: theta =
    (sum(d) - sum(s d)) / (n - sum(s)) for either of them; the mean always lies between the two,
    so the ends are quantiles of the lower and of the upper ones. All queries change sign, also
    those without a difference, or all groups of queries as a whole. All signs are counted where
    they are no more than the resamples, else at most 10,000 random ones.
    """
    units, grid = on_grid(_flipped_together(deltas, groups))
    n = units.shape[1]
    sizes = np.bincount(units_of(len(deltas), groups)).astype(np.float64)
    # Sums that are equal on paper differ in floats, and on the grid by up to 1 for each term.
    least = np.abs(units.sum(axis=1)) - 1e-9 * np.abs(units).sum(axis=1) - n
    few = np.count_nonzero(units, axis=1) <= EXACT_UP_TO
    p = np.ones(len(units))
    for j in np.flatnonzero(few & (least > 0)):
        p[j] = _share_of_all_signs(units[j][units[j] != 0], float(least[j]))
    many = np.flatnonzero(~few)
    all_signs = bool(confidences) and 1 <= n <= _ALL_AT_ONCE and 2 ** (n - 1) <= resamples
    for_ends = min(resamples, _FOR_ENDS) if confidences and not all_signs else 0
    ranges = []
    if all_signs:
        # Every sign vector or its mirror image, one row each.
        codes = np.arange(2 ** (n - 1))[:, None] >> np.arange(n)
        signs = 1 - 2 * (codes & 1).astype(np.float64)
        ranges.append(_accepted(units, sizes, signs, signs @ units.T))
    hits, seen = np.zeros(len(many)), 0
    for signs in _signs(n, max(for_ends, resamples if len(many) else 0), seed):
        sums = signs @ units.T
        hits += (np.abs(sums[:, many]) >= least[many]).sum(axis=0)
        if seen < for_ends:
            left = for_ends - seen
            ranges.append(_accepted(units, sizes, signs[:left], sums[:left]))
        seen += len(signs)
    if len(many):
        p[many] = (1 + hits) / (1 + resamples)
    if not confidences:
        return Randomised(p, [])
    low, high = (np.vstack(ends) for ends in zip(*ranges, strict=True))
    # The observed signs, all equal, count as one resample, as in (1 + hits) / (1 + resamples).
    unseen = 0 if all_signs else 1
    intervals = []
    for confidence in confidences:
        place = math.ceil(2 * tail(confidence) * (len(low) + unseen) - 1e-9) - 1 - unseen
        ends = np.tile([-np.inf, np.inf], (len(units), 1))
        if place >= 0:
            ends[:, 0] = np.partition(low, place, axis=0)[place]
            ends[:, 1] = np.partition(high, len(high) - 1 - place, axis=0)[len(high) - 1 - place]
        intervals.append(ends * grid[:, None])
    return Randomised(p, intervals)


def _accepted(units: Values, sizes: Values, signs: Values, sums: Values) -> tuple[Values, Values]:
    """Return the ends of the ranges that sign vectors, with their sums, and their mirrors give."""
    total, size = units.sum(axis=1), float(sizes.sum())
    swapped = (signs @ sizes)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = (total - sums) / (size - swapped)
        mirrored = (total + sums) / (size + swapped)
    # All signs equal: every difference is as likely as the measured one.
    unbounded = np.abs(swapped) == size
    low = np.where(unbounded, -np.inf, np.minimum(drawn, mirrored))
    return low, np.where(unbounded, np.inf, np.maximum(drawn, mirrored))


def agreeing_with_p(
    ends: tuple[float, float], p: float, alpha: float, difference: float
) -> tuple[float, float]:
    """Return the interval moved so that it excludes 0 exactly when p is below alpha.

    Only the end nearest 0 moves: to 0, or just to the side of the difference.

    >>> agreeing_with_p((0.01, 0.2), 0.25, 0.05, 0.1)
    (0.0, 0.2)
    """
    low, high = ends
    if p >= alpha or difference == 0:
        return min(low, 0.0), max(high, 0.0)
    beside = difference * 2.0**-20
    return (max(low, beside), high) if difference > 0 else (low, min(high, beside))


def _flipped_together(columns: Values, groups: Ints | None) -> Values:
    """Return one row per column; an entry (a query or a group) changes sign as a whole."""
    rows = rows_of(columns)
    return rows if groups is None else sums_by(units_of(rows.shape[1], groups), rows)


def _share_of_all_signs(values: Values, least: float) -> float:
    """Return the share of all signs under which the sum is at least this far from 0.

    The sums of two halves are matched, so that a million signs take a thousand steps.
    """
    left, right = (_sums_under_all_signs(half) for half in np.array_split(values, 2))
    right.sort()
    above = len(right) * len(left) - np.searchsorted(right, least - left).sum()
    # All sums have their mirror image on the other side of 0.
    return float(2 * above / (len(right) * len(left)))


def _sums_under_all_signs(values: Values) -> Values:
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def _signs(n: int, resamples: int, seed: int) -> Iterator[Values]:
    """Return random signs, n a row, as many rows as resamples; the same for the same n and seed."""
    rng = np.random.default_rng([seed, n])
    width = math.ceil(n / 8)
    for size in chunks(resamples, n):
        raw = np.frombuffer(rng.bytes(size * width), np.uint8).reshape(size, width)
        yield _OF_BYTE[raw].reshape(size, -1)[:, :n]


def all_pairs(
    columns: Values, *, resamples: int = 10_000, seed: int = 0, groups: Ints | None = None
) -> tuple[Values, Values]:
    """Return p and adjusted p of all pairs of systems, each of shape (pairs, measures).

    ``columns`` has the shape (queries, systems, measures); pairs are in the order of
    ``itertools.combinations``. Each query's values change sign at random for all systems at once.
    A pair's statistic is its mean difference over its own root mean square, which no sign changes,
    so that noisy pairs do not drown the others. The adjusted p is the step-down max-T of Westfall
    and Young: how often the largest statistic, among the pairs that are no more significant than
    this one, is as large. The pairs of one measure are one family.
    """
    n, systems, measures = columns.shape
    first, second = np.triu_indices(systems, k=1)
    sums = _flipped_together(columns.reshape(n, systems * measures), groups)
    # One grid for all systems of a measure, so that differences stay on it.
    by_measure = sums.reshape(systems, measures, -1).swapaxes(0, 1).reshape(measures, -1)
    units = on_grid(by_measure, terms=2 * sums.shape[1])[0].reshape(measures, systems, -1)
    families = [_by_significance(table[first] - table[second]) for table in units]
    # Of the pair itself, and of the largest statistic among the pairs up to it.
    hits = np.zeros((2, measures, len(first)))
    for signs in _signs(units.shape[2], resamples, seed):
        for j, (order, scale, least) in enumerate(families):
            flipped = signs @ units[j].T
            statistics = np.abs((flipped[:, first] - flipped[:, second])[:, order]) / scale
            hits[0, j] += (statistics >= least).sum(axis=0)
            np.maximum.accumulate(statistics, axis=1, out=statistics)
            hits[1, j] += (statistics >= least).sum(axis=0)
    # A pair's p is never below that of a more significant pair.
    hits[1] = np.maximum.accumulate(hits[1, :, ::-1], axis=1)[:, ::-1]
    p, adjusted = np.empty((2, len(first), measures))
    for j, (order, _, _) in enumerate(families):
        p[order, j], adjusted[order, j] = (1 + hits[:, j]) / (1 + resamples)
    return p, adjusted


def _by_significance(differences: Values) -> tuple[Ints, Values, Values]:
    """Return the pairs' order from the least significant on, their scales and least statistics."""
    scale = np.sqrt((differences**2).sum(axis=1))
    scale[scale == 0] = 1.0
    observed = np.abs(differences.sum(axis=1)) / scale
    order = np.argsort(observed, kind="stable")
    # What is equal on paper may differ in its last bits.
    return order, scale[order], observed[order] * (1 - 1e-9) - 1e-9


def t_test(delta: Values) -> float | None:
    """Return the p of the paired t test; None where the differences have no spread."""
    if len(delta) < 2:
        return None
    if delta.min() == delta.max():
        return 1.0 if delta[0] == 0 else None
    return t_p(float(delta.mean()), *standard_error(delta))


def wilcoxon(delta: Values) -> float | None:
    """Return the p of Wilcoxon's signed-rank test with Pratt's zeros; None without rows.

    Exact up to 13 rows, and up to 50 rows without ties and zeros; else by the normal
    approximation, corrected for both. scipy's test decides in the same way.
    """
    if not len(delta):
        return None
    delta = _settled(delta)
    n, zeros = len(delta), int((delta == 0).sum())
    if zeros == n:
        return 1.0
    _, place, counts = np.unique(np.abs(delta), return_inverse=True, return_counts=True)
    # Twice the mean rank of each value: whole numbers, also of ties.
    ranks = (2 * np.cumsum(counts) - counts + 1)[place]
    distinct = counts.max() == 1 and not zeros
    if n <= _ALL_SIGNS or (n <= _EXACT_WILCOXON and distinct):
        return _over_all_signs(delta, ranks)
    above = float(ranks[delta > 0].sum()) / 2
    mean = (n * (n + 1) - zeros * (zeros + 1)) / 4
    tied = counts[1:] if zeros else counts
    ties = float((tied**3 - tied).sum()) / 2
    spread = n * (n + 1) * (2 * n + 1) - zeros * (zeros + 1) * (2 * zeros + 1) - ties
    return min(1.0, 2 * NORMAL.cdf(-abs(above - mean) / math.sqrt(spread / 24)))


def _over_all_signs(delta: Values, ranks: Ints) -> float:
    """Return Wilcoxon's p over all signs; zeros have a rank and no sign."""
    sums = np.zeros(int(ranks.sum()) + 1)
    sums[0] = 1.0
    for rank in ranks[delta != 0]:
        sums[rank:] = sums[rank:] + sums[: len(sums) - rank]
    above = int(ranks[delta > 0].sum())
    side = min(sums[: above + 1].sum(), sums[above:].sum())
    return min(1.0, 2 * float(side) / float(sums.sum()))


def sign_test(delta: Values) -> float | None:
    """Return the p of the sign test, which leaves zeros out; None without rows."""
    if not len(delta):
        return None
    settled = _settled(delta)
    gains, losses = int((settled > 0).sum()), int((settled < 0).sum())
    return min(1.0, 2 * heads_at_most(min(gains, losses), gains + losses))


def _settled(delta: Values) -> Values:
    """Return differences without their last bits, so that what is equal on paper is equal."""
    largest = float(np.abs(delta).max())
    return np.round(delta / largest, 12) if largest > 0 else delta


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Return each p, so that one wrong rejection anywhere is as rare as the level says.

    >>> holm([0.01, None, 0.04])
    [0.02, None, 0.04]
    """
    return _in_order(
        ps, lambda ordered: np.maximum.accumulate(np.arange(len(ordered), 0, -1) * ordered)
    )


def benjamini_hochberg(ps: Sequence[float | None]) -> list[float | None]:
    """Return each p, so that the expected share of wrong rejections among all is as the level says.

    >>> benjamini_hochberg([0.01, None, 0.04])
    [0.02, None, 0.04]
    """

    def stepped(ordered: Values) -> Values:
        # m / rank times p, in an order of operations that never falls below p.
        raised = ordered * (len(ordered) / np.arange(1, len(ordered) + 1))
        return np.minimum.accumulate(raised[::-1])[::-1]

    return _in_order(ps, stepped)


def _in_order(
    ps: Sequence[float | None], stepped: Callable[[Values], Values]
) -> list[float | None]:
    """Correct the known p values from the smallest up, and put each back in its place."""
    known_ps = sorted((p, place) for place, p in enumerate(ps) if p is not None)
    ordered = np.array([p for p, _ in known_ps], dtype=np.float64)
    corrected: list[float | None] = [None] * len(ps)
    for (_, place), value in zip(known_ps, stepped(ordered).tolist(), strict=True):
        corrected[place] = min(1.0, value)
    return corrected


def between_runs(values: Values) -> float:
    """Return the variance between the means of runs beyond what noise at single queries explains.

    ``values`` has one row per query and one column per run. From the two-way layout without
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
    """Return the standard error of a mean difference and its degrees of freedom.

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
    return math.sqrt(whole), whole**2 / math.fsum(
        part**2 / part_df for part, part_df in parts if part > 0
    )
