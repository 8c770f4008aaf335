"""Comparisons: systems compared query by query on the same gold.

``compare_scores`` makes one row per pair of systems, measure and segment: differences, tests and
intervals, then corrected for the number of tests. ``verdict`` decides what the rows mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from karat.data.tables import Queries
from karat.errors import UsageError, unknown
from karat.evaluation.segments import By, Segment, segments_by
from karat.evaluation.systems import (
    ComparedSystem,
    check_comparable,
    identical_pairs,
    overlap,
)
from karat.evaluation.verdict import (
    NO_DIFFERENCE,
    Comparison,
    Decision,
    Primary,
    Rule,
    Verdict,
    decide,
    judge_row,
    primary_of,
    reversals_in,
)
from karat.measure import aggregates
from karat.measure.aggregates import Values
from karat.measure.conventions import PROFILES, Conventions
from karat.measure.names import Measure
from karat.measure.ranked import Mask
from karat.measure.scores import Interval, has_interval, number_of, percentile_of, plan_of
from karat.pages.page import Page, Section
from karat.pages.result import ENVELOPE, Result, record_frame
from karat.stats import paired
from karat.stats.distributions import Ints, standard_error, t_p, t_quantile, units_of
from karat.stats.means import (
    percentile_interval,
    percentile_intervals,
    resampled_means,
    resampled_percentiles,
    sums_by,
    swapped_differences,
)
from karat.stats.power import Power, detectable_by_t

# A family too large for this many cannot have significant members by chance alone.
MOST_PERMUTATIONS = 100_000
# How many gains and losses of single queries are listed.
MOST_MOVED = 5


@dataclass(frozen=True, eq=False, repr=False)
class Comparisons(Result):
    """The result of a comparison; ``rows`` holds one entry per pair, measure and segment.

    ``primary`` says which measure decides, and who chose it. ``overlaps`` and ``moved`` hold plain
    data: the overlap of two systems' lists, and the queries that a system answers better or worse
    than its baseline, the largest changes first. ``partial`` names the systems of which too many
    calls failed: with one of them the verdict is "unmeasurable".

    >>> compared = karat.compare(["bm25.trec", "dense.jsonl"], "qrels.txt", ["nDCG@5", "RR"])
    >>> compared.verdict, round(compared.of("dense").delta, 3)
    ('better', 0.247)
    """

    rule: Rule
    rows: tuple[Comparison, ...]
    decisions: tuple[Decision, ...]
    primary: Primary
    overlaps: tuple[Mapping[str, Any], ...] = ()
    moved: tuple[Mapping[str, Any], ...] = ()
    reversals: tuple[str, ...] = ()
    replicates: Mapping[str, int] = field(default_factory=dict)
    partial: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as in a report."""
        return {
            **ENVELOPE,
            "verdict": self.verdict,
            "rule": asdict(self.rule),
            "primary": self.primary.to_dict(),
            "comparisons": [row.to_dict() for row in self.rows],
            "decisions": [decision.to_dict() for decision in self.decisions],
            "overlap": list(self.overlaps),
            "moved": list(self.moved),
            "reversals": list(self.reversals),
            "replicates": dict(self.replicates),
        }

    def to_frame(self) -> pl.DataFrame:
        """Return one row per pair, measure and segment."""
        return record_frame(row.to_dict() for row in self.rows)

    def page(self) -> Page:
        """Return the page that people read: the verdicts, then every test."""
        from karat.evaluation.report_text import (
            compared_segments,
            decided_sections,
            verdict_sentences,
        )

        results = self.to_dict()
        segments = [Section(*table) for table in compared_segments(results).items()]
        blocks = [*decided_sections(results), *segments]
        return Page("Comparison", verdict_sentences(results), blocks)

    @property
    def verdict(self) -> Verdict | Literal["unmeasurable"]:
        """Return one verdict for all systems: the worst, unless all agree."""
        if self.partial:
            return "unmeasurable"
        verdicts = [decision.verdict for decision in self.decisions]
        if "worse" in verdicts:
            return "worse"
        return verdicts[0] if len(set(verdicts)) == 1 else "unclear"

    @property
    def regression(self) -> bool:
        """Return whether any system is confirmed to be worse than its baseline."""
        return any(decision.regression for decision in self.decisions)

    @property
    def unmeasured(self) -> list[Comparison]:
        """Return the rows of the primary measure over all queries that have no value to compare."""
        return [
            row for row in self.rows if row.primary and row.segment is None and row.delta is None
        ]

    def of(self, system: str, measure: str | None = None) -> Comparison:
        """Return one system's comparison over all queries, by the primary measure unless named."""
        name = measure or self.rule.primary
        overall = [row for row in self.rows if row.segment is None]
        for row in overall:
            if (row.system, row.measure) == (system, name):
                return row
        compared_rows = [f"{row.system}, {row.measure}" for row in overall]
        raise unknown("comparison", f"{system}, {name}", compared_rows)


def compare_scores(
    systems: Sequence[ComparedSystem],
    rule: Rule,
    *,
    queries: Queries | None = None,
    by: Sequence[By] = (),
) -> Comparisons:
    """Compare scored systems; the first is the baseline."""
    if len(systems) < 2:
        raise UsageError("a comparison needs at least two systems: the baseline and another")
    check_comparable(systems)
    conventions = systems[0].conventions
    primary = primary_of(rule, systems[0].measures, conventions)
    strict = rule.no_regression or PROFILES[conventions.profile].no_regression
    rule = replace(rule, primary=primary.measure, no_regression=strict)
    pairs = _pairs(systems, rule)
    overlaps = tuple(shared for pair in pairs if (shared := overlap(*pair)) is not None)
    judged = judged_rows(systems, rule, identical_pairs(overlaps), queries=queries, by=by)
    rows = [_with_reason(row, systems) for row in judged]
    decisions = []
    for baseline, system in pairs:
        names = baseline.name, system.name
        decisions.append(decide([row for row in rows if (row.baseline, row.system) == names]))
    return Comparisons(
        rule,
        tuple(rows),
        tuple(decisions),
        primary,
        overlaps=overlaps,
        moved=tuple(
            moved for pair in pairs for moved in _moved_most(*pair, primary.measure, queries)
        ),
        reversals=tuple(reversals_in(rows, conventions.alpha)),
        replicates={system.name: len(system.runs) for system in systems if len(system.runs) > 1},
        partial=tuple(system.name for system in systems if any(run.partial for run in system.runs)),
    )


_Pair = tuple[ComparedSystem, ComparedSystem]


def _pairs(systems: Sequence[ComparedSystem], rule: Rule) -> list[_Pair]:
    if rule.pairs == "all":
        return list(combinations(systems, 2))
    return [(systems[0], other) for other in systems[1:]]


def judged_rows(
    systems: Sequence[ComparedSystem],
    rule: Rule,
    identical: AbstractSet[tuple[str, str]],
    *,
    queries: Queries | None = None,
    by: Sequence[By] = (),
    full: bool = True,
) -> list[Comparison]:
    """Return every pair, measure and segment with its verdict, by a rule that names its primary.

    Rows that are not ``full`` hold only what a verdict needs: no t, Wilcoxon and sign test, and
    nothing of what could be detected.
    """
    conventions, pairs = systems[0].conventions, _pairs(systems, rule)
    rows = []
    everyone = Segment({}, systems[0].runs[0].everyone)
    ids = systems[0].runs[0].table["query_id"]
    for segments in ([everyone], *(segments_by(ids, queries, column) for column in by)):
        # All pairs of a measure share one correction, which the smallest p need not survive.
        tests = 1 if rule.pairs == "all" else len(pairs)
        family = len(segments) * tests * len(systems[0].measures)
        # So many that the smallest p there can be is still small when corrected for its family.
        permutations = max(conventions.permutations, min(100 * family, MOST_PERMUTATIONS))
        within = [
            row
            for segment in segments
            for row in _segment_rows(systems, pairs, segment, rule, permutations, full=full)
        ]
        rows += _corrected(within, rule)
    for at, row in enumerate(rows):
        same = (row.baseline, row.system) in identical and not row.wins and not row.losses
        rows[at] = judge_row(row, rule, alpha=conventions.alpha, identical=same)
    return rows


def _corrected(rows: list[Comparison], rule: Rule) -> list[Comparison]:
    """Correct for the number of tests: the primary measure is one family, the rest another.

    Where all pairs were tested at once, their largest difference has corrected for the pairs. That
    knows nothing of repeated runs, for which the plain correction counts as well.
    """
    correct = paired.benjamini_hochberg if rule.correction == "bh" else paired.holm
    corrected = list(rows)
    for primary in (True, False):
        family = [at for at, row in enumerate(rows) if row.primary == primary]
        measures = len({rows[at].measure for at in family})
        tests = max(1, sum(rows[at].p is not None for at in family))
        for at, p in zip(family, correct([rows[at].p for at in family]), strict=True):
            row = rows[at]
            if row.p_adjusted is not None and p is not None:
                of_pairs = min(1.0, row.p_adjusted * measures)
                p = of_pairs if row.between_runs is None else max(of_pairs, p)
            corrected[at] = replace(row, p_adjusted=p, tests=tests)
    return corrected


def _with_reason(row: Comparison, systems: Sequence[ComparedSystem]) -> Comparison:
    """Say why a measure is not compared: lists that were cut too early, or what a run lacks."""
    for system in systems:
        for run in system.runs if system.name in (row.baseline, row.system) else ():
            reason = run.lacks.get(row.measure) if row.delta is None else None
            remedy = ""
            if run.cut is not None and row.measure in run.cut.beyond:
                reason = run.cut.because
                name, _, cutoff = row.measure.rpartition("@")
                reached = cutoff.isdigit() and run.cut.depth > 0
                other = f"{name}@{run.cut.depth}" if reached else "another measure"
                remedy = f"; log longer lists, or decide with --primary {other}"
            if reason is not None:
                because = f"{row.measure} is not compared: {reason} ({system.name})"
                return replace(row, because=because + (remedy if row.primary else ""))
    return row


def _moved_most(
    baseline: ComparedSystem, system: ComparedSystem, measure: str, queries: Queries | None
) -> list[dict[str, Any]]:
    """Return the queries with the largest gains, then those with the largest losses."""
    a, b = baseline.values(measure), system.values(measure)
    scores = baseline.runs[0]
    lower = next(m for m in scores.measures if str(m) == measure).definition.better == "lower"
    gain = np.nan_to_num(a - b if lower else b - a)
    up, down = (np.argsort(side, kind="stable")[:MOST_MOVED] for side in (-gain, gain))
    best = [at for at in up.tolist() if gain[at] > NO_DIFFERENCE]
    worst = [at for at in down.tolist() if gain[at] < -NO_DIFFERENCE]
    ids = scores.table["query_id"]
    texts = {} if queries is None else dict(queries.frame.select("query_id", "text").iter_rows())
    return [
        {
            "baseline": baseline.name,
            "system": system.name,
            "measure": measure,
            "query_id": ids[at],
            "text": texts.get(ids[at]),
            "baseline_value": float(a[at]),
            "system_value": float(b[at]),
            "change": "better" if gain[at] > 0 else "worse",
        }
        for at in (*best, *worst)
    ]


class _Paired:
    """One measure of a baseline and a system, over the queries that both have a value for.

    ``row`` holds the results so far; each test adds to it.
    """

    def __init__(
        self,
        baseline: ComparedSystem,
        system: ComparedSystem,
        measure: Measure,
        segment: Segment,
        rule: Rule,
    ) -> None:
        self.sides, self.measure = (baseline, system), measure
        self.conventions = baseline.conventions
        name = str(measure)
        values = [side.values(name) for side in self.sides]
        self.known = segment.mask & ~np.isnan(values).any(axis=0)
        self.a, self.b = (column[self.known] for column in values)
        self.delta = self.b - self.a
        groups = baseline.runs[0].groups
        self.groups = None if groups is None else groups[self.known]
        is_sum = number_of(measure) is aggregates.total
        self.is_mean = is_sum or number_of(measure) is aggregates.mean
        # A sum is n times the mean, and so are its interval and its margin.
        self.scale = len(self.delta) if is_sum else 1
        self.error_of_runs: tuple[float, float] | None = None
        old, new = (side.number(measure, self.known) for side in self.sides)
        margin = 0.0 if old is None else rule.margin_for(old)
        up = -self.delta if measure.definition.better == "lower" else self.delta
        self.row = Comparison(
            baseline.name,
            system.name,
            name,
            segment=segment.where or None,
            primary=name == rule.primary,
            better=measure.definition.better,
            n=len(self.delta),
            baseline_mean=old,
            system_mean=new,
            delta=None if old is None or new is None else new - old,
            wins=int((up > NO_DIFFERENCE).sum()),
            ties=int((np.abs(up) <= NO_DIFFERENCE).sum()),
            losses=int((up < -NO_DIFFERENCE).sum()),
            wanted=rule.detect or margin,
            margin=margin,
        )

    @property
    def key(self) -> tuple[str, str, str]:
        """Return the names of the systems and of the measure."""
        return self.row.baseline, self.row.system, self.row.measure

    def interval(self, ends: Sequence[float], p: float, confidence: float) -> Interval:
        """Return the interval of the mean difference within what it can be, in one story with p."""
        if self.conventions.interval == "none" or not has_interval(self.measure):
            return None
        # The largest difference that two rankings can have on a query.
        ranges = [side.runs[0].range_of(self.measure, self.known) for side in self.sides]
        possible = [end for range_ in ranges if range_ is not None for end in range_]
        reach = max(possible) - min(possible) if possible else math.inf
        low, high = max(ends[0], -reach), min(ends[1], reach)
        if math.isinf(low) or math.isinf(high):
            # So few queries rule out no difference, and this measure has no bounds of its own.
            return None
        return paired.agreeing_with_p(
            (low, high), p, round(1 - confidence, 12), float(self.delta.mean())
        )

    def add_tests(self, units: Values) -> None:
        """Add the tests that stand beside the deciding one, of rows or of groups' means."""
        if self.groups is None:
            t = paired.t_test(units)
        else:
            # Of the mean difference itself, with an error that allows for conversations.
            error, df = standard_error(self.delta, self.groups)
            t = t_p(float(self.delta.mean()), error, df) if error > 0 else None
        wilcoxon, sign = paired.wilcoxon(units), paired.sign_test(units)
        self.row = replace(self.row, t=t, wilcoxon=wilcoxon, sign=sign)

    def finish_test(self) -> None:
        """Let runs of a system that differ decide by t; scale what belongs to a sum, not a mean."""
        row, conventions = self.row, self.conventions
        # For each system with repeated runs: the variance between them that the noise at single
        # queries does not explain, that in all, and their number. The error counts with the
        # latter: it cannot be underestimated by chance to nothing, and errs on the safe side.
        runs = []
        for side in self.sides:
            matrix = side.matrix(row.measure)[self.known]
            complete = matrix[~np.isnan(matrix).any(axis=1)]
            if len(side.runs) > 1 and len(complete) > 1:
                in_all = float(complete.mean(axis=0).var(ddof=1))
                runs.append((paired.between_runs(complete), in_all, len(side.runs)))
        intervals = [row.ci, row.ci_same]
        if any(in_all > 0 for _, in_all, _ in runs):
            mean, noise = float(self.delta.mean()), standard_error(self.delta, self.groups)
            error, df = paired.total_error(noise, [(in_all, n) for _, in_all, n in runs])
            self.error_of_runs = error, df
            p = t_p(mean, error, df)
            row = replace(row, p=p, t=p)
            for at, level in enumerate(_levels(conventions)):
                if intervals[at] is not None:
                    reach = error * t_quantile((1 + level) / 2, df)
                    intervals[at] = self.interval((mean - reach, mean + reach), p, level)
        spread = math.sqrt(sum(beyond / number for beyond, _, number in runs))
        ci, ci_same = (ends and (ends[0] * self.scale, ends[1] * self.scale) for ends in intervals)
        between = spread * self.scale if runs else None
        self.row = replace(row, ci=ci, ci_same=ci_same, between_runs=between)

    def add_power(self) -> None:
        """Add the effect size and the detectable difference."""
        row, delta, confidence = self.row, self.delta, self.conventions.ci
        detectable: float | None
        needed, why = None, None
        if self.error_of_runs is not None:
            detectable = detectable_by_t(*self.error_of_runs, confidence=confidence)
        else:
            power = Power(delta, self.groups, confidence=confidence, seed=self.conventions.seed)
            detectable, why = power.detectable(), power.why_unknown
            # More queries cannot make up for few runs: then no number of them is named.
            if row.between_runs is None:
                needed = power.queries_needed(row.wanted / self.scale)
        sd = float(delta.std(ddof=1))
        self.row = replace(
            row,
            effect=float(delta.mean()) / sd if sd > NO_DIFFERENCE else None,
            detectable=None if detectable is None else detectable * self.scale,
            needed=needed,
            power_because=why,
        )

    def test_number(self) -> None:
        """Test percentiles and other numbers that are not means of the queries' values."""
        if any(len(side.runs) > 1 for side in self.sides):
            # A query's mean over runs has neither the runs' number nor their spread.
            why = "only means over queries have a test across repeated runs"
            self.row = replace(self.row, power_because=why)
            return
        test = compare_numbers(self.measure, self.a, self.b, self.conventions, self.groups)
        if test is not None:
            self.row = replace(self.row, p=test.p, ci=test.ci, ci_same=test.ci_same)


def _levels(conventions: Conventions) -> tuple[float, float]:
    """Return the confidence of intervals, and that of the narrower ones which show sameness."""
    return conventions.ci, max(0.5, 2 * conventions.ci - 1)


def _segment_rows(
    systems: Sequence[ComparedSystem],
    pairs: Sequence[_Pair],
    segment: Segment,
    rule: Rule,
    permutations: int,
    *,
    full: bool,
) -> list[Comparison]:
    """Return every measure of every pair over the queries of a segment, not yet judged."""
    cells = [
        _Paired(*pair, measure, segment, rule) for measure in systems[0].measures for pair in pairs
    ]
    of_pairs = {}
    if rule.pairs == "all":
        of_pairs = _test_all_pairs(systems, segment.mask, permutations)
    # Means over the same queries are tested with the same random signs.
    together: dict[bytes, list[_Paired]] = {}
    for cell in cells:
        if cell.is_mean:
            together.setdefault(np.packbits(cell.known).tobytes(), []).append(cell)
        elif cell.row.n:
            cell.test_number()
    for group in together.values():
        _test_means(group, of_pairs, permutations, full=full)
    return [cell.row for cell in cells]


_PairTests = Mapping[tuple[str, str, str], tuple[float, float]]


def _test_means(
    cells: Sequence[_Paired], of_pairs: _PairTests, permutations: int, *, full: bool
) -> None:
    """Test means and sums over the same queries: p and intervals from the same random signs.

    ``of_pairs`` has p and adjusted p where all pairs were tested at once; few differences are
    tested exactly, also among all pairs.
    """
    conventions, groups = cells[0].conventions, cells[0].groups
    deltas = np.stack([cell.delta for cell in cells], axis=1)
    member = units_of(len(deltas), groups)
    units = deltas
    if groups is not None:
        units = (sums_by(member, deltas.T) / np.bincount(member)).T
    if len(units) < 2:
        return
    levels = _levels(conventions)
    if all(cell.key in of_pairs for cell in cells):
        # Only few differences are tested once more, and exactly.
        permutations = min(permutations, conventions.permutations)
    test = paired.randomised(
        deltas, levels, resamples=permutations, seed=conventions.seed, groups=groups
    )
    intervals = test.intervals
    if conventions.interval == "percentile":
        plan = plan_of(conventions)
        intervals = percentile_intervals(deltas, plan, confidences=levels, groups=groups)
    for at, cell in enumerate(cells):
        p, p_adjusted = float(test.p[at]), None
        if cell.key in of_pairs:
            exact = np.count_nonzero(units[:, at]) <= paired.EXACT_UP_TO
            pair_p, pair_adjusted = of_pairs[cell.key]
            p, p_adjusted = (p, max(p, pair_adjusted)) if exact else (pair_p, pair_adjusted)
        wide, narrow = (
            cell.interval(ends[at].tolist(), p, level)
            for ends, level in zip(intervals, levels, strict=True)
        )
        cell.row = replace(cell.row, p=p, p_adjusted=p_adjusted, ci=wide, ci_same=narrow)
        if full:
            cell.add_tests(units[:, at])
        cell.finish_test()
        if full:
            cell.add_power()


def _test_all_pairs(
    systems: Sequence[ComparedSystem], mask: Mask, permutations: int
) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Test every pair, corrected by the largest difference that permuting makes anywhere."""
    groups = systems[0].runs[0].groups
    together: dict[bytes, list[tuple[str, Values, Mask]]] = {}
    for measure in systems[0].measures:
        columns = np.stack([system.values(str(measure)) for system in systems], axis=1)
        known = mask & ~np.isnan(columns).any(axis=1)
        if number_of(measure) in (aggregates.mean, aggregates.total) and known.sum() > 1:
            together.setdefault(known.tobytes(), []).append((str(measure), columns, known))
    tests = {}
    for measured in together.values():
        known = measured[0][2]
        ps, adjusted = paired.all_pairs(
            np.stack([columns[known] for _, columns, _ in measured], axis=2),
            resamples=permutations,
            seed=systems[0].conventions.seed,
            groups=None if groups is None else groups[known],
        )
        for at, (a, b) in enumerate(combinations(systems, 2)):
            for j, (name, _, _) in enumerate(measured):
                tests[a.name, b.name, name] = float(ps[at, j]), float(adjusted[at, j])
    return tests


class NumberTest(NamedTuple):
    """The intervals of a difference, and the chance of one as large if there were none."""

    ci: Interval
    ci_same: Interval
    p: float | None


def compare_numbers(
    measure: Measure, a: Values, b: Values, conventions: Conventions, groups: Ints | None
) -> NumberTest | None:
    """Return the difference between the numbers of two systems; None where no test is known.

    Percentiles: queries are resampled for the interval, and for p the systems are swapped at
    random. Geometric means are means of logarithms.
    """
    seed, permutations = conventions.seed, conventions.permutations
    both, share = np.stack([a, b], axis=1), percentile_of(measure)
    is_geometric = share is None and number_of(measure) is aggregates.geometric_mean
    if len(a) < 2 or (share is None and not is_geometric):
        return None
    if share is None:
        logs = np.log(np.maximum(both, aggregates.SMALLEST))
        drawn = np.exp(resampled_means(logs, plan_of(conventions), groups=groups))
        change = (logs[:, 1] - logs[:, 0])[:, None]
        p = float(paired.randomisation(change, resamples=permutations, seed=seed, groups=groups)[0])
        old, new = np.exp(logs.mean(axis=0)).tolist()
    else:
        old, new = (float(np.percentile(values, 100 * share)) for values in (a, b))
        swapped = swapped_differences(a, b, share, resamples=permutations, seed=seed, groups=groups)
        hits = int((np.abs(swapped) >= abs(new - old) * (1 - 1e-12)).sum())
        p = (1 + hits) / (1 + len(swapped)) if (a != b).any() else 1.0
        units = np.unique(units_of(len(a), groups)).astype(np.float64)
        if percentile_interval(units, share, confidence=conventions.ci) is None:
            # Too few to place the percentile of one system, let alone the difference of two.
            return NumberTest(None, None, p)
        boot = conventions.boot
        drawn = resampled_percentiles(both, share, resamples=boot, seed=seed, groups=groups)
    if conventions.interval == "none":
        return NumberTest(None, None, p)
    ends = []
    # The interval, and the narrower one for sameness, both in agreement with p.
    for level in (1 - conventions.ci, 2 * (1 - conventions.ci)):
        differences = drawn[:, 1] - drawn[:, 0]
        low, high = np.quantile(differences, [level / 2, 1 - level / 2]).tolist()
        ends.append(paired.agreeing_with_p((low, high), p, round(level, 12), new - old))
    return NumberTest(ends[0], ends[1], p)
