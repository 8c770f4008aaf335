from __future__ import annotations

import pytest

from karat.reports.github import MOST_SHOWN, annotation_lines, announce
from karat.reports.markdown import MARKER

from .conftest import BASE, HEAD, decided, world


def lines_of(*gates: str, **names: list[int]) -> list[str]:
    runs, gold, queries = world(names)
    report = decided(runs, gold, queries, gates=gates, compared=len(names) > 1)
    return annotation_lines(report.results())


def test_what_stops_a_change_is_an_error_and_what_puts_it_in_doubt_a_warning(change):
    found = annotation_lines(change.results())
    assert [line.partition("::")[2].partition(" ")[0] for line in found] == [
        "error",
        "error",
        "warning",
        "warning",
    ]
    assert found[0].startswith("::error title=gate out of reach%3A P@5 >= 0.5::head: P@5: no rank")
    assert found[1].startswith("::error title=gate failed%3A R@1 >= 0.5 where language = pt::")
    assert found[2].startswith("::warning title=gate cannot be judged%3A latency.retrieve.p50 <= ")
    assert found[3].startswith("::warning title=caution%3A head against base::RR fell by 0.17")


def test_a_confirmed_regression_is_an_error():
    (line,) = lines_of(base=HEAD[12:], head=BASE[12:])
    assert line.startswith("::error title=worse%3A head against base::head worsens RR by ")


def test_what_passes_is_not_announced():
    assert lines_of("mean RR > 0.1", head=HEAD) == []


def test_an_unclear_comparison_is_a_warning_only_where_a_verdict_is_required():
    runs, gold, queries = world({"base": [1, 2] * 20, "head": [2, 1] * 20})
    results = decided(runs, gold, queries).results()
    assert annotation_lines(results) == []
    (line,) = annotation_lines(results, require_verdict=True)
    assert line.startswith("::warning title=no verdict%3A head against base::RR did not change")


def test_a_message_cannot_start_another_command():
    (line,) = lines_of("RR >= 0.99", **{"100%, a:b\n::set-env name=x::y\r": HEAD})
    assert "\n" not in line
    assert "\r" not in line
    assert line.count("::error ") == 1
    assert "100%25, a:b" in line
    title = line.removeprefix("::error title=").partition("::")[0]
    assert "," not in title
    assert ":" not in title


def test_more_than_github_shows_is_counted_in_the_last_line():
    found = lines_of(*(f"mean RR > 0.9{digit}" for digit in range(1, 10)), "RR > 0.95", head=HEAD)
    assert len(found) == MOST_SHOWN
    found = lines_of(*(f"mean RR > 0.9{digit:02}" for digit in range(14)), head=HEAD)
    assert len(found) == MOST_SHOWN
    assert found[-1] == "::error title=karat::and 5 others: see the report"


def test_on_github_the_report_is_added_to_the_page_of_the_job(change, tmp_path, capsys):
    page = tmp_path / "summary.md"
    page.write_text("before\n")
    announce(change, {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(page)})
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == annotation_lines(change.results())
    assert page.read_text().startswith(f"before\n{MARKER}\n\n## ❌ Fail: 2 of 5 gates fail")


@pytest.mark.parametrize("environ", [{}, {"GITHUB_ACTIONS": "false"}])
def test_elsewhere_nothing_is_said_or_written(change, tmp_path, capsys, environ):
    announce(change, environ | {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")})
    assert capsys.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


def test_without_a_page_the_annotations_are_still_given(change, capsys):
    announce(change, {"GITHUB_ACTIONS": "true"})
    assert capsys.readouterr().err.startswith("::error title=gate out of reach")


def test_a_page_that_cannot_be_written_is_a_warning(change, tmp_path, capsys):
    announce(change, {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tmp_path)})
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "::warning title=karat::no step summary: Is a directory"
