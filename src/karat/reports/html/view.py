"""The view of a report: every query with what each system made of it, as plain data for a page.

The ``head`` is small, ``rows`` have what a table of all queries needs, and ``blocks`` what is
known of single queries, some at a time, so that a page reads only those that it shows.
"""

from __future__ import annotations

import gzip
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from karat.analysis.failures import CLASSES
from karat.data.columns import Source
from karat.evaluation.stages import KEEP, thresholds_of
from karat.evaluation.verdict import Rule
from karat.evaluation.verdict import primary_of as primary_measure
from karat.measure.conventions import SETTABLE, Conventions, conventions_of
from karat.reports.document import Report, System
from karat.reports.html.queries import (
    STATUSES,
    QueryDetails,
    ReportQueries,
    blocks_of,
    by_priority,
    details_of,
    rows_of,
    segments_of,
    unjudged_of,
)

# Stands for the id of a query.
QUERY = "{query}"


def _command(report: Report, system: System) -> str | None:
    """Return a command that shows a query of a system again; None if it has no file."""
    run, conventions = system.scores.source, system.scores.conventions
    if run.path is None or report.gold.path is None:
        return None
    words = ["karat", "triage", _name(run), "--gold", _name(report.gold)]
    for option, source in (("--queries", report.queries), ("--corpus", report.corpus)):
        if source is not None and source.path is not None and source.path != report.gold.path:
            words += [option, _name(source)]
    if conventions.profile != "karat":
        words += ["--profile", conventions.profile]
    words += [word for setting in _settings(conventions) for word in ("--set", setting)]
    for key, column in report.fields.items():
        words += ["--field", f"{key}={column}"]
    return f"{shlex.join(words)} --query {QUERY}"


def _name(source: Source) -> str:
    """Return a file's path relative to here, or its name if it is elsewhere."""
    if source.path is None:
        return source.name
    path = os.path.relpath(source.path)
    return source.name if path.startswith(os.pardir) else Path(path).as_posix()


def _settings(conventions: Conventions) -> list[str]:
    """Return what differs from the profile, as ``--set`` takes it."""
    settings, usual = asdict(conventions), asdict(conventions_of(conventions.profile))
    return [
        f"{name}={'<'.join(value) if isinstance(value, tuple) else value}"
        for name in SETTABLE
        # The file decides about order and unit, unless somebody did.
        if name not in ("order", "unit")
        and (value := settings[name]) not in (usual.get(name), None, ())
    ]


VERSION = 1
# Queries per block: small enough to read one quickly, large enough to compress well.
BLOCK = 100
# A level of compression that packs a large report within a second.
_LEVEL = 6


@dataclass(frozen=True, eq=False)
class View:
    """What a page shows of single queries, as plain data."""

    head: Mapping[str, Any]
    rows: Mapping[str, Any]
    blocks: Sequence[Mapping[str, Any]]

    def parts(self) -> dict[str, bytes]:
        """Return all parts by name as gzipped JSON: head, rows, block-0, block-1 …"""
        blocks = {f"block-{number}": block for number, block in enumerate(self.blocks)}
        packed = {}
        for name, part in {"head": self.head, "rows": self.rows, **blocks}.items():
            text = json.dumps(part, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            packed[name] = gzip.compress(text.encode("utf-8", "replace"), _LEVEL, mtime=0)
        return packed


def view_of(report: Report) -> View:
    """Return the view of a report whose systems were scored in full."""
    queries = ReportQueries.of(report)
    rows = rows_of(report.systems, queries)
    worth = by_priority(rows, primary_of(report))
    details = details_of(report, queries, worth)
    blocks, note = blocks_of(details, report.index, worth, BLOCK)
    return View(_head(report, queries, rows, details, note), rows, blocks)


def primary_of(report: Report) -> str:
    """Return the measure that decides: the comparison's, else the one that would."""
    if report.comparisons is not None:
        return report.comparisons.primary.measure
    scores = report.systems[0].scores
    if all(measure.definition.better == "none" for measure in scores.measures):
        return str(scores.measures[0])
    return primary_measure(Rule(), scores.measures, scores.conventions).measure


def _head(
    report: Report,
    queries: ReportQueries,
    rows: Mapping[str, Any],
    details: QueryDetails,
    texts_note: str | None,
) -> dict[str, Any]:
    conventions = report.systems[0].scores.conventions
    return {
        "version": VERSION,
        "systems": [system.name for system in report.systems],
        "baseline": 0,
        "measures": _measures(report.systems, rows),
        "primary": primary_of(report),
        "k": conventions.k,
        "miss_at": thresholds_of(conventions.profile).miss,
        "rel": conventions.rel,
        "level": conventions.level,
        "own_k": bool((queries.own_k != conventions.k).any()),
        "queries": len(queries.ids),
        "block": BLOCK,
        "kept": KEEP,
        "classes": list(CLASSES),
        "statuses": list(STATUSES),
        "columns": list(segments_of(report.systems, queries)),
        "unjudged": [unjudged_of(system, queries) for system in report.systems],
        "bm25": details.bm25_note,
        "bm25_depth": details.bm25_depth,
        "texts": texts_note,
        "commands": [_command(report, system) for system in report.systems],
    }


def _measures(systems: Sequence[System], rows: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the measures that have a value in any system; all if none has one."""
    known = {str(m): m.definition.better for system in systems for m in system.scores.measures}
    valued = [
        name
        for name, columns in rows["values"].items()
        if any(value is not None for column in columns for value in column)
    ]
    return [{"name": name, "better": known[name]} for name in valued or known]
