"""What happened to the queries of each system, and between which bounds its figure lies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from karat.evaluation.sentences import fates_of
from karat.pages.formatting import NOTHING, PART, figure, interval, percent
from karat.pages.page import Grid
from karat.report.bounds import bounds_lines, bounds_table, inexact_lines, open_range, range_table
from karat.report.html.bars import Bar, Scale, scale_of
from karat.report.html.names import (
    LONGEST_SENTENCE,
    Document,
    primary_name,
    short,
    system_names,
)

Row = Mapping[str, Any]

# Each count: its name and its meaning.
_COUNTS = {
    "queries": ("queries", "all queries"),
    "scored": ("scored", "with results in the run and relevant gold"),
    "missing": ("missing", "not in the run"),
    "failed_calls": ("failed calls", "the system logged an error"),
    "no_answer": ("no answer", "marked as having none: not part of the means"),
    "empty_gold": ("no relevant gold", "no item is relevant: not part of the means"),
    "not_in_gold": ("not in the gold", "in the run, but without gold"),
    "not_in_queries": ("not in the queries", "in the gold, but not in the queries"),
    "repeats": ("repeated hits", "an item returned twice for a query: the second counts nothing"),
    "order_conflicts": ("order conflicts", "logged ranks contradict the scores"),
    "versions_unknown": ("unknown versions", "could not be compared with the query's as_of"),
}
_PLAIN = ("queries", "scored", "no_answer")
_WIDTH = 260.0


@dataclass(frozen=True, slots=True)
class Count:
    """A count of one system: ``kind`` is plain, quiet (zero) or loud."""

    text: str
    kind: str
    share: str = ""


@dataclass(frozen=True, slots=True)
class CountRow:
    """One count for every system."""

    name: str
    about: str
    counts: tuple[Count, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """A measure of one system, and the ranges of chance, ties and unjudged items."""

    measure: str
    system: str
    bar: Bar
    mean: str
    ends: str
    ties: str
    ceiling: str
    judged: str
    open: str


@dataclass(frozen=True, slots=True)
class Counts:
    """What the section shows; ``columns`` are those of the bounds that are not empty."""

    names: tuple[str, ...]
    rows: tuple[CountRow, ...]
    partial: tuple[str, ...]
    bounds: tuple[Bounds, ...]
    columns: tuple[str, ...]
    judged: Grid
    notes: tuple[str, ...]
    unjudged: Grid
    inexact: tuple[str, ...]


def counts_of(document: Document, head: Document | None) -> Counts:
    """Return the counts as rows, systems as columns; counts of zero too."""
    names = tuple(system_names(document))
    bounds = tuple(_bounds(document, head))
    systems = zip(names, document["systems"], strict=True)
    return Counts(
        names=names,
        rows=(*_count_rows(document), *_unjudged(document, head)),
        partial=tuple(name for name, system in systems if system.get("partial")),
        bounds=bounds,
        columns=tuple(
            name
            for name in ("open", "ties", "ceiling", "judged")
            if any(getattr(bound, name) for bound in bounds)
        ),
        judged=_plain(bounds_table(document)),
        notes=tuple(short(line, LONGEST_SENTENCE) for line in bounds_lines(document)),
        unjudged=_plain(range_table(document)),
        inexact=tuple(short(line, LONGEST_SENTENCE) for line in inexact_lines(document)),
    )


def _plain(grid: Grid) -> Grid:
    return [[short(cell.replace(PART, " ")) for cell in row] for row in grid]


def _count_rows(document: Document) -> list[CountRow]:
    systems = document["systems"]
    keys = dict.fromkeys(key for system in systems for key in (*_COUNTS, *system["counts"]))
    rows = []
    for key in keys:
        name, about = _COUNTS.get(key, (key.replace("_", " "), ""))
        fates = [_fate(key, fates_of(document, system).get(key)) for system in systems]
        counts = tuple(_count(key, system["counts"].get(key)) for system in systems)
        rows.append(CountRow(name, _with_fate(about, fates), counts))
    return rows


def _fate(key: str, fate: str | None) -> str | None:
    """Return how a failed call counts; it costs nothing if the query is not scored."""
    if key != "failed_calls" or fate is None:
        return fate
    if fate == "left out":
        return "left out of the means"
    return f"count as the {fate} where the query is scored"


def _with_fate(about: str, fates: Iterable[str | None]) -> str:
    """Return what is counted, and how it counts under the conventions."""
    known = sorted({fate for fate in fates if fate is not None})
    return f"{about.partition(':')[0]}: {' or '.join(known)}" if known else about


def _count(key: str, n: int | None) -> Count:
    if n is None:
        return Count(NOTHING, "quiet")
    if not n and key not in ("queries", "scored"):
        return Count("0", "quiet")
    return Count(f"{n:,}", "plain" if key in _PLAIN else "loud")


def _unjudged(document: Document, head: Document | None) -> list[CountRow]:
    """Return how many returned items are unjudged, if the hits are known."""
    counted = (head or {}).get("unjudged")
    if not counted or len(counted) != len(document["systems"]):
        return []
    counts = []
    for system_counts in counted:
        if system_counts is None or not system_counts["hits"]:
            counts.append(Count(NOTHING, "quiet"))
            continue
        open_, hits = system_counts["unjudged"], system_counts["hits"]
        kind = "loud" if open_ else "quiet"
        counts.append(Count(f"{open_:,}", kind, f"{percent(open_ / hits)} of {hits:,}"))
    about = "hits of scored queries that the gold does not judge: counted as not relevant"
    own_k = (head or {}).get("own_k", True)
    about += "; k is each query's own" if own_k else ""
    top = "k" if own_k else str((head or {})["k"])
    return [CountRow(f"unjudged in the top {top}", about, tuple(counts))]


def _bounds(document: Document, head: Document | None) -> list[Bounds]:
    """Return the primary measure of every system, then those with a judge's labels."""
    primary = primary_name(document, head)
    judged = [name for system in document["systems"] for name in system.get("bounds", {})]
    measures = [name for name in dict.fromkeys([primary, *judged]) if name is not None]
    return [bound for name in measures for bound in _bounds_of(document, name)]


def _bounds_of(document: Document, measure: str) -> list[Bounds]:
    """Return one measure of every system that has it, all on one scale."""
    systems = document["systems"]
    cells = [system["measures"].get(measure) for system in systems]
    labels = [system.get("bounds", {}).get(measure) for system in systems]
    judged_means = [None if cell is None else cell["gold_and_judge"]["mean"] for cell in labels]
    known = [cell for cell in cells if cell is not None]
    ends = [end for cell in known for key in ("ci", "ties") for end in cell.get(key) or ()]
    ends += [end for cell in known for end in open_range(cell) or ()]
    values = [cell[key] for cell in known for key in ("mean", "ceiling")]
    scale = scale_of([*values, *ends, *judged_means], _WIDTH)
    return [
        _bounded(measure, name, cell, judged, scale)
        for name, cell, judged in zip(system_names(document), cells, judged_means, strict=True)
        if cell is not None and cell["mean"] is not None
    ]


def _bounded(measure: str, name: str, cell: Row, judged: float | None, scale: Scale) -> Bounds:
    ties, opened = cell.get("ties"), open_range(cell)
    moved = ties is not None and figure(ties[0]) != figure(ties[1])
    figures = {
        "mean": figure(cell["mean"]),
        "interval": interval(cell["ci"]),
        "if unjudged were judged": interval(opened),
        "by tie order": interval(ties) if moved else "",
        "ceiling": "" if cell["ceiling"] is None else figure(cell["ceiling"]),
        "gold and judge": "" if judged is None else figure(judged),
    }
    marks = (
        *scale.track(),
        *scale.stretch("open", opened),
        *(scale.stretch("ties", ties) if moved else ()),
        *scale.stretch("interval", cell["ci"]),
        *scale.point("ceiling", cell["ceiling"]),
        *scale.point("value", cell["mean"]),
        *scale.point("judged", judged),
    )
    says = ", ".join(f"{key} {text}" for key, text in figures.items() if text)
    return Bounds(
        measure=measure,
        system=name,
        bar=Bar(f"{name}: {measure} {says}", _WIDTH, marks, "accent"),
        mean=figures["mean"],
        ends=figures["interval"],
        ties=figures["by tie order"],
        ceiling=figures["ceiling"],
        judged=figures["gold and judge"],
        open=figures["if unjudged were judged"],
    )
