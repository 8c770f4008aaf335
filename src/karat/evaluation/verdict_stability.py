"""Can a verdict still change: what it would be under the worst and the best labels.

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

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl

from karat.data.tables import Queries
from karat.errors import UsageError
from karat.evaluation.comparison import Comparisons, compare_scores, rows_of
from karat.evaluation.segments import By, segments_by
from karat.evaluation.systems import ComparedSystem, distinct_names
from karat.evaluation.unjudged_ranges import ScoreRanges, with_columns, would_enter
from karat.evaluation.verdict import (
    NO_DIFFERENCE,
    Comparison,
    Decision,
    Rule,
    Verdict,
    decide,
    judge_row,
)
from karat.measures.aggregates import Values, mean
from karat.measures.differences import difference_range
from karat.measures.prepare import Prepared
from karat.measures.ranges import Range, in_common
from karat.measures.ranked import Ints, Mask
from karat.measures.scores import Scores, number_of


@dataclass(frozen=True, slots=True)
class VerdictStability:
    """One measure of two systems under all labels of what is unjudged.

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

    def document(self) -> dict[str, Any]:
        """Return the plain data of it."""
        names = ("now", "at_worst", "at_best", "holds", "settled", "exact", "because")
        plain = {name: getattr(self, name) for name in names}
        return plain | {"delta": None if self.delta is None else list(self.delta)}


def stability_of(
    first: Scores,
    second: Scores,
    found: Range,
    rule: Rule,
    measure: str,
    *,
    baseline: Range | None = None,
) -> VerdictStability:
    """Return whether the verdict on one measure of a baseline and a system can still change.

    ``found`` holds the lowest and highest difference of each query, system minus baseline, and
    ``baseline`` the ends of the baseline's own values: a margin that is a share of its mean moves
    with them. Without these the margin is taken as it is.
    """
    if measure not in {str(one) for one in first.measures}:
        raise UsageError(f"these scores have no {measure}; score both systems by it")
    rule = replace(rule, primary=measure, pairs="baseline")
    base = first.values(measure)
    now = _compared(first, second, rule, None)
    moves = bool(np.nanmax(found.high - found.low, initial=0.0) > NO_DIFFERENCE)
    ends = [_compared(first, second, rule, base + end) for end in (found.low, found.high)]
    low, high = ends if moves else (now, now)
    worst, best = (high, low) if now.better == "lower" else (low, high)
    holds = holding(worst.verdict, best.verdict)
    margins = _margins_now(now, rule, baseline)
    final = _final(now, (worst, now, best), holds, margins)
    told = VerdictStability(
        now=now.verdict,
        at_worst=worst.verdict,
        at_best=best.verdict,
        holds=holds,
        settled=final,
        delta=_between(low, high),
        exact=found.exact,
        because="",
        comparison=now,
    )
    return replace(told, because=_because(told, measure))


def _compared(first: Scores, second: Scores, rule: Rule, column: Values | None) -> Comparison:
    """Return the comparison by the rule's measure, with other values for the system where given."""
    name = str(rule.primary)
    if column is not None:
        values = pl.Series(name, column, dtype=pl.Float64, nan_to_null=True)
        second = replace(second, table=second.table.with_columns(values))
    names = distinct_names([first.system, second.system])
    kept = tuple(measure for measure in first.measures if str(measure) == name)
    pair = [
        ComparedSystem(own, (replace(one, measures=kept),))
        for own, one in zip(names, (first, second), strict=True)
    ]
    return compare_scores(pair, rule).of(names[1], name)


def holding(worst: Verdict | None, best: Verdict | None) -> Verdict | None:
    """Return the verdict that no labels can take away."""
    if worst is None or best is None:
        return None
    if worst == "better" or best == "worse":
        return "better" if worst == "better" else "worse"
    return "same" if worst == best == "same" else "unclear"


def _margins_now(now: Comparison, rule: Rule, baseline: Range | None) -> tuple[float, float]:
    """Return the least and the most that the margin may be."""
    if baseline is None:
        return now.margin, now.margin
    known = ~np.isnan(baseline.low)
    if not known.any():
        return now.margin, now.margin
    ends = [rule.margin_for(float(one[known].mean())) for one in (baseline.low, baseline.high)]
    return min(*ends, now.margin), max(*ends, now.margin)


def _final(
    now: Comparison,
    ends: Sequence[Comparison],
    holds: Verdict | None,
    margins: tuple[float, float],
) -> bool:
    """Whether the verdict now is the last: it holds, or is unclear and no other is in reach."""
    least, most = margins
    if now.verdict == "unclear":
        return all(row.verdict == "unclear" and _too_wide(row, most) for row in ends)
    if now.verdict == "same":
        identical = all(not row.wins and not row.losses for row in ends)
        return holds == "same" and (identical or all(_fits(row, least) for row in ends))
    return holds == now.verdict


def _too_wide(row: Comparison, margin: float) -> bool:
    """Whether the interval that shows sameness would not fit into a margin wherever it lay."""
    return row.ci_same is None or row.ci_same[1] - row.ci_same[0] > 2 * margin


def _fits(row: Comparison, margin: float) -> bool:
    """Return whether the interval that shows sameness lies within a margin."""
    return row.ci_same is not None and max(map(abs, row.ci_same)) < margin


def _between(low: Comparison, high: Comparison) -> tuple[float, float] | None:
    return None if low.delta is None or high.delta is None else (low.delta, high.delta)


def _because(told: VerdictStability, measure: str) -> str:
    """One sentence on what labels can do to this verdict."""
    if told.now is None:
        return f"{measure} is neither better high nor low, so there is no verdict to change"
    if told.settled:
        return f"the verdict is {told.now} whatever the unjudged items are"
    if told.holds in {"better", "worse"}:
        return f"the verdict is {told.now} now, and {told.holds} once all unjudged items are judged"
    if told.now == told.at_worst == told.at_best:
        return (
            f"the verdict is {told.now} whatever labels do to the difference, but not yet whatever"
            " they do to the baseline, whose mean the margin is a share of"
        )
    return (
        f"the verdict is {told.now} now, {told.at_worst} under the worst labels and"
        f" {told.at_best} under the best"
    )


Corner = Literal["worst", "best"]
Where = tuple[tuple[str, str], ...]
Key = tuple[str, str, str, Where]
Corners = Mapping[Corner, Mapping[Key, Comparison]]


def with_bounds(
    found: Comparisons,
    systems: Sequence[ComparedSystem],
    opened: Sequence[ScoreRanges],
    gold: Prepared,
    *,
    queries: Queries | None = None,
    by: Sequence[By] = (),
    strict: bool = False,
) -> Comparisons:
    """Return every comparison with the range of its difference, and what holds in it.

    The systems stand in the order of ``opened``, the baseline first. The two-sided
    randomisation test can only lose what any query loses, so a verdict of better holds under
    every labelling if it holds where every query is at its worst, and one of worse if it holds
    where every query is at its best; among several tests, if it does so by their number alone.
    Intervals are looked at in the same two places. A query without relevant gold takes part once
    a judgment brings some, so that nothing holds while such a query has unjudged items.
    """
    baseline, *others = opened
    ranges = {
        (one.name, name): difference_range(measure, baseline.listed, own.listed, gold)
        for one, own in zip(systems[1:], others, strict=True)
        for measure in own.scores.measures
        if (name := str(measure)) in own.ranges
        and name in baseline.ranges
        # The number of a whole set is no mean of differences.
        and number_of(measure) is mean
    }
    unmoved = [row for row in found.rows if (row.system, row.measure) not in ranges]
    asked = _Asked(found.rule, queries, by, _margins(baseline, found.rule), unmoved)
    corners = {corner: _at(corner, systems, ranges, asked) for corner in _CORNERS}
    unjudged = {
        one.name: in_common(baseline.listed, own.listed).query
        for one, own in zip(systems[1:], others, strict=True)
    }
    entering = {
        (one.name, name): baseline.entering(name) | own.entering(name)
        for one, own in zip(systems[1:], others, strict=True)
        for name in own.ranges
        if (one.name, name) in ranges
    }
    masks = _masks(baseline.scores, queries, by)

    def bounded(row: Comparison) -> Comparison:
        key = row.system, row.measure
        if key not in ranges:
            return row
        more = int((entering[key] & masks[_key(row)[-1]]).sum())
        return _bounded(row, ranges[key], corners, unjudged[row.system], more)

    rows = tuple(bounded(row) for row in found.rows)
    if strict:
        rows = tuple(_strictly(row, corners) for row in rows)
    decisions = tuple(_decided(one, rows, strict=strict) for one in found.decisions)
    return replace(found, rows=rows, decisions=decisions)


_CORNERS: tuple[Corner, ...] = ("worst", "best")


def _masks(scores: Scores, queries: Queries | None, by: Sequence[By]) -> dict[Where, Mask]:
    """The queries of every segment, and all of them, by what a comparison says of where it is."""
    ids = scores.table["query_id"]
    masks: dict[Where, Mask] = {(): np.ones(len(ids), dtype=bool)}
    for one in by:
        masks |= {tuple(own.where.items()): own.mask for own in segments_by(ids, queries, one)}
    return masks


@dataclass(frozen=True, eq=False)
class _Asked:
    """What is compared at the ends as it is now; ``margins`` are the least and most by measure.

    ``unmoved`` are the comparisons that no label can change.
    """

    rule: Rule
    queries: Queries | None
    by: Sequence[By]
    margins: Mapping[str, tuple[float, float]]
    unmoved: Sequence[Comparison]


def _margins(baseline: ScoreRanges, rule: Rule) -> dict[str, tuple[float, float]]:
    """A margin that is a share of the baseline's mean moves with the labels, as that does."""
    ends = baseline.document()
    return {
        name: (rule.margin_for(one["low"]), rule.margin_for(one["high"]))
        for name, one in ends.items()
        if one["low"] is not None and one["high"] is not None
    }


def _at(
    corner: Corner,
    systems: Sequence[ComparedSystem],
    ranges: Mapping[tuple[str, str], Range],
    asked: _Asked,
) -> dict[Key, Comparison]:
    """All comparisons with every query's difference at one end."""
    baseline = systems[0]
    moved = [baseline]
    for one in systems[1:]:
        (scores,) = one.runs
        columns = {}
        for measure in scores.measures:
            name = str(measure)
            if (one.name, name) in ranges:
                upward = measure.definition.better != "lower"
                own = ranges[one.name, name]
                delta = own.high if upward == (corner == "best") else own.low
                columns[name] = baseline.runs[0].values(name) + delta
        moved.append(replace(one, runs=(with_columns(scores, columns),)))
    found = compare_scores(
        moved, asked.rule, queries=asked.queries, by=asked.by, known=asked.unmoved
    )
    moving = {key for key, one in ranges.items() if (one.high > one.low).any()}
    alpha = baseline.conventions.alpha
    return {_key(row): _at_any_margin(row, found, moving, alpha, asked) for row in found.rows}


def _at_any_margin(
    row: Comparison,
    found: Comparisons,
    moving: Collection[tuple[str, str]],
    alpha: float,
    asked: _Asked,
) -> Comparison:
    """The comparison at an end: same within the least margin, a regression beyond the most."""
    counted = _alone(row, found, moving)
    identical = row.verdict == "same" and not row.wins and not row.losses
    least, most = asked.margins.get(row.measure, (row.margin, row.margin))
    least, most = min(least, row.margin), max(most, row.margin)
    verdicts = [
        judge_row(replace(counted, margin=one), found.rule, alpha=alpha, identical=identical)
        for one in (least, most)
    ]
    most_sure = verdicts[1]
    return replace(verdicts[0], regression=most_sure.regression, caution=most_sure.caution)


def _alone(row: Comparison, found: Comparisons, moving: Collection[tuple[str, str]]) -> Comparison:
    """Return the comparison with a p that holds whatever labels do to those it is corrected with.

    At an end of its own each of them has a p of its own, and between the ends perhaps a larger
    one: then only the number of tests is sure.
    """
    family = [one for one in found.rows if _family(one) == _family(row) and one.p is not None]
    others = [one for one in family if _key(one) != _key(row)]
    if row.p is None or not any((one.system, one.measure) in moving for one in others):
        return row
    return replace(row, p_adjusted=min(1.0, row.p * len(family)))


def _family(row: Comparison) -> tuple[bool, tuple[str, ...]]:
    """What is corrected together: the primary measure or the others, overall or by a column."""
    return row.primary, tuple(row.segment or ())


def _bounded(
    row: Comparison, own: Range, corners: Corners, unjudged: Ints, entering: int
) -> Comparison:
    ends = [row.delta, row.delta]
    if (own.high > own.low).any():
        ends = sorted(
            (corners[corner][_key(row)].delta for corner in _CORNERS),
            key=lambda one: (one is None, one or 0.0),
        )
    counted = int((~np.isnan(own.low))[unjudged].sum())
    told = {
        "delta": ends,
        "exact": own.exact,
        "verdict": _holding(row, corners, entering),
        # A single segment does not report it.
        "unjudged": counted if row.segment is None else None,
        "entering": entering,
    }
    return replace(row, bounds=told)


def _holding(row: Comparison, corners: Corners, entering: int) -> Verdict | None:
    """Return the verdict that no judgment can change; unclear where one can, or where it is now."""
    if entering and row.verdict is not None:
        return "unclear"
    worst, best = (corners[corner][_key(row)].verdict for corner in _CORNERS)
    holds = holding(worst, best)
    return holds if holds == row.verdict or row.verdict is None else "unclear"


def _strictly(row: Comparison, corners: Corners) -> Comparison:
    """The comparison with the verdict that holds; a regression must be one at its best too."""
    if row.bounds is None or row.verdict is None:
        return row
    holds: Verdict = row.bounds["verdict"]
    best, sure = corners["best"][_key(row)], not row.bounds["entering"]
    regression = sure and row.regression and best.regression
    caution = sure and row.caution and best.caution
    if (holds, regression, caution) == (row.verdict, row.regression, row.caution):
        return row
    because = f"{row.because}; {_may_change(row.bounds)}"
    return replace(row, verdict=holds, regression=regression, caution=caution, because=because)


def _decided(one: Decision, rows: Sequence[Comparison], *, strict: bool) -> Decision:
    """Return the decision with a sentence on what unjudged items could change about it."""
    names = one.baseline, one.system
    decided = decide(rows_of(names, rows)) if strict else one
    primary = next(
        row
        for row in rows
        if row.primary and row.segment is None and (row.baseline, row.system) == names
    )
    return replace(decided, bounds=_sentence(primary))


def _sentence(row: Comparison) -> str | None:
    """Between what the difference lies, and whether the verdict depends on it."""
    if row.bounds is None or row.bounds["delta"][0] is None:
        return None
    low, high = row.bounds["delta"]
    parts = []
    if row.bounds["unjudged"] and low != high:
        many = row.bounds["unjudged"]
        items, them = ("item has", "it") if many == 1 else ("items have", "them")
        range_ = (
            f"the change of {row.measure} could be anything from {_signed(low)} to {_signed(high)}"
        )
        parts = [f"{many:,} {items} no judgment; with {them} judged, {range_}"]
    if row.bounds["entering"]:
        parts.append(would_enter(row.bounds["entering"]))
    if not parts:
        return None
    told = "; ".join(parts)
    if row.verdict is None:
        return told
    if row.bounds["verdict"] == row.verdict:
        sure = row.verdict in ("better", "worse")
        return f"{told}: that is {row.verdict} in any case" if sure else told
    return f"{told}, so judgments could change the verdict"


def _may_change(bounds: Mapping[str, Any]) -> str:
    if bounds["entering"]:
        return f"but {would_enter(bounds['entering'])}, which could change that"
    many = bounds["unjudged"]
    which = "unjudged items" if many is None else f"the {many:,} unjudged items"
    return f"but judging {which} could change that"


def _key(row: Comparison) -> Key:
    where = () if row.segment is None else tuple(row.segment.items())
    return row.baseline, row.system, row.measure, where


def _signed(value: float) -> str:
    return f"{value:+.4f}" if round(value, 4) else "0.0000"
