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
from karat.measures.intervals import Interval, plan_of
from karat.measures.names import Measure
from karat.measures.numbers import Values
from karat.measures.overall import number_of
from karat.stats.bootstrap import intervals_at
from karat.stats.paired import (
    EXACT_UP_TO,
    all_pairs,
    randomisation,
    sign_test,
    t_test,
    wilcoxons,
)
from karat.stats.power import standard_error
from karat.stats.proportions import wilson
from karat.stats.student import t_p, t_quantile

# Below so many queries or conversations an interval is not left to resamples alone.
FEW = 10

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
    """Means and sums: intervals and p of all cells from the same resamples."""
    conventions = cells[0].pair.baseline.conventions
    deltas = np.stack([cell.delta for cell in cells], axis=1)
    units = deltas if groups is None else _group_means(deltas, groups)
    ps = _randomised(cells, deltas, groups, tested, permutations)
    ranked = wilcoxons(units) if len(units) > 1 else np.full(len(cells), np.nan)
    wide = narrow = np.full((len(cells), 2), np.nan)
    confidences = (conventions.ci, max(0.5, 2 * conventions.ci - 1))
    if conventions.interval != "none":
        wide, narrow = intervals_at(confidences, deltas, plan_of(conventions), groups=groups)
    rows = []
    for at, cell in enumerate(cells):
        p, p_adjusted = ps[at]
        row = replace(
            cell.row,
            p=p,
            p_adjusted=p_adjusted,
            ci=_interval(cell, wide[at], confidences[0], groups),
            ci_same=_interval(cell, narrow[at], confidences[1], groups),
            t=t_test(units[:, at]) if groups is None else _clustered_t(cell.delta, groups),
            wilcoxon=float(ranked[at]),
            sign=sign_test(units[:, at]),
        )
        rows.append(_counted(row if len(units) > 1 else cell.row, cell, groups))
    return rows


def _randomised(
    cells: Sequence[_Cell], deltas: Values, groups: Groups, tested: Tested, permutations: int
) -> list[tuple[float, float | None]]:
    """The p of each cell, and adjusted p where all pairs were tested at once.

    Few differences are tested exactly, also among all pairs.
    """
    conventions = cells[0].pair.baseline.conventions
    known = [tested.get((*cell.pair.names, str(cell.measure))) for cell in cells]
    few = np.count_nonzero(deltas, axis=0) <= EXACT_UP_TO
    own = [at for at, found in enumerate(known) if found is None or few[at]]
    ps: list[tuple[float, float | None]] = [found or (1.0, None) for found in known]
    if own:
        seed = conventions.seed
        exact = randomisation(deltas[:, own], resamples=permutations, seed=seed, groups=groups)
        for at, p in zip(own, exact.tolist(), strict=True):
            adjusted = known[at]
            ps[at] = p, None if adjusted is None else max(p, adjusted[1])
    return ps


def _interval(cell: _Cell, ends: Values, confidence: float, groups: Groups) -> Interval:
    """The interval of the mean difference, on the safe side where resamples say too little."""
    low, high = ends.tolist()
    delta = cell.delta
    if math.isnan(low) or cell.pair.identical:
        return None if math.isnan(low) else (low, high)
    units = len(delta) if groups is None else len(np.unique(groups))
    if delta.min() == delta.max():
        bounded = cell.measure.definition.bounded
        return _of_constant(float(delta[0]), units, confidence) if bounded else (low, high)
    if units >= FEW:
        return low, high
    # Resamples of so few never leave the range of what was seen; Student's t does.
    error, df = standard_error(delta, groups)
    reach = error * t_quantile((1 + confidence) / 2, df)
    mean = float(delta.mean())
    return min(low, mean - reach), max(high, mean + reach)


def _of_constant(same: float, units: int, confidence: float) -> Interval:
    """Differences that are all the same still say little of queries that were not drawn.

    With n queries a share up to z²/(n + z²) of others could have been missed: queries that
    move further the same way, or do not move; where none moved, queries that move either way.
    """
    unseen = 1 - wilson(1.0, units, confidence=confidence)[0]
    seen = same * (1 - unseen)
    return (seen if same > 0 else seen - unseen), (seen if same < 0 else seen + unseen)


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
        return with_spread(row, cell.pair, cell.delta, cell.known, groups)
    # A sum is so many times the mean, and so is all that is said of it.
    of_means = replace(row, wanted=row.wanted / row.n)
    found = with_spread(of_means, cell.pair, cell.delta, cell.known, groups)
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
