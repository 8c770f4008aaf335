"""An evaluation started from the page: watched, stopped, seen to its end, and followed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from karat.store import Store

from .accessibility import assert_usable
from .checks import DESKTOP, PHONE, SCHEMES, Pages
from .conftest import serving

CONFIG = """\
queries: eval.jsonl
corpus: corpus.jsonl
measures: [R@1, RR]
gates: ["mean R@1 >= 0.99"]
systems:
  bm25: {retriever: bm25}
  slow: {retriever: python, call: "calls.py:slow", timeout: 600}
"""
# The last two of four questions are answered once the test lets them be.
CALLS = """\
import time
from pathlib import Path

def slow(text, k):
    time.sleep(0.5)
    while text.endswith(("2", "3")) and not Path(__file__).with_name("go").exists():
        time.sleep(0.05)
    return ["pay#1"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("new")
    texts = {"pay#1": "How to pay an invoice", "pay#2": "A refund takes five days"}
    lines = [json.dumps({"id": key, "text": text}) for key, text in texts.items()]
    asked = [
        {"id": f"q{at}", "query": f"pay invoice {at}", "relevant_chunk_ids": ["pay#2"]}
        for at in range(4)
    ]
    (made / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (made / "eval.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))
    (made / "karat.yaml").write_text(CONFIG)
    (made / "calls.py").write_text(CALLS)
    return made


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with serving("karat.yaml", store=folder / "h.db", cwd=folder) as url:
        yield url


def begin(page: Page, address: str, *, tags: str = "", only: str | None = None) -> None:
    page.goto(f"{address}/new")
    page.get_by_label("Tags").fill(tags)
    page.get_by_label("Search again with every system").check()
    if only is not None:
        for name in ("bm25", "slow"):
            page.get_by_role("checkbox", name=name).set_checked(name == only)
    page.get_by_role("button", name="Start evaluation").click()
    page.wait_for_url(re.compile(r"/runs/\d+$"))


def test_an_evaluation_is_started_seen_to_its_end_and_followed(pages: Pages, address, folder):
    page = pages.new(address)
    begin(page, address, tags="from-page, nightly")
    expect(page.locator("#state")).to_have_text("running")
    slow = page.get_by_role("progressbar", name="slow")
    expect(page.get_by_text(re.compile(r"[123] of 4 calls"))).to_be_visible()
    assert 0 < slow.evaluate("bar => bar.value") < 4
    # Whoever loads the page again in the middle of it sees what was before.
    page.reload()
    expect(page.locator("#log")).to_contain_text("bm25: 4 calls")
    expect(page.get_by_text(re.compile(r"[123] of 4 calls"))).to_be_visible()
    (folder / "go").touch()
    expect(page.locator("#state")).to_have_text("done")
    (folder / "go").unlink()
    outcome = page.locator("#outcome")
    expect(outcome).to_contain_text("Finished: a gate failed")
    expect(outcome).to_contain_text("Verdict: fail")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    assert page.locator("#log").text_content().count("bm25: 4 calls") == 1
    with Store.open(folder / "h.db") as store:
        saved = {one.system: one for one in store.evaluations(tag="from-page")}
    assert set(saved) == {"bm25", "slow"}
    outcome.get_by_role("link", name="slow").click()
    assert page.url == f"{address}/evaluations/{saved['slow'].id}"
    expect(page.locator("main")).to_contain_text("slow")


def test_one_that_runs_can_be_stopped_and_a_second_waits(pages: Pages, address):
    pages.expect("409")
    page = pages.new(address)
    begin(page, address, only="slow")
    other = page.context.new_page()
    other.goto(f"{address}/new")
    expect(other.get_by_text("is still running")).to_be_visible()
    other.get_by_role("button", name="Start evaluation").click()
    expect(other.get_by_role("alert")).to_contain_text("still running")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#state")).to_have_text("stopped")
    expect(page.locator("#outcome")).to_contain_text("Stopped before the end")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()


def test_what_cannot_be_started_is_told_beside_the_button(pages: Pages, address):
    pages.expect("400")
    page = pages.new(address)
    page.goto(f"{address}/new")
    page.get_by_label("Tags").fill("12")
    page.get_by_role("button", name="Start evaluation").click()
    expect(page.get_by_role("alert")).to_contain_text("would read as an id")
    for name in ("bm25", "slow"):
        page.get_by_role("checkbox", name=name).uncheck()
    page.get_by_role("button", name="Start evaluation").click()
    expect(page.get_by_role("alert")).to_have_text("Choose at least one system.")


def test_a_failed_run_shows_karats_sentence(pages: Pages, address, folder):
    corpus = folder / "corpus.jsonl"
    kept = corpus.read_text()
    corpus.write_text(kept + '{"id": "<b>pay</b>"\n')
    try:
        page = pages.new(address)
        begin(page, address, only="bm25")
        expect(page.locator("#state")).to_have_text("failed")
        expect(page.locator("#outcome")).to_contain_text("corpus.jsonl:3")
        expect(page.locator("#outcome")).to_contain_text("Not evaluated")
    finally:
        corpus.write_text(kept)


@pytest.fixture(scope="module")
def ended() -> dict[int, str]:
    """Where runs are that were begun in windows of these widths, and seen to their end."""
    return {}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_pages_are_whole_and_accessible(pages: Pages, address, ended, scheme, size):
    page = pages.new(address, scheme=scheme, size=size)
    if size["width"] not in ended:
        begin(page, address, only="bm25")
        expect(page.locator("#state")).to_have_text("done")
        ended[size["width"]] = page.url
    for path in (ended[size["width"]], f"{address}/new"):
        page.goto(path)
        expect(page.locator("h1")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        assert_usable(page)
