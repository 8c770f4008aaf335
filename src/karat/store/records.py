"""What the store gives back on evaluations: one, one with its scores, a list, a trend's point."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from karat.columns import Source
from karat.errors import InputError, UsageError
from karat.measures.results import Scores, Summary
from karat.revision import Revision


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One system, scored and saved: ``saved_at`` is in UTC, ``version`` that of karat.

    Systems that were saved together share a ``report_id``.
    ``fingerprint`` is equal where the judgments are, whatever the order of the gold's lines.
    """

    id: int
    report_id: int
    saved_at: datetime
    system: str
    summaries: Mapping[str, Summary]
    conventions: Mapping[str, Any]
    version: str
    run: Source
    gold: Source
    queries: Source | None = None
    corpus: Source | None = None
    fingerprint: str = ""
    tags: tuple[str, ...] = ()
    revision: Revision | None = None
    note: str = ""
    verdict: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The evaluation as it stands in JSON."""
        return {
            "id": self.id,
            "report_id": self.report_id,
            "saved_at": spelled(self.saved_at),
            "system": self.system,
            "tags": list(self.tags),
            "revision": self.revision and self.revision.document(),
            "note": self.note,
            "verdict": self.verdict,
            "karat": self.version,
            "measures": {name: _measure(one) for name, one in self.summaries.items()},
            "conventions": dict(self.conventions),
            "inputs": {
                "run": _input(self.run),
                "gold": _input(self.gold),
                "queries": self.queries and _input(self.queries),
                "corpus": self.corpus and _input(self.corpus),
            },
            "meta": dict(self.meta),
        }


@dataclass(frozen=True, eq=False)
class Stored:
    """A stored evaluation with its values for each query, and the report it was part of.

    The top items of a run are not kept: ``scores.lists`` is None.
    """

    evaluation: Evaluation
    scores: Scores
    report: Mapping[str, Any]


@dataclass(frozen=True, eq=False, slots=True)
class Listed:
    """A page of a list of evaluations, and how many there are on all pages."""

    evaluations: list[Evaluation]
    total: int


@dataclass(frozen=True, slots=True)
class Names:
    """Every name that evaluations can be chosen by, in the order of letters."""

    systems: list[str]
    tags: list[str]
    measures: list[str]
    verdicts: list[str]

    def document(self) -> dict[str, list[str]]:
        """The names as they stand in JSON."""
        return asdict(self)


class NoHistoryError(InputError):
    """There is no store at a place yet: nothing was ever saved there."""


class NotStoredError(UsageError):
    """An evaluation, a report or a label set that the store does not have."""


class NameTakenError(UsageError):
    """A label set of other pairs has the name that a new one was to get."""


@dataclass(frozen=True, slots=True)
class Point:
    """One evaluation in a trend.

    ``breaks`` names what changed since the system's point before so that the two numbers
    cannot be held against each other: gold, queries, conventions. ``change`` is the
    difference to that point, None at a break.
    """

    measure: str
    id: int
    saved_at: datetime
    system: str
    mean: float | None
    n: int
    ci: tuple[float, float] | None
    revision: Revision | None
    gold: Source
    tags: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()
    change: float | None = None

    def document(self) -> dict[str, Any]:
        """The point as it stands in JSON."""
        return {
            "id": self.id,
            "saved_at": spelled(self.saved_at),
            "system": self.system,
            "mean": finite(self.mean),
            "n": self.n,
            "ci": self.ci and [finite(end) for end in self.ci],
            "change": finite(self.change),
            "breaks": list(self.breaks),
            "revision": self.revision and self.revision.document(),
            "gold": _input(self.gold),
            "tags": list(self.tags),
        }


def spelled(moment: datetime) -> str:
    """A moment as ISO 8601 in UTC, to the second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def finite(value: float | None) -> float | None:
    """JSON knows neither NaN nor infinity."""
    return value if value is not None and math.isfinite(value) else None


def _measure(summary: Summary) -> dict[str, Any]:
    return {
        "mean": finite(summary.mean),
        "ci": summary.ci and [finite(end) for end in summary.ci],
        "n": summary.n,
        "better": summary.better,
    }


def _input(source: Source) -> dict[str, Any]:
    return {"name": source.name, "sha256": source.sha256}
