"""Two systems on the same queries: differences, intervals and tests, measure by measure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from karat.analysis.contenders import Contender
from karat.analysis.setwise import compare_numbers
from karat.analysis.verdicts import Rule, Verdict
from karat.measures import numbers
from karat.measures.intervals import Interval, plan_of
from karat.measures.names import Measure
from karat.measures.numbers import Values
from karat.measures.overall import number_of
from karat.measures.scores import Scores
from karat.stats.bootstrap import intervals_at
from karat.stats.paired import (
    EXACT_UP_TO,
    all_pairs,
    randomisation,
    sign_test,
    t_test,
    wilcoxons,
)
from karat.stats.power import detectable, queries_needed, standard_error
from karat.stats.replicates import between_runs, t_p, total_error

Mask = NDArray[np.bool_]
Groups = NDArray[np.int64] | None

# Differences below this are how floating point writes "none".
NO_DIFFERENCE = 1e-12


@dataclass(frozen=True, slots=True)
class Comparison:
    """One measure of a system against its baseline, over all queries or a segment of them.

    ``delta`` is the system's number minus the baseline's, whichever way is better; wins and
    losses count queries that got better and worse. ``ci_same`` is the narrower interval that
    must lie within the ``margin`` for the two to be the same. ``wanted`` is the difference
    that ``needed`` queries would detect, ``detectable`` what those at hand can.
    """

    baseline: str
    system: str
    measure: str
    segment: Mapping[str, str] | None
    primary: bool
    better: Literal["higher", "lower", "none"]
    n: int
    baseline_mean: float | None = None
    system_mean: float | None = None
    delta: float | None = None
    ci: Interval = None
    ci_same: Interval = None
    p: float | None = None
    p_adjusted: float | None = None
    t: float | None = None
    wilcoxon: float | None = None
    sign: float | None = None
    wins: int = 0
    ties: int = 0
    losses: int = 0
    effect: float | None = None
    detectable: float | None = None
    wanted: float = 0.0
    needed: int | None = None
    margin: float = 0.0
    between_runs: float | None = None
    verdict: Verdict | None = None
    regression: bool = False
    because: str = ""

    def document(self) -> dict[str, Any]:
        """The comparison as it stands in a report."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, eq=False)
class Pair:
    """A system and what it is compared with."""

    baseline: Contender
    system: Contender
    identical: bool = False

    @property
    def names(self) -> tuple[str, str]:
        """The names of both."""
        return self.baseline.name, self.system.name

    @property
    def scores(self) -> tuple[Scores, Scores]:
        """The first run of both."""
        return self.baseline.runs[0], self.system.runs[0]

    def values(self, measure: str) -> tuple[Values, Values]:
        """One value a query of both."""
        return self.baseline.values(measure), self.system.values(measure)


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
) -> list[Comparison]:
    """Every measure of every pair over the marked queries, not yet judged."""
    cells = [
        _cell(pair, measure, mask, where, rule)
        for measure in contenders[0].measures
        for pair in pairs
    ]
    groups = contenders[0].runs[0].groups
    tested = _over_all_pairs(contenders, mask, groups) if rule.pairs == "all" else {}
    rows = {id(cell): cell.row for cell in cells}
    means = [cell for cell in cells if _is_mean(cell.measure) and cell.known.any()]
    for some in _over_the_same_queries(means):
        own = None if groups is None else groups[some[0].known]
        rows |= {id(cell): row for cell, row in zip(some, _tested(some, own, tested), strict=True)}
    for cell in cells:
        if not _is_mean(cell.measure) and cell.known.any():
            rows[id(cell)] = _of_numbers(cell)
    return [rows[id(cell)] for cell in cells]


def _cell(
    pair: Pair, measure: Measure, mask: Mask, where: Mapping[str, str] | None, rule: Rule
) -> _Cell:
    a, b = pair.values(str(measure))
    known = mask & ~np.isnan(a) & ~np.isnan(b)
    numbers_of_both = [_number(one, measure, known) for one in (pair.baseline, pair.system)]
    old, new = numbers_of_both
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
    row = replace(row, wanted=rule.detect or row.margin)
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


def _tested(cells: Sequence[_Cell], groups: Groups, tested: Tested) -> list[Comparison]:
    """Means and sums: intervals and p of all cells from the same resamples."""
    conventions = cells[0].pair.baseline.conventions
    deltas = np.stack([cell.delta for cell in cells], axis=1)
    units = deltas if groups is None else _group_means(deltas, groups)
    ps = _randomised(cells, deltas, groups, tested)
    ranked = wilcoxons(units) if len(units) > 1 else np.full(len(cells), np.nan)
    wide = narrow = np.full((len(cells), 2), np.nan)
    if conventions.interval != "none":
        confidences = (conventions.ci, max(0.5, 2 * conventions.ci - 1))
        wide, narrow = intervals_at(confidences, deltas, plan_of(conventions), groups=groups)
    rows = []
    for at, cell in enumerate(cells):
        p, p_adjusted = ps[at]
        row = replace(
            cell.row,
            p=p,
            p_adjusted=p_adjusted,
            ci=_interval(cell, wide[at]),
            ci_same=_interval(cell, narrow[at]),
            t=t_test(units[:, at]),
            wilcoxon=float(ranked[at]),
            sign=sign_test(units[:, at]),
        )
        rows.append(_counted(row if len(units) > 1 else cell.row, cell, groups))
    return rows


def _randomised(
    cells: Sequence[_Cell], deltas: Values, groups: Groups, tested: Tested
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
        exact = randomisation(
            deltas[:, own],
            resamples=conventions.permutations,
            seed=conventions.seed,
            groups=groups,
        )
        for at, p in zip(own, exact.tolist(), strict=True):
            adjusted = known[at]
            ps[at] = p, None if adjusted is None else max(p, adjusted[1])
    return ps


def _interval(cell: _Cell, ends: Values) -> Interval:
    """Differences that are all the same still say little of queries that were not drawn.

    With n queries a share up to z²/(n + z²) of others could have been missed: queries that
    move further the same way, or do not move; where none moved, queries that move either way.
    """
    low, high = ends.tolist()
    if math.isnan(low):
        return None
    delta = cell.delta
    if delta.min() < delta.max() or cell.pair.identical or not cell.measure.definition.bounded:
        scale = len(delta) if number_of(cell.measure) is numbers.total else 1
        return low * scale, high * scale
    unseen = 3.84 / (len(delta) + 3.84)
    same = float(delta[0])
    seen = same * (1 - unseen)
    return (seen if same > 0 else seen - unseen), (seen if same < 0 else seen + unseen)


def _counted(row: Comparison, cell: _Cell, groups: Groups) -> Comparison:
    """With the queries that won and lost, the spread between runs, and what can be detected."""
    row = _with_wins(row, cell)
    if row.p is None:
        return row
    error, df = standard_error(cell.delta, groups)
    return _with_power(_with_runs(row, cell, error, df), cell)


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


def _with_runs(
    row: Comparison, cell: _Cell, error: float, df: int
) -> tuple[Comparison, float, float]:
    """What repeated runs add: a difference between runs is no difference between systems."""
    extra = []
    for contender in (cell.pair.baseline, cell.pair.system):
        if len(contender.runs) > 1:
            matrix = contender.matrix(str(cell.measure))[cell.known]
            whole = matrix[~np.isnan(matrix).any(axis=1)]
            if len(whole) > 1:
                extra.append((between_runs(whole), len(contender.runs)))
    if not extra:
        return row, error, df
    between = math.sqrt(sum(variance / runs for variance, runs in extra))
    row = replace(row, between_runs=between)
    if between == 0 or error == 0:
        return row, error, df
    whole_error, whole_df = total_error(cell.delta, extra)
    wider = whole_error / error
    centre = float(cell.delta.mean())
    row = replace(
        row,
        p=_at_least(row.p, by_runs := t_p(centre, whole_error, whole_df)),
        p_adjusted=None if row.p_adjusted is None else _at_least(row.p_adjusted, by_runs),
        ci=_widened(row.ci, centre, wider),
        ci_same=_widened(row.ci_same, centre, wider),
    )
    return row, whole_error, whole_df


def _at_least(p: float | None, other: float) -> float:
    return other if p is None else max(p, other)


def _widened(ends: Interval, centre: float, factor: float) -> Interval:
    return None if ends is None else tuple(centre + (end - centre) * factor for end in ends)  # type: ignore[return-value]


def _with_power(found: tuple[Comparison, float, float], cell: _Cell) -> Comparison:
    """What these queries can detect, and how many more would detect what is wanted."""
    row, error, df = found
    n = row.n
    scale = n if number_of(cell.measure) is numbers.total else 1
    spread = error * math.sqrt(n)
    sd = float(cell.delta.std(ddof=1))
    return replace(
        row,
        effect=float(cell.delta.mean()) / sd if sd > NO_DIFFERENCE else None,
        detectable=detectable(error, df) * scale if spread > NO_DIFFERENCE else None,
        needed=_needed(row.wanted / scale, spread),
    )


def _needed(wanted: float, spread: float) -> int | None:
    """Without any spread there is nothing to judge the number of queries by."""
    return queries_needed(wanted, spread) if wanted > 0 and spread > NO_DIFFERENCE else None


def _of_numbers(cell: _Cell) -> Comparison:
    """Percentiles and other numbers that are no means of the queries' values."""
    row = _with_wins(cell.row, cell)
    found = compare_numbers(cell.measure, cell.a, cell.b, cell.pair.baseline.conventions)
    if found is None:
        return row
    return replace(row, p=found.p, ci=found.ci, ci_same=found.ci_same)


def _over_all_pairs(contenders: Sequence[Contender], mask: Mask, groups: Groups) -> Tested:
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
            resamples=conventions.permutations,
            seed=conventions.seed,
            groups=None if groups is None else groups[known],
        )
        for at, (a, b) in enumerate(zip(found.first.tolist(), found.second.tolist(), strict=True)):
            names = contenders[a].name, contenders[b].name
            for which, (name, _, _) in enumerate(some):
                ps = float(found.p[at, which]), float(found.p_adjusted[at, which])
                tested[(*names, name)] = ps
    return tested
