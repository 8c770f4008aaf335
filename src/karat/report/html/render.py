"""A report as one HTML file that holds all it needs and fetches nothing."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from karat.report.document import Report
from karat.report.html.assets import inlined
from karat.report.html.charts import Chart
from karat.report.html.counts import Counts, counts_of
from karat.report.html.curve_charts import curve_charts
from karat.report.html.failures import Misses, Waterfall, misses_of, waterfalls_of
from karat.report.html.latency_charts import latency_charts, trade_charts
from karat.report.html.loss_charts import loss_charts
from karat.report.html.names import Document
from karat.report.html.provenance import Provenance, provenance_of
from karat.report.html.segments import Segments, segments_of
from karat.report.html.systems import Systems, systems_of
from karat.report.html.verdict import Verdict, verdict_of
from karat.report.html.view import view_of
from karat.version import __version__

# Sections that are there if they have charts.
_CHART_SECTIONS = {
    "curves": "What k changes",
    "losses": "Losses",
    "latency": "Latency",
    "trade": "Quality against latency",
}


def to_html(report: Report) -> bytes:
    """Return the report as one HTML file."""
    view = view_of(report)
    assets = inlined()
    context = context_of(report.to_dict(), view.head)
    page = environment().get_template("report.html")
    parts = _Parts(_base64(view.packed_rows), [_base64(block) for block in view.packed_blocks])
    html = page.render(context, assets=assets, csp=assets.policy, parts=parts, rows_url=None)
    return html.encode("utf-8", "replace")


def context_of(document: Document, head: Document | None) -> dict[str, Any]:
    """Return what the templates read, in a file and in the workbench.

    Without the ``head`` of a view there are no single queries.
    """
    document = _in_order(document, head)
    charts = charts_of(document)
    sections = sections_of(document, head)
    return {
        "doc": document,
        "head": head,
        "view": head,
        "sections": sections,
        "contents": contents_of(sections, {chart.section for chart in charts}),
        "charts": charts,
        "specs": {chart.id: chart.spec for chart in charts},
        "title": title_of(document),
    }


def environment() -> Environment:
    """Return the templates of a report; values are escaped unless they are Markup."""
    templates = Environment(
        loader=PackageLoader("karat.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["data"] = data
    templates.globals["version"] = __version__
    return templates


def data(value: object) -> Markup:
    """Return plain data for a data script; nothing in it can end the script."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))  # noqa: S704


@dataclass(frozen=True, slots=True)
class Sections:
    """What the templates of the sections read; all texts are safe to show."""

    verdict: Verdict
    systems: Systems
    counts: Counts
    segments: Segments
    failures: Misses | None
    stages: tuple[Waterfall, ...]
    provenance: Provenance


def sections_of(document: Document, head: Document | None = None) -> Sections:
    """Return all sections of a report's document; ``head`` is that of its view, if it has one."""
    return Sections(
        verdict=verdict_of(document, head),
        systems=systems_of(document, head),
        counts=counts_of(document, head),
        segments=segments_of(document, head),
        failures=misses_of(document, head),
        stages=waterfalls_of(document, head),
        provenance=provenance_of(document),
    )


def contents_of(sections: Sections, charted: Collection[str]) -> list[tuple[str, str]]:
    """Return the anchors and titles of the sections that a page has, in their order.

    ``charted`` are the sections that have charts.
    """
    segments = sections.segments
    contents = [("verdict", "Verdict"), ("systems", "Systems"), ("counts", "Counts and bounds")]
    if segments.maps or segments.warned or segments.few:
        contents.append(("segments", "Segments"))
    contents += [(name, title) for name, title in _CHART_SECTIONS.items() if name in charted]
    contents += [("failures", "Failures")] if sections.failures is not None else []
    contents += [("stages", "Stages")] if sections.stages else []
    contents += [("queries", "Queries"), ("provenance", "Provenance"), ("downloads", "Downloads")]
    return contents


def charts_of(document: Document) -> list[Chart]:
    """Return all charts that a report has figures for, in the order of its sections."""
    return [
        *curve_charts(document),
        *loss_charts(document),
        *latency_charts(document),
        *trade_charts(document),
    ]


def title_of(document: Document) -> str:
    """Return the title of the page: the verdict and the systems."""
    names = ", ".join(system["name"] for system in document["systems"][:3])
    more = len(document["systems"]) - 3
    systems = f"{names} and {more} more" if more > 0 else names
    verdict = document.get("verdict")
    return f"{verdict}: {systems} · karat" if verdict else f"{systems} · karat"


def _in_order(document: Document, head: Document | None) -> Document:
    """Return the document with its measures in the order of the view; a stored one is sorted."""
    measures = (head or {}).get("measures", ())
    places = {measure["name"]: place for place, measure in enumerate(measures)}

    def ordered(system: Document) -> Document:
        names = sorted(system["measures"], key=lambda name: places.get(name, len(places)))
        return {**system, "measures": {name: system["measures"][name] for name in names}}

    return {**document, "systems": [ordered(system) for system in document["systems"]]}


@dataclass(frozen=True)
class _Parts:
    rows: Markup
    blocks: Sequence[Markup]


def _base64(data: bytes) -> Markup:
    return Markup(base64.b64encode(data).decode())  # noqa: S704
