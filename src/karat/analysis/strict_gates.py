"""Gates that hold whatever the unjudged items are, or fail whatever they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from karat.analysis.gates import Gate, GateResult, Gating, judge
from karat.analysis.segments import By, segments_by
from karat.analysis.unjudged import Open, would_enter
from karat.tables import Queries

Key = tuple[Any, ...]


def hold_strictly(
    gating: Gating, gates: Sequence[Gate], own: Open, queries: Queries | None
) -> Gating:
    """Each gate at the worst and at the best that judgments could make of its measure.

    It passes if it does so at the worst, and fails if it does so at the best: no end of an
    interval falls when a value rises, so what holds at both holds for all labels between. Else
    it cannot be judged yet. A measure without a range is judged as before. While a judgment
    could bring a query into the mean that has no relevant gold yet, no gate can be judged.
    """
    tried = [
        {_key(one): one for one in judge(gates, own.at(end), queries, system="").results}
        for end in ("low", "high")
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


def _key(one: GateResult) -> Key:
    where = None if one.segment is None else tuple(sorted(one.segment.items()))
    return one.measure, where, one.on, one.min, one.max, one.strict


def _show(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.4f}"
