"""The report as JUnit XML, which GitLab, Jenkins and others show as test results.

A gate is a test: one that fails is a failure, one that cannot be judged an error, so that
both stop a pipeline but differ. A comparison is a test that nothing got worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class TestCase:
    """One test: its suite, name, outcome (None if it passed), kind of failure, and reason."""

    group: str
    name: str
    outcome: Outcome | None
    kind: str
    because: str
    figures: str = ""


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
    cases: dict[str, list[TestCase]] = {}
    for gate in results.get("gates", []):
        outcomes: dict[str, Outcome] = {
            "fail": "failure",
            "unmeasurable": "error",
            "skipped": "skipped",
        }
        figures = f"mean {gate_mean(gate).replace(PART, ' ').strip()}, n = {gate['n']}"
        figures += f", compared with the limit: {gate['on']}, needed: {figure(gate['needed'])}"
        name = gate["system"]
        case = TestCase(
            f"karat.gates.{name}",
            gate_name(gate),
            outcomes.get(gate["verdict"]),
            f"gate {gate['verdict']}",
            gate["because"],
            figures,
        )
        cases.setdefault(name, []).append(case)
    measures = {system["name"]: system["measures"] for system in results["systems"]}
    for name, tests in cases.items():
        yield _suite(f"gates of {name}", tests, measures.get(name, {}))


def _comparisons(results: Document) -> Iterable[ET.Element]:
    """Yield one test per measure: it did not get worse. Unclear is not a failure.

    A primary measure without any value is an error.
    """
    cases: dict[str, list[TestCase]] = {}
    # A set without any gold is skipped as a whole.
    cells = [cell for system in results["systems"] for cell in system["measures"].values()]
    measured_at_all = any(cell["n"] for cell in cells)
    for row in results.get("comparisons", []):
        if row["segment"] is not None:
            continue
        outcome: Outcome | None = "failure" if row["regression"] else None
        if row["verdict"] is None or not row["n"]:
            outcome = "error" if row["primary"] and measured_at_all else "skipped"
        case = TestCase(
            f"karat.comparison.{row['system']}",
            f"{row['measure']} against {row['baseline']}" + (" (primary)" * row["primary"]),
            outcome,
            "not measured" if outcome == "error" else "worse",
            row["because"],
            f"verdict {verdict_words(row) if row['verdict'] else 'none'}",
        )
        cases.setdefault(pair_name(row), []).append(case)
    for name, tests in cases.items():
        yield _suite(name, tests, {})


def _evaluations(results: Document) -> Iterable[ET.Element]:
    """Yield one test per system, that it was scored, if there are no gates or comparisons."""
    for system in results["systems"]:
        anything = any(cell["n"] for cell in system["measures"].values())
        case = TestCase(
            f"karat.evaluation.{system['name']}",
            "is scored",
            None if anything else "error",
            "nothing scored",
            f"{system['counts']['scored']} of {system['counts']['queries']} queries scored",
        )
        yield _suite(system["name"], [case], system["measures"])


def _suite(name: str, cases: list[TestCase], measures: Document) -> ET.Element:
    outcomes = [case.outcome for case in cases]
    suite = ET.Element(
        "testsuite",
        name=label(name),
        tests=str(len(cases)),
        failures=str(outcomes.count("failure")),
        errors=str(outcomes.count("error")),
        skipped=str(outcomes.count("skipped")),
    )
    if measures:
        properties = ET.SubElement(suite, "properties")
        for measure, cell in measures.items():
            value = f"{measured(cell).replace(PART, ' ').strip()}, n = {cell['n']}"
            ET.SubElement(properties, "property", name=measure, value=value)
    for case in cases:
        suite.append(_case(case))
    return suite


def _case(case: TestCase) -> ET.Element:
    element = ET.Element("testcase", classname=label(case.group), name=label(case.name))
    # What XML 1.0 has no place for is not printable either, and so is replaced by label.
    because = label(case.because)
    details = [because, label(case.figures)]
    if case.outcome is not None:
        ended = ET.SubElement(element, case.outcome, message=because)
        if case.outcome != "skipped":
            ended.set("type", case.kind)
            ended.text = details.pop(0)
    ET.SubElement(element, "system-out").text = "\n".join(line for line in details if line)
    return element
