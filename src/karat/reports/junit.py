"""The report as JUnit XML, which GitLab, Jenkins and others show as test results.

A gate is a test: one that fails is a failure, one that cannot be judged an error, so that
both stop a pipeline but differ. A comparison is a test that nothing got worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal
from xml.etree import ElementTree as ET

from karat.pages.formatting import (
    PART,
    figure,
    gate_mean,
    gate_name,
    label,
    measured,
    pair_name,
    verdict_words,
)
from karat.reports.document import Report

Document = Mapping[str, Any]
Outcome = Literal["failure", "error", "skipped"]
_OUTCOMES: Mapping[str, Outcome] = {
    "fail": "failure",
    "unmeasurable": "error",
    "skipped": "skipped",
}


def to_junit(report: Report) -> bytes:
    """Return one suite per system with gates and one per comparison; same inputs, same bytes."""
    return junit(report.results())


def junit(results: Document) -> bytes:
    """Return the XML for the results part of a report's document."""
    suites = [*_gates(results), *_comparisons(results)] or [*_evaluations(results)]
    root = ET.Element("testsuites", name="karat")
    for suite in suites:
        root.append(suite)
    for count in ("tests", "failures", "errors", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in suites)))
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def _gates(results: Document) -> Iterable[ET.Element]:
    cases: dict[str, list[ET.Element]] = {}
    for gate in results.get("gates", []):
        figures = f"mean {gate_mean(gate).replace(PART, ' ').strip()}, n = {gate['n']}"
        figures += f", compared with the limit: {gate['on']}, needed: {figure(gate['needed'])}"
        system, name, outcome = gate["system"], gate_name(gate), _OUTCOMES.get(gate["verdict"])
        kind = f"gate {gate['verdict']}"
        case = _case(f"karat.gates.{system}", name, outcome, kind, gate["because"], figures)
        cases.setdefault(system, []).append(case)
    measures = {system["name"]: system["measures"] for system in results["systems"]}
    for system, tests in cases.items():
        yield _suite(f"gates of {system}", tests, measures.get(system, {}))


def _comparisons(results: Document) -> Iterable[ET.Element]:
    """Yield one test per measure: it did not get worse. Unclear is not a failure.

    A primary measure without any value is an error.
    """
    cases: dict[str, list[ET.Element]] = {}
    # A set without any gold is skipped as a whole.
    cells = [cell for system in results["systems"] for cell in system["measures"].values()]
    measured_at_all = any(cell["n"] for cell in cells)
    for row in results.get("comparisons", []):
        if row["segment"] is not None:
            continue
        outcome: Outcome | None = "failure" if row["regression"] else None
        if row["verdict"] is None or not row["n"]:
            outcome = "error" if row["primary"] and measured_at_all else "skipped"
        name = f"{row['measure']} against {row['baseline']}" + " (primary)" * row["primary"]
        kind = "not measured" if outcome == "error" else "worse"
        figures = f"verdict {verdict_words(row) if row['verdict'] else 'none'}"
        group = f"karat.comparison.{row['system']}"
        case = _case(group, name, outcome, kind, row["because"], figures)
        cases.setdefault(pair_name(row), []).append(case)
    for pair, tests in cases.items():
        yield _suite(pair, tests, {})


def _evaluations(results: Document) -> Iterable[ET.Element]:
    """Yield one test per system, that it was scored, if there are no gates or comparisons."""
    for system in results["systems"]:
        anything = any(cell["n"] for cell in system["measures"].values())
        counts, group = system["counts"], f"karat.evaluation.{system['name']}"
        because = f"{counts['scored']} of {counts['queries']} queries scored"
        case = _case(group, "is scored", None if anything else "error", "nothing scored", because)
        yield _suite(system["name"], [case], system["measures"])


def _suite(name: str, cases: list[ET.Element], measures: Document) -> ET.Element:
    suite = ET.Element("testsuite", name=label(name), tests=str(len(cases)))
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(sum(case.find(tag) is not None for case in cases)))
    if measures:
        properties = ET.SubElement(suite, "properties")
        for measure, cell in measures.items():
            value = f"{measured(cell).replace(PART, ' ').strip()}, n = {cell['n']}"
            ET.SubElement(properties, "property", name=measure, value=value)
    suite.extend(cases)
    return suite


def _case(
    group: str, name: str, outcome: Outcome | None, kind: str, because: str, figures: str = ""
) -> ET.Element:
    """Return one test with its kind of failure and reason; without an outcome it passed."""
    element = ET.Element("testcase", classname=label(group), name=label(name))
    # What XML 1.0 has no place for is not printable either, and so is replaced by label.
    because = label(because)
    details = [because, label(figures)]
    if outcome is not None:
        ended = ET.SubElement(element, outcome, message=because)
        if outcome != "skipped":
            ended.set("type", kind)
            ended.text = details.pop(0)
    ET.SubElement(element, "system-out").text = "\n".join(line for line in details if line)
    return element
