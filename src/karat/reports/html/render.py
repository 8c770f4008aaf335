"""From a report to its page: one file that holds all it needs and asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from karat.reports.document import Report
from karat.reports.html.charts import charts_of
from karat.reports.html.sections import contents_of, sections_of
from karat.reports.html.vega import vega
from karat.reports.html.view import view_of
from karat.version import __version__

Document = Mapping[str, Any]

BASE_STYLES = ("tokens.css", "karat.css", "page.css")
STYLES = (
    *BASE_STYLES,
    "sections.css",
    "charts.css",
    "queries.css",
    "drawer.css",
    "lists.css",
    "print.css",
)
SCRIPTS = (
    "theme.js",
    "nav.js",
    "elements.js",
    "words.js",
    "place.js",
    "data.js",
    "table_model.js",
    "table_controls.js",
    "table_rows.js",
    "table.js",
    "lists.js",
    "lines.js",
    "outcomes.js",
    "drawer.js",
    "downloads.js",
    "charts.js",
)
# Nothing is fetched from anywhere, and nothing runs but the scripts that are in the file.
_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src {styles}; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


class Assets(Protocol):
    """Where a page has its styles and scripts from."""

    def styles(self, *names: str) -> Markup: ...
    def scripts(self, *names: str) -> Markup: ...


def asset(name: str) -> str:
    """A style sheet or script of the report, by its name."""
    return files("karat.reports.html").joinpath("assets", name).read_text("utf-8")


@dataclass(frozen=True)
class Inlined:
    """Styles and scripts that stand in the page itself."""

    css: str
    js: Sequence[str]

    def styles(self) -> Markup:
        """The style sheets as one."""
        return _whole("style", self.css)

    def scripts(self) -> Markup:
        """The scripts, one after the other."""
        return Markup("\n").join(_whole("script", js) for js in self.js)

    @property
    def policy(self) -> str:
        """What the page may do, for its own head: run and show what is in it."""
        scripts = " ".join(map(_digest, self.js))
        return _POLICY.format(scripts=scripts, styles=_digest(self.css))


@cache
def inlined() -> Inlined:
    """All styles and scripts of a report; Vega first, where it is installed."""
    library = vega()
    scripts = "\n".join(asset(name) for name in SCRIPTS)
    return Inlined(
        css="\n".join(asset(name) for name in STYLES),
        js=[*([] if library is None else [library]), scripts],
    )


def environment() -> Environment:
    """The templates of a report: what they are given is text unless it says otherwise."""
    made = Environment(
        loader=PackageLoader("karat.reports.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["data"] = data
    made.globals["version"] = __version__
    return made


def data(value: object) -> Markup:
    """Plain data for a script that is never run: nothing in it can end the script."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))  # noqa: S704


def to_html(report: Report) -> bytes:
    """The report as one file."""
    view = view_of(report)
    assets = inlined()
    context = context_of(report.document(), view.head)
    page = environment().get_template("report.html")
    parts = _Parts(_packed(view.packed_rows), [_packed(block) for block in view.packed_blocks])
    html = page.render(context, assets=assets, csp=assets.policy, parts=parts, rows_url=None)
    return html.encode("utf-8", "replace")


def context_of(document: Document, head: Document | None) -> dict[str, Any]:
    """What the sections of a report are made of, in a file and in the workbench.

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
        "contents": contents_of(sections, {one.section for one in charts}),
        "charts": charts,
        "specs": {one.id: one.spec for one in charts},
        "title": title_of(document),
    }


def _in_order(document: Document, head: Document | None) -> Document:
    """The document with its measures as they were asked for: one that was stored has lost that."""
    places = {one["name"]: place for place, one in enumerate((head or {}).get("measures", ()))}

    def ordered(system: Document) -> Document:
        names = sorted(system["measures"], key=lambda name: places.get(name, len(places)))
        return {**system, "measures": {name: system["measures"][name] for name in names}}

    return {**document, "systems": [ordered(system) for system in document["systems"]]}


def title_of(document: Document) -> str:
    """What a tab or a mail shows: the verdict, and what it is on."""
    names = ", ".join(system["name"] for system in document["systems"][:3])
    more = len(document["systems"]) - 3
    told = f"{names} and {more} more" if more > 0 else names
    verdict = document.get("verdict")
    return f"{verdict}: {told} · karat" if verdict else f"{told} · karat"


@dataclass(frozen=True)
class _Parts:
    rows: Markup
    blocks: Sequence[Markup]


def _whole(element: str, own: str) -> Markup:
    """What karat itself wrote, as it is."""
    return Markup(f"<{element}>{own}</{element}>")  # noqa: S704


def _packed(data: bytes) -> Markup:
    return Markup(base64.b64encode(data).decode())  # noqa: S704


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "replace")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
