"""Gates that hold whatever the unjudged items are, or fail whatever they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from karat.analysis.gates import Gate, GateResult, Gating, judge
from karat.analysis.limits import Limit
from karat.analysis.segments import By, segments_by
from karat.analysis.unjudged import Open, would_enter
from karat.measures.scores import Scores
from karat.stats.proportions import wilson
from karat.tables import Queries

Key = tuple[Any, ...]
# So many queries' worth from an end a mean has another interval.
_NEAR = 2


def hold_strictly(
    gating: Gating, gates: Sequence[Gate], own: Open, queries: Queries | None
) -> Gating:
    """Each gate at the worst and at the best that judgments could make of its measure.

    It passes if it does so now, at the worst and at the best, and fails if it does so at all
    three; else it cannot be judged yet. A mean only falls when a value falls, so for a gate on
    the mean that is sure. The ends of an interval do not always (it may widen while values rise),
    so the gate is also tried with the plain percentile interval, whose ends do, and where labels
    could bring the mean near an end, with the wide interval that holds there; other labels in
    between could still make an interval a little wider. A measure without a range is judged as
    before. While a judgment could bring a query into the mean that has no relevant gold yet, no
    gate can be judged.
    """
    tried = [
        {_key(one): one for one in judge(gates, scores, queries, system="").results}
        for end in ("low", "high")
        for scores in (own.at(end), _by_percentiles(own.at(end)))
    ]
    results = [
        _strict(one, [some[_key(one)] for some in tried], own, _entering(one, own, queries))
        if one.measure in own.ranges
        else one
        for one in gating.results
    ]
    return replace(gating, results=tuple(results))


def _entering(one: GateResult, own: Open, queries: Queries | None) -> int:
    """How many queries of the gate's segment a judgment could bring into its mean."""
    entering = own.entering(one.measure)
    if one.segment is None:
        return int(entering.sum())
    segments = segments_by(own.scores.table["query_id"], queries, By(tuple(one.segment)))
    mask = next(each.mask for each in segments if dict(each.where) == dict(one.segment))
    return int((entering & mask).sum())


def _by_percentiles(scores: Scores) -> Scores:
    known = scores.conventions
    plain = "percentile" if known.interval == "bca" else known.interval
    return replace(scores, conventions=replace(known, interval=plain))


def _strict(now: GateResult, tried: Sequence[GateResult], own: Open, entering: int) -> GateResult:
    unjudged = own.unjudged
    if now.verdict not in ("pass", "fail"):
        return now
    if entering:
        because = f"{now.because}; but {would_enter(entering)}: judge what was returned there"
        return replace(now, verdict="unmeasurable", because=because)
    if not unjudged:
        return now
    verdicts = {one.verdict for one in tried}
    ci = own.scores.conventions.ci
    if now.verdict == "pass" and not _passes_near_an_end(now, tried[0].mean, tried[-1].mean, ci):
        verdicts.add("fail")
    if verdicts == {now.verdict}:
        told = f"{now.because}; whatever its unjudged items are"
        return replace(now, because=told)
    low, high = _show(tried[0].mean), _show(tried[-1].mean)
    between = f"{now.measure} lies between {low} and {high}"
    because = (
        f"{now.because}; but {between} by what its {unjudged:,} unjudged items are: judge more"
    )
    reachable = not all(one.unreachable for one in tried)
    return replace(
        now, verdict="unmeasurable", because=because, unreachable=now.unreachable and not reachable
    )


def _passes_near_an_end(now: GateResult, low: float | None, high: float | None, ci: float) -> bool:
    """Whether the gate also passes by the interval of a mean within two queries of 0 or 1."""
    if now.on == "mean" or low is None or high is None or not 0 <= low <= high <= 1:
        return True
    near = _NEAR / now.n
    if now.max is None and high > 1 - near:
        limit, value = Limit(now.min or 0.0), wilson(max(low, 1 - near), now.n, confidence=ci)[0]
    elif now.max is not None and low < near:
        limit, value = Limit(now.max, upper=True), wilson(min(high, near), now.n, confidence=ci)[1]
    else:
        return True
    return replace(limit, strict=now.strict).met_by(value)


def _key(one: GateResult) -> Key:
    where = None if one.segment is None else tuple(sorted(one.segment.items()))
    return one.measure, where, one.on, one.min, one.max, one.strict


def _show(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.4f}"
