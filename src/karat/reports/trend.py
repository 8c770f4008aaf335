"""The history on a terminal: a list of evaluations, one of them, and a measure over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from rich.console import Console

from karat.columns import Source
from karat.reports.document import Report, System
from karat.reports.figures import between, figure, label
from karat.reports.sparklines import place, sparkline
from karat.reports.terminal import say, show_grid, show_report, standard_console
from karat.revision import Revision
from karat.store.records import Evaluation, Point, Stored

# As many measures as stand beside each evaluation of a list.
BESIDE = 3
_SHORT = 12
# How many characters an interval is drawn on.
_NARROWEST, _WIDEST = 9, 25
# The dash and dot of an interval.
_LINE, _DOT = "─", "●"
_ASCII_LINE, _ASCII_DOT = "-", "o"
_BROKEN = {"gold": "other gold", "queries": "other queries", "conventions": "other conventions"}


def show_evaluations(evaluations: Sequence[Evaluation], console: Console | None = None) -> None:
    """Print one row an evaluation, with the newest one's first measures beside each."""
    measures = list(evaluations[0].summaries)[:BESIDE]
    grid = [["id", "saved (UTC)", "system", "tags", "revision", "verdict", *measures]]
    for one in evaluations:
        means = (one.summaries[name].mean if name in one.summaries else None for name in measures)
        cells = [_minute(one), label(one.system), ", ".join(one.tags), _commit(one.revision)]
        grid.append([str(one.id), *cells, label(one.verdict or ""), *map(figure, means)])
    keep = [at for at in range(len(grid[0])) if at < 3 or any(row[at] for row in grid[1:])]
    show_grid([[row[at] for at in keep] for row in grid], console or standard_console())


def show_stored(stored: Stored, console: Console | None = None) -> None:
    """Print what one evaluation was made of, and its measures."""
    console = console or standard_console()
    one = stored.evaluation
    lines = [f"evaluation {one.id}: {label(one.system)}, saved {_minute(one)} UTC"]
    lines += [f"tags: {', '.join(one.tags)}"] if one.tags else []
    if one.revision is not None:
        dirty = " with uncommitted changes" if one.revision.dirty else ""
        lines.append(f"revision: {label(one.revision.commit)}{dirty}")
    inputs = {"run": one.run, "gold": one.gold, "queries": one.queries, "corpus": one.corpus}
    lines += [f"{kind}: {_input(source)}" for kind, source in inputs.items() if source is not None]
    lines += [f"note: {label(one.note)}"] if one.note else []
    lines += [f"verdict: {label(one.verdict)}"] if one.verdict else []
    for line in (*lines, f"karat: {one.version}", ""):
        say(line, console)
    show_report(report_of(stored), console)


def report_of(stored: Stored) -> Report:
    """The evaluation as a report on one system."""
    one = stored.evaluation
    system = System(one.system, stored.scores, one.summaries)
    return Report((system,), gold=one.gold, queries=one.queries, corpus=one.corpus)


def latest(points: Sequence[Point], limit: int) -> list[Point]:
    """The last points of each system."""
    groups = groupby(points, key=lambda point: point.system)
    return [point for _, group in groups for point in list(group)[-limit:]]


def show_trend(points: Sequence[Point], console: Console | None = None) -> None:
    """Print one row a point and system: mean, interval, change, and where they lie."""
    console = console or standard_console()
    plain = console.options.ascii_only
    for system, group in groupby(points, key=lambda point: point.system):
        own = list(group)
        blocks = sparkline([point.mean for point in own], ascii_only=plain)
        heading = f"{label(system)}  {own[0].measure}  {blocks}"
        say(heading, console, style="bold")
        show_grid(trend_grid(own, width=console.width, ascii_only=plain), console)


def trend_grid(
    points: Sequence[Point], *, width: int = 100, ascii_only: bool = False
) -> list[list[str]]:
    """One system's points as rows, and a line wherever numbers stop being comparable."""
    grid = [["saved (UTC)", "id", "revision", "n", "mean", "interval", "change"]]
    grid += [_figures(point) for point in points]
    told = [" and ".join(_BROKEN.get(what, what) for what in point.breaks) for point in points]
    columns = [max(map(len, column)) + 2 for column in zip(*grid, strict=True)]
    first = max(len(line) + 4 for line in ["", *told])
    room = width - sum(columns) - max(0, first - columns[0])
    drawn = drawings(points, min(max(room, _NARROWEST), _WIDEST), ascii_only=ascii_only)
    rows = [[*grid[0], ""]]
    for line, row, drawing in zip(told, grid[1:], drawn, strict=True):
        rows += [[f"~ {line}", *[""] * len(row)]] if line else []
        rows.append([*row, drawing])
    return rows


def _figures(point: Point) -> list[str]:
    interval = "" if point.ci is None else between(*map(figure, point.ci))
    change = "" if point.change is None else _signed(point.change)
    cells = [str(point.id), _commit(point.revision), str(point.n), figure(point.mean)]
    return [_minute(point), *cells, interval, change]


def drawings(points: Sequence[Point], width: int, *, ascii_only: bool = False) -> list[str]:
    """Each interval as a line on a common scale, and the mean as a dot on it."""
    ends = [end for point in points for end in (point.mean, *(point.ci or ()))]
    known = [end for end in ends if end is not None and math.isfinite(end)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    line, dot = (_ASCII_LINE, _ASCII_DOT) if ascii_only else (_LINE, _DOT)
    drawn = []
    for point in points:
        cells = [" "] * width
        if point.ci is not None and all(map(math.isfinite, point.ci)):
            first, last = (place(end, low, high, width) for end in point.ci)
            cells[first : last + 1] = line * (last - first + 1)
        if point.mean is not None and math.isfinite(point.mean):
            cells[place(point.mean, low, high, width)] = dot
        drawn.append("".join(cells))
    return drawn


def _signed(change: float) -> str:
    return ("+" if change >= 0 else "") + figure(change)


def _minute(one: Evaluation | Point) -> str:
    return one.saved_at.strftime("%Y-%m-%d %H:%M")


def _commit(revision: Revision | None) -> str:
    return "" if revision is None else label(str(revision))


def _input(source: Source) -> str:
    digest = "" if source.sha256 is None else f" ({source.sha256[:_SHORT]})"
    return label(source.name) + digest
