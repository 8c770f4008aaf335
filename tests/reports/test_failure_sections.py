"""Failures and losses on a page: what is shown, what is left out, what could not be told."""

from __future__ import annotations

import io

from rich.console import Console

from karat.analysis.failures import (
    CLASSES,
    MEANINGS,
    failure_sections,
    missed_sections,
    waterfall_section,
)
from karat.pages.page import Page
from karat.pages.terminal import show_page


def failures(**more):
    found = {
        "assessed": 40,
        "misses": 4,
        "miss_at": 10,
        "ends_at": None,
        "classes": dict.fromkeys(CLASSES, 0) | {"complete_miss": 3, "cut_by_k": 1},
        "dominant": [{"item_id": "hub\x1b[1m", "queries": 1200}],
        "unchecked": {"not_in_index": "needs a corpus: --corpus"},
        "lines": {"miss": 10},
    }
    return found | more


def losses(**more):
    amounts = {"calls": 0.0, "index": 0.0, "retriever": 0.5, "filters": 0.25, "cut_off": 0.25}
    parts = [
        {"part": name, "lost": lost, "ci": [lost - 0.1, lost + 0.1], "queries": 4, "share": 0.1}
        for name, lost in (amounts | {"reranker": -0.25}).items()
    ]
    found = {"measure": "R@10", "ceiling": 1.0, "value": 0.25, "n": 40, "parts": parts}
    found["ends_at"] = None
    return {**found, "unknown": {"index": "needs a corpus: --corpus"}, **more}


def printed(sections, width=100):
    console = Console(file=io.StringIO(), width=width, markup=False)
    show_page(Page("title", blocks=sections), console)
    return console.file.getvalue()


def test_every_class_says_where_to_look():
    assert list(MEANINGS) == list(CLASSES)


def test_only_classes_that_occur_are_shown_with_their_share_of_the_misses():
    first, second = failure_sections(failures())
    assert first.title == "4 of 40 queries miss: no gold in the top 10"
    assert [row[:3] for row in first.grid] == [
        ["class", "queries", "share"],
        ["complete_miss", "3", "75 %"],
        ["cut_by_k", "1", "25 %"],
    ]
    (line,) = first.lines
    assert line.endswith(": not_in_index needs a corpus: --corpus")
    assert second.grid == [["item", "queries"], ["hub�[1m", "1,200"]]


def test_the_first_twenty_misses_are_shown_with_their_gold():
    missed = [{"query_id": f"q{n}", "class": "cut_by_k", "gold": ["a\x1b", "b"]} for n in range(23)]
    (only,) = missed_sections(failures(misses=23, missed=missed))
    assert only.title == "Queries without gold in the top 10, and their gold"
    assert only.grid[0] == ["query", "class", "its gold"]
    assert only.grid[1:] == [[f"q{n}", "cut_by_k", "a�, b"] for n in range(20)]
    assert only.lines == ["and 3 more"]
    (only,) = missed_sections(failures(misses=1, missed=missed[:1]))
    assert (len(only.grid), only.lines) == (2, [])
    assert missed_sections(failures(misses=0, missed=[])) == []


def test_lists_that_end_too_early_are_said_to():
    line = failure_sections(failures(ends_at=5, miss_at=5))[0].lines[0]
    assert "cut at 5" in line
    assert "10 was not" in line
    assert waterfall_section(losses(ends_at=5)).lines[0] == line


def test_counts_that_nobody_knows_are_no_zeros():
    classes = dict.fromkeys(CLASSES, 0) | {"beyond_depth": 4, "complete_miss": None}
    first, *_ = failure_sections(failures(classes=classes))
    assert [row[:3] for row in first.grid[1:]] == [
        ["beyond_depth", "4", "100 %"],
        ["complete_miss", "-", "-"],
    ]


def test_a_run_without_misses_says_so():
    (only,) = failure_sections(failures(misses=0))
    assert (only.grid, only.lines) == (None, ["All 40 queries have gold in the top 10."])
    (only,) = failure_sections(failures(misses=0, assessed=0))
    assert only.lines == ["No query has gold."]


def test_losses_are_below_zero_and_what_is_won_back_is_above():
    only = waterfall_section(losses())
    rows = {row[0]: row[1:4] for row in only.grid}
    assert list(rows) == [
        *("part", "ceiling", "calls", "index", "retriever"),
        *("filters", "cut_off", "reranker", "value"),
    ]
    assert rows["ceiling"] == ["1.0000", "", "40"]
    assert rows["index"] == ["-", "", ""]
    assert rows["calls"] == ["0.0000", "[-0.10, 0.10]", "4"]
    assert rows["retriever"] == ["-0.5000", "[-0.60, -0.40]", "4"]
    assert rows["reranker"] == ["+0.2500", "[0.15, 0.35]", "4"]
    assert rows["value"] == ["0.2500", "", "40"]
    (line,) = only.lines
    assert line.endswith(": index needs a corpus: --corpus")


def test_what_the_reranker_did_is_said_without_a_direction_that_its_number_may_deny():
    for lost, changed in ((-0.25, "+0.2500"), (0.25, "-0.2500")):
        parts = losses()["parts"]
        parts[-1] = {**parts[-1], "lost": lost}
        only = waterfall_section(losses(parts=parts))
        (row,) = (row for row in only.grid if row[0] == "reranker")
        assert (row[1], row[-1]) == (changed, "gold moved by the reranker")


def test_rounding_leaves_no_minus_before_nothing():
    parts = losses()["parts"]
    parts[0] = {**parts[0], "lost": 1e-17, "ci": None}
    only = waterfall_section(losses(parts=parts))
    assert only.grid[2][:3] == ["calls", "0.0000", ""]


def test_a_measure_without_a_value_has_no_table():
    only = waterfall_section(losses(value=None, ceiling=None))
    assert (only.grid, only.lines) == (None, ["No query has a value."])


def test_the_tables_fit_a_hundred_columns():
    every = failures(classes=dict.fromkeys(CLASSES, 1234), misses=1234 * len(CLASSES))
    text = printed([*failure_sections(every), waterfall_section(losses())])
    assert max(map(len, text.splitlines())) <= 100
    assert text.count("class ") == 1
    assert text.count("part ") == 1
