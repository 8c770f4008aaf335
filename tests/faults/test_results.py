"""The table of docs/reliability.md: sorted, whole, and with what other files of trials found."""

from __future__ import annotations

from .results import BEGIN, END, PAGE, Row, refreshed

KILL, DISK = Row("kill -9", "karat eval", 1050, "whole"), Row("full disk", "karat eval", 3, "told")
PAGE_BEFORE = f"# Title\n\n{BEGIN}\n{END}\n\nmore\n"


def rows_of(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("| ") and "---" not in line][1:]


def test_rows_are_sorted_between_the_marks_and_the_page_around_them_stays():
    page = refreshed(PAGE_BEFORE, [KILL, DISK], whole=True, machine="a machine")
    assert page.startswith(f"# Title\n\n{BEGIN}\nWritten by make faults on ")
    assert page.endswith(f"\n{END}\n\nmore\n")
    assert rows_of(page) == [
        "| full disk | karat eval | 3 | told |",
        "| kill -9 | karat eval | 1,050 | whole |",
    ]


def test_some_trials_keep_the_rows_of_others_and_all_of_them_do_not():
    page = refreshed(PAGE_BEFORE, [KILL, DISK], whole=True, machine="a machine")
    new = KILL._replace(times=2, outcome="lost")
    some = refreshed(page, [new], whole=False, machine="a machine")
    assert rows_of(some) == [rows_of(page)[0], "| kill -9 | karat eval | 2 | lost |"]
    assert rows_of(refreshed(page, [new], whole=True, machine="a machine")) == rows_of(some)[1:]


def test_the_page_has_room_for_the_table():
    page = PAGE.read_text(encoding="utf-8")
    assert page.count(BEGIN) == page.count(END) == 1
    assert page.index(BEGIN) < page.index(END)
