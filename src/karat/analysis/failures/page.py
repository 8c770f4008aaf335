"""Failures by class and the loss waterfall as sections of a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from karat.pages.formatting import NOTHING, change, figure, interval, label, percent, plural
from karat.pages.page import Grid, Section

Document = Mapping[str, Any]

# What each class means, and where to look.
MEANINGS: Mapping[str, str] = {
    "failed_call": "the call failed: read its error",
    "not_in_run": "no answer was logged: is the run complete?",
    "not_in_index": "gold is not in the corpus: index it, or correct its id",
    "routed_away": "sent to the wrong source: look at the router",
    "rewritten_away": "the query as asked finds it: look at the rewriting",
    "freshness_filtered": "taken out as too new: look at versions and as_of",
    "filtered_out": "taken out by a filter: look at its attributes",
    "threshold_exclusion": "scored below the threshold: lower or calibrate it",
    "beyond_depth": "not in the lists, which were cut: log longer ones",
    "complete_miss": "not retrieved: look at retriever, chunks, words",
    "embedding_mismatch": "embedded far from its query: look at model, chunks",
    "rerank_demotion": "put lower by the reranker: look at its model",
    "false_positive_dominance": "the same wrong items stand above it: look at them",
    "low_rank": "returned too low: improve the ranking, or rerank",
    "cut_by_k": "retrieved, then cut off: return more, or rerank",
}
PARTS: Mapping[str, str] = {
    "calls": "calls that failed or were not made",
    "index": "gold that the index lacks",
    "retriever": "gold that was not retrieved",
    "filters": "gold that filters took out",
    "cut_off": "gold too low, or cut off",
    "reranker": "gold moved by the reranker",
}
# So many misses stand in a report with their gold; all of them are in its JSON.
SHOWN = 20
_BAR, _EMPTY, _WIDTH = "█", "·", 20


def failure_sections(document: Document) -> list[Section]:
    """Return how many queries miss, by class, and the items that crowd out gold."""
    misses, assessed = document["misses"], document["assessed"]
    top = f"gold in the top {document['miss_at']}"
    if not misses:
        text = f"All {plural(assessed, 'query', 'queries')} have {top}."
        return [Section("Misses", lines=[text if assessed else "No query has gold."])]
    whole = plural(assessed, "query", "queries")
    title = f"Misses: {misses:,} of {whole} without {top}"
    lines = [*_short(document, document["lines"]["miss"]), *_untold(document)]
    sections = [Section(title, _class_grid(document), lines)]
    if document["dominant"]:
        sections.append(
            Section("Items that stand above the gold of many queries", _items(document))
        )
    return sections


def missed_sections(document: Document) -> list[Section]:
    """Return the first queries that miss, and the gold that each should have found."""
    if not document["missed"]:
        return []
    grid = [["query", "class", "its gold"]]
    grid += [
        [label(miss["query_id"]), miss["class"], label(", ".join(miss["gold"]))]
        for miss in document["missed"][:SHOWN]
    ]
    more = document["misses"] - SHOWN
    rest = [f"and {plural(more, 'other query', 'other queries')}"] if more > 0 else []
    title = f"Queries without gold in the top {document['miss_at']}, and their gold"
    return [Section(title, grid, rest)]


def _short(document: Document, cut: int | str) -> list[str]:
    """Return a note if lists are too short for a cut-off."""
    ends = document["ends_at"]
    if ends is None:
        return []
    return [f"the lists were cut at {ends}: gold between there and {cut} was not searched for"]


def _class_grid(document: Document) -> Grid:
    grid = [["class", "queries", "share", "what"]]
    for name, count in document["classes"].items():
        if count is None:
            grid.append([name, NOTHING, NOTHING, MEANINGS[name]])
        elif count:
            share = percent(count / document["misses"])
            grid.append([name, f"{count:,}", share, MEANINGS[name]])
    return grid


def _untold(document: Document) -> Iterator[str]:
    """Yield what the log, the queries or the corpus do not tell."""
    for name, reason in document["unchecked"].items():
        yield f"not checked: {name} {label(reason)}"


def _items(document: Document) -> Grid:
    grid = [["item", "queries"]]
    for item in document["dominant"]:
        grid.append([label(item["item_id"]), f"{item['queries']:,}"])
    return grid


def waterfall_sections(document: Document) -> list[Section]:
    """Return what lies between a measure's ceiling and its value."""
    title = f"{document['measure']}: from its ceiling to its value"
    short = _short(document, document["measure"].rpartition("@")[2])
    if document["value"] is None:
        return [Section(title, lines=short or ["No query has a value."])]
    lines = [f"not known: {part} {reason}" for part, reason in document["unknown"].items()]
    return [Section(title, _fall(document), [*short, *lines])]


def _fall(document: Document) -> Grid:
    """Return a row for each part, with a bar from where the one before it ended."""
    ceiling, value, n = document["ceiling"], document["value"], f"{document['n']:,}"
    grid = [["part", label(document["measure"]), "interval", "queries", "", "what"]]
    grid.append(["ceiling", figure(ceiling), "", n, _bar(0, ceiling, ceiling), ""])
    level = ceiling
    for part in document["parts"]:
        name, below = part["part"], level - part["lost"]
        bar = _bar(min(level, below), max(level, below), ceiling)
        level = below
        cells = [NOTHING, "", ""] if name in document["unknown"] else _cells(part)
        grid.append([name, *cells, bar, PARTS[name]])
    grid.append(["value", figure(value), "", n, _bar(0, value, ceiling), ""])
    return grid


def _cells(part: Document) -> list[str]:
    """Return what a part changes: below 0 what it loses, above what it wins back."""
    lost, ci = part["lost"], part["ci"]
    ends = None if ci is None else [-ci[1] + 0.0, -ci[0] + 0.0]
    changed = -lost if round(lost, 4) else 0.0
    return [change(changed), interval(ends), f"{part['queries']:,}"]


def _bar(low: float, high: float, top: float) -> str:
    """Return a stretch of a line that is as long as the ceiling is high.

    >>> _bar(0.25, 0.5, 1.0), _bar(0.5, 0.501, 1.0), _bar(0.3, 0.3, 1.0)
    ('·····█████··········', '··········█·········', '····················')
    """
    start, end = (
        min(max(round(_WIDTH * place / top), 0), _WIDTH) if top > 0 else 0 for place in (low, high)
    )
    if high - low > 1e-9 * max(top, 1.0) and start == end:
        start, end = (start, end + 1) if end < _WIDTH else (start - 1, end)
    return _EMPTY * start + _BAR * (end - start) + _EMPTY * (_WIDTH - end)
