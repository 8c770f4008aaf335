"""One measure over time: how it changed from one evaluation to the next, where that can be said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from karat.store.differences import breaks
from karat.store.records import Evaluation, Point


def points(evaluations: Sequence[Evaluation], measure: str) -> list[Point]:
    """One point an evaluation that has the measure, system by system, from old to new."""
    found: list[Point] = []
    before: Evaluation | None = None
    # Sorted here, since databases differ in what they take for the order of letters.
    own = [one for one in evaluations if measure in one.summaries]
    for one in sorted(own, key=lambda one: (one.system, one.saved_at, one.id)):
        summary = one.summaries[measure]
        point = Point(
            measure=measure,
            id=one.id,
            saved_at=one.saved_at,
            system=one.system,
            mean=summary.mean,
            n=summary.n,
            ci=summary.ci,
            revision=one.revision,
            gold=one.gold,
            tags=one.tags,
        )
        if before is not None and before.system == one.system:
            point = _after(point, found[-1], breaks(before, one))
        found.append(point)
        before = one
    return found


def _after(point: Point, before: Point, broken: tuple[str, ...]) -> Point:
    if broken or point.mean is None or before.mean is None:
        return replace(point, breaks=broken)
    return replace(point, change=point.mean - before.mean)
