"""Two systems on the same queries: differences, intervals and tests, measure by measure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from karat.analysis.comparison import NO_DIFFERENCE, Comparison, Pair
from karat.analysis.contenders import Contender
from karat.analysis.setwise import Difference, compare_numbers
from karat.analysis.spread import with_spread
from karat.analysis.verdicts import Rule
from karat.measures import numbers
from karat.measures.intervals import Interval, has_interval, plan_of
from karat.measures.names import Measure
from karat.measures.numbers import Values
from karat.measures.overall import number_of
from karat.stats.bootstrap import percentile_intervals
from karat.stats.paired import (
    EXACT_UP_TO,
    agreeing_with_p,
    all_pairs,
    randomised,
    sign_test,
    t_test,
    wilcoxons,
)
from karat.stats.student import standard_error, t_p

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
    def _sides(self) -> tuple[Contender, Contender]:
        return self.pair.baseline, self.pair.system


def compared_pairs(
    contenders: Sequence[Contender],
    pairs: Sequence[Pair],
    mask: Mask,
    where: Mapping[str, str] | None,
    rule: Rule,
    *,
    permutations: int,
    known: Iterable[Comparison] = (),
) -> list[Comparison]:
    """Every measure of every pair over the marked queries, not yet judged.

    ``known`` are comparisons of numbers, no means, that would come out the same again.
    """
    cells = [
        _cell(pair, measure, mask, where, rule)
        for measure in contenders[0].measures
        for pair in pairs
    ]
    groups = contenders[0].runs[0].groups
    tested: Tested = {}
    if rule.pairs == "all":
        tested = _over_all_pairs(contenders, mask, groups, permutations)
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


def _number(contender: Contender, measure: Measure, known: Mask) -> float | None:
    """The measure's number over these queries; of repeated runs the mean of theirs."""
    found = [run.number(measure, known) for run in contender.runs]
    told = [one for one in found if one is not None]
    return math.fsum(told) / len(told) if told else None


def _is_mean(measure: Measure) -> bool:
    return number_of(measure) in (numbers.mean, numbers.total)


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
    """The p of each cell, adjusted where all pairs were tested at once, and the intervals.

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
    if number_of(cell.measure) is not numbers.total:
        return with_spread(row, cell.pair, cell.delta, cell.known, groups, cell.most)
    # A sum is so many times the mean, and so is all that is said of it.
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
    contenders: Sequence[Contender], mask: Mask, groups: Groups, permutations: int
) -> Tested:
    """Tests of every pair, corrected by the largest difference that permuting makes anywhere."""
    conventions = contenders[0].conventions
    together: dict[bytes, list[tuple[str, Values, Mask]]] = {}
    for measure in filter(_is_mean, contenders[0].measures):
        columns = np.stack([one.values(str(measure)) for one in contenders], axis=1)
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
            names = contenders[a].name, contenders[b].name
            for which, (name, _, _) in enumerate(some):
                ps = float(found.p[at, which]), float(found.p_adjusted[at, which])
                tested[(*names, name)] = ps
    return tested
