"""Report documents made by hand for tests of the sections, and a reader of the pages they give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

from karat.reports.html.render import environment
from karat.reports.html.render import sections_of as contexts_of

SECTIONS = ("verdict", "systems", "counts", "segments", "failures", "provenance")
VOID = {"meta", "link", "br", "hr", "img", "input", "circle", "line", "rect", "path"}
COUNTS = {
    "repeats": 0,
    "empty_gold": 0,
    "failed_calls": 0,
    "missing": 0,
    "no_answer": 0,
    "not_in_gold": 0,
    "not_in_queries": 0,
    "order_conflicts": 0,
    "queries": 40,
    "scored": 40,
    "versions_unknown": 0,
}
CONVENTIONS = {
    "boot": 2000,
    "ci": 0.95,
    "cover": 0.5,
    "depth": None,
    "empty_gold": "apart",
    "interval": "gaffke",
    "k": 10,
    "level": "item",
    "missing": "zero",
    "order": "rank",
    "permutations": 10000,
    "profile": "karat",
    "rel": 1.0,
    "seed": 0,
    "ties": "id-asc",
    "unit": "query",
}


def sections_of(document: Mapping[str, Any], head: Mapping[str, Any] | None = None) -> Any:
    """The sections of a page, their keys as attributes."""
    return attributes(contexts_of(document, head))


def attributes(value: Any) -> Any:
    """A context for templates with its keys as attributes."""
    if isinstance(value, dict):
        return SimpleNamespace(**{key: attributes(inner) for key, inner in value.items()})
    if isinstance(value, list | tuple):
        return type(value)(map(attributes, value))
    return value


def cell(mean: float | None, ci: list[float] | None = None, n: int = 40, **more: Any) -> dict:
    """A measure of a system."""
    return {"mean": mean, "ci": ci, "n": n, "ceiling": 1.0, "better": "higher", **more}


def part(mean: float | None, ci: list[float] | None = None, n: int = 40) -> dict:
    """A measure in a segment."""
    small = {"small": True} if n < 20 else {}
    return {"mean": mean, "ci": ci, "n": n, "ceiling": 1.0, **small}


def system(name: str, measures: Mapping[str, dict] | None = None, **more: Any) -> dict:
    measures = {"R@5": cell(0.5, [0.4, 0.6])} if measures is None else dict(measures)
    return {"name": name, "measures": measures, "counts": COUNTS, **more}


def document(*systems: dict, **more: Any) -> dict:
    """The least that a report holds, and what is given."""
    return {
        "schema_version": 2,
        "tool": {"name": "karat", "version": "0.1.0"},
        "conventions": CONVENTIONS,
        "counts": COUNTS,
        "systems": list(systems) or [system("alpha")],
        "inputs": {
            "gold": {"name": "gold.jsonl", "sha256": "ab" * 32},
            "runs": [{"name": f"{one['name']}.jsonl", "sha256": "cd" * 32} for one in systems],
            "queries": None,
            "corpus": None,
        },
        **more,
    }


def gate(system: str, measure: str = "R@5", **more: Any) -> dict:
    """A gate that fails: its lower bound 0.4 is below 0.8."""
    return {
        "system": system,
        "measure": measure,
        "segment": None,
        "on": "ci_low",
        "min": 0.8,
        "strict": False,
        "value": 0.4,
        "mean": 0.5,
        "ci": [0.4, 0.6],
        "n": 40,
        "needed": 0.88,
        "ceiling": 1.0,
        "unreachable": False,
        "verdict": "fail",
        "because": f"{measure} is 0.50 [0.40, 0.60], n = 40: its lower bound is below 0.80",
        **more,
    }


def comparison(baseline: str, system: str, measure: str = "R@5", **more: Any) -> dict:
    """A difference of +0.1 over 40 queries."""
    return {
        "baseline": baseline,
        "system": system,
        "measure": measure,
        "segment": None,
        "primary": measure == "R@5",
        "better": "higher",
        "n": 40,
        "baseline_mean": 0.5,
        "system_mean": 0.6,
        "delta": 0.1,
        "ci": [0.05, 0.15],
        "p": 0.004,
        "p_adjusted": 0.008,
        "wins": 12,
        "ties": 25,
        "losses": 3,
        "detectable": 0.07,
        "margin": 0.02,
        "verdict": "better",
        "regression": False,
        **more,
    }


def compared(*rows: dict) -> dict[str, Any]:
    """What a document has where systems are compared."""
    decided = [row for row in rows if row["primary"] and not row["segment"]]
    decisions = [
        {key: row[key] for key in ("baseline", "system", "measure", "verdict", "regression")}
        | {"because": f"{row['measure']} rose by 0.1"}
        for row in decided
    ]
    return {
        "comparisons": list(rows),
        "decisions": decisions,
        "rule": {
            "primary": "R@5",
            "margin": 0.02,
            "margin_kind": "absolute",
            "margin_on": "interval",
            "pairs": "baseline",
            "correction": "holm",
            "detect": None,
        },
        "overlap": [],
        "moved": [],
        "reversals": [],
        "replicates": {},
    }


@dataclass
class Element:
    """An element of a page, with its text and what is in it."""

    tag: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    own: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join("".join(self.own).split())

    def all(self, tag: str, **wanted: str) -> list[Element]:
        """The elements of that name below this one; ``cls`` is a class that they have."""
        found = []
        for child in self.children:
            classes = child.attributes.get("class", "").split()
            fits = wanted.get("cls") in (None, *classes)
            if child.tag == tag and fits and wanted.get("id") in (None, child.attributes.get("id")):
                found.append(child)
            found += child.all(tag, **wanted)
        return found

    def one(self, tag: str, **wanted: str) -> Element:
        (found,) = self.all(tag, **wanted)
        return found


class _Reader(HTMLParser):
    """Refuses what is not closed where it was opened."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.stack = [Element("page", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, {name: value or "" for name, value in attrs})
        self.stack[-1].children.append(made)
        if tag not in VOID:
            self.stack.append(made)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.stack[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        closed = self.stack.pop()
        if closed.tag != tag:
            raise AssertionError(f"<{closed.tag}> is open where </{tag}> stands")

    def handle_data(self, data: str) -> None:
        for element in self.stack:
            element.own.append(data)


def read(html: str) -> Element:
    """The page as a tree."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    if len(reader.stack) != 1:
        raise AssertionError(f"<{reader.stack[-1].tag}> is never closed")
    return reader.stack[0]


def html_of(made: dict, head: dict | None = None) -> str:
    """The written sections of a document as HTML."""
    context = {"doc": made, "head": head, "sections": contexts_of(made, head)}
    templates = environment()
    return "".join(
        templates.get_template(f"sections/{one}.html").render(context) for one in SECTIONS
    )


def page_of(made: dict, head: dict | None = None) -> Element:
    """The written sections of a document, read back."""
    return read(html_of(made, head))


def table(page: Element, label: str) -> list[list[str]]:
    """The cells of the table in the region of that name, as text."""
    (region,) = [one for one in page.all("div") if one.attributes.get("aria-label") == label]
    return [
        [cell.text for cell in row.children if cell.tag in ("td", "th")] for row in region.all("tr")
    ]
