from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from karat.data.tables import Queries
from karat.reports.junit import junit, to_junit
from karat.reports.outputs import parse_output, write_outputs

from .conftest import BASE, HEAD, decided, world

COUNTED = {"failures": "failure", "errors": "error", "skipped": "skipped"}


def parsed(report) -> ET.Element:
    """The XML, once it has been held against what readers of JUnit files rely on."""
    root = ET.fromstring(to_junit(report))
    assert root.tag == "testsuites"
    for suite in root:
        assert suite.tag == "testsuite"
        assert suite.get("name")
        assert [child.tag for child in suite][1:].count("properties") == 0
        for case in suite.iter("testcase"):
            assert case.get("name")
            assert case.get("classname")
            assert [child.tag for child in case if child.tag != "system-out"] in [
                [],
                *([kind] for kind in COUNTED.values()),
            ]
    for element in (root, *root):
        assert int(element.get("tests")) == len([*element.iter("testcase")])
        for attribute, kind in COUNTED.items():
            assert int(element.get(attribute)) == len([*element.iter(kind)])
    return root


def cases(root: ET.Element) -> dict[str, ET.Element]:
    return {case.get("name"): case for case in root.iter("testcase")}


def test_a_gate_is_a_test_of_its_system(change):
    suite = parsed(change)[0]
    assert suite.get("name") == "gates of head"
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("5", "2", "1")
    assert {case.get("classname") for case in suite.iter("testcase")} == {"karat.gates.head"}


def test_failed_gates_are_failures_and_those_that_cannot_be_judged_errors(change):
    found = cases(parsed(change))
    failure = found["R@1 >= 0.5 where language = pt"].find("failure")
    assert failure.get("message").startswith("R@1 in language pt needs ")
    assert failure.text == failure.get("message")
    assert found["latency.retrieve.p50 <= 60"].find("error").get("type") == "gate unmeasurable"
    passed = found["R@1 >= 0.3"]
    assert passed.find("failure") is passed.find("error") is None
    assert "0.46 to 0.76" in passed.find("system-out").text
    assert "needed: 0.4667" in passed.find("system-out").text


def test_the_measures_are_properties_of_the_suite(change):
    properties = {one.get("name"): one.get("value") for one in parsed(change)[0].iter("property")}
    assert properties["RR"].startswith("0.7481 [")
    assert properties["RR"].endswith("], n = 45")


def test_a_regression_is_a_failure_and_what_is_the_same_passes():
    runs, gold, queries = world({"base": HEAD, "head": BASE})
    root = parsed(decided(runs, gold, queries, measures=["RR", "P@5", "NumRet"]))
    assert [suite.get("name") for suite in root] == ["head against base"]
    found = cases(root)
    assert found["RR against base (primary)"].find("failure").get("type") == "worse"
    assert found["P@5 against base"].find("failure") is None
    assert "verdict same" in found["P@5 against base"].find("system-out").text
    assert "neither higher nor lower is better" in found["NumRet against base"].find("skipped").get(
        "message"
    )


def test_without_gates_and_comparisons_the_evaluation_is_the_test(report):
    root = parsed(report)
    assert [suite.get("name") for suite in root] == ["good", "poor"]
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("2", "0", "0")
    assert cases(root)["is scored"].get("classname") == "karat.evaluation.poor"
    assert {one.get("name") for one in root[0].iter("property")} == {"nDCG@10", "R@2", "P@5", "RR"}


def test_a_run_that_could_not_be_scored_is_an_error(report):
    results = report.results()
    for cell in results["systems"][1]["measures"].values():
        cell["n"] = 0
    root = ET.fromstring(junit(results))
    assert [suite.get("errors") for suite in root] == ["0", "1"]


@pytest.mark.parametrize("bad", ["\x00", "\x0b\x1f", "\ufffe", "\ud800", "<&\"'>", "\r\n\t"])
def test_any_name_gives_well_formed_xml(bad):
    runs, gold, queries = world({f"base{bad}": BASE, f"head{bad}": HEAD})
    frame = queries.frame
    if bad != "\ud800":
        frame = frame.with_columns(language=frame["language"] + bad)
    gates = [{"measure": "RR", "by": "language", "min": 0.9}]
    root = parsed(decided(runs, gold, Queries.from_frame(frame), gates=gates))
    assert len(root) == 2
    if bad == "<&\"'>":
        assert root[0].get("name") == "gates of head<&\"'>"


def test_there_is_neither_clock_nor_host_in_it(change):
    text = to_junit(change).decode()
    assert text == to_junit(change).decode()
    for word in ("timestamp", "hostname", "time="):
        assert word not in text


def test_the_form_is_chosen_by_its_prefix(change, tmp_path):
    output = parse_output(f"junit:{tmp_path / 'out.xml'}")
    write_outputs([output], change)
    assert (tmp_path / "out.xml").read_bytes() == to_junit(change)


def test_no_control_character_reaches_the_xml():
    name = "".join(map(chr, [*range(32), 0x7F, 0x85, 0xFFFE, 0x202E])) + "]]>"
    runs, gold, queries = world({name: HEAD})
    told = to_junit(decided(runs, gold, queries, gates=["RR >= 0.99"], compared=False))
    root = ET.fromstring(told)
    assert root.find("testsuite").get("name").endswith("]]>")
    assert not any(ord(sign) < 32 and sign != "\n" for sign in told.decode())
