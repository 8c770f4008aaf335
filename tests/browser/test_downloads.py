"""What a report lets people take with them: files that really arrive, under its own policy."""

from __future__ import annotations

import csv
import io
import json

import pytest

from . import made_views


@pytest.fixture
def take(pages, tmp_path):
    """Download a file of a made view: ``take(made, "queries.csv")`` gives its text."""

    def take_it(made, name, fragment=""):
        page = pages.new()
        page.goto(made.write(tmp_path) + fragment)
        page.locator(".qt-count").wait_for()
        with page.expect_download() as started:
            page.locator(f'[data-download="{name}"]').click()
        assert started.value.suggested_filename == name
        arrived = tmp_path / f"arrived-{name}"
        started.value.save_as(arrived)
        page.get_by_text(f"{name} was downloaded.").wait_for()
        return arrived.read_bytes().decode("utf-8")

    return take_it


def rows_of(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def test_the_report_arrives_as_it_stands_in_the_page(take):
    arrived = json.loads(take(made_views.small(), "report.json"))
    assert arrived == {"made": "by hand", "value": 0.1, "text": "</script><b>"}


def test_every_system_and_query_has_a_row_with_every_measure_in_full(take):
    made = made_views.small()
    made.rows["values"]["nDCG@5"][1][4] = 1 / 3
    first, *rows = rows_of(take(made, "queries.csv"))
    assert first == ["system", "query_id", "status", "nDCG@5", "Cost", "Length"]
    assert len(rows) == 20
    assert rows[1] == ["old", "q2", "scored", "0.5", "30", "1"]
    assert rows[9] == ["old", "q10", "no_answer", "", "", "1"]
    assert [row[1] for row in rows] == made.rows["query_id"] * 2
    assert float(rows[14][3]) == 1 / 3
    assert rows[13][:3] == ["new", "q4", "missing"]


def test_misses_are_those_of_the_system_looked_at_with_their_gold(take):
    found = json.loads(take(made_views.small(), "misses.json"))
    assert found == [
        {
            "query_id": "q2",
            "text": "Où est mon colis, façade côté cour",
            "class": "low_rank",
            "gold": ["g#1", "h#1", "lost#1"],
        },
        {"query_id": "q4", "text": None, "class": "not_in_run", "gold": ["a"]},
        {
            "query_id": "q9",
            "text": "address of the shop",
            "class": "complete_miss",
            "gold": ["a"],
        },
    ]
    other = json.loads(take(made_views.small(), "misses.json", "#system=old"))
    assert [one["query_id"] for one in other] == ["q1", "q4", "q9"]


def test_what_is_shown_arrives_in_the_order_that_it_is_shown(take):
    first, *rows = rows_of(take(made_views.small(), "shown.csv", "#mode=misses&sort=-id"))
    assert first == [
        "query_id", "text", "nDCG@5 old", "nDCG@5 new", "difference", "system", "status",
        "gold_rank", "class",
    ]  # fmt: skip
    assert rows == [
        ["q9", "address of the shop", "0", "0", "0", "new", "scored", "", "complete_miss"],
        ["q4", "", "0", "0", "0", "new", "missing", "", "not_in_run"],
        ["q2", made_views.SMALL["text"][1], "0.5", "0", "-0.5", "new", "scored", "", "low_rank"],
    ]


def test_no_cell_is_a_formula(take):
    made = made_views.hostile()
    _, *rows = rows_of(take(made, "shown.csv"))
    assert [row[0] for row in rows[:8]] == [
        "it's\n\"two\" lines", made_views.HOSTILE, "'=1+1", "$(touch ran) `ran`", "\u202eabc",
        "-5", "'+x", "'@y",
    ]  # fmt: skip
    assert rows[5][1] == "'\t=1"
    # a difference below zero is a number, and stays one
    assert rows[1][4] == "-0.5"
    _, *all_rows = rows_of(take(made, "queries.csv"))
    assert {row[0] for row in all_rows} == set(made.head["systems"])


def test_the_same_file_comes_every_time(take):
    assert take(made_views.small(), "queries.csv") == take(made_views.small(), "queries.csv")
