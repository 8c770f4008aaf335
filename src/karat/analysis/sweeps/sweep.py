"""A measure over its cut-offs: where it flattens, what a better order could add, what k costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.analysis.rescored import rescored
from karat.analysis.segments import SMALL, Segment
from karat.analysis.staged import Depth, Staged
from karat.analysis.sweeps.curves import DEFAULT_MEASURES, Curve, K, parse_curves, size_of
from karat.analysis.sweeps.headroom import best_values
from karat.analysis.sweeps.knees import FLAT, Knee, area_under, knee_of
from karat.analysis.sweeps.token_budgets import token_line
from karat.errors import MissingInputError
from karat.measures import numbers
from karat.measures.names import Measure
from karat.measures.numbers import NOTHING, Values
from karat.measures.overall import number_of
from karat.measures.results import Scores, Summary

# The cut-offs of a sweep that names none; the deeper ones where the lists go that far.
NODES, DEEPER = (1, 3, 5, 10, 20), (50, 100)
TOKENS: Literal["tokens"] = "tokens"
Budget = Measure | Literal["tokens"] | None

_Rows = NDArray[np.bool_]
_Interval = tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Point:
    """A measure at one cut-off; ``beyond_log`` says that the lists end before it.

    ``headroom`` is what the gold that the run has would add here if it stood at the top.
    """

    k: K
    n: int
    mean: float | None = None
    ci: _Interval = None
    ceiling: float | None = None
    headroom: float | None = None
    beyond_log: bool = False

    def document(self) -> dict[str, Any]:
        """The point as it stands in a report."""
        return asdict(self) | {"ci": _listed(self.ci)}


@dataclass(frozen=True, slots=True)
class Area:
    """The area under a curve over its width, from the first cut-off measured to the last."""

    first: K
    last: K
    n: int
    mean: float
    ci: _Interval = None

    def document(self) -> dict[str, Any]:
        """The area as it stands in a report."""
        ends = {"from": self.first, "to": self.last}
        return ends | {"mean": self.mean, "ci": _listed(self.ci), "n": self.n}


@dataclass(frozen=True, slots=True)
class Line:
    """A measure over all cut-offs: its points, where they flatten, the area below them."""

    points: tuple[Point, ...]
    knee: Knee
    area: Area | None = None

    @property
    def measured(self) -> list[K]:
        """The cut-offs that have a value."""
        return [point.k for point in self.points if point.mean is not None]

    def document(self) -> dict[str, Any]:
        """The line as it stands in a report."""
        return {
            "points": [point.document() for point in self.points],
            "knee": None if self.knee.at is None else self.measured[self.knee.at],
            "knee_because": self.knee.because,
            "area": None if self.area is None else self.area.document(),
        }


Lines = Mapping[str, Line]


@dataclass(frozen=True, slots=True)
class Sweep:
    """One system's curves, over all queries and by segment, and what its cut-offs cost."""

    lines: Lines
    depth: Depth
    raw_depth: Depth | None = None
    segments: Mapping[str, Mapping[str, Lines]] = field(default_factory=dict)
    budget: Mapping[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        """The sweep as it stands in a report."""
        return {
            "measures": {name: line.document() for name, line in self.lines.items()},
            "segments": {
                column: {value: _in_segment(lines) for value, lines in values.items()}
                for column, values in self.segments.items()
            },
            "budget": self.budget,
            "depth": {
                "final": asdict(self.depth),
                "raw": None if self.raw_depth is None else asdict(self.raw_depth),
            },
        }


def sweep(
    staged: Staged,
    curves: Sequence[Curve],
    *,
    flat: float = FLAT,
    segments: Mapping[str, Sequence[Segment]] | None = None,
    budget: Budget = None,
) -> Sweep:
    """Read the curves of a run that was scored at all of their cut-offs.

    ``budget`` is ``tokens`` (the run was scored with ``keep`` at the largest k, or more for
    budgets) or a latency that it was scored by.
    """
    final = staged.final
    beyond = () if final.cut is None else final.cut.beyond
    for measure in (one for curve in curves for one in curve.at.values()):
        if str(measure) in final.lacks and str(measure) not in beyond:
            raise MissingInputError(final.lacks[str(measure)])
    ks = list(curves[0].at)
    most = final.conventions.depth
    # Where not one list has an item, there is no curve.
    measured = [
        k
        for k in ks
        if staged.depth(final).longest
        and not any(str(curve.at[k]) in beyond for curve in curves)
        and (most is None or isinstance(k, str) or k <= most)
    ]
    timed = [budget] if isinstance(budget, Measure) else []
    reading = _Reading(
        scores=_with_areas(final, curves, measured, timed),
        curves=curves,
        measured=measured,
        best=best_values(staged, curves, measured),
        flat=flat,
    )
    everyone = np.ones(final.table.height, dtype=bool)
    summaries = reading.scores.summarise(everyone)
    return Sweep(
        reading.lines(everyone, summaries),
        depth=staged.depth(final),
        raw_depth=None if staged.raw is final else staged.depth(staged.raw),
        segments={
            column: {one.name: reading.lines(one.mask) for one in some}
            for column, some in (segments or {}).items()
        },
        budget=_budget(staged, ks, measured, budget, summaries),
    )


def default_sweep(staged: Staged, *, flat: float = FLAT) -> dict[str, Any]:
    """The curves that every report holds: R and nDCG, from the lists as they were scored."""
    conventions = staged.final.conventions
    curves = parse_curves(DEFAULT_MEASURES, NODES, conventions=conventions)
    measures = [measure for curve in curves for measure in curve.at.values()]
    swept = sweep(replace(staged, final=rescored(staged, measures)), curves, flat=flat).document()
    return {"ks": list(NODES), "flat": flat, **{key: swept[key] for key in ("measures", "depth")}}


@dataclass(frozen=True, eq=False)
class _Reading:
    """What lines are read from: the scores at every cut-off, and those of the best order."""

    scores: Scores
    curves: Sequence[Curve]
    measured: Sequence[K]
    best: Mapping[str, Values]
    flat: float

    def lines(self, mask: _Rows, summaries: Mapping[str, Summary] | None = None) -> Lines:
        """Every curve over the marked queries."""
        known = self.scores.summarise(mask) if summaries is None else summaries
        return {curve.name: self._line(curve, mask, known) for curve in self.curves}

    def _line(self, curve: Curve, mask: _Rows, summaries: Mapping[str, Summary]) -> Line:
        points = [
            self._point(k, measure, mask, summaries[str(measure)])
            for k, measure in curve.at.items()
        ]
        values = [point.mean for point in points if point.mean is not None]
        knee = knee_of(values, better=curve.bare.definition.better, flat=self.flat)
        return Line(tuple(points), knee, self._area(curve, points, summaries))

    def _point(self, k: K, measure: Measure, mask: _Rows, told: Summary) -> Point:
        if k not in self.measured:
            return Point(k, told.n, ceiling=told.ceiling, beyond_log=True)
        return Point(
            k,
            told.n,
            mean=told.mean,
            ci=told.ci,
            ceiling=told.ceiling,
            headroom=self._headroom(str(measure), mask, told.mean),
        )

    def _headroom(self, name: str, mask: _Rows, value: float | None) -> float | None:
        if name not in self.best or value is None:
            return None
        rows = mask & ~np.isnan(self.scores.values(name))
        best = numbers.mean(self.best[name][rows])
        if best is None:
            return None
        # The same sum in two orders may differ in its last bits.
        return 0.0 if math.isclose(best, value, abs_tol=1e-12) else best - value

    def _area(
        self, curve: Curve, points: Sequence[Point], summaries: Mapping[str, Summary]
    ) -> Area | None:
        known = [point for point in points if point.mean is not None]
        if len(known) < 2:
            return None
        first, last = known[0].k, known[-1].k
        told = summaries.get(str(curve.bare))
        if told is None:
            heights = [np.array([point.mean]) for point in known]
            (area,) = area_under(heights, [size_of(point.k) for point in known])
            return Area(first, last, min(point.n for point in known), float(area))
        return None if told.mean is None else Area(first, last, told.n, told.mean, told.ci)


def _with_areas(
    scores: Scores, curves: Sequence[Curve], measured: Sequence[K], more: Sequence[Measure]
) -> Scores:
    """The scores with each query's area as a measure without a cut-off, to get its interval."""
    areas, columns, ceilings = [], [], dict(scores.ceilings)
    for curve in curves:
        at = [measure for k, measure in curve.at.items() if k in measured]
        if len(at) < 2 or number_of(curve.bare) is not numbers.mean:
            continue
        places = [size_of(k) for k in curve.at if k in measured]
        values = area_under([scores.values(str(one)) for one in at], places)
        columns.append(pl.Series(curve.name, values, dtype=pl.Float64, nan_to_null=True))
        areas.append(curve.bare)
        if all(str(one) in ceilings for one in at):
            best = area_under([ceilings[str(one)][0] for one in at], places)
            ceilings[curve.name] = best, NOTHING
    swept = [measure for curve in curves for measure in curve.at.values()]
    return replace(
        scores,
        measures=(*swept, *areas, *more),
        table=scores.table.with_columns(columns),
        ceilings=ceilings,
        tied={},
    )


def _budget(
    staged: Staged,
    ks: Sequence[K],
    measured: Sequence[K],
    budget: Budget,
    summaries: Mapping[str, Summary],
) -> dict[str, Any] | None:
    """What the cut-offs cost in tokens, or what a call took at the k of the log."""
    if isinstance(budget, Measure):
        told = summaries[str(budget)]
        return {
            "kind": str(budget),
            "k": staged.depth(staged.final).known,
            "mean": told.mean,
            "ci": _listed(told.ci),
            "n": told.n,
            "because": told.lacks,
        }
    if budget is None:
        return None
    ranks, seen = ([k for k in some if isinstance(k, int)] for some in (ks, measured))
    line = token_line(staged, ranks, seen)
    return None if line is None else line.document()


def _in_segment(lines: Lines) -> dict[str, Any]:
    """Curves of a segment, which says when it is small."""
    document = {}
    for name, line in lines.items():
        small = max(point.n for point in line.points) < SMALL
        document[name] = line.document() | ({"small": True} if small else {})
    return document


def _listed(ends: _Interval) -> list[float] | None:
    return None if ends is None else list(ends)
