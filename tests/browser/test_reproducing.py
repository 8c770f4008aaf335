"""The commands in the drawer: what a shell reads back, and how they get to one."""

from __future__ import annotations

import shlex

import pytest

from . import made_views


@pytest.fixture
def show(pages, tmp_path):
    return made_views.shower(pages, tmp_path)


@pytest.mark.parametrize("row", range(8))
def test_the_command_is_one_that_a_shell_reads_back(show, row):
    made = made_views.hostile()
    made.head["commands"] = ["karat triage '{query}.jsonl' --query {query}", None]
    page = show(made, row=row)
    (command,) = page.locator(".dr-command code").all_text_contents()
    words = shlex.split(command)
    assert words == ["karat", "triage", "{query}.jsonl", "--query", made.rows["query_id"][row]]


def test_a_plain_id_needs_no_quotes(show):
    page = show(made_views.small(), row=1)
    assert page.locator(".dr-command").all_inner_texts() == [
        "karat triage runs/old.jsonl --query q2",
        "karat triage runs/new.jsonl --query q2",
    ]


def test_copying_selects_the_command_where_the_clipboard_is_closed(show, pages, tmp_path):
    page = pages.new()
    page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.goto(made_views.small().write(tmp_path) + "#q=q2")
    page.get_by_role("button", name="Copy").first.click()
    page.get_by_text("Selected: press Ctrl+C").wait_for()
    assert page.evaluate("String(getSelection())") == "karat triage runs/old.jsonl --query q2"


def test_copying_fills_the_clipboard(show):
    page = show(made_views.small(), row=1, permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").nth(1).click()
    page.get_by_text("Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "karat triage runs/new.jsonl --query q2"
