"""Bounds over unjudged items: ranges of measures, and verdicts that hold.

The two-sided randomisation test of a mean difference is monotone: where the sum is above 0, raising
any query's difference adds nothing to the sets of signs that make one as large, so p can only
fall. Hence a system is better whatever the labels are if it is better with every query's
difference at its lowest, and worse if it is so with every one at its highest; and no labels make it
better that do not where every difference is at its highest.

What is approximate: above 20 differences random signs stand for all of them; the ends of a range
that is not exact are safe and may be out of reach, so that a verdict may be called open which is
not; and ``same`` is read off the intervals at both ends, though labels in between might
have a narrower or a wider one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from karat.data.tables import Queries
from karat.errors import UsageError
from karat.evaluation.segments import By, segments_by
from karat.evaluation.systems import ComparedSystem, identical_pairs
from karat.evaluation.verdict import (
    NO_DIFFERENCE,
    Comparison,
    Rule,
    Verdict,
    decide,
    judge_row,
)
from karat.measure.aggregates import Values, mean
from karat.measure.evaluate_measure import why_unbounded
from karat.measure.names import Measure
from karat.measure.prepare import Prepared
from karat.measure.ranked import Mask
from karat.measure.scores import Scores, number_of
from karat.pages.formatting import plural
from karat.pages.serialize import Record

if TYPE_CHECKING:
    from karat.evaluation.comparison import Comparisons
    from karat.measure.ranges import Listed, Range


@dataclass(frozen=True, eq=False)
class ScoreRanges:
    """One system with the range of its measures over all labellings of its unjudged items.

    ``measures`` are those that have a range. The queries that take part in a mean stay the same
    under every labelling: ``unjudged`` items are in queries that a measure scores, ``apart`` are
    those in queries outside every mean.
    """

    scores: Scores
    gold: Prepared
    measures: tuple[Measure, ...]
    unjudged: int
    apart: int

    @cached_property
    def listed(self) -> Listed:
        """Return the lists of the system, and their unjudged items."""
        from karat.measure.ranges import listed

        return listed(self.scores)

    @cached_property
    def ranges(self) -> Mapping[str, Range]:
        """Return the range of each query's value by measure."""
        from karat.measure.ranges import range_of

        return {str(m): range_of(m, self.listed, self.gold) for m in self.measures}

    def entering(self, measure: str) -> Mask:
        """Return the queries that a judgment could bring into the mean.

        They have no relevant gold yet, so no range of this measure knows them.
        """
        status = self.scores.status
        empty = np.isnan(self.ranges[measure].low) & (status == "empty_gold")
        unjudged = np.bincount(self.listed.unjudged.query, minlength=len(status))
        return np.asarray(empty & (unjudged > 0))

    def at(self, end: Literal["low", "high"]) -> Scores:
        """Return the scores with every query at one end of its range.

        Where several measures are at that end at once, each is under a labelling of its own.
        """
        columns = {name: getattr(ends, end) for name, ends in self.ranges.items()}
        return with_columns(self.scores, columns)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return the ends of each measure's range, as plain data."""
        everyone = self.scores.everyone
        if not self.unjudged + self.apart:
            means = {str(m): self.scores.number(m, everyone) for m in self.measures}
            return {name: {"low": at, "high": at, "exact": True} for name, at in means.items()}
        low, high = self.at("low"), self.at("high")
        return {
            str(measure): {
                "low": low.number(measure, everyone),
                "high": high.number(measure, everyone),
                "exact": self.ranges[str(measure)].exact,
            }
            for measure in self.measures
        }


def ranges_of(scores: Scores, gold: Prepared) -> ScoreRanges:
    """Return the ranges of a system; those of differences need lists that were kept whole.

    >>> from karat.measure.names import parse_measures
    >>> from karat.measure.conventions import Conventions
    >>> from karat.measure.prepare import prepare
    >>> from karat.measure.score_builder import score
    >>> from karat.data.tables import Gold, Run
    >>> gold = prepare(Gold.from_dict({"q": {"a": 1}}), Conventions())
    >>> run = Run.from_dict({"q": ["x", "a", "y"]})
    >>> found = ranges_of(score(run, gold, parse_measures("P@2, R@2"), keep=0), gold)
    >>> found.unjudged, found.to_dict()["R@2"]
    (2, {'low': 0.5, 'high': 1.0, 'exact': True})
    """
    if gold.conventions.level != "item":
        raise UsageError(
            f"bounds are over judgments of items, and level={gold.conventions.level} counts"
            " others; leave --bounds and --strict-bounds out, or take gold of items"
        )
    bounded = tuple(
        measure
        for measure in scores.measures
        if str(measure) not in scores.lacks and why_unbounded(measure, gold) is None
    )
    if scores.trace is None:
        raise UsageError(f"the scores of {scores.system} come without lists; score it again")
    rows, _ = scores.trace.unjudged
    if not len(rows):
        return ScoreRanges(scores, gold, bounded, unjudged=0, apart=0)
    # Measures with a range decide which queries count, or all where none has one.
    scored = np.zeros(len(scores.query_ids), dtype=bool)
    for name in map(str, bounded or scores.measures):
        if name in scores.columns:
            scored |= ~np.isnan(scores.values(name))
    unjudged = int(scored[rows].sum())
    return ScoreRanges(scores, gold, bounded, unjudged, apart=len(rows) - unjudged)


def with_columns(scores: Scores, columns: Mapping[str, Values]) -> Scores:
    """Return the scores with other values for some measures, kept consistent.

    What more judgments would make reachable is within reach, so ceilings rise with the values.
    """
    ceilings = {
        name: (np.fmax(best[0], columns[name]), best[1]) if name in columns else best
        for name, best in scores.ceilings.items()
    }
    return replace(
        scores,
        columns={**scores.columns, **columns},
        ceilings=ceilings,
        tied={name: ends for name, ends in scores.tied.items() if name not in columns},
    )


def would_enter(count: int) -> str:
    """Return a sentence on how many queries judgments could add to a mean."""
    queries = plural(count, "query", "queries")
    return f"{queries} without relevant gold would count once a judgment adds some"


@dataclass(frozen=True, slots=True)
class VerdictStability(Record):
    """One measure of two systems under all labels of unjudged items.

    ``at_worst`` and ``at_best`` are the verdicts where every query's difference is the worst and
    the best that it can be for the system. ``holds`` is the verdict if it is the same whatever
    the labels are, else ``unclear``; ``settled`` says that the verdict ``now`` can no longer
    change. ``delta`` is the range of the mean difference, ``comparison`` is today's comparison.
    """

    now: Verdict | None
    at_worst: Verdict | None
    at_best: Verdict | None
    holds: Verdict | None
    settled: bool
    delta: tuple[float, float] | None
    exact: bool
    because: str
    comparison: Comparison


def stability_of(
    first: Scores,
    second: Scores,
    differences: Range,
    rule: Rule,
    measure: str,
    *,
    baseline: Range | None = None,
) -> VerdictStability:
    """Return whether the verdict on a measure of a baseline and a system can still change.

    ``differences`` holds the lowest and highest difference of each query, system minus baseline,
    and ``baseline`` the ends of the baseline's own values: a margin that is a share of its mean
    moves with them. Without these the margin is fixed.
    """
    from karat.evaluation.comparison import compare_scores, judged_rows

    if measure not in map(str, first.measures):
        raise UsageError(f"these scores have no {measure}; score both systems by it")
    rule = replace(rule, primary=measure)

    def pair_with(column: Values) -> list[ComparedSystem]:
        moved = with_columns(second, {measure: column})
        return [ComparedSystem(scores.system, (scores,)) for scores in (first, moved)]

    def at_end(difference: Values) -> Comparison:
        pair = pair_with(first.values(measure) + difference)
        rows = judged_rows(pair, comparisons.rule, identical, full=False)
        return next(row for row in rows if row.measure == measure)

    comparisons = compare_scores(pair_with(second.values(measure)), rule)
    identical = identical_pairs(comparisons.overlaps)
    now = low = high = comparisons.of(second.system)
    if np.nanmax(differences.high - differences.low, initial=0.0) > NO_DIFFERENCE:
        low, high = at_end(differences.low), at_end(differences.high)
    worst, best = (high, low) if now.better == "lower" else (low, high)
    holds = _holding(worst.verdict, best.verdict)
    margins = [now.margin]
    if baseline is not None and (known := ~np.isnan(baseline.low)).any():
        ends = (baseline.low, baseline.high)
        margins += [rule.margin_for(float(end[known].mean())) for end in ends]
    settled = _is_settled(now, (worst, now, best), holds, min(margins), max(margins))
    if settled:
        because = f"the verdict is {now.verdict} however the unjudged items are judged"
    else:
        because = (
            f"the verdict is {now.verdict} now, {worst.verdict} under the worst labels and"
            f" {best.verdict} under the best"
        )
        if now.verdict == worst.verdict == best.verdict:
            because += "; the margin is a share of the baseline's mean, which they change"
    return VerdictStability(
        now=now.verdict,
        at_worst=worst.verdict,
        at_best=best.verdict,
        holds=holds,
        settled=settled,
        delta=None if low.delta is None or high.delta is None else (low.delta, high.delta),
        exact=differences.exact,
        because=because,
        comparison=now,
    )


def _holding(worst: Verdict | None, best: Verdict | None) -> Verdict | None:
    """Return the verdict that no labels can change."""
    if worst is None or best is None:
        return None
    if worst == "better" or best == "worse":
        return "better" if worst == "better" else "worse"
    return "same" if worst == best == "same" else "unclear"


def _is_settled(
    now: Comparison, ends: Sequence[Comparison], holds: Verdict | None, least: float, most: float
) -> bool:
    """Return whether the verdict is final: it holds, or is unclear and no other is in reach.

    ``least`` and ``most`` bound the margin.
    """
    if now.verdict == "unclear":
        # The interval that shows sameness would not fit into the margin wherever it lay.
        return all(
            row.verdict == "unclear"
            and (row.ci_same is None or row.ci_same[1] - row.ci_same[0] > 2 * most)
            for row in ends
        )
    if now.verdict == "same":
        identical = all(not row.wins and not row.losses for row in ends)
        within = (row.ci_same is not None and max(map(abs, row.ci_same)) < least for row in ends)
        return holds == "same" and (identical or all(within))
    return holds == now.verdict


def with_bounds(
    comparisons: Comparisons,
    systems: Sequence[ComparedSystem],
    opened: Sequence[ScoreRanges],
    gold: Prepared,
    *,
    queries: Queries | None = None,
    by: Sequence[By] = (),
    strict: bool = False,
) -> Comparisons:
    """Return every comparison with the range of its difference, and its settled verdict.

    The systems are in the order of ``opened``, the baseline first. Among several tests, a verdict
    holds if it does so by their number alone. A query without relevant gold counts once a
    judgment adds some, so nothing holds while such a query has unjudged items.
    """
    bounds = _Bounds(comparisons, systems, opened, gold, queries, by)
    rows = []
    for row, worst, best in zip(
        comparisons.rows, bounds.rows_at("worst"), bounds.rows_at("best"), strict=True
    ):
        bounded = bounds.bounded(row, worst, best)
        rows.append(_strictly(bounded, best) if strict else bounded)
    decisions = []
    for decision in comparisons.decisions:
        names = decision.baseline, decision.system
        pair = [row for row in rows if (row.baseline, row.system) == names]
        primary = next(row for row in pair if row.primary and row.segment is None)
        decided = decide(pair) if strict else decision
        decisions.append(replace(decided, bounds=_sentence(primary)))
    return replace(comparisons, rows=tuple(rows), decisions=tuple(decisions))


class _Bounds:
    """The effect of judgments on each comparison.

    ``ranges`` are those of the differences by system and measure; ``margins`` are the least and
    the most by measure: one that is a share of the baseline's mean moves with the labels.
    """

    def __init__(
        self,
        comparisons: Comparisons,
        systems: Sequence[ComparedSystem],
        opened: Sequence[ScoreRanges],
        gold: Prepared,
        queries: Queries | None,
        by: Sequence[By],
    ) -> None:
        self.rule, self.systems, self.queries, self.by = comparisons.rule, systems, queries, by
        self.identical = identical_pairs(comparisons.overlaps)
        self.ranges: dict[tuple[str, str], Range] = {}
        self.entering: dict[tuple[str, str], Mask] = {}
        from karat.measure.ranges import Differences

        baseline, *others = opened
        self.unjudged = {}
        for system, ranges in zip(systems[1:], others, strict=True):
            differences = Differences(baseline.listed, ranges.listed, gold)
            self.unjudged[system.name] = differences.items.query
            for measure in ranges.scores.measures:
                name = str(measure)
                # A set-level number is not a mean of differences.
                ranged = measure in ranges.measures and measure in baseline.measures
                if ranged and number_of(measure) is mean:
                    key = system.name, name
                    self.ranges[key] = differences.range_of(measure)
                    self.entering[key] = baseline.entering(name) | ranges.entering(name)
        self.moving = {key for key, ends in self.ranges.items() if (ends.high > ends.low).any()}
        self.margins = {
            name: (self.rule.margin_for(ends["low"]), self.rule.margin_for(ends["high"]))
            for name, ends in baseline.to_dict().items()
            if ends["low"] is not None and ends["high"] is not None
        }
        # The queries of every segment.
        ids = baseline.scores.table["query_id"]
        self.masks: dict[tuple[tuple[str, str], ...], Mask] = {}
        for column in by:
            segments = segments_by(ids, queries, column)
            self.masks |= {tuple(segment.where.items()): segment.mask for segment in segments}

    def rows_at(self, side: Literal["worst", "best"]) -> list[Comparison]:
        """Return all comparisons, in their order, with every query's difference at one end."""
        from karat.evaluation.comparison import judged_rows

        baseline, *others = self.systems
        moved = [baseline]
        for system in others:
            (scores,) = system.runs
            columns = {}
            for measure in scores.measures:
                if (system.name, str(measure)) in self.ranges:
                    ends = self.ranges[system.name, str(measure)]
                    upward = (measure.definition.better != "lower") == (side == "best")
                    delta = ends.high if upward else ends.low
                    columns[str(measure)] = baseline.values(str(measure)) + delta
            moved.append(replace(system, runs=(with_columns(scores, columns),)))
        where: dict[str, Any] = {"queries": self.queries, "by": self.by}
        rows = judged_rows(moved, self.rule, self.identical, **where, full=False)
        return [self._at_any_margin(row, rows, baseline.conventions.alpha) for row in rows]

    def _at_any_margin(
        self, row: Comparison, rows: Sequence[Comparison], alpha: float
    ) -> Comparison:
        """Return a comparison at an end: same within the least margin, worse beyond the most.

        Its p holds whatever labels do to those it is corrected with: at an end of its own each of
        them has a p of its own, and between the ends perhaps a larger one, so that only the number
        of tests is sure.
        """
        identical = row.verdict == "same" and not row.wins and not row.losses
        # Corrected together: the primary measure or the others, by column.
        family = [
            other
            for other in rows
            if other.p is not None
            and other.primary == row.primary
            and list(other.segment or ()) == list(row.segment or ())
        ]
        moving = (
            (other.system, other.measure) in self.moving for other in family if other is not row
        )
        if row.p is not None and any(moving):
            row = replace(row, p_adjusted=min(1.0, row.p * len(family)))
        margins = (row.margin, *self.margins.get(row.measure, ()))
        least, most = (
            judge_row(replace(row, margin=margin), self.rule, alpha=alpha, identical=identical)
            for margin in (min(margins), max(margins))
        )
        return replace(least, regression=most.regression, caution=most.caution)

    def bounded(self, row: Comparison, worst: Comparison, best: Comparison) -> Comparison:
        """Return the comparison with the range of its difference and the verdict that holds."""
        key = row.system, row.measure
        if key not in self.ranges:
            return row
        ends = [row.delta, row.delta]
        if key in self.moving:
            ends = sorted((worst.delta, best.delta), key=lambda end: (end is None, end or 0.0))
        entering = self.entering[key]
        if row.segment is not None:
            entering = entering & self.masks[tuple(row.segment.items())]
        enter = int(entering.sum())
        # Unclear where a judgment can change the verdict, or where it is so now.
        holds = _holding(worst.verdict, best.verdict)
        if row.verdict is not None and (enter or holds != row.verdict):
            holds = "unclear"
        measured = ~np.isnan(self.ranges[key].low)
        bounds = {
            "delta": ends,
            "exact": self.ranges[key].exact,
            "verdict": holds,
            # A single segment does not report it.
            "unjudged": None if row.segment else int(measured[self.unjudged[row.system]].sum()),
            "entering": enter,
        }
        return replace(row, bounds=bounds)


def _strictly(row: Comparison, best: Comparison) -> Comparison:
    """Return the comparison with the verdict that holds; a regression must hold at best too."""
    if row.bounds is None or row.verdict is None:
        return row
    sure = not row.bounds["entering"]
    regression = sure and row.regression and best.regression
    caution = sure and row.caution and best.caution
    holds: Verdict = row.bounds["verdict"]
    if (holds, regression, caution) == (row.verdict, row.regression, row.caution):
        return row
    if sure:
        unjudged = row.bounds["unjudged"]
        items = "unjudged items" if unjudged is None else f"the {unjudged:,} unjudged items"
        why = f"but judging {items} could change that"
    else:
        why = f"but {would_enter(row.bounds['entering'])}, which could change that"
    because = f"{row.because}; {why}"
    return replace(row, verdict=holds, regression=regression, caution=caution, because=because)


def _sentence(row: Comparison) -> str | None:
    """Return a sentence on the range of the difference, and its effect on the verdict."""
    if row.bounds is None or row.bounds["delta"][0] is None:
        return None
    low, high = row.bounds["delta"]
    parts, count = [], row.bounds["unjudged"]
    if count and low != high:
        items, them = plural(count, "item has", "items have"), "it" if count == 1 else "them"
        parts.append(
            f"{items} no judgment; with {them} judged, the change of {row.measure} could be"
            f" anything from {_signed(low)} to {_signed(high)}"
        )
    if row.bounds["entering"]:
        parts.append(would_enter(row.bounds["entering"]))
    if not parts:
        return None
    sentence = "; ".join(parts)
    if row.verdict is not None and row.bounds["verdict"] != row.verdict:
        return f"{sentence}, so judgments could change the verdict"
    sure = row.verdict in ("better", "worse")
    return f"{sentence}: that is {row.verdict} in any case" if sure else sentence


def _signed(value: float) -> str:
    return f"{value:+.4f}" if round(value, 4) else "0.0000"
