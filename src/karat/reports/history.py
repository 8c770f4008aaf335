"""The history of saved evaluations: as a list, one of them, and a measure over time.

First the terminal, then what the pages of the web server show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from karat.data.columns import Source
from karat.data.revision import Revision
from karat.pages.formatting import (
    figure,
    interval,
    label,
    number_range,
    plural,
    sparkline,
)
from karat.pages.page import VERDICT_TONES, Grid
from karat.pages.terminal import print_line, show_page, show_table, standard_console
from karat.reports.document import Report, System
from karat.reports.html.elements import Context, signed_change
from karat.store.records import RestoredEvaluation, SavedEvaluation, TrendPoint

# Measures shown for each evaluation of a list.
BESIDE = 3
# Digits of a digest that are shown.
_DIGEST = 12
_BROKEN = {"gold": "other gold", "queries": "other queries", "conventions": "other conventions"}


def show_evaluations(evaluations: Sequence[SavedEvaluation]) -> None:
    """Print one row per evaluation, with the first measures of the newest one."""
    table = evaluation_table(evaluations)
    grid = [["id", "saved (UTC)", "system", "tags", "revision", "verdict", *table["measures"]]]
    for line in table["lines"]:
        cells = [str(line["id"]), line["saved"], line["system"], ", ".join(line["tags"])]
        means = [mean for mean, _ in line["cells"]]
        grid.append([*cells, line["revision"], line["verdict"], *means])
    shown = [at for at in range(len(grid[0])) if at < 3 or any(row[at] for row in grid[1:])]
    show_table([[row[at] for at in shown] for row in grid], standard_console())


def show_stored(stored: RestoredEvaluation) -> None:
    """Print the inputs of one evaluation, and its measures."""
    console = standard_console()
    evaluation = stored.evaluation
    revision = evaluation.revision
    dirty = " with uncommitted changes" if revision is not None and revision.dirty else ""
    about = {
        "tags": ", ".join(evaluation.tags),
        "revision": "" if revision is None else f"{label(revision.commit)}{dirty}",
        "run": _input(evaluation.run),
        "gold": _input(evaluation.gold),
        "queries": _input(evaluation.queries),
        "corpus": _input(evaluation.corpus),
        "note": label(evaluation.note),
        "verdict": label(evaluation.verdict or ""),
        "karat": evaluation.version,
    }
    title = f"evaluation {evaluation.id}: {label(evaluation.system)}"
    print_line(f"{title}, saved {_minute(evaluation)} UTC", console)
    for line in [*(f"{name}: {text}" for name, text in about.items() if text), ""]:
        print_line(line, console)
    system = System(evaluation.system, stored.scores, evaluation.summaries)
    report = Report(
        (system,), gold=evaluation.gold, queries=evaluation.queries, corpus=evaluation.corpus
    )
    show_page(report.page(), console)


def _by_system(points: Sequence[TrendPoint]) -> list[list[TrendPoint]]:
    return [list(series) for _, series in groupby(points, key=lambda point: point.saved.system)]


def show_trend(points: Sequence[TrendPoint]) -> None:
    """Print one row per point of each system: mean, interval and change; the means as blocks."""
    console = standard_console()
    for series in _by_system(points):
        blocks = sparkline([point.summary.mean for point in series])
        heading = f"{label(series[0].saved.system)}  {series[0].measure}  {blocks}"
        print_line(heading, console, style="bold")
        show_table(_trend_grid(series), console)


def _trend_grid(points: Sequence[TrendPoint]) -> Grid:
    """Return one system's points as rows, with a row wherever numbers stop being comparable."""
    grid = [["saved (UTC)", "id", "revision", "n", "mean", "interval", "change"]]
    for point in points:
        if point.breaks:
            grid.append([f"~ {_breaks(point)}", *[""] * (len(grid[0]) - 1)])
        saved, summary = point.saved, point.summary
        ends = "" if summary.ci is None else number_range(*map(figure, summary.ci))
        sign = "+" if point.change is not None and point.change >= 0 else ""
        change = "" if point.change is None else f"{sign}{figure(point.change)}"
        cells = [str(saved.id), _commit(saved.revision), str(summary.n), figure(summary.mean)]
        grid.append([_minute(saved), *cells, ends, change])
    return grid


def _breaks(point: TrendPoint) -> str:
    return " and ".join(_BROKEN.get(change, change) for change in point.breaks)


def _minute(saved: SavedEvaluation) -> str:
    return saved.saved_at.strftime("%Y-%m-%d %H:%M")


def _commit(revision: Revision | None) -> str:
    return "" if revision is None else label(str(revision))


def _input(source: Source | None) -> str:
    if source is None:
        return ""
    digest = "" if source.sha256 is None else f" ({source.sha256[:_DIGEST]})"
    return label(source.name) + digest


def evaluation_table(evaluations: Sequence[SavedEvaluation]) -> Context:
    """Return evaluations as the lines of a table, with the first measures of the newest one."""
    measures = list(evaluations[0].summaries)[:BESIDE] if evaluations else []
    return {"measures": measures, "lines": [_line(saved, measures) for saved in evaluations]}


def _line(evaluation: SavedEvaluation, measures: Sequence[str]) -> Context:
    verdict = label(evaluation.verdict or "")
    summaries = [evaluation.summaries.get(name) for name in measures]
    return {
        "id": evaluation.id,
        "saved": _minute(evaluation),
        "moment": evaluation.saved_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "system": label(evaluation.system),
        "tags": [label(tag) for tag in evaluation.tags],
        "revision": _commit(evaluation.revision),
        "dirty": bool(evaluation.revision and evaluation.revision.dirty),
        "verdict": verdict,
        "tone": VERDICT_TONES.get(verdict, ""),
        "note": label(evaluation.note),
        "cells": [
            ("", "") if summary is None else (figure(summary.mean), interval(summary.ci))
            for summary in summaries
        ],
    }


WIDTH, HEIGHT, EDGE = 240, 56, 6


def trend_lines(points: Sequence[TrendPoint], *, last: int = 60) -> list[Context]:
    """Return a line per system with its last evaluations, the newest system first."""
    groups = _by_system(points)
    groups.sort(key=lambda series: (series[-1].saved.saved_at, series[-1].saved.id), reverse=True)
    return [_trend_line(series[-last:]) for series in groups]


def _trend_line(points: Sequence[TrendPoint]) -> Context:
    """Return one system's line; its ``paths`` end where numbers stop being comparable.

    ``changed`` is since the evaluation before, and ``steady`` is true where that change is too
    small to see.
    """
    means = [point.summary.mean for point in points]
    known_means = [mean for mean in means if mean is not None and math.isfinite(mean)]
    low, high = min(known_means, default=0.0), max(known_means, default=0.0)

    def x(at: float) -> float:
        share = 0.5 if len(points) < 2 else at / (len(points) - 1)
        return round(EDGE + share * (WIDTH - 2 * EDGE), 2)

    def y(value: float) -> float:
        share = 0.5 if high <= low else (high - value) / (high - low)
        return round(EDGE + share * (HEIGHT - 2 * EDGE), 2)

    # The dots that one line may join: no break and no missing mean is among them.
    runs: list[list[Context]] = [[]]
    breaks: list[dict[str, Any]] = []
    for at, (point, mean) in enumerate(zip(points, means, strict=True)):
        measured = mean is not None and math.isfinite(mean)
        if point.breaks or not measured:
            runs.append([])
        if at and point.breaks:
            # A break before the first point is not shown: the line begins there.
            breaks.append({"x": x(at - 0.5), "about": _breaks(point)})
        if mean is not None and measured:
            about = f"{point.saved.id}, {_minute(point.saved)}: {figure(mean)}"
            dot = {"id": point.saved.id, "x": x(at), "y": y(mean), "about": about}
            runs[-1].append(dot)
    end = points[-1]
    sentence = f"{plural(len(points), 'evaluation')}, {figure(means[0])} at first,"
    sentence += f" {figure(means[-1])} at last"
    if breaks:
        names = dict.fromkeys(broken["about"] for broken in breaks)
        sentence += f"; not comparable throughout: {', '.join(names)}"
    return {
        "system": end.saved.system,
        "paths": [
            "M" + " L".join(f"{dot['x']:g} {dot['y']:g}" for dot in run)
            for run in runs
            if len(run) > 1
        ],
        "dots": [dot for run in runs for dot in run],
        "breaks": breaks,
        "last": figure(end.summary.mean),
        "changed": "" if end.change is None else signed_change(end.change),
        "steady": end.change is not None and not round(end.change, 4),
        "about": sentence,
    }
