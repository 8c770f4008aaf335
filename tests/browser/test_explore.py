"""The explorer: lists that follow the typing, side by side, with gold and words marked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from .accessibility import assert_usable
from .checks import DESKTOP, PHONE, SCHEMES, Pages
from .conftest import serving
from .made_views import awaited

ITEMS = {
    "pay#1": "How to pay an invoice by card or by bank transfer",
    "pay#2": "A refund takes five days to reach your bank",
    "ship#1": "Track a parcel with the number on the invoice",
    "evil#1": "<img src=x onerror=\"alert('parcel')\"> <b>parcel</b> =cmd|' /C calc'!A0",
    "rtl#1": "أين طردي parcel \u202e\u2066 \x07 🙂",
    "long#1": "zebra " + "stripes and more stripes " * 400,
}
ASKED = [
    {"id": "q1", "query": "pay an invoice", "relevant_chunk_ids": ["pay#1", "gone#1"]},
    {"id": "q2", "query": "where is my parcel", "relevant_chunk_ids": ["ship#1"]},
]
CONFIG = """\
queries: eval.jsonl
corpus: corpus.jsonl
systems:
  bm25: {retriever: bm25}
  bow: {retriever: bow}
  broken: {retriever: python, call: "calls.py:broken"}
"""
CALLS = "def broken(text, k):\n    raise RuntimeError('the index is on holiday')\n"


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("explore")
    lines = [json.dumps({"id": key, "text": text}) for key, text in ITEMS.items()]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "eval.jsonl").write_text("".join(json.dumps(one) + "\n" for one in ASKED))
    (folder / "karat.yaml").write_text(CONFIG)
    (folder / "calls.py").write_text(CALLS)
    with serving("karat.yaml", store=folder / "h.db", cwd=folder) as url:
        yield url


@pytest.fixture
def explore(address: str, pages: Pages):
    def open_it(query: str = "", *, size=DESKTOP, **options) -> Page:
        page = pages.new(address, size=size, **options)
        page.goto(f"{address}/explore{query}")
        return page

    return open_it


def items(page: Page, system: str) -> list[str]:
    return page.get_by_role("region", name=system, exact=True).locator(".item").all_text_contents()


def ready(page: Page, told: str) -> None:
    expect(page.get_by_role("status").filter(has_text=told)).to_be_visible()


def test_two_lists_follow_the_typing_with_ranks_scores_and_times(explore):
    page = explore()
    page.get_by_label("Query").press_sequentially("invoice", delay=20)
    ready(page, re.compile(r"bm25: \d+ hits; bow: \d+ hits"))
    assert set(items(page, "bm25")) == {"pay#1", "ship#1"}
    assert set(items(page, "bow")) >= {"pay#1", "ship#1"}
    first = page.get_by_role("region", name="bm25", exact=True)
    assert first.locator(".rank").all_text_contents() == ["1", "2"]
    assert re.fullmatch(r"[\d.,]+ ms", first.locator(".took").text_content())
    assert {word.lower() for word in first.locator("mark").all_text_contents()} == {"invoice"}
    page.get_by_label("Query").fill("")
    ready(page, "Results appear as you type")
    assert items(page, "bm25") == []


def test_gold_is_marked_for_a_question_of_the_eval_set_that_was_offered(explore):
    page = explore()
    page.get_by_label("Query").fill("inv")
    expect(page.locator("#suggestions option")).to_have_count(1)
    offered = page.locator("#suggestions option").get_attribute("value")
    assert offered == "pay an invoice"
    page.get_by_label("Query").fill(offered)
    column = page.get_by_role("region", name="bm25", exact=True)
    expect(column.locator(".gold")).to_have_text("q1: gold at rank 1; not in the top 10: gone#1")
    gold = column.locator("li", has_text="gold 1")
    assert gold.locator(".item").all_text_contents() == ["pay#1"]


def test_a_question_can_be_kept_as_an_address(explore, address):
    page = explore("?q=parcel&k=1&system=bow")
    ready(page, "bow: 1 hit")
    assert page.locator(".found").count() == 1
    page.get_by_label("bm25").check()
    page.get_by_label("Hits").fill("3")
    ready(page, "bm25: 3 hits; bow: 3 hits")
    asked = page.url
    page.reload()
    ready(page, "bm25: 3 hits; bow: 3 hits")
    assert page.url == asked


def test_the_second_list_says_how_items_moved(explore):
    page = explore("?q=bank+parcel+invoice&system=bm25&system=bow")
    ready(page, "bow:")
    ready(page, re.compile("hits; bow"))
    first, second = items(page, "bm25"), items(page, "bow")
    for at, item in enumerate(second):
        row = page.get_by_role("region", name="bow", exact=True).locator("li").nth(at)
        missing = "not in the results of bm25"
        expected = f"rank {first.index(item) + 1} in bm25" if item in first else missing
        assert row.locator(".move .visually-hidden").text_content() == expected


def test_an_answer_to_an_older_question_is_dropped(explore):
    page = explore("?system=bm25")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route) if '"refund"' in (route.request.post_data or "") else route.continue_()

    page.route("**/api/search", hold)
    page.get_by_label("Query").fill("refund")
    awaited(page, lambda: held, "refund is asked for")
    page.get_by_label("Query").fill("zebra")
    # The address has the question that the page now waits for.
    page.wait_for_url("**q=zebra**")
    held[0].continue_()
    ready(page, "bm25: 1 hit")
    assert items(page, "bm25") == ["long#1"]
    assert len(held) == 1


def test_a_system_that_fails_says_why_and_the_other_answers(explore, pages):
    pages.expect("502")
    page = explore("?q=parcel&system=bm25&system=broken")
    ready(page, "broken failed")
    column = page.get_by_role("region", name="broken", exact=True)
    assert "the index is on holiday" in column.locator(".problem").text_content()
    assert "Traceback" not in column.text_content()
    assert len(items(page, "bm25")) == 3


def test_texts_are_only_texts_and_a_long_one_folds(explore):
    page = explore("?q=parcel+zebra&system=bm25")
    ready(page, "bm25: 4 hits")
    evil = page.locator("li[data-item='evil#1'] .text")
    assert evil.text_content() == ITEMS["evil#1"]
    assert page.locator(".found img, .found b").count() == 0
    assert page.locator("li[data-item='rtl#1'] .text").text_content().count("\ufffd") == 1
    long = page.locator("li[data-item='long#1']")
    before = long.bounding_box()["height"]
    long.get_by_role("button", name="Show all").click()
    assert long.bounding_box()["height"] > 2 * before
    long.get_by_role("button", name="Show less").click()
    assert long.bounding_box()["height"] == before


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_it_is_whole_and_accessible(explore, scheme, size):
    page = explore("?q=pay+an+invoice&system=bm25&system=bow", scheme=scheme, size=size)
    ready(page, re.compile("hits; bow: "))
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert_usable(page)


def test_a_question_that_failed_is_asked_again_by_enter(explore, pages):
    pages.expect("503")
    page = explore("?system=bm25")
    fails = [True, False]

    def answer(route: Route) -> None:
        if fails.pop(0):
            told = {"status": 503, "content_type": "application/json"}
            route.fulfill(**told, body='{"error": "too many requests at once"}')
        else:
            route.continue_()

    page.route("**/api/search", answer)
    page.get_by_label("Query").fill("invoice")
    ready(page, "bm25 failed")
    page.get_by_label("Query").press("Enter")
    ready(page, "bm25: 2 hits")
    assert fails == []


def test_a_list_that_is_there_stays_as_it_is_when_another_comes(explore):
    page = explore("?system=bm25&system=bow")
    held: list[Route] = []

    def hold(route: Route) -> None:
        if route.request.post_data_json["system"] == "bm25":
            held.append(route)
        else:
            route.continue_()

    page.route("**/api/search", hold)
    page.get_by_label("Query").fill("zebra")
    second = page.get_by_role("region", name="bow", exact=True)
    second.get_by_role("button", name="Show all").first.click()
    assert second.locator(".move").count() == 0
    held.pop().continue_()
    ready(page, re.compile("bm25: 1 hit;"))
    expect(second.locator(".move").first).to_be_visible()
    expect(second.get_by_role("button", name="Show less")).to_be_focused()


def test_an_empty_or_impossible_number_of_hits_is_put_right(explore):
    page = explore("?q=parcel&system=bm25")
    hits = page.get_by_label("Hits")
    hits.fill("9999")
    hits.press("Tab")
    expect(hits).to_have_value(hits.get_attribute("max"))
    hits.fill("")
    hits.press("Tab")
    expect(hits).to_have_value("10")
