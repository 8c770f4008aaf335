"""The other sections of a page: counts and bounds, failures, provenance."""

from __future__ import annotations

from collections.abc import Mapping

from karat.analysis.failures import MEANINGS
from karat.evaluation.report_text import artifact_table, conventions_lines, fates_of, input_table
from karat.measure.conventions import ANY_GRADE
from karat.pages.formatting import NOTHING, percent, plural
from karat.pages.page import Grid, table
from karat.reports.html.elements import (
    Context,
    Document,
    link_to,
    split_bar,
    system_names,
)
from karat.reports.report_page import (
    bounds_lines,
    bounds_table,
    inexact_lines,
    range_table,
)

# Each count: its name and its meaning.
_COUNTS = {
    "queries": ("queries", "all queries"),
    "scored": ("scored", "with results in the run and relevant gold"),
    "missing": ("missing", "not in the run"),
    "failed_calls": ("failed calls", "the system logged an error; if the query is scored"),
    "no_answer": ("no answer", "marked as having none: not part of the means"),
    "empty_gold": ("no relevant gold", "no item is relevant: not part of the means"),
    "not_in_gold": ("not in the gold", "in the run, but without gold"),
    "not_in_queries": ("not in the queries", "in the gold, but not in the queries"),
    "repeats": ("repeated hits", "an item returned twice for a query: the second counts nothing"),
    "order_conflicts": ("order conflicts", "logged ranks contradict the scores"),
    "versions_unknown": ("unknown versions", "could not be compared with the query's as_of"),
}
_PLAIN = ("queries", "scored", "no_answer")
# The width of the drawing of a count.
_COUNT = 90.0


def counts_of(document: Document, head: Document | None) -> Context:
    """Return the counts as rows, systems as columns, then what labels could change."""
    return {
        "names": system_names(document),
        "rows": [*_count_rows(document), *_unjudged(document, head or {})],
        "unjudged": range_table(document),
        "inexact": inexact_lines(document),
        "judged": bounds_table(document) if "judged" in document else [],
        "notes": bounds_lines(document) if "judged" in document else [],
    }


def _count_rows(document: Document) -> list[Context]:
    systems = document["systems"]
    keys = dict.fromkeys(key for system in systems for key in (*_COUNTS, *system["counts"]))
    rows = []
    for key in keys:
        name, about = _COUNTS.get(key, (key.replace("_", " "), ""))
        fates = {fates_of(document, system).get(key) for system in systems} - {None}
        if known := sorted(map(str, fates)):
            about = f"{about.partition(':')[0]}: {' or '.join(known)}"
        counts = [_count(key, system["counts"].get(key)) for system in systems]
        rows.append({"name": name, "about": about, "counts": counts})
    return rows


def _count(key: str, n: int | None) -> Context:
    """Return a count as it is shown: its ``kind`` is plain, quiet (zero) or loud."""
    if n is None:
        return {"text": NOTHING, "kind": "quiet", "share": ""}
    quiet = not n and key not in ("queries", "scored")
    kind = "quiet" if quiet else "plain" if key in _PLAIN else "loud"
    return {"text": f"{n:,}", "kind": kind, "share": ""}


def _unjudged(document: Document, head: Document) -> list[Context]:
    """Return how many returned items are unjudged, if the hits are known."""
    by_system = head.get("unjudged")
    if not by_system or len(by_system) != len(document["systems"]):
        return []
    counts = []
    for found in by_system:
        if found is None or not found["hits"]:
            counts.append(_count("unjudged", None))
            continue
        share = f"{percent(found['unjudged'] / found['hits'])} of {found['hits']:,}"
        counts.append(_count("unjudged", found["unjudged"]) | {"share": share})
    about = "hits of scored queries that the gold does not judge: counted as not relevant"
    own_k = head.get("own_k", True)
    about += "; k is each query's own" if own_k else ""
    name = f"unjudged in the top {'k' if own_k else head['k']}"
    return [{"name": name, "about": about, "counts": counts}]


def misses_of(document: Document, head: Document | None = None) -> Context | None:
    """Return classes as rows, systems as columns; None if no system was diagnosed.

    Classes without misses are listed in one sentence.
    """
    systems = zip(system_names(document), document["systems"], strict=True)
    failures = {name: system["failures"] for name, system in systems if "failures" in system}
    if not failures:
        return None
    # Only the queries of these systems are on the page.
    linked = (head or {}).get("systems", ())
    classes = dict.fromkeys([*MEANINGS, *(key for f in failures.values() for key in f["classes"])])
    most = max((n or 0 for f in failures.values() for n in f["classes"].values()), default=0)
    rows, empty = [], []
    unchecked = {key for misses in failures.values() for key in misses["unchecked"]}
    for kind in classes:
        cells = [
            _class_cell(kind, misses, most, system=name if name in linked else None)
            for name, misses in failures.items()
        ]
        if any(cell["count"] == NOTHING or (cell["bar"] and cell["bar"].marks) for cell in cells):
            rows.append({"name": kind, "meaning": MEANINGS.get(kind, ""), "cells": cells})
        elif kind not in unchecked:
            empty.append(kind)
    return {
        "names": list(failures),
        "totals": [
            f"{misses['misses']:,} of {plural(misses['assessed'], 'query', 'queries')}"
            for misses in failures.values()
        ],
        "miss_at": next(iter(failures.values()))["miss_at"],
        "rows": rows,
        "empty": empty,
        "unchecked": _unchecked(failures),
        "dominant": [
            (name, table(misses["dominant"], {"item": "item_id", "queries": "queries"}))
            for name, misses in failures.items()
            if misses["dominant"]
        ],
        "notes": [
            f"{name}: its lists end at rank {misses['ends_at']}; gold from there to "
            f"{misses.get('lines', {}).get('miss', misses['miss_at'])} was not searched"
            for name, misses in failures.items()
            if misses["ends_at"] is not None
        ],
    }


def _class_cell(kind: str, failures: Document, most: int, *, system: str | None) -> Context:
    """Return the misses of a system in one class, with a link to them if the page has them."""
    count = failures["classes"].get(kind, 0)
    if count is None or (not count and kind in failures["unchecked"]):
        return {"count": NOTHING if count is None else "not checked", "bar": None}
    return {
        "count": f"{count:,}",
        "share": percent(count / failures["misses"]) if count else "",
        "bar": split_bar([("count", count)], _COUNT, total=most),
        "link": link_to(**{"class": kind, "system": system}) if count and system else "",
    }


def _unchecked(failures: Mapping[str, Document]) -> list[tuple[str, str, str]]:
    """Return every class that could not be checked, why, and for which systems."""
    systems: dict[tuple[str, str], list[str]] = {}
    for name, misses in failures.items():
        for reason in misses["unchecked"].items():
            systems.setdefault(reason, []).append(name)
    return [
        (kind, why, "" if len(names) == len(failures) else ", ".join(names))
        for (kind, why), names in systems.items()
    ]


def provenance_of(document: Document) -> Context:
    """Return inputs with their digests, conventions in words, and artifacts of the systems."""
    tool = document["tool"]
    conventions = [[name, _value(document, name)] for name in document["conventions"]]
    return {
        "tool": f"{tool['name']} {tool['version']}, document version {document['schema_version']}",
        "inputs": _inputs(document.get("inputs")),
        "conventions": [["convention", "value"], *conventions],
        "summary": conventions_lines(document),
        "artifacts": artifact_table(document),
    }


def _inputs(inputs: Document | None) -> Grid:
    if inputs is None:
        return []
    grid = input_table(inputs)
    for kind in ("gates", "judged"):
        if inputs.get(kind):
            grid.append([kind, inputs[kind]["name"], inputs[kind]["sha256"] or ""])
    if inputs.get("config_digest"):
        grid.append(["configuration", "", inputs["config_digest"]])
    return grid


def _value(document: Document, name: str) -> str:
    """Return the value of a convention, or that of each system where they differ."""
    value = document["conventions"][name]
    if value is None:
        values = [
            f"{system['name']}: {system['conventions'][name]}"
            for system in document["systems"]
            if name in system.get("conventions", {})
        ]
        return ", ".join(values) or "not set"
    if name == "rel" and value == ANY_GRADE:
        return "above 0"
    if isinstance(value, list):
        return " < ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
