"""The sections of a page: verdict with gates, counts and bounds, failures, provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from karat.analysis.failures import MEANINGS
from karat.evaluation.report_text import (
    artifact_table,
    conventions_lines,
    fates_of,
    gate_lines,
    headlines,
    input_table,
    unreachable,
)
from karat.measure.conventions import ANY_GRADE
from karat.pages.formatting import NOTHING, PART, figure, gate_mean, gate_name, percent, plural
from karat.pages.page import VERDICT_TONES, Grid, table
from karat.reports.html.elements import (
    Context,
    Document,
    Drawing,
    baseline_name,
    limit_of,
    link_names,
    link_to,
    query_links,
    scale_of,
    signed_change,
    split_bar,
    system_names,
    with_minus,
)
from karat.reports.report_page import bounds_lines, bounds_table, inexact_lines, range_table

# Further reasons are collapsed.
MOST_REASONS = 6
# With more verdicts, those on pairs are in a table.
MOST_BANNERS = 3
# Longer tables scroll in a frame.
TALL = 30
_WIDTH = 170.0

_ENDS = {"ci_low": "lower bound", "ci_high": "upper bound", "mean": "value"}
_ORDER = ("fail", "unmeasurable", "skipped", "pass")

# Each count: its name and its meaning.
_COUNTS = {
    "queries": ("queries", "all queries"),
    "scored": ("scored", "with results in the run and relevant gold"),
    "missing": ("missing", "not in the run"),
    "failed_calls": ("failed calls", "the system logged an error; if the query is scored"),
    "no_answer": ("no answer", "marked as having no answer: not part of the means"),
    "empty_gold": ("no relevant gold", "no item is relevant: not part of the means"),
    "not_in_gold": ("not in the gold", "in the run, but without gold"),
    "not_in_queries": ("not in the queries", "in the gold, but not in the queries"),
    "repeats": ("repeated hits", "an item returned twice for a query: the second does not count"),
    "order_conflicts": ("order conflicts", "logged ranks contradict the scores"),
    "versions_unknown": ("unknown versions", "could not be compared with the query's as_of"),
}
_PLAIN = ("queries", "scored", "no_answer")
# The width of a count's bar.
_COUNT = 90.0


def verdict_of(document: Document, head: Document | None = None) -> Context:
    """Return the verdict on gates and comparisons; a report without either has none.

    ``gates`` are grouped by system. With ``many`` banners, those about pairs are a table instead.
    """
    names = system_names(document)
    gates = document.get("gates", [])
    links = query_links(document, head)
    banners = _banners(document)
    return {
        "title": _title(document),
        "about": _about(document),
        "banners": banners,
        "many": len(banners) > MOST_BANNERS,
        "findings": [link_names(sentence, links) for sentence in document.get("findings") or ()],
        "findings_of": document.get("findings_of") if len(names) > 1 else None,
        "gates": _grouped(names, gates),
        "notes": gate_lines(document),
        "tall": len(gates) > TALL,
    }


def _title(document: Document) -> str:
    """Return the systems that the page is about."""
    baseline = baseline_name(document)
    rows = [row for row in document.get("comparisons", ()) if row["baseline"] == baseline]
    names = list(dict.fromkeys(row["system"] for row in rows)) or system_names(document)
    title = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return title if baseline is None else f"{title} against {baseline}"


def _about(document: Document) -> str:
    """Return how many queries were measured, and with which inputs."""
    inputs = document.get("inputs", {})
    parts = [plural(document["counts"]["queries"], "query", "queries")]
    if inputs.get("gold"):
        parts.append(f"gold {inputs['gold']['name']}")
    if inputs.get("dataset_version") is not None:
        parts.append(f"dataset {inputs['dataset_version']}")
    parts.append(f"profile {document['conventions']['profile']}")
    return " · ".join(parts)


def _banners(document: Document) -> list[Context]:
    """Return warnings and verdicts, each with its reasons."""
    banners = _warnings(document)
    never = [f"out of reach: {sentence}" for sentence in unreachable(document)]
    for verdict in headlines(document):
        reasons = verdict.because if verdict.pair else (*never, *verdict.because)
        banner = _banner(verdict.word, verdict.about, verdict.tone, reasons)
        banners.append(banner | {"pair": verdict.pair})
    if not banners:
        sentence = "No verdict: the report has neither gates nor a comparison."
        banners = [_banner("MEASURED", "no verdict", "plain", [sentence])]
    return banners


def _warnings(document: Document) -> list[Context]:
    warnings = []
    if dead := [system["name"] for system in document["systems"] if _unanswered(system)]:
        sentence = "No query could be scored, so there are no values to compare."
        about = f"nothing scored: {', '.join(dead)}"
        warnings.append(_banner("CANNOT TELL", about, "bad", [sentence]))
    if partial := [system["name"] for system in document["systems"] if system.get("partial")]:
        sentence = "Too many calls failed to judge these systems."
        about = f"partial: {', '.join(partial)}"
        warnings.append(_banner("CANNOT TELL", about, "unsure", [sentence]))
    return warnings


def _unanswered(system: Document) -> bool:
    """Return whether a system answered no query, or none that could be scored."""
    counts = system.get("counts") or {}
    if not counts.get("queries"):
        return False
    failed = counts["missing"] + counts["failed_calls"] >= counts["queries"]
    return failed or not any(measure["n"] for measure in system["measures"].values())


def _banner(word: str, about: str, tone: str, because: Sequence[str]) -> Context:
    reasons = list(map(with_minus, because))
    first, more = reasons[:MOST_REASONS], reasons[MOST_REASONS:]
    banner = {"word": word, "about": about, "tone": tone, "because": first, "more": more}
    return banner | {"pair": False}


def _grouped(
    systems: Sequence[str], gates: Sequence[Document]
) -> list[tuple[str, Sequence[Context]]]:
    """Return the gates by system, failed ones first; a single system is not named."""
    groups: dict[str, list[Context]] = {name: [] for name in systems}
    for gate in sorted(gates, key=lambda gate: _ORDER.index(gate["verdict"])):
        groups.setdefault(gate["system"], []).append(_gate_row(gate))
    groups = {name: rows for name, rows in groups.items() if rows}
    return [(name if len(groups) > 1 else "", rows) for name, rows in groups.items()]


def _gate_row(gate: Document) -> Context:
    """Return a gate's values: the measurement, and its distance from the limit."""
    limit, value = limit_of(gate), gate["value"]
    mean, _, ends = gate_mean(gate).partition(PART)
    return {
        "name": gate_name(gate),
        "verdict": {"unmeasurable": "cannot tell"}.get(gate["verdict"], gate["verdict"]),
        "tone": VERDICT_TONES.get(gate["verdict"], "unsure"),
        "mean": mean,
        "ends": ends,
        "bar": None if gate["mean"] is None else _gate_bar(gate, limit),
        "margin": signed_change(None if value is None else value - limit),
        "against": _ENDS[gate["on"]] if value is not None else "",
        "n": f"{gate['n']:,}",
        "needed": figure(gate["needed"]),
    }


def _gate_bar(gate: Document, limit: float) -> Drawing:
    """Return the drawing of the measured value on a scale with the limit."""
    upper = gate.get("min") is None
    scale = scale_of([gate["mean"], limit, gate["ceiling"], *(gate["ci"] or ())], _WIDTH)
    passing = (scale.low, limit) if upper else (limit, scale.high)
    marks = [
        *scale.stretch("passing", passing),
        *scale.track(),
        *scale.point("limit", limit),
        *scale.stretch("interval", gate["ci"]),
        *scale.point("value", gate["mean"]),
    ]
    bound = f", {_ENDS[gate['on']]} {figure(gate['value'])}" if gate["on"] != "mean" else ""
    side = "at most" if upper else "at least"
    text = f"{gate['measure']} {figure(gate['mean'])}{bound}; the limit is {side} {figure(limit)}"
    return Drawing(text, _WIDTH, marks, VERDICT_TONES.get(gate["verdict"], "unsure"))


def counts_of(document: Document, head: Document | None) -> Context:
    """Return the counts as rows, systems as columns, then the bounds over unjudged items."""
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
    """Return a count for display: its ``kind`` is plain, quiet (zero) or loud."""
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
    about = "unjudged hits of scored queries: counted as not relevant"
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
