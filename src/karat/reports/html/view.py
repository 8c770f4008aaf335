"""The view of a report: every query with what each system made of it, as plain data for a page.

The ``head`` is small, ``rows`` have what a table of all queries needs, and ``blocks`` what is
known of single queries, some at a time, so that a page reads only those that it shows.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from karat.analysis.failures.classes import CLASSES
from karat.analysis.staged import KEEP
from karat.analysis.thresholds import lines_of
from karat.analysis.verdicts import Rule
from karat.analysis.verdicts import primary_of as primary_measure
from karat.reports.document import Report, System
from karat.reports.html.cases import Cases
from karat.reports.html.commands import commands_of
from karat.reports.html.rows import STATUSES, Asked, rows_of, segments_of, unjudged_of
from karat.reports.html.texts import shelved
from karat.reports.html.worth import worth_of

VERSION = 1
# So many queries are packed together: one of them is read in a moment, all take little room.
BLOCK = 100
# The same bytes whatever the time, at a level that packs a large report within a second.
_LEVEL = 6


@dataclass(frozen=True, eq=False)
class View:
    """What a page shows of single queries; parts of it are plain JSON once unpacked."""

    head: Mapping[str, Any]
    rows: Mapping[str, Any]
    blocks: Sequence[Mapping[str, Any]]

    @cached_property
    def packed_rows(self) -> bytes:
        """The rows as gzipped JSON."""
        return packed(self.rows)

    @cached_property
    def packed_blocks(self) -> list[bytes]:
        """Each block as gzipped JSON."""
        return [packed(block) for block in self.blocks]

    def parts(self) -> dict[str, bytes]:
        """All of it by name, as a store keeps it: head, rows, block-0, block-1 …"""
        blocks = {f"block-{number}": data for number, data in enumerate(self.packed_blocks)}
        return {"head": packed(self.head), "rows": self.packed_rows, **blocks}


def packed(value: object) -> bytes:
    """Plain data as gzipped JSON."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return gzip.compress(text.encode("utf-8", "replace"), _LEVEL, mtime=0)


def unpacked(data: bytes) -> Any:
    """What ``packed`` packed."""
    return json.loads(gzip.decompress(data))


def view_of(report: Report) -> View:
    """The view of a report whose systems were scored in full."""
    asked = Asked.of(report)
    primary = primary_of(report)
    rows = rows_of(report.systems, asked)
    worth = worth_of(rows, primary, report)
    cases = Cases.of(report, asked, worth)
    blocks = shelved(cases.blocks(BLOCK), cases, worth)
    return View(_head(report, asked, primary, cases, blocks.told), rows, blocks.blocks)


def primary_of(report: Report) -> str:
    """The measure that decides: the comparison's, else the one that would decide."""
    if report.comparisons is not None:
        return report.comparisons.primary.measure
    scores = report.systems[0].scores
    if all(one.definition.better == "none" for one in scores.measures):
        return str(scores.measures[0])
    return primary_measure(Rule(), scores.measures, scores.conventions).measure


def _head(
    report: Report, asked: Asked, primary: str, cases: Cases, told: str | None
) -> dict[str, Any]:
    conventions = report.systems[0].scores.conventions
    return {
        "version": VERSION,
        "systems": [system.name for system in report.systems],
        "baseline": 0,
        "measures": _measures(report.systems),
        "primary": primary,
        "k": conventions.k,
        "miss_at": lines_of(conventions.profile).miss,
        "rel": conventions.rel,
        "level": conventions.level,
        "own_k": bool((asked.own_k != conventions.k).any()),
        "queries": len(asked.ids),
        "block": BLOCK,
        "kept": KEEP,
        "classes": list(CLASSES),
        "statuses": list(STATUSES),
        "columns": list(segments_of(report.systems, asked)),
        "unjudged": [unjudged_of(system, asked).document() for system in report.systems],
        "bm25": cases.bm25_lacks,
        "bm25_depth": None if cases.bm25 is None else cases.bm25.searched,
        "texts": told,
        "commands": commands_of(report),
    }


def _measures(systems: Sequence[System]) -> list[dict[str, str]]:
    """The measures that any system has a value of, in their order; all where none has one."""
    known: dict[str, str] = {}
    found: dict[str, str] = {}
    for system in systems:
        for measure in system.scores.measures:
            known.setdefault(str(measure), measure.definition.better)
            if not np.isnan(system.scores.values(str(measure))).all():
                found.setdefault(str(measure), measure.definition.better)
    return [{"name": name, "better": better} for name, better in (found or known).items()]
