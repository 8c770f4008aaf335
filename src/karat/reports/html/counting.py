"""What happened to the queries of each system, and between which bounds its figure lies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from karat.reports.bounds import bounds_grid, bounds_lines
from karat.reports.figures import NOTHING, PART, figure, interval, percent
from karat.reports.grids import Grid
from karat.reports.html.bars import Bar, Scale, scale_of
from karat.reports.html.names import (
    LONGEST_SENTENCE,
    Document,
    primary_name,
    short,
    system_names,
)
from karat.reports.notes import fates_of
from karat.reports.unjudged import inexact_line, open_grid

Row = Mapping[str, Any]

# What is counted, in words; those that are "noted" are normal, the others are worth a look.
_COUNTS = {
    "queries": ("queries", "all that were asked"),
    "scored": ("scored", "with an answer in the run, and gold to hold it against"),
    "missing": ("missing", "asked, but not in the run"),
    "failed_calls": ("failed calls", "the system logged an error"),
    "no_answer": ("no answer", "marked as having none: apart from the means"),
    "empty_gold": ("no relevant gold", "no item is relevant: apart from the means"),
    "not_in_gold": ("not asked", "in the run, but nobody asked to score them"),
    "not_in_queries": ("not among the queries", "in the gold, but left out of the queries"),
    "repeats": ("repeated hits", "an item returned again for the same query: it earns nothing"),
    "order_conflicts": ("order conflicts", "logged ranks contradict the scores"),
    "versions_unknown": ("unknown versions", "could not be compared with the query's as_of"),
}
_PLAIN = ("queries", "scored", "no_answer")
_WIDTH = 260.0


@dataclass(frozen=True, slots=True)
class Count:
    """A count of one system: ``kind`` is plain, quiet (nothing to count) or loud."""

    text: str
    kind: str
    share: str = ""


@dataclass(frozen=True, slots=True)
class CountRow:
    """One thing that is counted for every system."""

    name: str
    about: str
    counts: tuple[Count, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """A measure of one system, and what it could be instead: by chance, ties, more judgments."""

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
    """What the section shows; ``columns`` of the bounds are those that say something."""

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
    """The counts as rows, systems as columns; nothing is left out because it is zero."""
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
            if any(getattr(one, name) for one in bounds)
        ),
        judged=_plain(bounds_grid(document)),
        notes=tuple(short(line, LONGEST_SENTENCE) for line in bounds_lines(document)),
        unjudged=_plain(open_grid(document)),
        inexact=tuple(short(line, LONGEST_SENTENCE) for line in inexact_line(document)),
    )


def _plain(grid: Grid) -> Grid:
    return [[short(cell.replace(PART, " ")) for cell in row] for row in grid]


def _count_rows(document: Document) -> list[CountRow]:
    systems = document["systems"]
    keys = dict.fromkeys(key for system in systems for key in (*_COUNTS, *system["counts"]))
    rows = []
    for key in keys:
        name, about = _COUNTS.get(key, (key.replace("_", " "), ""))
        told = [_fate(key, fates_of(document, system).get(key)) for system in systems]
        counts = tuple(_count(key, system["counts"].get(key)) for system in systems)
        rows.append(CountRow(name, _with_fate(about, told), counts))
    return rows


def _fate(key: str, fate: str | None) -> str | None:
    """A call can also fail for a query that is apart from the means, where it costs nothing."""
    if key != "failed_calls" or fate is None:
        return fate
    if fate == "left out":
        return "left out of the means"
    return f"count as the {fate} where the query is scored"


def _with_fate(about: str, told: Iterable[str | None]) -> str:
    """What is counted, and what becomes of it where the conventions say so."""
    known = sorted({one for one in told if one is not None})
    return f"{about.partition(':')[0]}: {' or '.join(known)}" if known else about


def _count(key: str, n: int | None) -> Count:
    if n is None:
        return Count(NOTHING, "quiet")
    if not n and key not in ("queries", "scored"):
        return Count("0", "quiet")
    return Count(f"{n:,}", "plain" if key in _PLAIN else "loud")


def _unjudged(document: Document, head: Document | None) -> list[CountRow]:
    """How much of what was returned nobody has judged; known where the hits are."""
    told = (head or {}).get("unjudged")
    if not told or len(told) != len(document["systems"]):
        return []
    counts = []
    for one in told:
        if one is None or not one["hits"]:
            counts.append(Count(NOTHING, "quiet"))
            continue
        open_, hits = one["unjudged"], one["hits"]
        kind = "loud" if open_ else "quiet"
        counts.append(Count(f"{open_:,}", kind, f"{percent(open_ / hits)} of {hits:,}"))
    about = "hits of scored queries that the gold does not judge: taken as not relevant"
    own = (head or {}).get("own_k", True)
    about += "; k is each query's own" if own else ""
    top = "k" if own else str((head or {})["k"])
    return [CountRow(f"unjudged in the top {top}", about, tuple(counts))]


def _bounds(document: Document, head: Document | None) -> list[Bounds]:
    """The primary measure of every system, then those that a judge's labels bound."""
    primary = primary_name(document, head)
    judged = [name for system in document["systems"] for name in system.get("bounds", {})]
    measures = [name for name in dict.fromkeys([primary, *judged]) if name is not None]
    return [one for name in measures for one in _bounds_of(document, name)]


def _bounds_of(document: Document, measure: str) -> list[Bounds]:
    """One measure of every system that has it, all on one scale."""
    systems = document["systems"]
    cells = [system["measures"].get(measure) for system in systems]
    labels = [system.get("bounds", {}).get(measure) for system in systems]
    both = [None if one is None else one["gold_and_judge"]["mean"] for one in labels]
    known = [cell for cell in cells if cell is not None]
    ends = [end for cell in known for key in ("ci", "ties") for end in cell.get(key) or ()]
    ends += [end for cell in known for end in _open_ends(cell) or ()]
    values = [cell[key] for cell in known for key in ("mean", "ceiling")]
    scale = scale_of([*values, *ends, *both], _WIDTH)
    return [
        _bounded(measure, name, cell, judged, scale)
        for name, cell, judged in zip(system_names(document), cells, both, strict=True)
        if cell is not None and cell["mean"] is not None
    ]


def _bounded(measure: str, name: str, cell: Row, judged: float | None, scale: Scale) -> Bounds:
    ties, opened = cell.get("ties"), _open_ends(cell)
    moved = ties is not None and figure(ties[0]) != figure(ties[1])
    told = {
        "mean": figure(cell["mean"]),
        "interval": interval(cell["ci"]),
        "whatever is unjudged": interval(opened),
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
    says = ", ".join(f"{key} {text}" for key, text in told.items() if text)
    return Bounds(
        measure=measure,
        system=name,
        bar=Bar(f"{name}: {measure} {says}", _WIDTH, marks, "accent"),
        mean=told["mean"],
        ends=told["interval"],
        ties=told["by tie order"],
        ceiling=told["ceiling"],
        judged=told["gold and judge"],
        open=told["whatever is unjudged"],
    )


def _open_ends(cell: Row) -> list[float] | None:
    """Between which ends unjudged items could move a figure, where they can."""
    ends = cell.get("bounds")
    if not ends or ends["low"] is None or ends["low"] == ends["high"]:
        return None
    return [ends["low"], ends["high"]]
