"""The query drawer in a browser: what it says, its lines, its ways, and what it withstands."""

from __future__ import annotations

import re

import pytest

from . import made_views
from .accessibility import assert_usable
from .checks import DESKTOP, PHONE, SCHEMES
from .made_views import until


@pytest.fixture
def show(pages, tmp_path):
    return made_views.shower(pages, tmp_path)


def column(page, key):
    return page.locator(f'.dr-column[data-column="{key}"]')


def cards(page, key) -> list[str]:
    """The items of a list from top to bottom."""
    return column(page, key).locator(".dr-id").all_inner_texts()


def card(page, key, item):
    return column(page, key).locator(
        ".dr-item", has=page.get_by_role("button", name=item, exact=True)
    )


def lines(page) -> set[tuple[str, str]]:
    """Every line as its item and the kinds that it has."""
    found = page.locator(".dr-line").evaluate_all(
        "all => all.map(one => [one.dataset.item, one.getAttribute('class')])"
    )
    return {(item, kinds.removeprefix("dr-line ")) for item, kinds in found}


def test_the_query_and_what_is_known_of_it(show):
    page = show(made_views.small(), row=1)
    assert page.locator(".dr-title").inner_text() == "Où est mon colis, façade côté cour"
    assert page.locator(".dr-query-id").inner_text() == "q2"
    chips = [" ".join(one.split()) for one in page.locator(".dr-facts .chip").all_inner_texts()]
    assert chips == ["language fr", "tags parcel, late", "hard true"]
    assert "Note: asked in a mail" in page.locator(".dr-facts").inner_text()
    assert page.locator(".dr-place").inner_text() == "2 of 10"


def test_what_happened_in_each_system(show):
    page = show(made_views.small(), row=1)
    old, new = page.locator(".dr-outcome").all()
    assert "gold at rank 2" in old.inner_text()
    assert "nDCG@5 0.5000" in old.inner_text()
    told = new.inner_text()
    assert "low rank" in told
    assert "g#1 was retrieved at rank 37 and cut off" in told
    assert "nDCG@5 0.0000 −0.5000" in told
    assert "latency.total\n12.25 ms" in told


def test_every_measure_of_every_system_with_its_difference(show):
    page = show(made_views.small(), row=1)
    rows = page.locator(".dr-section table tr")
    assert [row.split("\t") for row in rows.all_inner_texts()] == [
        ["measure", "old", "new", "difference"],
        ["nDCG@5", "0.5000", "0.0000", "−0.5000"],
        ["Cost", "30.0000", "20.0000", "−10.0000"],
        ["Length", "1.0000", "2.0000", "+1.0000"],
    ]
    ndcg, cost, length = page.locator(".dr-section table td.dr-delta").all()
    assert "bad" in ndcg.get_attribute("class")
    assert "good" in cost.get_attribute("class")
    assert "muted" in length.get_attribute("class")


def test_lines_join_the_same_item_in_neighbouring_lists(show):
    page = show(made_views.small(), row=1)
    assert lines(page) == {
        ("g#1", "from-gold is-gold"),
        ("h#1", "from-gold is-gold is-away"),
        ("lost#1", "from-gold is-gold is-away"),
        ("x", "same"),
        ("b", "up"),
        ("g#1", "down is-gold is-away"),
        ("b", "same"),
        ("g#1", "up is-gold is-away"),
    }
    assert page.locator(".dr-line").count() == 8


# The ends of every line between the two systems, and the cards that they should meet.
ENDS = """() => {
  const origin = document.querySelector(".dr-board").getBoundingClientRect();
  const box = (key, item) => {
    const cards = [...document.querySelectorAll(`[data-column="${key}"] .dr-item`)];
    const card = cards.find((one) => one.querySelector(".dr-id").textContent === item);
    const rect = card.getBoundingClientRect();
    return { left: rect.left - origin.left, right: rect.right - origin.left,
             top: rect.top - origin.top, bottom: rect.bottom - origin.top };
  };
  return [...document.querySelectorAll(".dr-line.up, .dr-line.down, .dr-line.same")].slice(0, 3)
    .map((line) => [line.dataset.item, line.getAttribute("d"),
                    box("system-0", line.dataset.item), box("system-1", line.dataset.item)]);
}"""


def assert_lines_meet_their_cards(page) -> None:
    found = page.evaluate(ENDS)
    assert {item for item, *_ in found} == {"x", "g#1", "b"}
    for item, path, left, right in found:
        numbers = [float(one) for one in re.findall(r"-?[\d.]+", path)]
        assert numbers[0] == pytest.approx(left["right"], abs=1)
        assert left["top"] < numbers[1] < left["bottom"]
        assert numbers[-2] == pytest.approx(right["left"], abs=1)
        assert right["top"] < numbers[-1] < right["bottom"]
        if item == "x":
            assert numbers[1] == pytest.approx(numbers[-1], abs=0.5)


def test_lines_end_at_their_cards_also_when_these_grow_or_the_window_shrinks(show):
    page = show(made_views.small(), row=1)
    assert_lines_meet_their_cards(page)
    before = page.locator(".dr-line").evaluate_all("all => all.map(one => one.getAttribute('d'))")
    card(page, "system-0", "g#1").get_by_role("button", name="more").click()
    assert_lines_meet_their_cards(page)
    after = page.locator(".dr-line").evaluate_all("all => all.map(one => one.getAttribute('d'))")
    assert after != before
    page.set_viewport_size({"width": 1000, "height": 800})
    until(page, "was => document.querySelector('.dr-line').getAttribute('d') !== was", after[0])
    assert_lines_meet_their_cards(page)


def test_an_item_under_pointer_or_focus_is_marked_wherever_it_stands(show):
    page = show(made_views.small(), row=1)
    card(page, "system-0", "b").hover()
    lit = page.locator(".dr-item.is-lit .dr-id")
    assert lit.all_inner_texts() == ["b", "b", "b"]
    assert page.locator(".dr-line.is-lit").count() == 2
    page.mouse.move(5, 400)
    assert lit.count() == 0
    card(page, "gold", "g#1").locator(".dr-id").focus()
    assert lit.all_inner_texts() == ["g#1"] * 4
    page.keyboard.press("Enter")
    page.locator(".dr-close").focus()
    assert lit.all_inner_texts() == ["g#1"] * 4
    assert card(page, "bm25", "g#1").locator(".dr-id").get_attribute("aria-pressed") == "true"


def test_a_long_id_stays_in_the_drawer_and_words_of_attributes_stay_whole(show):
    made = made_views.small()
    made.rows["query_id"][1] = made.details[1]["query_id"] = "q" * 300
    made.details[1]["attributes"] = {
        "ideal_answer": "A refund can be requested up to 30 days later"
    }
    page = show(made, row=1, size=PHONE)
    drawer = page.locator("#drawer").bounding_box()
    own = page.locator(".dr-query-id").bounding_box()
    assert own["x"] + own["width"] <= drawer["x"] + drawer["width"]
    assert page.locator(".dr-body").evaluate("body => body.scrollWidth <= body.clientWidth")
    # one rectangle for each line that a text takes: the name is one word
    rects = page.locator(".dr-facts .chip .muted").evaluate("one => one.getClientRects().length")
    height = page.locator(".dr-facts .chip .muted").evaluate("one => one.offsetHeight")
    assert rects == 1
    assert height < 24


def test_a_text_opens_and_says_where_it_was_cut(show):
    page = show(made_views.small(), row=1)
    gold = card(page, "gold", "g#1")
    more = gold.get_by_role("button", name="more")
    text = gold.locator(".dr-text")
    short = text.bounding_box()["height"]
    more.click()
    assert text.inner_text().count("Votre COLIS") == 30
    assert "the report does not include the rest" in text.inner_text()
    assert text.bounding_box()["height"] > 2 * short
    gold.get_by_role("button", name="less").click()
    assert text.bounding_box()["height"] == short
    # a text that fits has nothing more to show
    assert not card(page, "system-1", "b").locator(".dr-more").is_visible()


def test_previous_and_next_follow_the_table(show):
    page = show(made_views.small())
    page.locator("[data-mode=misses]").click()
    page.locator("#query-row-3").click()
    place = page.locator(".dr-place")
    assert place.inner_text() == "2 of 3"
    page.keyboard.press("j")
    assert place.inner_text() == "3 of 3"
    assert page.locator("#drawer-title").inner_text() == "address of the shop"
    assert page.get_by_role("button", name="Next").is_disabled()
    page.keyboard.press("j")
    assert place.inner_text() == "3 of 3"
    page.keyboard.press("k")
    page.get_by_role("button", name="Previous").click()
    assert place.inner_text() == "1 of 3"
    assert page.url.endswith("#mode=misses&q=q2")
    page.keyboard.press("Escape")
    page.locator("#drawer").wait_for(state="hidden")
    # the keyboard is where the drawer was last
    grid = page.locator("[role=grid]")
    assert grid.get_attribute("aria-activedescendant") == "query-row-1"
    assert page.evaluate("document.activeElement.getAttribute('role')") == "grid"
    until(page, "location.hash === '#mode=misses'")


def test_the_address_names_the_open_query_and_going_back_closes_it(show):
    page = show(made_views.small())
    page.locator("#query-row-4").click()
    page.locator("#drawer").wait_for()
    assert page.url.endswith("#q=q5")
    page.go_back()
    page.locator("#drawer").wait_for(state="hidden")
    page.go_forward()
    page.locator("#drawer").wait_for()
    assert page.locator(".dr-title").inner_text() == "refund to a debit card"
    page.locator(".dr-close").click()
    page.locator("#drawer").wait_for(state="hidden")
    until(page, "!location.hash.includes('q=')")
    page.evaluate("location.hash = 'q=q3'")
    page.locator("#drawer").wait_for()
    assert page.locator(".dr-title").inner_text() == "STRASSE und Straße"


def test_a_link_opens_the_query_over_its_view(show, pages, tmp_path):
    page = pages.new()
    page.goto(made_views.small().write(tmp_path) + "#mode=misses&q=q9")
    page.locator(".dr-lists").wait_for()
    assert page.locator(".dr-place").inner_text() == "3 of 3"
    page.keyboard.press("Escape")
    page.locator("#drawer").wait_for(state="hidden")
    until(page, "location.hash === '#mode=misses'")


def test_the_page_behind_is_out_of_reach(show):
    page = show(made_views.small(), row=1)
    for _ in range(60):
        page.keyboard.press("Tab")
        # the body stands for the browser's own controls, which are always in reach
        assert page.evaluate("document.activeElement.matches('body, #drawer, #drawer *')")


def test_what_is_missing_is_said(show):
    page = show(made_views.one_system(), row=1)
    told = page.locator(".dr-lacks").all_inner_texts()
    assert told == ["No BM25 list: the corpus is not given", "the texts are not in this report"]
    assert column(page, "bm25").count() == 0
    assert page.locator(".dr-text").count() == 0
    assert "difference" not in page.locator(".dr-section table").inner_text()


def test_a_query_without_text_gold_or_answer_is_told_so(show):
    made = made_views.small()
    made.details[3] |= {"gold": [], "bm25": []}
    made.details[3]["systems"][1] |= {"status": "missing", "hits": [], "searched": None}
    made.details[3]["systems"][0] |= {"status": "failed", "hits": [], "error": "HTTP 500\nbusy"}
    made.head["commands"] = [None, None]
    page = show(made, row=3)
    assert page.locator(".dr-title").inner_text() == "(this query has no text)"
    assert "This query has no gold." in column(page, "gold").inner_text()
    assert "The call failed." in column(page, "system-0").inner_text()
    assert "The run has no answer to this query." in column(page, "system-1").inner_text()
    assert "The corpus contains no word of the query." in column(page, "bm25").inner_text()
    assert page.locator(".dr-error").inner_text() == "HTTP 500\nbusy"
    assert "No command can reproduce this" in page.locator(".dr-body").inner_text()


def test_of_many_systems_two_are_chosen(show):
    page = show(made_views.five_systems(), row=1)
    heads = page.locator(".dr-column h4")
    assert heads.all_inner_texts() == ["Gold", "old", "new", "BM25"]
    assert page.locator(".dr-outcome").count() == 5
    page.locator('[data-side="1"]').select_option(label="fifth")
    assert heads.all_inner_texts() == ["Gold", "old", "fifth", "BM25"]
    page.keyboard.press("Escape")
    page.locator("#drawer").wait_for(state="hidden")
    page.evaluate("void karat.drawer.open(0)")
    page.locator(".dr-lists").wait_for()
    assert heads.all_inner_texts() == ["Gold", "old", "fifth"]


@pytest.mark.parametrize("row", range(9))
def test_whatever_a_file_holds_the_drawer_stays_whole_and_nothing_runs(show, row):
    page = show(made_views.hostile(), row=row)
    for more in page.locator(".dr-more:visible").all():
        more.click()
    page.wait_for_timeout(50)
    assert page.evaluate("window.ran") is None
    assert page.locator("#drawer img, #drawer script, #drawer iframe").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    body = page.locator(".dr-body")
    assert body.evaluate("body => body.scrollWidth <= body.clientWidth")
    assert page.locator(".dr-close").is_visible()
    page.keyboard.press("Escape")
    page.locator("#drawer").wait_for(state="hidden")


def test_on_a_phone_lists_come_one_at_a_time_and_lines_vanish(show):
    page = show(made_views.small(), row=1, size=PHONE)
    shown = page.locator(".dr-column:visible h4")
    assert shown.all_inner_texts() == ["new"]
    page.locator(".dr-tabs").get_by_role("button", name="Gold").click()
    assert shown.all_inner_texts() == ["Gold"]
    assert not page.locator(".dr-lines").is_visible()
    assert page.locator("#drawer").bounding_box() == {"x": 0, "y": 0, **PHONE}
    assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_drawer_is_usable_by_everyone(show, scheme, size):
    assert_usable(show(made_views.small(), row=1, scheme=scheme, size=size))


def test_a_query_that_cannot_be_unpacked_is_told(pages, tmp_path):
    page = pages.new()
    path = tmp_path / "broken.html"
    whole = made_views.small().page()
    start = whole.index('data-block="0">') + len('data-block="0">')
    path.write_text(whole[:start] + "AAAA" + whole[whole.index("</script>", start) :])
    page.goto(path.as_uri() + "#q=q1")
    page.locator("#drawer .notice.bad").wait_for()
    assert page.locator(".dr-lists").count() == 0
    # another block is whole
    page.evaluate("location.hash = 'q=q5'")
    page.locator(".dr-lists").wait_for()
    assert page.locator("#drawer .notice.bad").count() == 0
