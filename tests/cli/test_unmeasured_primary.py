"""A comparison whose deciding measure has no value cannot be told, and stops a pipeline."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

from karat.pytest_plugin import Karat, Lines

N = 20


@pytest.fixture
def files(tmp_path):
    """Lists cut at 5, with the one gold item first or, of the bad system, last."""
    others = [f"x{rank}" for rank in range(4)]
    for name, items in (
        ("good", ["a", *others]),
        ("bad", [*others, "a"]),
        ("again", ["a", *others]),
    ):
        hits = [
            f"q{i:02} Q0 {one} {rank} {9 - rank} {name}\n"
            for i in range(N)
            for rank, one in enumerate(items, start=1)
        ]
        (tmp_path / f"{name}.trec").write_text("".join(hits))
    (tmp_path / "gold.txt").write_text("".join(f"q{i:02} 0 a 1\n" for i in range(N)))
    return tmp_path


def _compare(run, files, *names, options):
    runs = [str(files / f"{name}.trec") for name in names]
    return run("compare", *runs, "--gold", str(files / "gold.txt"), *options)


@pytest.mark.parametrize("second", ["bad", "again"])
def test_a_deciding_measure_without_a_value_exits_3(run, files, second):
    done = _compare(run, files, "good", second, options=["-m", "nDCG@10,nDCG@5"])
    assert done.code == 3
    assert done.out.startswith("UNCLEAR")
    assert "cannot tell: nDCG@10 is not compared" in done.err
    assert "--primary nDCG@5" in done.out
    assert "* decides" not in done.out


def test_a_confirmed_regression_elsewhere_outranks_it(run, files):
    options = ["-m", "nDCG@10,nDCG@5", "--no-regression", "all"]
    assert _compare(run, files, "good", "bad", options=options).code == 1


def test_the_measure_that_the_message_names_decides(run, files):
    options = ["-m", "nDCG@10,nDCG@5", "--primary", "nDCG@5"]
    done = _compare(run, files, "good", "bad", options=options)
    assert done.code == 1
    assert "* decides" in done.out


def test_junit_calls_it_an_error(run, files):
    place = files / "report.xml"
    options = ["-m", "nDCG@10,nDCG@5", "-o", f"junit:{place}"]
    done = _compare(run, files, "good", "bad", options=options)
    assert done.code == 3
    suite = ET.parse(place).getroot()
    assert suite.get("errors") == "1"


def test_the_report_has_no_verdict_on_it(run, files):
    done = _compare(run, files, "good", "again", options=["-m", "nDCG@10,nDCG@5", "--json"])
    decided = json.loads(done.out)["decisions"][0]
    assert (decided["verdict"], decided["regression"]) == ("unclear", False)


def test_the_pytest_plugin_fails_the_test(files):
    runs = [str(files / f"{name}.trec") for name in ("good", "bad")]
    with pytest.raises(pytest.fail.Exception, match="not compared"):
        Karat(Lines()).no_regression(runs, str(files / "gold.txt"), ["nDCG@10", "nDCG@5"])
