"""Quality against latency: which systems are worth their time, and which another one beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from karat.analysis.contenders import check_comparable, contenders_of
from karat.analysis.latency.latencies import latency_of, score_calls, stages_of
from karat.analysis.staged import Staged
from karat.errors import MissingInputError, UsageError, unknown
from karat.measures.intervals import Interval
from karat.measures.kernels.calls import check_path
from karat.measures.names import Measure, parse_measure

PATH = "total.p50"


@dataclass(frozen=True, slots=True)
class Point:
    """A number that is known, and its interval if it has one."""

    value: float
    ci: Interval = None

    def document(self) -> dict[str, Any]:
        """The point as it stands in a report."""
        return {"value": self.value, "ci": None if self.ci is None else list(self.ci)}


@dataclass(frozen=True, slots=True)
class Place:
    """One system: its quality, its latency, and the systems that beat it, if any.

    A system beats another that is not better in either and worse in one; where both are equal,
    neither beats the other.
    """

    system: str
    quality: Point
    latency: Point
    beaten_by: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """The place as it stands in a report."""
        return {
            "system": self.system,
            "quality": self.quality.document(),
            "latency": self.latency.document(),
            "front": not self.beaten_by,
            "beaten_by": list(self.beaten_by),
        }


@dataclass(frozen=True, eq=False)
class Pareto:
    """The systems from the fastest to the slowest; ``unplaced`` says what the others lack."""

    measure: str
    latency: str
    places: tuple[Place, ...]
    unplaced: Mapping[str, str] = field(default_factory=dict)

    @property
    def front(self) -> tuple[str, ...]:
        """The systems that no other beats, from the fastest to the slowest."""
        return tuple(place.system for place in self.places if not place.beaten_by)

    def document(self) -> dict[str, Any]:
        """The places as they stand in a report."""
        return {
            "measure": self.measure,
            "latency": self.latency,
            "front": list(self.front),
            "systems": [place.document() for place in self.places],
            "unplaced": dict(self.unplaced),
        }


def pareto(systems: Mapping[str, Staged], measure: str | Measure, latency: str = PATH) -> Pareto:
    """Hold the quality of systems against their latency.

    ``measure`` is one that all of them were scored by, ``latency`` a stage and its percentile or
    mean, such as ``total.p90``. By their figures alone: whether a difference is more than chance
    is for a comparison to tell.
    """
    if not systems:
        raise UsageError("quality against latency needs at least one system")
    first = next(iter(systems.values())).final
    wanted = parse_measure(measure, conventions=first.conventions)
    path = latency.removeprefix("latency.")
    check_path("latency", path)
    stage, _, ending = path.rpartition(".")
    if wanted.definition.better == "none":
        raise UsageError(f"{wanted} is neither better high nor low; name another measure")
    _check(systems, wanted)
    found: list[Place] = []
    unplaced = {}
    for name, staged in systems.items():
        try:
            found.append(Place(name, _quality(staged, wanted), _latency(staged, stage, ending)))
        except MissingInputError as error:
            unplaced[name] = str(error)
    up = -1.0 if wanted.definition.better == "lower" else 1.0
    places = [
        Place(one.system, one.quality, one.latency, _beaten_by(one, found, up)) for one in found
    ]
    places.sort(key=lambda one: (one.latency.value, -up * one.quality.value, one.system))
    return Pareto(str(wanted), f"latency.{path}", tuple(places), unplaced)


def _check(systems: Mapping[str, Staged], wanted: Measure) -> None:
    """Refuse systems that cannot be held against each other."""
    for staged in systems.values():
        if wanted not in staged.final.measures:
            raise unknown("measure", str(wanted), map(str, staged.final.measures))
    check_comparable(contenders_of([staged.final for staged in systems.values()]))


def _quality(staged: Staged, measure: Measure) -> Point:
    found = staged.final.summaries[str(measure)]
    if found.mean is None:
        raise MissingInputError(found.lacks or f"{measure} has no value for any query")
    return Point(found.mean, found.ci)


def _latency(staged: Staged, stage: str, ending: str) -> Point:
    known = stages_of(staged)
    if stage not in known:
        raise MissingInputError(f"latency.{stage} is not in its log, which has {', '.join(known)}")
    own = latency_of(stage, ending)
    found = score_calls(staged, [own]).summaries[str(own)]
    if found.mean is None:
        raise MissingInputError(f"no call has a latency of {stage} in its log")
    return Point(found.mean, found.ci)


def _beaten_by(one: Place, others: Sequence[Place], up: float) -> tuple[str, ...]:
    own = (up * one.quality.value, -one.latency.value)
    beating = []
    for other in others:
        theirs = (up * other.quality.value, -other.latency.value)
        if theirs != own and all(a >= b for a, b in zip(theirs, own, strict=True)):
            beating.append((other.latency.value, other.system))
    return tuple(name for _, name in sorted(beating))
