"""A report as one self-contained HTML file."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection
from importlib.metadata import version

from jinja2 import BytecodeCache, Environment, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup

from karat.pages.formatting import label
from karat.reports.document import Report
from karat.reports.html.assets import inlined, read_cached, write_cached
from karat.reports.html.charts import charts_of
from karat.reports.html.elements import Context, Document
from karat.reports.html.sections import counts_of, misses_of, provenance_of, verdict_of
from karat.reports.html.systems import segments_of, systems_of
from karat.reports.html.view import view_of
from karat.version import __version__

# Longer texts are cut, so that the page stays readable; real names and addresses are shorter.
LONGEST_TEXT = 8_192
# Sections that are shown if they have charts.
_CHART_SECTIONS = {
    "curves": "Measures by k",
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
    packed = [base64.b64encode(part).decode() for part in view.parts().values()]
    _, rows, *blocks = map(Markup, packed)
    parts = {"rows": rows, "blocks": blocks}
    html = page.render(context, assets=assets, csp=assets.policy, parts=parts, rows_url=None)
    return html.encode("utf-8", "replace")


def context_of(document: Document, head: Document | None) -> Context:
    """Return the template variables, for a file and for the workbench.

    Without the ``head`` of a view there are no single queries.
    """
    document = _in_order(document, head)
    charts = charts_of(document, head)
    sections = sections_of(document, head)
    title, verdict = sections["verdict"]["title"], document.get("verdict")
    return {
        "doc": document,
        "head": head,
        "sections": sections,
        "contents": contents_of(sections, {chart.section for chart in charts}),
        "charts": charts,
        "specs": {chart.id: chart.spec for chart in charts},
        "title": f"{verdict}: {title} · karat" if verdict else f"{title} · karat",
    }


class _CompiledTemplates(BytecodeCache):
    """Keeps compiled templates in the user's cache; Jinja refuses those of another source."""

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.bytecode_from_string(read_cached(self._name(bucket)))

    def dump_bytecode(self, bucket: Bucket) -> None:
        write_cached(self._name(bucket), bucket.bytecode_to_string())

    def _name(self, bucket: Bucket) -> str:
        return f"template-{bucket.key}-{version('jinja2')}-{__version__}"


def environment() -> Environment:
    """Return the templates of a report; values are escaped unless they are Markup."""
    templates = Environment(
        loader=PackageLoader("karat.reports.html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=safe_text,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_CompiledTemplates(),
    )
    templates.filters["data"] = data
    templates.globals["version"] = __version__
    return templates


def safe_text(value: object) -> object:
    """Return a text for display: without control characters, and cut if very long."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return label(value if len(value) <= LONGEST_TEXT else f"{value[:LONGEST_TEXT]}…")


def data(value: object) -> Markup:
    """Return plain data for a data script; nothing in it can end the script."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))  # noqa: S704


def sections_of(document: Document, head: Document | None = None) -> Context:
    """Return the template variables of the sections; all texts are safe to show."""
    return {
        "verdict": verdict_of(document, head),
        "systems": systems_of(document, head),
        "counts": counts_of(document, head),
        "segments": segments_of(document, head),
        "failures": misses_of(document, head),
        "provenance": provenance_of(document),
    }


def contents_of(sections: Context, charted: Collection[str]) -> list[tuple[str, str]]:
    """Return the anchors and titles of the sections that a page has, in their order.

    ``charted`` are the sections that have charts.
    """
    segments = sections["segments"]
    contents = [("verdict", "Verdict"), ("systems", "Systems"), ("counts", "Counts and bounds")]
    if segments["maps"] or segments["reversals"]:
        contents.append(("segments", "Segments"))
    contents += [(name, title) for name, title in _CHART_SECTIONS.items() if name in charted]
    contents += [("failures", "Failures")] if sections["failures"] is not None else []
    contents += [("queries", "Queries"), ("provenance", "Provenance"), ("downloads", "Downloads")]
    return contents


def _in_order(document: Document, head: Document | None) -> Document:
    """Return the document with its measures in the order of the view; a stored one is sorted."""
    measures = (head or {}).get("measures", ())
    places = {measure["name"]: place for place, measure in enumerate(measures)}

    def ordered(system: Document) -> Document:
        names = sorted(system["measures"], key=lambda name: places.get(name, len(places)))
        return {**system, "measures": {name: system["measures"][name] for name in names}}

    return {**document, "systems": [ordered(system) for system in document["systems"]]}
