"""Raters label by keyboard in a real browser; two of them at once against ``karat serve``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from karat.formats.readers import read_gold
from karat.store import Store

from .accessibility import assert_usable
from .checks import PHONE, Pages
from .conftest import listening, serving
from .made_views import until
from .worlds import AWKWARD

SIZE = 20
# One key an item; c and ? are "can't tell".
ANA = "0123c0123?0123012301"
BO = "0123012301230123c012"
GRADES = {"0": 0.0, "1": 1.0, "2": 2.0, "3": 3.0, "c": None, "?": None}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pool of 20 pairs of 5 queries."""
    folder = tmp_path_factory.mktemp("labelling")
    rows = [
        {
            "query_id": f"q{at // 4}",
            "item_id": f"d{at}",
            "query": f"Can I return a bike number {at // 4}?",
            "text": f"Item {at}: all bikes can be returned to any station. " * 6,
            "title": f"Returning, part {at}",
            "as_of": "2026-03-01",
        }
        for at in range(SIZE)
    ]
    _write(folder / "pool.jsonl", rows)
    return folder


@pytest.fixture
def served(place: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A workbench with a store of its own for every test: its address, and the store."""
    store = tmp_path / "history.db"
    with listening(pool=place / "pool.jsonl", store=str(store)) as url:
        yield url, store


@pytest.fixture
def started(place: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The same as a user starts it, by a process of its own."""
    store = tmp_path / "history.db"
    with serving("--pool", str(place / "pool.jsonl"), store=store, cwd=tmp_path) as url:
        yield url, store


def _write(path: Path, rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def begin(pages: Pages, url: str, rater: str, **options) -> Page:
    page = pages.new(url, **options)
    page.goto(f"{url}/label")
    page.get_by_role("link", name="Label pool").click()
    page.get_by_label("Your name").fill(rater)
    page.keyboard.press("Enter")
    expect(page.locator("#label-item")).to_be_visible()
    expect(page.get_by_label("Your name")).to_be_hidden()
    return page


def counted(page: Page, count: int, of: int = SIZE) -> None:
    expect(page.locator("#label-count")).to_have_text(f"{count} of {of} labelled")


def said(store: Path) -> dict[tuple[str, int], float | None]:
    with Store.open(store) as opened:
        return {(one.rater, one.position): one.grade for one in opened.judgments(1)}


def test_two_raters_label_twenty_items_each_by_keyboard_at_once(pages, started):
    url, store = started
    ana, bo = begin(pages, url, "Ana"), begin(pages, url, "Bo")
    for at in range(SIZE):
        for page, keys in ((ana, ANA), (bo, BO)):
            expect(page.locator("#label-text")).to_contain_text(f"Item {at}:")
            page.keyboard.press(keys[at])
        for page in (ana, bo):
            expect(page.locator("#label-bar")).to_have_js_property("value", at + 1)
        if at == 6:
            _undo_and_label_again(ana, store)
    for page in (ana, bo):
        expect(page.locator("#label-done")).to_be_visible()
        expect(page.locator("#label-done")).to_contain_text("All 20 items are labelled")
    found = said(store)
    assert len(found) == 2 * SIZE
    for rater, keys in (("Ana", ANA), ("Bo", BO)):
        assert [found[rater, at] for at in range(SIZE)] == [GRADES[key] for key in keys]
    # Of the 17 that both graded, those before Ana's first "can't tell" are the same.
    both = [(a, b) for a, b in zip(ANA, BO, strict=True) if "c" not in a + b and "?" not in a + b]
    same = sum(a == b for a, b in both)
    bo.reload()
    row = bo.locator("#label-agreement tbody tr")
    expect(row).to_contain_text("Ana and Bo")
    expect(row.locator("td").nth(0)).to_have_text(str(len(both)))
    expect(row.locator("td").nth(1)).to_have_text(f"{100 * same / len(both):.0f} %")


def _undo_and_label_again(page: Page, store: Path) -> None:
    """Take back two, one by each key, and give them again."""
    page.keyboard.press("u")
    expect(page.locator("#label-text")).to_contain_text("Item 6:")
    expect(page.locator("#label-status")).to_have_text("Undone: 1 related.")
    page.keyboard.press("Backspace")
    expect(page.locator("#label-text")).to_contain_text("Item 5:")
    assert ("Ana", 5) not in said(store)
    assert ("Ana", 6) not in said(store)
    page.keyboard.press(ANA[5])
    expect(page.locator("#label-text")).to_contain_text("Item 6:")
    page.keyboard.press(ANA[6])
    expect(page.locator("#label-bar")).to_have_js_property("value", 7)


def test_the_file_that_a_rater_downloads_is_gold(pages, served, tmp_path):
    page = begin(pages, served[0], "Ana")
    for at in range(SIZE):
        expect(page.locator("#label-text")).to_contain_text(f"Item {at}:")
        page.keyboard.press("c" if at == 3 else str(at % 4))
    with page.expect_download() as download:
        page.get_by_role("link", name="My labels (JSONL)").click()
    path = tmp_path / "ana.jsonl"
    download.value.save_as(path)
    grades = dict(zip(*read_gold(path).frame.select("item_id", "grade"), strict=True))
    assert grades == {f"d{at}": at % 4 for at in range(SIZE) if at != 3}


def test_digits_in_the_rationale_are_text_and_it_is_kept_with_the_label(pages, served):
    url, store = served
    page = begin(pages, url, "Ana")
    page.keyboard.press("r")
    expect(page.locator("#label-rationale")).to_be_focused()
    page.keyboard.type("since 2013, u c ?")
    counted(page, 0)
    page.keyboard.press("Escape")
    page.keyboard.press("2")
    counted(page, 1)
    expect(page.locator("#label-rationale")).to_have_value("")
    with Store.open(store) as opened:
        (kept,) = opened.judgments(1)
    assert (kept.grade, kept.rationale) == (2.0, "since 2013, u c ?")
    page.keyboard.press("u")
    expect(page.locator("#label-rationale")).to_have_value("since 2013, u c ?")


def test_whoever_sees_the_count_move_may_press_the_next_key(pages, served):
    page = begin(pages, served[0], "Ana")

    def late(route):
        page.wait_for_timeout(300)
        route.continue_()

    page.route("**/next?*", late)
    for at in range(3):
        page.keyboard.press("1")
        counted(page, at + 1)
        expect(page.locator("#label-text")).to_contain_text(f"Item {at + 1}:", timeout=1)
    page.unroute_all(behavior="wait")


def test_while_offline_the_item_stays_and_its_label_is_saved_afterwards(pages, served):
    url, store = served
    pages.expect("ERR_INTERNET_DISCONNECTED")
    page = begin(pages, url, "Ana")
    page.keyboard.press("1")
    counted(page, 1)
    expect(page.locator("#label-text")).to_contain_text("Item 1:")
    page.context.set_offline(True)
    for _ in range(3):
        page.keyboard.press("3")
        expect(page.locator("#label-failed")).to_contain_text("Not saved (3 perfect)")
        expect(page.locator("#label-text")).to_contain_text("Item 1:")
    counted(page, 1)
    assert said(store) == {("Ana", 0): 1.0}
    page.context.set_offline(False)
    expect(page.locator("#label-text")).to_contain_text("Item 2:")
    expect(page.locator("#label-failed")).to_be_hidden()
    counted(page, 2)
    assert said(store) == {("Ana", 0): 1.0, ("Ana", 1): 3.0}


def test_a_label_that_the_server_refuses_is_told_and_can_be_tried_again(pages, served):
    url, store = served
    pages.expect("503")
    page = begin(pages, url, "Ana")
    locked = {
        "status": 503,
        "content_type": "application/json",
        "body": '{"error": "it is locked"}',
    }
    page.route("**/judgments", lambda route: route.fulfill(**locked))
    page.keyboard.press("2")
    expect(page.locator("#label-failed")).to_contain_text("Not saved (2 relevant): it is locked.")
    expect(page.get_by_role("button", name="2 relevant")).to_have_attribute("aria-pressed", "true")
    page.unroute("**/judgments")
    page.get_by_role("button", name="Try again").click()
    counted(page, 1)
    assert said(store) == {("Ana", 0): 2.0}


def test_two_windows_of_one_rater_count_an_item_once(pages, served):
    url, store = served
    first = begin(pages, url, "Ana")
    second = first.context.new_page()
    second.goto(first.url)
    expect(second.locator("#label-text")).to_contain_text("Item 0:")
    second.keyboard.press("2")
    counted(second, 1)
    second.keyboard.press("1")
    counted(second, 2)
    first.evaluate("window.dispatchEvent(new Event('focus'))")
    expect(first.locator("#label-text")).to_contain_text("Item 2:")
    expect(first.locator("#label-status")).to_contain_text("labelled in another window")
    first.keyboard.press("0")
    counted(first, 3)
    assert said(store) == {("Ana", 0): 2.0, ("Ana", 1): 1.0, ("Ana", 2): 0.0}


def test_the_words_of_the_query_are_marked_in_the_text(pages, served):
    page = begin(pages, served[0], "Ana")
    marked = set(page.locator("#label-text mark").all_inner_texts())
    # "return" and "bike" stand there as "returned" and "bikes"; "can", in both, tells nothing.
    assert marked == {"bikes", "returned", "0"}


def test_awkward_texts_are_shown_as_text(pages, tmp_path):
    rows = [
        {"query_id": name, "item_id": name, "query": text[:300], "text": text}
        for name, text in AWKWARD.items()
    ]
    _write(tmp_path / "pool.jsonl", rows)
    with listening(pool=tmp_path / "pool.jsonl", store=str(tmp_path / "history.db")) as url:
        page = begin(pages, url, '<b title="x">Ana</b>')
        for at, text in enumerate(AWKWARD.values()):
            shown = re.sub(r"[\x00-\x08\x0b-\x1f\u202a-\u202e]", "\ufffd", text)
            assert page.locator("#label-text").evaluate("one => one.textContent") == shown
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= page.viewport_size["width"]
            page.keyboard.press("0")
            counted(page, at + 1, len(AWKWARD))
        expect(page.locator("#label-done")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [{"width": 1280, "height": 900}, PHONE])
def test_everyone_can_use_the_pages(pages, served, scheme, size):
    url, _ = served
    page = begin(pages, url, "Ana", scheme=scheme, size=size)
    for key in "01c":
        page.keyboard.press(key)
        counted(page, "01c".index(key) + 1)
    # The text has the focus, and tabbing is to begin at the top.
    page.locator("body").evaluate(
        "body => { body.tabIndex = -1; body.focus(); body.removeAttribute('tabindex'); }"
    )
    assert_usable(page)
    # All grades are within reach of a thumb, whatever the text.
    for one in page.locator("[data-grade]").all():
        box = one.bounding_box()
        assert box["height"] >= 44
        assert box["y"] + box["height"] <= size["height"]
    for path in ("/label", "/label/1/results"):
        page.goto(url + path)
        assert_usable(page)


def test_focus_stays_on_the_button_that_was_pressed(pages, served):
    page = begin(pages, served[0], "Ana")
    button = page.get_by_role("button", name="2 relevant")
    button.focus()
    page.keyboard.press("Enter")
    counted(page, 1)
    expect(button).to_be_focused()
    page.keyboard.press("Space")
    counted(page, 2)
    expect(button).to_be_focused()


def test_a_set_is_made_of_an_evaluation_on_the_page(pages, open_workbench):
    pages.expect("400")
    page = open_workbench("/label")
    page.get_by_label("Name").fill("Round one")
    page.get_by_label("Depth").fill("99")
    page.get_by_role("button", name="Create set").click()
    expect(page.get_by_role("alert")).to_contain_text("depth is 99; the report keeps the first 10")
    page.get_by_label("Depth").fill("3")
    page.get_by_role("button", name="Create set").click()
    page.wait_for_url(re.compile(r"/label/\d+$"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Round one")
    page.get_by_label("Your name").fill("Ana")
    page.keyboard.press("Enter")
    expect(page.locator("#label-query")).not_to_be_empty()
    for name in ("bm25", "reranked"):
        assert name not in page.content()


def test_a_name_that_cannot_be_kept_is_refused_at_the_field(pages, served):
    url, _ = served
    pages.expect("400")
    page = pages.new(url)
    page.goto(f"{url}/label/1")
    page.get_by_label("Your name").fill("Ana\u202e")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Your name")).to_be_visible()
    refused = "document.getElementById('rater').validationMessage"
    until(page, refused)
    assert "printable characters" in page.evaluate(refused)
    expect(page.locator("#label-item")).to_be_hidden()
    page.reload()
    assert page.get_by_label("Your name").input_value() == ""


def test_a_query_of_any_length_leaves_the_item_in_sight(pages, tmp_path):
    pool = tmp_path / "pool.jsonl"
    pair = {"query_id": "q1", "item_id": "d1", "query": "word " * 20_000, "text": "The item."}
    _write(pool, [pair])
    with listening(pool=pool, store=str(tmp_path / "history.db")) as url:
        page = begin(pages, url, "Ana")
        expect(page.locator("#label-text")).to_be_in_viewport()
        assert page.locator("#label-query").get_attribute("tabindex") == "0"
        assert_usable(page)
