"""Why queries miss, system by system, and what each stage on their way loses and takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from karat.reports.failures import MEANINGS, PARTS
from karat.reports.figures import NOTHING, figure, label, percent, several
from karat.reports.html.bars import Bar, count_bar
from karat.reports.html.links import class_link
from karat.reports.html.names import (
    LONGEST_SENTENCE,
    Document,
    primary_name,
    short,
    system_names,
)
from karat.reports.html.signs import changed, spread

Row = Mapping[str, Any]

_WIDTH = 90.0


@dataclass(frozen=True, slots=True)
class ClassCell:
    """How many misses of a system are in a class; ``unchecked`` says why nobody knows.

    ``link`` leads to them, where the page has its queries.
    """

    count: str
    share: str
    bar: Bar | None
    unchecked: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class ClassRow:
    """A class of misses: what it means and where to look, and its misses of each system."""

    name: str
    meaning: str
    cells: tuple[ClassCell, ...]


@dataclass(frozen=True, slots=True)
class Misses:
    """What the section shows. Classes that nobody is in are named in one sentence."""

    names: tuple[str, ...]
    totals: tuple[str, ...]
    miss_at: int
    rows: tuple[ClassRow, ...]
    empty: tuple[str, ...]
    unchecked: tuple[tuple[str, str, str], ...]
    dominant: tuple[tuple[str, tuple[tuple[str, str, Bar], ...]], ...]
    notes: tuple[str, ...]


def misses_of(document: Document, head: Document | None = None) -> Misses | None:
    """Classes as rows, systems as columns; None where no system was looked into."""
    shown = [
        (name, system["failures"])
        for name, system in zip(system_names(document), document["systems"], strict=True)
        if "failures" in system
    ]
    if not shown:
        return None
    classes = dict.fromkeys(
        [*MEANINGS, *(name for _, failures in shown for name in failures["classes"])]
    )
    most = max(
        max((n or 0 for n in failures["classes"].values()), default=0) for _, failures in shown
    )
    # Of whom a link is: None where the page has no queries of that system.
    listed = set((head or {}).get("systems", ()))
    full = [system["name"] for system in document["systems"] if "failures" in system]
    whose = [(name if name in listed else None) for name in full]
    looked = [(who, failures) for who, (_, failures) in zip(whose, shown, strict=True)]
    rows = [_class_row(name, looked, most) for name in classes]
    found = {
        row.name: any(cell.count == NOTHING or (cell.bar and cell.bar.marks) for cell in row.cells)
        for row in rows
    }
    untold = {one for _, failures in shown for one in failures["unchecked"]}
    return Misses(
        names=tuple(name for name, _ in shown),
        totals=tuple(_total(failures) for _, failures in shown),
        miss_at=shown[0][1]["miss_at"],
        rows=tuple(row for row in rows if found[row.name]),
        empty=tuple(name for name in classes if not found[name] and name not in untold),
        unchecked=_unchecked(shown),
        dominant=tuple(
            (name, _items(failures)) for name, failures in shown if failures["dominant"]
        ),
        notes=tuple(_short_lists(shown)),
    )


def _class_row(name: str, systems: list[tuple[str | None, Row]], most: int) -> ClassRow:
    cells = []
    for who, failures in systems:
        count = failures["classes"].get(name, 0)
        why = failures["unchecked"].get(name)
        if count is None:
            cells.append(ClassCell(NOTHING, "", None, "its lists were cut too early to tell"))
            continue
        if why is not None and not count:
            told = short(why, LONGEST_SENTENCE)
            cells.append(ClassCell("not told", "", None, told))
            continue
        share = percent(count / failures["misses"]) if count else ""
        link = class_link(name, who) if count and who is not None else ""
        cells.append(ClassCell(f"{count:,}", share, count_bar(count, most, _WIDTH), link=link))
    return ClassRow(name, MEANINGS.get(name, ""), tuple(cells))


def _total(failures: Row) -> str:
    return f"{failures['misses']:,} of {several(failures['assessed'], 'query', 'queries')}"


def _unchecked(shown: list[tuple[str, Row]]) -> tuple[tuple[str, str, str], ...]:
    """Every class that could not be told, why, and of which systems."""
    who: dict[tuple[str, str], list[str]] = {}
    for name, failures in shown:
        for missing, why in failures["unchecked"].items():
            who.setdefault((missing, why), []).append(name)
    everyone = len(shown)
    return tuple(
        (missing, short(why, LONGEST_SENTENCE), "" if len(names) == everyone else ", ".join(names))
        for (missing, why), names in who.items()
    )


def _items(failures: Row) -> tuple[tuple[str, str, Bar], ...]:
    most = max(one["queries"] for one in failures["dominant"])
    return tuple(
        (short(one["item_id"]), f"{one['queries']:,}", count_bar(one["queries"], most, _WIDTH))
        for one in failures["dominant"]
    )


def _short_lists(shown: list[tuple[str, Row]]) -> list[str]:
    return [
        f"{name}: its lists were cut at {failures['ends_at']}, so gold between there and "
        f"{failures.get('lines', {}).get('miss', failures['miss_at'])} was not looked for"
        for name, failures in shown
        if failures["ends_at"] is not None
    ]


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a system on the way from everything there is to the final list.

    ``changed`` is what it takes from the measure or gives back, with its interval.
    """

    name: str
    about: str
    changed: str
    ends: str
    tone: str
    queries: str
    latency: str


@dataclass(frozen=True, slots=True)
class Way:
    """The steps of one system by one measure, from the ceiling to the value."""

    system: str
    measure: str
    ceiling: str
    steps: tuple[Step, ...]
    value: str
    facts: tuple[str, ...]


# Which stage of a log takes the time of which part.
_STAGES = {
    "retriever": ("retrieve", "retriever", "search"),
    "filters": ("filter", "filters"),
    "reranker": ("rerank", "reranker"),
}


def ways_of(document: Document, head: Document | None) -> tuple[Way, ...]:
    """A way for each system whose losses are known; nothing for the others."""
    primary = (primary_name(document, head) or "").partition("@")[0]
    ways = []
    for name, system in zip(system_names(document), document["systems"], strict=True):
        falls = [one for one in system.get("waterfalls", ()) if one["value"] is not None]
        # The waterfall of the measure that decides, whatever its cut-off.
        falls.sort(key=lambda one: one["measure"].partition("@")[0] != primary)
        if falls:
            ways.append(_way(name, system, falls[0]))
    return tuple(ways)


def _way(name: str, system: Row, fall: Row) -> Way:
    stages = system.get("latency", {}).get("stages", {})
    return Way(
        system=name,
        measure=fall["measure"],
        ceiling=figure(fall["ceiling"]),
        steps=tuple(_step(part, fall["unknown"], stages) for part in fall["parts"]),
        value=figure(fall["value"]),
        facts=tuple(_facts(system)),
    )


def _step(part: Row, unknown: Mapping[str, str], stages: Row) -> Step:
    name = part["part"]
    about = PARTS.get(name, "")
    latency = _latency(name, stages)
    shown = name.replace("_", " ")
    if name in unknown:
        return Step(shown, label(unknown[name]), NOTHING, "", "unknown", "", latency)
    # Losses count from the top; what a reader sees is the change.
    change = -part["lost"] if round(part["lost"], 4) else 0.0
    ends = None if part["ci"] is None else [-part["ci"][1] + 0.0, -part["ci"][0] + 0.0]
    tone = "" if not change else "good" if change > 0 else "bad"
    touched = several(part["queries"], "query", "queries") if part["queries"] else ""
    return Step(
        shown, about, changed(change), spread(ends) if change else "", tone, touched, latency
    )


def _latency(part: str, stages: Row) -> str:
    own = [stages[name]["p50"]["value"] for name in _STAGES.get(part, ()) if name in stages]
    return f"p50 {figure(own[0])} ms" if own and own[0] is not None else ""


def _facts(system: Row) -> list[str]:
    """What the log says of the system, where it says it."""
    meta = system.get("meta", {})
    facts = [f"retriever {short(str(meta['retriever']))}"] if meta.get("retriever") else []
    facts += [f"first {meta['k_raw']:,} retrieved"] if isinstance(meta.get("k_raw"), int) else []
    facts += [f"first {meta['k']:,} returned"] if isinstance(meta.get("k"), int) else []
    total = system.get("latency", {}).get("stages", {}).get("total", {}).get("p50", {})
    if total.get("value") is not None:
        facts.append(f"total p50 {figure(total['value'])} ms")
    return facts
