"""What the store returns on evaluations, and the errors and checks that its users share."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from karat.data.columns import Source
from karat.data.revision import Revision
from karat.errors import InputError, UsageError
from karat.measures.scores import Scores, Summary

_TAG = re.compile(r"[^\s,:]{1,100}")


class NoHistoryError(InputError):
    """There is no store at a place yet: nothing was ever saved there."""


class NotStoredError(UsageError):
    """An evaluation, a report or a label set that the store does not have."""


class NameTakenError(UsageError):
    """Another label set has the name of a new one."""


@dataclass(frozen=True, eq=False)
class SavedEvaluation:
    """One system, evaluated and saved.

    ``saved_at`` is in UTC and ``version`` is that of karat. Systems that were saved together
    share a ``report_id``. Equal judgments have the same ``fingerprint``, whatever the order of
    the gold's lines.
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
        """Return the evaluation as JSON has it."""
        return {
            "id": self.id,
            "report_id": self.report_id,
            "saved_at": timestamp(self.saved_at),
            "system": self.system,
            "tags": list(self.tags),
            "revision": self.revision and self.revision.document(),
            "note": self.note,
            "verdict": self.verdict,
            "karat": self.version,
            "measures": {
                name: {
                    "mean": finite(summary.mean),
                    "ci": summary.ci and [finite(end) for end in summary.ci],
                    "n": summary.n,
                    "better": summary.better,
                }
                for name, summary in self.summaries.items()
            },
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
class RestoredEvaluation:
    """A saved evaluation with its scores per query, and the report it was part of.

    The store does not keep result lists: ``scores.lists`` is None.
    """

    evaluation: SavedEvaluation
    scores: Scores
    report: Mapping[str, Any]


@dataclass(frozen=True, eq=False, slots=True)
class EvaluationPage:
    """A page of a list of evaluations, and their number on all pages."""

    evaluations: list[SavedEvaluation]
    total: int


@dataclass(frozen=True, slots=True)
class StoredNames:
    """Every name that evaluations can be filtered by, sorted."""

    systems: list[str]
    tags: list[str]
    measures: list[str]
    verdicts: list[str]

    def document(self) -> dict[str, list[str]]:
        """Return the names as JSON has them."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One evaluation in a trend.

    ``change`` is the difference to the system's point before. ``breaks`` names what changed since
    then so that the two cannot be compared: gold, queries or conventions; ``change`` is None then.
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
        """Return the point as JSON has it."""
        return {
            "id": self.id,
            "saved_at": timestamp(self.saved_at),
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


def timestamp(moment: datetime) -> str:
    """Return a time as ISO 8601 in UTC, to the second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def finite(value: float | None) -> float | None:
    """Return a number, or None for NaN and infinity, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None


def _input(source: Source) -> dict[str, Any]:
    return {"name": source.name, "sha256": source.sha256}


def checked_tags(tags: Sequence[str]) -> list[str]:
    """Return the tags, each once; refuse what could be read as an id or as two tags.

    >>> checked_tags(["12"])
    Traceback (most recent call last):
    karat.errors.UsageError: tag '12' would read as an id; begin it with a letter
    """
    for tag in tags:
        if not isinstance(tag, str) or not _TAG.fullmatch(tag) or not tag.isprintable():
            raise UsageError(f"tag {tag!r}: use 1 to 100 characters, no blank, comma or colon")
        if tag.isdecimal():
            raise UsageError(f"tag {tag!r} would read as an id; begin it with a letter")
    return list(dict.fromkeys(tags))
