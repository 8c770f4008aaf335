"""The history of saved evaluations: as a list, one of them, and a measure over time.

First the terminal, then what the pages of the web server show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from rich.console import Console

from karat.data.columns import Source
from karat.data.revision import Revision
from karat.measures.scores import Summary
from karat.pages.formatting import figure, interval, label, number_range, plural
from karat.pages.page import VERDICT_TONES
from karat.pages.sparklines import position, sparkline
from karat.pages.terminal import print_line, show_page, show_table, standard_console
from karat.report.document import Report, System
from karat.report.html.names import short, signed_change
from karat.store.records import RestoredEvaluation, SavedEvaluation, TrendPoint

# Measures shown for each evaluation of a list.
BESIDE = 3
_SHORT = 12
# The width of a drawn interval, in characters.
_NARROWEST, _WIDEST = 9, 25
_LINE, _DOT = "─", "●"
_BROKEN = {"gold": "other gold", "queries": "other queries", "conventions": "other conventions"}


def show_evaluations(
    evaluations: Sequence[SavedEvaluation], console: Console | None = None
) -> None:
    """Print one row per evaluation, with the first measures of the newest one."""
    measures = list(evaluations[0].summaries)[:BESIDE]
    grid = [["id", "saved (UTC)", "system", "tags", "revision", "verdict", *measures]]
    for evaluation in evaluations:
        means = (
            evaluation.summaries[name].mean if name in evaluation.summaries else None
            for name in measures
        )
        cells = [
            _minute(evaluation),
            label(evaluation.system),
            ", ".join(evaluation.tags),
            _commit(evaluation.revision),
        ]
        grid.append(
            [str(evaluation.id), *cells, label(evaluation.verdict or ""), *map(figure, means)]
        )
    keep = [at for at in range(len(grid[0])) if at < 3 or any(row[at] for row in grid[1:])]
    show_table([[row[at] for at in keep] for row in grid], console or standard_console())


def show_stored(stored: RestoredEvaluation, console: Console | None = None) -> None:
    """Print the inputs of one evaluation, and its measures."""
    console = console or standard_console()
    evaluation = stored.evaluation
    lines = [
        f"evaluation {evaluation.id}: {label(evaluation.system)}, saved {_minute(evaluation)} UTC"
    ]
    lines += [f"tags: {', '.join(evaluation.tags)}"] if evaluation.tags else []
    if evaluation.revision is not None:
        dirty = " with uncommitted changes" if evaluation.revision.dirty else ""
        lines.append(f"revision: {label(evaluation.revision.commit)}{dirty}")
    inputs = {
        "run": evaluation.run,
        "gold": evaluation.gold,
        "queries": evaluation.queries,
        "corpus": evaluation.corpus,
    }
    lines += [f"{kind}: {_input(source)}" for kind, source in inputs.items() if source is not None]
    lines += [f"note: {label(evaluation.note)}"] if evaluation.note else []
    lines += [f"verdict: {label(evaluation.verdict)}"] if evaluation.verdict else []
    for line in (*lines, f"karat: {evaluation.version}", ""):
        print_line(line, console)
    show_page(report_of(stored).page(), console)


def report_of(stored: RestoredEvaluation) -> Report:
    """Return the evaluation as a report on one system."""
    evaluation = stored.evaluation
    system = System(evaluation.system, stored.scores, evaluation.summaries)
    return Report(
        (system,), gold=evaluation.gold, queries=evaluation.queries, corpus=evaluation.corpus
    )


def latest(points: Sequence[TrendPoint], limit: int) -> list[TrendPoint]:
    """Return the last points of each system."""
    groups = groupby(points, key=lambda point: point.system)
    return [point for _, group in groups for point in list(group)[-limit:]]


def show_trend(points: Sequence[TrendPoint], console: Console | None = None) -> None:
    """Print one row per point of each system: mean, interval, change, and a drawing."""
    console = console or standard_console()
    for system, group in groupby(points, key=lambda point: point.system):
        series = list(group)
        blocks = sparkline([point.mean for point in series])
        heading = f"{label(system)}  {series[0].measure}  {blocks}"
        print_line(heading, console, style="bold")
        show_table(trend_grid(series, width=console.width), console)


def trend_grid(points: Sequence[TrendPoint], *, width: int = 100) -> list[list[str]]:
    """Return one system's points as rows, with a row wherever numbers stop being comparable."""
    grid = [["saved (UTC)", "id", "revision", "n", "mean", "interval", "change"]]
    grid += [_figures(point) for point in points]
    breaks = [" and ".join(_BROKEN.get(what, what) for what in point.breaks) for point in points]
    columns = [max(map(len, column)) + 2 for column in zip(*grid, strict=True)]
    first = max(len(line) + 4 for line in ["", *breaks])
    room = width - sum(columns) - max(0, first - columns[0])
    drawn = drawings(points, min(max(room, _NARROWEST), _WIDEST))
    rows = [[*grid[0], ""]]
    for line, row, drawing in zip(breaks, grid[1:], drawn, strict=True):
        rows += [[f"~ {line}", *[""] * len(row)]] if line else []
        rows.append([*row, drawing])
    return rows


def _figures(point: TrendPoint) -> list[str]:
    interval = "" if point.ci is None else number_range(*map(figure, point.ci))
    change = "" if point.change is None else _signed(point.change)
    cells = [str(point.id), _commit(point.revision), str(point.n), figure(point.mean)]
    return [_minute(point), *cells, interval, change]


def drawings(points: Sequence[TrendPoint], width: int) -> list[str]:
    """Return each interval as a line on a common scale, with the mean as a dot on it."""
    ends = [end for point in points for end in (point.mean, *(point.ci or ()))]
    known = [end for end in ends if end is not None and math.isfinite(end)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    drawn = []
    for point in points:
        cells = [" "] * width
        if point.ci is not None and all(map(math.isfinite, point.ci)):
            first, last = (position(end, low, high, width) for end in point.ci)
            cells[first : last + 1] = _LINE * (last - first + 1)
        if point.mean is not None and math.isfinite(point.mean):
            cells[position(point.mean, low, high, width)] = _DOT
        drawn.append("".join(cells))
    return drawn


def _signed(change: float) -> str:
    return ("+" if change >= 0 else "") + figure(change)


def _minute(saved: SavedEvaluation | TrendPoint) -> str:
    return saved.saved_at.strftime("%Y-%m-%d %H:%M")


def _commit(revision: Revision | None) -> str:
    return "" if revision is None else label(str(revision))


def _input(source: Source) -> str:
    digest = "" if source.sha256 is None else f" ({source.sha256[:_SHORT]})"
    return label(source.name) + digest


@dataclass(frozen=True, slots=True)
class Cell:
    """A mean and its interval."""

    mean: str
    ends: str


@dataclass(frozen=True, slots=True)
class EvaluationLine:
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
class EvaluationTable:
    """A table of evaluations; its measures are the first of the newest evaluation."""

    measures: list[str]
    lines: list[EvaluationLine]


def evaluation_table(evaluations: Sequence[SavedEvaluation]) -> EvaluationTable:
    """Return evaluations as the lines of a table."""
    measures = list(evaluations[0].summaries)[:BESIDE] if evaluations else []
    return EvaluationTable(measures, [_line(evaluation, measures) for evaluation in evaluations])


def _line(evaluation: SavedEvaluation, measures: Sequence[str]) -> EvaluationLine:
    verdict = label(evaluation.verdict or "")
    return EvaluationLine(
        id=evaluation.id,
        saved=_minute(evaluation),
        moment=evaluation.saved_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        system=short(evaluation.system),
        tags=tuple(label(tag) for tag in evaluation.tags),
        revision=_commit(evaluation.revision),
        dirty=bool(evaluation.revision and evaluation.revision.dirty),
        verdict=verdict,
        tone=VERDICT_TONES.get(verdict, ""),
        note=label(evaluation.note),
        cells=[_cell(evaluation.summaries.get(name)) for name in measures],
    )


def _cell(summary: Summary | None) -> Cell:
    if summary is None:
        return Cell("", "")
    return Cell(figure(summary.mean), interval(summary.ci))


WIDTH, HEIGHT, EDGE = 240, 56, 6


@dataclass(frozen=True, slots=True)
class Dot:
    """One evaluation on a line: its position and its tooltip."""

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
    """One system's line; ``paths`` end where numbers stop being comparable.

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


def trend_lines(points: Sequence[TrendPoint], *, last: int = 60) -> list[TrendLine]:
    """Return a line per system with its last evaluations, the newest system first."""
    groups = [list(group)[-last:] for _, group in groupby(points, key=lambda one: one.system)]
    latest = sorted(groups, key=lambda series: (series[-1].saved_at, series[-1].id), reverse=True)
    return [_trend_line(series) for series in latest]


def _trend_line(points: Sequence[TrendPoint]) -> TrendLine:
    scale = _Scale.of(points)
    runs = _runs(points)
    end = points[-1]
    # A break before the first point is not shown: the line begins there.
    breaks = [
        Break(
            scale.between(at),
            " and ".join(_BROKEN.get(change_kind, change_kind) for change_kind in point.breaks),
        )
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
        changed="" if end.change is None else signed_change(end.change),
        steady=end.change is not None and not round(end.change, 4),
        about=_about(points, breaks),
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    n: int
    low: float
    high: float

    @classmethod
    def of(cls, points: Sequence[TrendPoint]) -> _Scale:
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


def _runs(points: Sequence[TrendPoint]) -> list[list[tuple[int, TrendPoint]]]:
    """Return the points that one line may join: all with a value, no break among them."""
    runs: list[list[tuple[int, TrendPoint]]] = [[]]
    for at, point in enumerate(points):
        known = point.mean is not None and math.isfinite(point.mean)
        if point.breaks or not known:
            runs.append([])
        if known:
            runs[-1].append((at, point))
    return [run for run in runs if run]


def _path(scale: _Scale, run: Sequence[tuple[int, TrendPoint]]) -> str:
    places = [f"{scale.x(at):g} {scale.y(point.mean):g}" for at, point in run]
    return f"M{' L'.join(places)}"


def _band(scale: _Scale, run: Sequence[tuple[int, TrendPoint]]) -> str:
    lows = [f"{scale.x(at):g} {scale.y(_ci(point)[0]):g}" for at, point in run]
    highs = [f"{scale.x(at):g} {scale.y(_ci(point)[1]):g}" for at, point in run]
    return f"M{' L'.join([*highs, *reversed(lows)])}Z"


def _ci(point: TrendPoint) -> tuple[float, ...]:
    known = point.ci is not None and all(map(math.isfinite, point.ci))
    return point.ci if known and point.ci is not None else ()


def _told(point: TrendPoint) -> str:
    return f"{point.id}, {point.saved_at:%Y-%m-%d %H:%M}: {figure(point.mean)}"


def _about(points: Sequence[TrendPoint], breaks: Sequence[Break]) -> str:
    """Return the line in words, for screen readers."""
    first, last = points[0], points[-1]
    sentence = f"{plural(len(points), 'evaluation')}, {figure(first.mean)} at first,"
    sentence += f" {figure(last.mean)} at last"
    if breaks:
        sentence += (
            f"; not comparable throughout: {', '.join(dict.fromkeys(b.told for b in breaks))}"
        )
    fell = sum(1 for a, b in pairwise(points) if b.change is not None and b.change < 0)
    return f"{sentence}; lower than the one before {plural(fell, 'time')}" if fell else sentence
