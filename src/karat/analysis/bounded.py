"""Comparisons that know what the unjudged items could change, and may wait for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from karat.analysis.compare import Comparisons, compare_scores, rows_of
from karat.analysis.comparison import Comparison
from karat.analysis.contenders import Contender, contenders_of
from karat.analysis.overlap import DEPTH
from karat.analysis.segments import By, segments_by
from karat.analysis.settled import holding
from karat.analysis.unjudged import Open, cut, open_of, with_columns, would_enter
from karat.analysis.verdicts import Decision, Rule, Verdict, decide, judged
from karat.measures.bounds.differences import difference_range
from karat.measures.bounds.ranges import Range
from karat.measures.bounds.unjudged import in_common
from karat.measures.numbers import mean
from karat.measures.overall import number_of
from karat.measures.prepare import Prepared
from karat.measures.ranked import Ints, Mask
from karat.measures.scores import Scores
from karat.tables import Queries

Corner = Literal["worst", "best"]
Where = tuple[tuple[str, str], ...]
Key = tuple[str, str, str, Where]
Corners = Mapping[Corner, Mapping[Key, Comparison]]


def compare_bounded(
    scores: Sequence[Scores],
    gold: Prepared,
    rule: Rule,
    *,
    queries: Queries | None = None,
    by: Sequence[By] = (),
    strict: bool = False,
) -> Comparisons:
    """Compare systems whose lists were kept whole, with bounds."""
    opened = [open_of(one, gold) for one in scores]
    # Whether lists are alike is told of their tops, as without bounds.
    contenders = contenders_of([cut(one, DEPTH) for one in scores])
    found = compare_scores(contenders, rule, queries=queries, by=by)
    return with_bounds(found, contenders, opened, gold, queries=queries, by=by, strict=strict)


def with_bounds(
    found: Comparisons,
    contenders: Sequence[Contender],
    opened: Sequence[Open],
    gold: Prepared,
    *,
    queries: Queries | None = None,
    by: Sequence[By] = (),
    strict: bool = False,
) -> Comparisons:
    """Every comparison with the range of its difference, and what holds in it.

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
        for one, own in zip(contenders[1:], others, strict=True)
        for measure in own.scores.measures
        if (name := str(measure)) in own.ranges
        and name in baseline.ranges
        # The number of a whole set is no mean of differences.
        and number_of(measure) is mean
    }
    unmoved = [row for row in found.rows if (row.system, row.measure) not in ranges]
    asked = _Asked(found.rule, queries, by, _margins(baseline, found.rule), unmoved)
    corners = {corner: _at(corner, contenders, ranges, asked) for corner in _CORNERS}
    unjudged = {
        one.name: in_common(baseline.listed, own.listed).query
        for one, own in zip(contenders[1:], others, strict=True)
    }
    entering = {
        (one.name, name): baseline.entering(name) | own.entering(name)
        for one, own in zip(contenders[1:], others, strict=True)
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


def _margins(baseline: Open, rule: Rule) -> dict[str, tuple[float, float]]:
    """A margin that is a share of the baseline's mean moves with the labels, as that does."""
    ends = baseline.document()
    return {
        name: (rule.margin_for(one["low"]), rule.margin_for(one["high"]))
        for name, one in ends.items()
        if one["low"] is not None and one["high"] is not None
    }


def _at(
    corner: Corner,
    contenders: Sequence[Contender],
    ranges: Mapping[tuple[str, str], Range],
    asked: _Asked,
) -> dict[Key, Comparison]:
    """All comparisons with every query's difference at one end."""
    baseline = contenders[0]
    moved = [baseline]
    for one in contenders[1:]:
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
        judged(replace(counted, margin=one), found.rule, alpha=alpha, identical=identical)
        for one in (least, most)
    ]
    most_sure = verdicts[1]
    return replace(verdicts[0], regression=most_sure.regression, caution=most_sure.caution)


def _alone(row: Comparison, found: Comparisons, moving: Collection[tuple[str, str]]) -> Comparison:
    """The comparison with a p that holds whatever labels do to those it is corrected with.

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
        # Of a segment alone it is not told.
        "unjudged": counted if row.segment is None else None,
        "entering": entering,
    }
    return replace(row, bounds=told)


def _holding(row: Comparison, corners: Corners, entering: int) -> Verdict | None:
    """The verdict that no judgment can change; unclear where one can, or where it is now."""
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
    """The decision with a sentence on what unjudged items could change about it."""
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
