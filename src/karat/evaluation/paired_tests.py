"""Two systems on the same queries: differences, intervals and tests, measure by measure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from karat.evaluation.systems import ComparedSystem, Pair
from karat.evaluation.verdict import NO_DIFFERENCE, Comparison, Rule
from karat.measures import aggregates
from karat.measures.aggregates import Values
from karat.measures.conventions import Conventions
from karat.measures.names import Measure
from karat.measures.scores import Interval, has_interval, number_of, percentile_of, plan_of
from karat.stats.distributions import standard_error, t_p, t_quantile
from karat.stats.paired import (
    EXACT_UP_TO,
    agreeing_with_p,
    all_pairs,
    between_runs,
    randomisation,
    randomised,
    sign_test,
    t_test,
    total_error,
    wilcoxons,
)
from karat.stats.percentiles import percentile_interval, resampled_percentiles, swapped_differences
from karat.stats.power import Power, detectable_by_t
from karat.stats.resampling import Places, percentile_intervals, resampled_means

Mask = NDArray[np.bool_]
Groups = NDArray[np.int64] | None


@dataclass(frozen=True, eq=False)
class _Cell:
    """One measure of one pair: the queries that both have a value for, and the values."""

    pair: Pair
    measure: Measure
    known: Mask
    a: Values
    b: Values
    row: Comparison

    @property
    def delta(self) -> Values:
        return self.b - self.a

    @property
    def most(self) -> float:
        """The largest difference that two rankings can have on a query; infinite without bounds."""
        ranges = [one.runs[0].range_of(self.measure, self.known) for one in self._sides]
        ends = [end for one in ranges if one is not None for end in one]
        return max(ends) - min(ends) if ends else math.inf

    @property
    def _sides(self) -> tuple[ComparedSystem, ComparedSystem]:
        return self.pair.baseline, self.pair.system


def compared_pairs(
    systems: Sequence[ComparedSystem],
    pairs: Sequence[Pair],
    mask: Mask,
    where: Mapping[str, str] | None,
    rule: Rule,
    *,
    permutations: int,
    known: Iterable[Comparison] = (),
) -> list[Comparison]:
    """Return every measure of every pair over the marked queries, not yet judged.

    ``known`` are comparisons of numbers, no means, that would come out the same again.
    """
    cells = [
        _cell(pair, measure, mask, where, rule) for measure in systems[0].measures for pair in pairs
    ]
    groups = systems[0].runs[0].groups
    tested: Tested = {}
    if rule.pairs == "all":
        tested = _over_all_pairs(systems, mask, groups, permutations)
    rows = {id(cell): cell.row for cell in cells}
    means = [cell for cell in cells if _is_mean(cell.measure) and cell.known.any()]
    for some in _over_the_same_queries(means):
        own = None if groups is None else groups[some[0].known]
        found = _tested(some, own, tested, permutations)
        rows |= {id(cell): row for cell, row in zip(some, found, strict=True)}
    told = {(one.baseline, one.system, one.measure): one for one in known if one.segment == where}
    for cell in cells:
        if not _is_mean(cell.measure) and cell.known.any():
            own = None if groups is None else groups[cell.known]
            rows[id(cell)] = _of_numbers(cell, own, told.get((*cell.pair.names, str(cell.measure))))
    return [rows[id(cell)] for cell in cells]


def _cell(
    pair: Pair, measure: Measure, mask: Mask, where: Mapping[str, str] | None, rule: Rule
) -> _Cell:
    a, b = pair.values(str(measure))
    known = mask & ~np.isnan(a) & ~np.isnan(b)
    old, new = (_number(one, measure, known) for one in (pair.baseline, pair.system))
    row = Comparison(
        *pair.names,
        measure=str(measure),
        segment=where,
        primary=str(measure) == rule.primary,
        better=measure.definition.better,
        n=int(known.sum()),
        baseline_mean=old,
        system_mean=new,
        delta=None if old is None or new is None else new - old,
        margin=0.0 if old is None else rule.margin_for(old),
    )
    wanted = rule.detect or row.margin
    row = replace(row, wanted=wanted)
    return _Cell(pair, measure, known, a[known], b[known], row)


def _number(system: ComparedSystem, measure: Measure, known: Mask) -> float | None:
    """Return the measure's number over these queries; of repeated runs the mean of theirs."""
    found = [run.number(measure, known) for run in system.runs]
    told = [one for one in found if one is not None]
    return math.fsum(told) / len(told) if told else None


def _is_mean(measure: Measure) -> bool:
    return number_of(measure) in (aggregates.mean, aggregates.total)


def _over_the_same_queries(cells: Iterable[_Cell]) -> list[list[_Cell]]:
    """Cells that can be resampled together."""
    together: dict[bytes, list[_Cell]] = {}
    for cell in cells:
        together.setdefault(np.packbits(cell.known).tobytes(), []).append(cell)
    return list(together.values())


# p and adjusted p of a pair (by its names) and measure, where all pairs were tested at once
Tested = Mapping[tuple[str, str, str], tuple[float, float]]


def _tested(
    cells: Sequence[_Cell], groups: Groups, tested: Tested, permutations: int
) -> list[Comparison]:
    """Means and sums: p and intervals of all cells from the same random signs."""
    conventions = cells[0].pair.baseline.conventions
    deltas = np.stack([cell.delta for cell in cells], axis=1)
    units = deltas if groups is None else _group_means(deltas, groups)
    if len(units) < 2:
        return [_with_wins(cell.row, cell) for cell in cells]
    confidences = (conventions.ci, max(0.5, 2 * conventions.ci - 1))
    ps, ends = _randomised(cells, deltas, groups, tested, permutations, confidences)
    if conventions.interval == "percentile":
        ends = percentile_intervals(
            deltas, plan_of(conventions), confidences=confidences, groups=groups
        )
    ranked = wilcoxons(units)
    rows = []
    for at, cell in enumerate(cells):
        p, p_adjusted = ps[at]
        wide, narrow = (
            _interval(cell, some[at], p, confidence)
            for some, confidence in zip(ends, confidences, strict=True)
        )
        row = replace(
            cell.row,
            p=p,
            p_adjusted=p_adjusted,
            ci=wide,
            ci_same=narrow,
            t=t_test(units[:, at]) if groups is None else _clustered_t(cell.delta, groups),
            wilcoxon=float(ranked[at]),
            sign=sign_test(units[:, at]),
        )
        rows.append(_counted(row, cell, groups))
    return rows


def _randomised(
    cells: Sequence[_Cell],
    deltas: Values,
    groups: Groups,
    tested: Tested,
    permutations: int,
    confidences: Sequence[float],
) -> tuple[list[tuple[float, float | None]], list[Values]]:
    """Return the p of each cell, adjusted where all pairs were tested at once, and the intervals.

    Few differences are tested exactly, also among all pairs.
    """
    conventions = cells[0].pair.baseline.conventions
    known = [tested.get((*cell.pair.names, str(cell.measure))) for cell in cells]
    if None not in known:
        # Only few differences are tested once more, and exactly.
        permutations = min(permutations, conventions.permutations)
    found = randomised(
        deltas, confidences, resamples=permutations, seed=conventions.seed, groups=groups
    )
    swapped = deltas if groups is None else _group_means(deltas, groups)
    few = np.count_nonzero(swapped, axis=0) <= EXACT_UP_TO
    ps: list[tuple[float, float | None]] = []
    for own, together, exact in zip(found.p.tolist(), known, few.tolist(), strict=True):
        if together is None:
            ps.append((own, None))
        else:
            ps.append((own, max(own, together[1])) if exact else together)
    return ps, found.intervals


def _interval(cell: _Cell, ends: Values, p: float, confidence: float) -> Interval:
    """The interval of the mean difference, inside what differences can be, in one story with p."""
    conventions = cell.pair.baseline.conventions
    if conventions.interval == "none" or not has_interval(cell.measure):
        return None
    reach = cell.most
    low, high = max(float(ends[0]), -reach), min(float(ends[1]), reach)
    if math.isinf(low) or math.isinf(high):
        # So few queries rule out no difference, and this measure has no bounds of its own.
        return None
    return agreeing_with_p((low, high), p, round(1 - confidence, 12), float(cell.delta.mean()))


def _clustered_t(delta: Values, groups: NDArray[np.int64]) -> float | None:
    """The t-test of the mean difference itself, with an error that allows for conversations."""
    error, df = standard_error(delta, groups)
    return t_p(float(delta.mean()), error, df) if error > 0 else None


def _counted(row: Comparison, cell: _Cell, groups: Groups) -> Comparison:
    """With the queries that won and lost, the spread between runs, and what can be detected."""
    row = _with_wins(row, cell)
    if row.p is None:
        return row
    if number_of(cell.measure) is not aggregates.total:
        return with_spread(row, cell.pair, cell.delta, cell.known, groups, cell.most)
    # A sum is n times the mean, and so are its interval and its margin.
    of_means = replace(row, wanted=row.wanted / row.n)
    found = with_spread(of_means, cell.pair, cell.delta, cell.known, groups, cell.most)
    return replace(
        found,
        wanted=row.wanted,
        ci=_times(found.ci, row.n),
        ci_same=_times(found.ci_same, row.n),
        detectable=None if found.detectable is None else found.detectable * row.n,
        between_runs=None if found.between_runs is None else found.between_runs * row.n,
    )


def _times(ends: Interval, n: int) -> Interval:
    return None if ends is None else (ends[0] * n, ends[1] * n)


def _with_wins(row: Comparison, cell: _Cell) -> Comparison:
    up = -cell.delta if row.better == "lower" else cell.delta
    return replace(
        row,
        wins=int((up > NO_DIFFERENCE).sum()),
        losses=int((up < -NO_DIFFERENCE).sum()),
        ties=int((np.abs(up) <= NO_DIFFERENCE).sum()),
    )


def _group_means(deltas: Values, groups: NDArray[np.int64]) -> Values:
    _, member = np.unique(groups, return_inverse=True)
    sums = [np.bincount(member, weights=delta) for delta in deltas.T]
    return np.stack(sums, axis=1) / np.bincount(member)[:, None]


def _of_numbers(cell: _Cell, groups: Groups, known: Comparison | None) -> Comparison:
    """Percentiles and other numbers that are no means of the queries' values."""
    row = _with_wins(cell.row, cell)
    if cell.pair.repeated:
        # A query's mean over runs has neither the runs' number nor their spread.
        why = "a number that is no mean of queries has no test across repeated runs"
        return replace(row, power_because=why)
    conventions = cell.pair.baseline.conventions
    found: Comparison | Difference | None = known
    if found is None:
        found = compare_numbers(cell.measure, cell.a, cell.b, conventions, groups)
    if found is None:
        return row
    return replace(row, p=found.p, ci=found.ci, ci_same=found.ci_same)


def _over_all_pairs(
    systems: Sequence[ComparedSystem], mask: Mask, groups: Groups, permutations: int
) -> Tested:
    """Tests of every pair, corrected by the largest difference that permuting makes anywhere."""
    conventions = systems[0].conventions
    together: dict[bytes, list[tuple[str, Values, Mask]]] = {}
    for measure in filter(_is_mean, systems[0].measures):
        columns = np.stack([one.values(str(measure)) for one in systems], axis=1)
        known = mask & ~np.isnan(columns).any(axis=1)
        if known.sum() > 1:
            together.setdefault(known.tobytes(), []).append((str(measure), columns, known))
    tested = {}
    for some in together.values():
        known = some[0][2]
        found = all_pairs(
            np.stack([columns[known] for _, columns, _ in some], axis=2),
            resamples=permutations,
            seed=conventions.seed,
            groups=None if groups is None else groups[known],
        )
        for at, (a, b) in enumerate(zip(found.first.tolist(), found.second.tolist(), strict=True)):
            names = systems[a].name, systems[b].name
            for which, (name, _, _) in enumerate(some):
                ps = float(found.p[at, which]), float(found.p_adjusted[at, which])
                tested[(*names, name)] = ps
    return tested


def with_spread(
    row: Comparison,
    pair: Pair,
    delta: Values,
    known: NDArray[np.bool_],
    groups: NDArray[np.int64] | None,
    most: float,
) -> Comparison:
    """Return the comparison with its effect size and power; by t where runs of a system differ.

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
    for system in (pair.baseline, pair.system):
        if len(system.runs) > 1:
            matrix = system.matrix(measure)[known]
            whole = matrix[~np.isnan(matrix).any(axis=1)]
            if len(whole) > 1:
                in_all = float(whole.mean(axis=0).var(ddof=1))
                found.append(_Runs(between_runs(whole), in_all, len(system.runs)))
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


@dataclass(frozen=True, slots=True)
class Difference:
    """The intervals of a difference, and the chance of one as large if there were none."""

    ci: Interval
    ci_same: Interval
    p: float | None


def compare_numbers(
    measure: Measure, a: Values, b: Values, conventions: Conventions, groups: Places | None
) -> Difference | None:
    """Return the difference between the numbers of two systems; None where no test is known."""
    if len(a) < 2:
        return None
    share = percentile_of(measure)
    if share is not None:
        return _of_percentiles(a, b, share, conventions, groups)
    if number_of(measure) is aggregates.geometric_mean:
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
    logs = np.log(np.maximum(np.stack([a, b], axis=1), aggregates.SMALLEST))
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
