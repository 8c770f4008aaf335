"""A measure over time as a small line for each system, drawn as the parts of an SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from karat.reports.figures import figure, several
from karat.reports.html.names import short
from karat.reports.html.signs import changed
from karat.store import Point

WIDTH, HEIGHT, EDGE = 240, 56, 6
_BROKEN = {"gold": "other gold", "queries": "other queries", "conventions": "other conventions"}


@dataclass(frozen=True, slots=True)
class Dot:
    """One evaluation on a line: where it is, and what it says."""

    id: int
    x: float
    y: float
    told: str


@dataclass(frozen=True, slots=True)
class Break:
    """Where numbers stop being comparable, and why."""

    x: float
    told: str


@dataclass(frozen=True, slots=True)
class TrendLine:
    """One system's line: ``paths`` end where numbers stop being comparable.

    ``bands`` are the intervals around them. ``last`` and ``changed`` are figures to read; the
    latter is since the evaluation before, and ``steady`` where that is nothing to be seen.
    """

    system: str
    paths: list[str]
    bands: list[str]
    dots: list[Dot]
    breaks: list[Break]
    last: str
    changed: str
    steady: bool
    about: str


def trend_lines(points: Sequence[Point], *, last: int = 60) -> list[TrendLine]:
    """A line a system, the one saved last first; of each the last evaluations."""
    groups = [list(group)[-last:] for _, group in groupby(points, key=lambda one: one.system)]
    latest = sorted(groups, key=lambda own: (own[-1].saved_at, own[-1].id), reverse=True)
    return [_line(own) for own in latest]


def _line(points: Sequence[Point]) -> TrendLine:
    scale = _Scale.of(points)
    runs = _runs(points)
    end = points[-1]
    # The first point is where the line begins, whatever it differed from before.
    breaks = [
        Break(scale.between(at), " and ".join(_BROKEN.get(one, one) for one in point.breaks))
        for at, point in enumerate(points)
        if at and point.breaks
    ]
    return TrendLine(
        system=short(end.system),
        paths=[_path(scale, run) for run in runs if len(run) > 1],
        bands=[_band(scale, run) for run in runs if len(run) > 1 and all(_ci(p) for _, p in run)],
        dots=[
            Dot(point.id, scale.x(at), scale.y(point.mean), _told(point))
            for run in runs
            for at, point in run
            if point.mean is not None
        ],
        breaks=breaks,
        last=figure(end.mean),
        changed="" if end.change is None else changed(end.change),
        steady=end.change is not None and not round(end.change, 4),
        about=_about(points, breaks),
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    n: int
    low: float
    high: float

    @classmethod
    def of(cls, points: Sequence[Point]) -> _Scale:
        ends = [end for point in points for end in (point.mean, *(point.ci or ()))]
        known = [end for end in ends if end is not None and math.isfinite(end)]
        return cls(len(points), min(known, default=0.0), max(known, default=0.0))

    def x(self, at: float) -> float:
        room = WIDTH - 2 * EDGE
        return round(EDGE + (room / 2 if self.n < 2 else at / (self.n - 1) * room), 2)

    def y(self, value: float | None) -> float:
        room = HEIGHT - 2 * EDGE
        if value is None or self.high <= self.low:
            return HEIGHT / 2
        return round(EDGE + (self.high - value) / (self.high - self.low) * room, 2)

    def between(self, at: int) -> float:
        return self.x(at - 0.5)


def _runs(points: Sequence[Point]) -> list[list[tuple[int, Point]]]:
    """The points that belong on one line: none without a value, no break among them."""
    runs: list[list[tuple[int, Point]]] = [[]]
    for at, point in enumerate(points):
        known = point.mean is not None and math.isfinite(point.mean)
        if point.breaks or not known:
            runs.append([])
        if known:
            runs[-1].append((at, point))
    return [run for run in runs if run]


def _path(scale: _Scale, run: Sequence[tuple[int, Point]]) -> str:
    places = [f"{scale.x(at):g} {scale.y(point.mean):g}" for at, point in run]
    return f"M{' L'.join(places)}"


def _band(scale: _Scale, run: Sequence[tuple[int, Point]]) -> str:
    lows = [f"{scale.x(at):g} {scale.y(_ci(point)[0]):g}" for at, point in run]
    highs = [f"{scale.x(at):g} {scale.y(_ci(point)[1]):g}" for at, point in run]
    return f"M{' L'.join([*highs, *reversed(lows)])}Z"


def _ci(point: Point) -> tuple[float, ...]:
    known = point.ci is not None and all(map(math.isfinite, point.ci))
    return point.ci if known and point.ci is not None else ()


def _told(point: Point) -> str:
    return f"{point.id}, {point.saved_at:%Y-%m-%d %H:%M}: {figure(point.mean)}"


def _about(points: Sequence[Point], breaks: Sequence[Break]) -> str:
    """The line in words, for whoever does not see it."""
    first, last = points[0], points[-1]
    told = f"{several(len(points), 'evaluation')}, {figure(first.mean)} at first,"
    told += f" {figure(last.mean)} at last"
    if breaks:
        told += f"; not comparable throughout: {', '.join(dict.fromkeys(b.told for b in breaks))}"
    fell = sum(1 for a, b in pairwise(points) if b.change is not None and b.change < 0)
    return f"{told}; lower than the one before {several(fell, 'time')}" if fell else told
