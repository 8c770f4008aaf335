"""The sections of a page that are text and tables: from a report's document to what they show."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from karat.reports.html.counting import Counts, counts_of
from karat.reports.html.heat import Segments, segments_of
from karat.reports.html.misses import Misses, Way, misses_of, ways_of
from karat.reports.html.names import Document
from karat.reports.html.provenance import Provenance, provenance_of
from karat.reports.html.side_by_side import Systems, systems_of
from karat.reports.html.verdict import Verdict, verdict_of


@dataclass(frozen=True, slots=True)
class Sections:
    """What the templates of the sections read; all texts are safe to show as text."""

    verdict: Verdict
    systems: Systems
    counts: Counts
    segments: Segments
    failures: Misses | None
    stages: tuple[Way, ...]
    provenance: Provenance


def sections_of(document: Document, head: Document | None = None) -> Sections:
    """All sections of a report's document; ``head`` is that of its view, where there is one."""
    return Sections(
        verdict=verdict_of(document, head),
        systems=systems_of(document, head),
        counts=counts_of(document, head),
        segments=segments_of(document, head),
        failures=misses_of(document, head),
        stages=ways_of(document, head),
        provenance=provenance_of(document),
    )


def contents_of(sections: Sections, charted: Collection[str]) -> list[tuple[str, str]]:
    """The anchors and names of the sections that a page has, in their order.

    ``charted`` are the sections that have charts.
    """
    found = [("verdict", "Verdict"), ("systems", "Systems"), ("counts", "Counts and bounds")]
    if sections.segments.maps or sections.segments.warned or sections.segments.few:
        found.append(("segments", "Segments"))
    charts = {
        "curves": "What k changes",
        "losses": "Losses",
        "latency": "Latency",
        "trade": "Quality against latency",
    }
    found += [(name, title) for name, title in charts.items() if name in charted]
    if sections.failures is not None:
        found.append(("failures", "Failures"))
    if sections.stages:
        found.append(("stages", "Stages"))
    return [
        *found,
        ("queries", "Queries"),
        ("provenance", "Provenance"),
        ("downloads", "Downloads"),
    ]
