"""What is said of calls: times and costs with their intervals, slow calls, failed ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from karat.measures.intervals import Interval


@dataclass(frozen=True, slots=True)
class Figure:
    """A number over some calls and its interval, which too few calls do not have."""

    value: float | None
    ci: Interval = None

    def document(self) -> dict[str, Any]:
        """The figure as it stands in a report."""
        return {"value": self.value, "ci": None if self.ci is None else list(self.ci)}


@dataclass(frozen=True, slots=True)
class Amount:
    """What the calls of some queries took of one thing: of a stage's time, or of a cost.

    ``figures`` are the mean and percentiles of a time in milliseconds, the mean and sum of a
    cost; ``share`` is the median share of a call's total that the stage takes.
    """

    n: int
    figures: Mapping[str, Figure]
    share: float | None = None

    def document(self) -> dict[str, Any]:
        """The amount as it stands in a report."""
        figures = {name: figure.document() for name, figure in self.figures.items()}
        return {"n": self.n, **figures, **({} if self.share is None else {"share": self.share})}


@dataclass(frozen=True, slots=True)
class Spent:
    """The time and the cost of some calls, by stage and by what was spent."""

    stages: Mapping[str, Amount]
    cost: Mapping[str, Amount]

    def document(self) -> dict[str, Any]:
        """Both as they stand in a report."""
        return {
            "stages": {name: own.document() for name, own in self.stages.items()},
            "cost": {name: own.document() for name, own in self.cost.items()},
        }


@dataclass(frozen=True, slots=True)
class Slow:
    """A call that took long: its query, its total and the time of each stage."""

    query_id: str
    text: str | None
    total: float
    stages: Mapping[str, float]

    def document(self) -> dict[str, Any]:
        """The call as it stands in a report."""
        shown = {name: getattr(self, name) for name in ("query_id", "text", "total")}
        return {**shown, "stages": dict(self.stages)}


@dataclass(frozen=True, slots=True)
class Failed:
    """The calls that failed, which no other figure counts: how many, and how long they took."""

    calls: int
    timed: int
    p50: float | None
    longest: float | None

    def document(self) -> dict[str, Any]:
        """The failures as they stand in a report."""
        return {name: getattr(self, name) for name in self.__slots__}
