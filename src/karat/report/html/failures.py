"""Why queries miss, system by system, and what each stage on their way loses and takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from karat.analysis.failures.page import MEANINGS, PARTS
from karat.pages.formatting import NOTHING, figure, label, percent, plural
from karat.report.html.bars import Bar, count_bar
from karat.report.html.names import (
    LONGEST_SENTENCE,
    Document,
    class_link,
    primary_name,
    short,
    signed_change,
    signed_interval,
    system_names,
)

Row = Mapping[str, Any]

_WIDTH = 90.0


@dataclass(frozen=True, slots=True)
class ClassCell:
    """The misses of a system in one class; ``unchecked`` says why the count is unknown.

    ``link`` leads to them, where the page has its queries.
    """

    count: str
    share: str
    bar: Bar | None
    unchecked: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class ClassRow:
    """A class of misses: its meaning, and its misses in each system."""

    name: str
    meaning: str
    cells: tuple[ClassCell, ...]


@dataclass(frozen=True, slots=True)
class Misses:
    """What the section shows; classes without misses are listed in one sentence."""

    names: tuple[str, ...]
    totals: tuple[str, ...]
    miss_at: int
    rows: tuple[ClassRow, ...]
    empty: tuple[str, ...]
    unchecked: tuple[tuple[str, str, str], ...]
    dominant: tuple[tuple[str, tuple[tuple[str, str, Bar], ...]], ...]
    notes: tuple[str, ...]


def misses_of(document: Document, head: Document | None = None) -> Misses | None:
    """Return classes as rows, systems as columns; None if no system was diagnosed."""
    diagnosed = [
        (name, system["failures"])
        for name, system in zip(system_names(document), document["systems"], strict=True)
        if "failures" in system
    ]
    if not diagnosed:
        return None
    classes = dict.fromkeys(
        [*MEANINGS, *(name for _, failures in diagnosed for name in failures["classes"])]
    )
    most = max(
        max((n or 0 for n in failures["classes"].values()), default=0) for _, failures in diagnosed
    )
    # None where the page has no queries of that system to link to.
    listed = set((head or {}).get("systems", ()))
    full = [system["name"] for system in document["systems"] if "failures" in system]
    whose = [(name if name in listed else None) for name in full]
    looked = [(who, failures) for who, (_, failures) in zip(whose, diagnosed, strict=True)]
    rows = [_class_row(name, looked, most) for name in classes]
    not_empty = {
        row.name: any(cell.count == NOTHING or (cell.bar and cell.bar.marks) for cell in row.cells)
        for row in rows
    }
    untold = {class_name for _, failures in diagnosed for class_name in failures["unchecked"]}
    return Misses(
        names=tuple(name for name, _ in diagnosed),
        totals=tuple(_total(failures) for _, failures in diagnosed),
        miss_at=diagnosed[0][1]["miss_at"],
        rows=tuple(row for row in rows if not_empty[row.name]),
        empty=tuple(name for name in classes if not not_empty[name] and name not in untold),
        unchecked=_unchecked(diagnosed),
        dominant=tuple(
            (name, _items(failures)) for name, failures in diagnosed if failures["dominant"]
        ),
        notes=tuple(_short_lists(diagnosed)),
    )


def _class_row(name: str, systems: list[tuple[str | None, Row]], most: int) -> ClassRow:
    cells = []
    for who, failures in systems:
        count = failures["classes"].get(name, 0)
        why = failures["unchecked"].get(name)
        if count is None:
            cells.append(ClassCell(NOTHING, "", None, "its lists are too short to tell"))
            continue
        if why is not None and not count:
            reason = short(why, LONGEST_SENTENCE)
            cells.append(ClassCell("not checked", "", None, reason))
            continue
        share = percent(count / failures["misses"]) if count else ""
        link = class_link(name, who) if count and who is not None else ""
        cells.append(ClassCell(f"{count:,}", share, count_bar(count, most, _WIDTH), link=link))
    return ClassRow(name, MEANINGS.get(name, ""), tuple(cells))


def _total(failures: Row) -> str:
    return f"{failures['misses']:,} of {plural(failures['assessed'], 'query', 'queries')}"


def _unchecked(diagnosed: list[tuple[str, Row]]) -> tuple[tuple[str, str, str], ...]:
    """Return every class that could not be checked, why, and for which systems."""
    who: dict[tuple[str, str], list[str]] = {}
    for name, failures in diagnosed:
        for missing, why in failures["unchecked"].items():
            who.setdefault((missing, why), []).append(name)
    everyone = len(diagnosed)
    return tuple(
        (missing, short(why, LONGEST_SENTENCE), "" if len(names) == everyone else ", ".join(names))
        for (missing, why), names in who.items()
    )


def _items(failures: Row) -> tuple[tuple[str, str, Bar], ...]:
    most = max(item["queries"] for item in failures["dominant"])
    return tuple(
        (short(item["item_id"]), f"{item['queries']:,}", count_bar(item["queries"], most, _WIDTH))
        for item in failures["dominant"]
    )


def _short_lists(diagnosed: list[tuple[str, Row]]) -> list[str]:
    return [
        f"{name}: its lists end at rank {failures['ends_at']}; gold from there to "
        f"{failures.get('lines', {}).get('miss', failures['miss_at'])} was not searched"
        for name, failures in diagnosed
        if failures["ends_at"] is not None
    ]


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a system, and what it loses or gains.

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
class Waterfall:
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


def waterfalls_of(document: Document, head: Document | None) -> tuple[Waterfall, ...]:
    """Return the steps of each system whose losses are known."""
    primary = (primary_name(document, head) or "").partition("@")[0]
    ways = []
    for name, system in zip(system_names(document), document["systems"], strict=True):
        falls = [
            waterfall
            for waterfall in system.get("waterfalls", ())
            if waterfall["value"] is not None
        ]
        # The waterfall of the measure that decides, whatever its cut-off.
        falls.sort(key=lambda one: one["measure"].partition("@")[0] != primary)
        if falls:
            ways.append(_waterfall(name, system, falls[0]))
    return tuple(ways)


def _waterfall(name: str, system: Row, fall: Row) -> Waterfall:
    stages = system.get("latency", {}).get("stages", {})
    return Waterfall(
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
    title = name.replace("_", " ")
    if name in unknown:
        return Step(title, label(unknown[name]), NOTHING, "", "unknown", "", latency)
    # A loss is positive in the document; the page shows the change.
    change = -part["lost"] if round(part["lost"], 4) else 0.0
    ends = None if part["ci"] is None else [-part["ci"][1] + 0.0, -part["ci"][0] + 0.0]
    tone = "" if not change else "good" if change > 0 else "bad"
    touched = plural(part["queries"], "query", "queries") if part["queries"] else ""
    return Step(
        title,
        about,
        signed_change(change),
        signed_interval(ends) if change else "",
        tone,
        touched,
        latency,
    )


def _latency(part: str, stages: Row) -> str:
    medians = [stages[name]["p50"]["value"] for name in _STAGES.get(part, ()) if name in stages]
    return f"p50 {figure(medians[0])} ms" if medians and medians[0] is not None else ""


def _facts(system: Row) -> list[str]:
    """Return what the log says about the system."""
    meta = system.get("meta", {})
    facts = [f"retriever {short(str(meta['retriever']))}"] if meta.get("retriever") else []
    facts += [f"first {meta['k_raw']:,} retrieved"] if isinstance(meta.get("k_raw"), int) else []
    facts += [f"first {meta['k']:,} returned"] if isinstance(meta.get("k"), int) else []
    total = system.get("latency", {}).get("stages", {}).get("total", {}).get("p50", {})
    if total.get("value") is not None:
        facts.append(f"total p50 {figure(total['value'])} ms")
    return facts
