"""The query table on screens, phones and paper, and with colours and motion that a user chose."""

from __future__ import annotations

from itertools import pairwise

import pytest

from . import made_views
from .accessibility import assert_usable
from .checks import PHONE
from .made_views import drawn


@pytest.fixture
def show(pages, tmp_path):
    return made_views.shower(pages, tmp_path)


def test_texts_take_the_room_that_outcomes_leave(show):
    page = show(made_views.small())
    heads = {
        name: page.locator(f'[role=columnheader]:has([data-by="{name}"])').bounding_box()["width"]
        for name in ("text", "class")
    }
    badges = page.locator(".qt-body .outcome .badge").evaluate_all(
        "all => all.map(one => one.offsetWidth)"
    )
    # with its padding, the cell is hardly wider than the longest outcome in it, and cuts none
    assert max(badges) + 20 <= heads["class"] < max(badges) + 60
    assert heads["text"] > 400
    whole = "all => all.every(one => one.scrollWidth <= one.clientWidth)"
    assert page.locator(".qt-body .outcome").evaluate_all(whole)


def test_on_a_phone_outcomes_stay_on_their_line_and_long_names_in_the_page(show):
    made = made_views.small()
    made.head["systems"] = ["a-system-with-a-very-long-name-" * 4, "another-one-" * 9]
    made.rows["query_id"][8] = "query-" + "9" * 40
    made.head["classes"] = [*made.head["classes"][:3], "a_class_of_a_very_long_name", "low_rank"]
    page = show(made, size=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    row = page.locator("#query-row-8")
    value, badge = row.locator(".is-looked").bounding_box(), row.locator(".outcome").bounding_box()
    delta = row.locator(".is-delta").bounding_box()
    assert value["x"] + value["width"] < delta["x"]
    assert delta["x"] + delta["width"] < badge["x"]
    assert badge["y"] + badge["height"] <= row.bounding_box()["y"] + row.bounding_box()["height"]
    assert badge["x"] + badge["width"] <= 390
    for control in ("system", "measure", "sort"):
        box = page.locator(f'[data-control="{control}"]').bounding_box()
        assert box["x"] + box["width"] <= 390
    assert_usable(page)


def test_on_paper_rows_are_as_high_as_their_texts_and_never_split(show):
    made = made_views.small()
    made.rows["text"][0] = "how long does a refund take " * 40
    # as wide as a page of A4 between its margins
    page = show(made, size={"width": 703, "height": 900})
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("[role=columnheader]:visible").count() == 7
    assert page.evaluate("document.documentElement.scrollWidth") <= 703
    # misses first: q2, q4, q9
    assert drawn(page)[:4] == ["q2", "q4", "q9", "q1"]
    text = page.locator("#query-row-0 .asked .text")
    assert text.inner_text().count("refund") == 40
    assert text.evaluate("one => one.scrollWidth <= one.clientWidth && one.offsetHeight > 40")
    boxes = page.locator(".qt-body > [role=row]").evaluate_all(
        "rows => rows.map(r => [r.getBoundingClientRect().top, r.getBoundingClientRect().bottom])"
    )
    assert all(above[1] <= below[0] + 0.5 for above, below in pairwise(boxes))
    kinds = page.locator(".qt-body > [role=row]").evaluate_all(
        "rows => rows.map(r => getComputedStyle(r).breakInside)"
    )
    assert set(kinds) == {"avoid"}
    body = page.locator(".qt-body").bounding_box()
    assert body["y"] + body["height"] == pytest.approx(boxes[-1][1], abs=2)


SHAPE = """(one) => {
  const style = getComputedStyle(one);
  return [style.borderBottomColor, style.textDecorationLine, style.borderBottomWidth];
}"""


def test_what_is_chosen_has_a_shape_where_colours_are_forced(show):
    page = show(made_views.small(), forced_colors="active")
    pressed, other = page.locator(".qt-mode").nth(0), page.locator(".qt-mode").nth(1)
    assert pressed.evaluate(SHAPE) != other.evaluate(SHAPE)
    assert "underline" in pressed.evaluate(SHAPE)
    page.locator("[role=grid]").focus()
    active = page.locator(".qt-row.is-active")
    width = active.evaluate("one => getComputedStyle(one, '::after').borderLeftWidth")
    assert width == "6px"
    bad, plain = page.locator("#query-row-1 .badge"), page.locator("#query-row-9 .badge")
    border = "one => getComputedStyle(one).borderTopWidth"
    assert bad.evaluate(border) != plain.evaluate(border)


def test_nothing_glides_for_those_who_want_no_motion(show):
    page = show(made_views.small(), row=1, reduced_motion="reduce")
    moving = page.evaluate(
        """() => [...document.querySelectorAll("*")].filter((one) => {
          const { transitionDuration: time, animationName, scrollBehavior } = getComputedStyle(one);
          return time !== "0s" || animationName !== "none" || scrollBehavior === "smooth";
        }).map((one) => one.className)"""
    )
    assert moving == []
