from __future__ import annotations

import re
from dataclasses import replace

import polars as pl
import pytest
from markdown_it import MarkdownIt

from karat.data.tables import Gold, Queries, Run
from karat.evaluation.api import evaluate
from karat.reports.document import Report
from karat.reports.markdown import LONGEST_COMMENT, MARKER, markdown, to_markdown

from .conftest import BASE, GATES, HEAD, decided, world

NASTY = "a|b\n# <b>[x](http://y) @octocat `z` &lt; ~~s~~"


def written(report) -> str:
    return to_markdown(report).decode()


def rendered(text: str) -> str:
    """As GitHub renders it, in what matters here: tables, and HTML where it stands."""
    return MarkdownIt("commonmark", {"html": True}).enable("table").render(text)


def test_a_report_without_a_verdict_is_a_page(report):
    text = written(report)
    assert text.startswith(f"{MARKER}\n\n# Retrieval quality: good, poor\n")
    assert "| measure | good | poor | ceiling |" in text
    assert "## Segments\n\n**good by language**" in text
    assert "| pt-BR | 1 small |" in text
    assert "## Counts and conventions" in text
    assert "1 missing from the run" in text
    assert "<details>" not in text


def test_inputs_say_which_data_and_code_and_artifacts_what_systems_are_made_of(report, change):
    first, *others = report.systems
    meta = {
        "index_version": 7,
        "chunker": {"algo": "sentences", "overlap": 0},
        "embedding_model": {"name": "toy", "sha256": "0123456789abcdef"},
    }
    made = replace(first, scores=replace(first.scores, meta=meta))
    of = {"dataset_version": "v|2", "as_of_range": ("2025-01-01", "2026-01-01")}
    told = replace(report, systems=(made, *others), code_version="4be1c0d", **of)
    text = written(told)
    assert "| dataset version | v\\|2 |  |" in text
    assert "| as\\_of range | 2025-01-01 to 2026-01-01 |  |" in text
    assert "| code version | 4be1c0d |  |" in text
    assert "## Artifacts\n\n| system | index version | chunker | embedding model |" in text
    assert "| good | 7 | algo sentences, overlap 0 | toy, sha256 0123456789ab |" in text
    assert "| poor |  |  |  |" in text
    # A comment folds the same, and what no log tells makes no table.
    folded = replace(change, code_version="4be1c0d")
    assert "| code version | 4be1c0d |  |" in written(folded)
    assert "Artifacts" not in written(folded)


def test_means_have_their_intervals_beside_them(report):
    cell = report.results()["systems"][0]["measures"]["P@5"]
    low, high = cell["ci"]
    assert f"| P@5 | {cell['mean']:.4f} \\[{low:.2f}, {high:.2f}\\] |" in written(report)


def test_a_comment_begins_with_its_mark_and_the_verdict(change):
    lines = written(change).splitlines()
    assert lines[:3] == [MARKER, "", "## ❌ Fail: 2 of 5 gates fail, 1 cannot be judged"]
    assert lines[4].startswith("- out of reach: P@5: no ranking can reach 0.50")
    assert "**✅ Better: head against base**" in lines
    assert lines.index("**✅ Better: head against base**") < lines.index(
        "| gate | verdict | mean | n | needed |"
    )


def test_a_regression_is_the_heading_even_where_the_gates_pass():
    text = written(decided(*world({"base": HEAD, "head": BASE}), gates=["mean RR > 0.1"]))
    assert text.splitlines()[2] == "## ❌ Worse: head against base"
    assert "**✅ Pass: the gate passes**" in text
    assert re.search(r"\| RR \\\* \|.*\| worse \|", text)


def test_gates_alone_make_a_comment_too():
    runs, gold, queries = world({"head": HEAD})
    text = written(decided(runs, gold, queries, gates=["R@1 >= 0.3"], compared=False))
    assert text.splitlines()[2] == "## ✅ Pass: the gate passes"
    assert "| R@1 \\>= 0.3 | pass |" in text


def test_gates_that_do_not_pass_stand_first(change):
    rows = re.findall(r"^\| .* \| (fail|unmeasurable|pass) \|", written(change), re.MULTILINE)
    assert rows == ["fail", "fail", "unmeasurable", "pass", "pass"]


def test_the_detail_is_folded_between_empty_lines(change):
    text = written(change)
    titles = re.findall(r"\n\n<details><summary>(.*)</summary>\n\n", text)
    assert titles == [
        "All measures",
        "Distribution over queries",
        "All tests",
        "Segments",
        "Queries that moved most",
        "Overlap of the lists",
        "Counts and conventions",
        "Inputs",
    ]
    assert len(re.findall(r"\n\n</details>\n\n", text)) == text.count("<details>") == len(titles)


def test_tables_in_folded_blocks_are_rendered_as_tables(change):
    text = written(change)
    rules = len(re.findall(r"^\| -", text, re.MULTILINE))
    page = rendered(text)
    assert rules == 10
    assert page.count("<table>") == rules
    assert "<td>question number 12</td>" in page


def test_a_caution_is_told_before_the_folded_part(change):
    text = written(change)
    sentence = text.index("but RR fell by 0.17 in language pt")
    assert sentence < text.index("<details>")


@pytest.mark.parametrize("gates", [(), ("RR >= 0.9",)])
def test_nothing_from_a_file_becomes_markup(gates):
    runs, gold, queries = world({NASTY: BASE, f"{NASTY}2": HEAD})
    frame = queries.frame.with_columns(
        text=queries.frame["text"] + NASTY, language=queries.frame["language"] + NASTY
    )
    report = decided(runs, gold, Queries.from_frame(frame), gates=gates, compared=bool(gates))
    text = written(report)
    page = rendered(text)
    for markup in ("<b>", "<a ", "<code>", "<del>", "<s>", "<h1><"):
        assert markup not in page
    assert "&amp;lt;" in page
    assert "@octocat" not in text
    assert "a\\|b" in text
    usual = decided(*world({"base": BASE, "head": HEAD}), gates=gates, compared=bool(gates))
    assert page.count("<td") == rendered(written(usual)).count("<td")


def test_a_name_with_markup_keeps_the_table_whole():
    gold = Gold.from_dict({"q": {"x": 1}})
    run = Run.from_dict({"q": {"x": 1.0}}, name="a|b\n# <b>[x](y)")
    text = written(Report.of([evaluate(run, gold, ["RR"])], gold=gold))
    assert "a\\|b" in text
    assert "<b>" not in text
    assert "\n# <" not in text


def test_many_gates_are_shown_in_part_and_folded_in_whole():
    runs, gold, queries = world({"head": HEAD})
    gates = [f"mean RR > {limit / 100}" for limit in range(40, 80)]
    text = written(decided(runs, gold, queries, gates=gates, compared=False))
    first, _, folded = text.partition("<details>")
    assert "Shown: 30 of 40 gates, those that do not pass first." in first
    assert len(re.findall(r"^\| mean RR", first, re.MULTILINE)) == 30
    assert len(re.findall(r"^\| mean RR", folded, re.MULTILINE)) == 40
    assert "<summary>All gates</summary>" in folded


def test_many_reasons_are_counted_and_not_listed():
    runs, gold, queries = world({"head": HEAD})
    gates = [f"mean RR > {limit / 100}" for limit in range(80, 93)]
    text = written(decided(runs, gold, queries, gates=gates, compared=False))
    assert "- and 3 others\n" in text


def test_a_comment_that_would_be_too_long_says_what_it_leaves_out():
    runs, gold, queries = world({"base": BASE * 20, "head": HEAD * 20})
    kinds = [f"a kind of question with a long name {at}" for at in range(queries.frame.height)]
    frame = queries.frame.with_columns(language=pl.Series(kinds))
    text = written(decided(runs, gold, Queries.from_frame(frame), gates=GATES[:1]))
    assert len(text) <= LONGEST_COMMENT
    assert "Left out, since a comment has a maximum length: Segments." in text
    assert "<summary>Inputs</summary>" in text


def test_the_text_is_the_same_for_the_same_document(change):
    assert markdown(change.to_dict()) == written(change) == written(replace(change))
