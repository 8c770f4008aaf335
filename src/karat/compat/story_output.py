"""The retrieval quality of a story as the result object of a story tool, and on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from karat.compat.story import THRESHOLD, QueryQuality, StoryQuality, quality_of
from karat.errors import UsageError
from karat.pages.formatting import NOTHING, figure, label, plural
from karat.pages.serialize import dumps
from karat.pages.terminal import print_line, show_table
from karat.reports.document import Report

_STYLES = {True: "bold green", False: "bold red", None: "bold yellow"}
# More rows than this hide what matters: the queries that did worst are shown.
_MOST_ROWS = 30
_LONGEST = 48


def report_to_json(report: Report) -> bytes:
    """Return the result object of a report's one system, as ``karat story`` writes it."""
    if len(report.systems) != 1 or report.tables is None:
        raise UsageError("output story: holds one system, with the queries it was scored with")
    (system,) = report.systems
    gold, queries, corpus = report.tables
    return story_to_json(quality_of(system.scores, gold, queries, corpus))


def story_to_json(quality: StoryQuality) -> bytes:
    """Return the result object; same inputs, same bytes."""
    return dumps(story_document(quality))


def story_document(quality: StoryQuality) -> dict[str, Any]:
    """Return ``value``, ``threshold``, ``pass`` and ``details``, with the keys of a story tool."""
    details: dict[str, Any] = {"status": "skipped", "reason": quality.reason}
    if quality.reason is None:
        details = {
            "mrr": quality.value,
            "recall_at_k_avg": quality.recall,
            "labeled_queries": len(quality.labelled),
            "total_queries": quality.total,
            "per_query": [_row(found) for found in quality.queries],
        }
    return {
        "value": quality.value,
        "threshold": THRESHOLD,
        "pass": quality.passed,
        "details": details,
    }


def _row(found: QueryQuality) -> dict[str, Any]:
    row: dict[str, Any] = {"id": found.query_id, "query": found.text}
    if found.recall is None:
        return {**row, "status": "skipped", "reason": found.trouble or "no_ground_truth"}
    trouble = {} if found.trouble is None else {"status": found.trouble}
    return {
        **row,
        **trouble,
        "topK": found.k,
        "reciprocal_rank": found.reciprocal_rank,
        "first_relevant_rank": found.rank,
        "recall_at_k": found.recall,
        "top_results": [{"id": scene, "score": score} for scene, score in found.top],
    }


def show_story(quality: StoryQuality, about: str, notes: Sequence[str], console: Console) -> None:
    """Print the verdict, the measures, one row per query, and warnings."""
    print_line(_verdict(quality), console, style=_STYLES[quality.passed])
    gold = f"{len(quality.labelled)} of {plural(quality.total, 'query', 'queries')} with gold"
    parts = [f"R@k {figure(quality.recall)}", gold, about]
    print_line(label(f"  {' · '.join(parts)}"), console)
    console.print()
    rows = sorted(quality.labelled, key=lambda found: found.reciprocal_rank or 0.0)[:_MOST_ROWS]
    if quality.labelled and len(quality.queries) <= _MOST_ROWS:
        rows = list(quality.queries)
    if rows:
        show_table(_grid(rows), console)
    if len(rows) < len(quality.labelled):
        notes = [f"the {len(rows)} queries that did worst; all are in -o out.json", *notes]
    for note in notes:
        print_line(label(note), console)


def _verdict(quality: StoryQuality) -> str:
    if quality.value is None:
        return f"SKIPPED  {quality.why_skipped}"
    if quality.passed:
        return f"PASS  MRR {_near(quality.value)} is above {THRESHOLD}"
    return f"FAIL  MRR {_near(quality.value)} is not above {THRESHOLD}"


def _grid(rows: Sequence[QueryQuality]) -> list[list[str]]:
    grid = [["query", "rank", "RR", "R@k", "k", "ranked first", "text"]]
    for found in rows:
        if found.recall is None:
            cells = ["no gold", NOTHING, NOTHING, NOTHING, NOTHING]
        else:
            place = "none" if found.rank is None else str(found.rank)
            values = [figure(found.reciprocal_rank), figure(found.recall), str(found.k)]
            cells = [place, *values, _short(label(found.top[0][0]))]
        grid.append([label(found.query_id), *cells, _short(label(found.text))])
    return grid


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _near(value: float) -> str:
    """Return four decimals, or as many as it takes to differ from the threshold."""
    rounded = figure(value)
    return rounded if value == THRESHOLD or float(rounded) != THRESHOLD else repr(value)
