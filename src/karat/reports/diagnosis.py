"""A diagnosis as a page: what to fix next first, then what lies behind it, system by system."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from karat.reports.failures import failure_sections, waterfall_sections
from karat.reports.figures import label, several
from karat.reports.findings_page import findings_sections
from karat.reports.latencies import latency_sections, pareto_sections
from karat.reports.notes import conventions_lines, counts_lines
from karat.reports.outputs import PAGE_FORMS, Form, forms_of
from karat.reports.pages import Page, Paper, Section
from karat.reports.panels import (
    diversity_sections,
    freshness_sections,
    hub_sections,
    no_answer_sections,
    reach_sections,
)

Document = Mapping[str, Any]

_PARTS: Mapping[str, Callable[[Document], Sequence[Section]]] = {
    "failures": failure_sections,
    "no_answer": no_answer_sections,
    "freshness": freshness_sections,
    "diversity": diversity_sections,
    "hubs": hub_sections,
    "reach": reach_sections,
    "latency": latency_sections,
}


FORMS = forms_of(
    *PAGE_FORMS.values(),
    Form("png", ".png", "losses, and quality against latency, as a picture", "diagnosis.to_png"),
    Form("svg", ".svg", "losses, and quality against latency, as a drawing", "diagnosis.to_svg"),
)


def diagnosis_page(results: Document) -> Page:
    """The page on one or many systems."""
    systems = results["systems"]
    sections: list[Section] = []
    for system in systems:
        whose = "" if len(systems) == 1 else f"{label(system['name'])}: "
        sections += [
            replace(one, title=f"{whose}{one.title}") if one.title else one
            for one in _of_system(system)
        ]
    if "pareto" in results:
        sections += pareto_sections(results["pareto"])
    names = ", ".join(label(system["name"]) for system in systems)
    last = [*counts_lines(results), *conventions_lines(results)]
    return Page(f"What to fix next: {names}", [_headline(one) for one in systems], sections, last)


def _headline(system: Document) -> str:
    failures, found = system["failures"], len(system["findings"])
    told = several(found, "finding") if found else "no finding"
    missed = f"{failures['misses']:,} of {several(failures['assessed'], 'query', 'queries')}"
    return f"{label(system['name'])}: {told} · {missed} without gold in the top {_miss(failures)}"


def _miss(failures: Document) -> int:
    return int(failures["miss_at"])


def _of_system(system: Document) -> Iterator[Section]:
    yield from findings_sections(system)
    for part, sections in _PARTS.items():
        if part in system:
            yield from sections(system[part])
        if part == "failures":
            for one in system["waterfalls"]:
                yield from waterfall_sections(one)
    if system["lacks"]:
        yield Section(
            "Not looked into",
            lines=[f"{part}: {label(reason)}" for part, reason in system["lacks"].items()],
        )


def to_png(paper: Paper) -> bytes:
    """The charts as a picture."""
    from karat.reports.charts import png

    return png(_charts(paper.results()))


def to_svg(paper: Paper) -> bytes:
    """The charts as a drawing."""
    from karat.reports.charts import svg

    return svg(_charts(paper.results()))


def _charts(results: Document) -> dict[str, Any]:
    from karat.reports.charts import below_each_other, pareto_chart, waterfall_chart

    charts = [
        waterfall_chart({**one, "system": system["name"]})
        for system in results["systems"]
        for one in system["waterfalls"]
        if one["n"]
    ]
    if results.get("pareto", {}).get("systems"):
        charts.append(pareto_chart(results["pareto"]))
    return below_each_other(charts)
