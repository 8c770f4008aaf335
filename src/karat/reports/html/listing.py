"""A list of stored evaluations as a page shows it: short texts, figures, tones of verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from karat.measures.results import Summary
from karat.reports.figures import figure, interval, label
from karat.reports.html.names import short
from karat.reports.trend import BESIDE
from karat.revision import Revision
from karat.store import Evaluation

TONES = {
    "pass": "good",
    "better": "good",
    "fail": "bad",
    "worse": "bad",
    "unclear": "unsure",
    "unmeasurable": "unsure",
    "skipped": "unsure",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A mean and its interval."""

    mean: str
    ends: str


@dataclass(frozen=True, slots=True)
class Line:
    """One evaluation in a list."""

    id: int
    saved: str
    moment: str
    system: str
    tags: tuple[str, ...]
    revision: str
    dirty: bool
    verdict: str
    tone: str
    note: str
    cells: list[Cell]


@dataclass(frozen=True, slots=True)
class Lines:
    """The list: the measures beside each evaluation are the newest one's first."""

    measures: list[str]
    lines: list[Line]


def lines_of(evaluations: Sequence[Evaluation]) -> Lines:
    """Evaluations as lines of a table."""
    measures = list(evaluations[0].summaries)[:BESIDE] if evaluations else []
    return Lines(measures, [_line(one, measures) for one in evaluations])


def _line(one: Evaluation, measures: Sequence[str]) -> Line:
    verdict = label(one.verdict or "")
    return Line(
        id=one.id,
        saved=one.saved_at.strftime("%Y-%m-%d %H:%M"),
        moment=one.saved_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        system=short(one.system),
        tags=tuple(label(tag) for tag in one.tags),
        revision=_commit(one.revision),
        dirty=bool(one.revision and one.revision.dirty),
        verdict=verdict,
        tone=TONES.get(verdict, ""),
        note=label(one.note),
        cells=[_cell(one.summaries.get(name)) for name in measures],
    )


def _commit(revision: Revision | None) -> str:
    return "" if revision is None else label(str(revision))


def _cell(summary: Summary | None) -> Cell:
    if summary is None:
        return Cell("", "")
    return Cell(figure(summary.mean), interval(summary.ci))
