"""The lists in the drawer: what is inside and outside them, what moved, and what cards say."""

from __future__ import annotations

import re

import pytest

from . import made_views
from .test_drawer import card, cards, column, lines


@pytest.fixture
def show(pages, tmp_path):
    return made_views.shower(pages, tmp_path)


def test_the_lists_stand_side_by_side_and_gold_outside_says_where_it_is(show):
    page = show(made_views.small(), row=1)
    assert cards(page, "gold") == ["g#1", "h#1", "lost#1"]
    assert cards(page, "system-0") == ["x", "g#1", "c", "b", "h#1", "lost#1"]
    assert cards(page, "system-1") == ["x", "b", "n", "g#1", "h#1", "lost#1"]
    assert cards(page, "bm25") == ["g#1", "b"]
    assert "gold at raw rank 37" in card(page, "system-1", "g#1").inner_text()
    assert "not in the final list of 40" in card(page, "system-1", "h#1").inner_text()
    assert "not in the final list of 50" in card(page, "system-0", "h#1").inner_text()
    assert "not in the corpus" in card(page, "system-1", "lost#1").inner_text()
    places = card(page, "gold", "g#1").locator(".dr-places li").all_inner_texts()
    assert places == ["old: rank 2", "new: gold at raw rank 37", "BM25: rank 1"]
    places = card(page, "gold", "h#1").locator(".dr-places li").all_inner_texts()
    assert places[2] == "BM25: not in BM25’s top 1,000"
    assert column(page, "system-1").locator(".dr-column-head p").inner_text() == "the first 3 of 40"


def test_gold_below_the_kept_part_of_a_list_says_its_rank_in_it(show):
    made = made_views.small()
    made.details[1]["gold"][0]["ranks"][1] = {"final": 23, "raw": 37}
    page = show(made, row=1)
    assert "gold at rank 23" in card(page, "system-1", "g#1").inner_text()


def test_cards_say_rank_score_grade_and_move(show):
    page = show(made_views.small(), row=1)
    b = card(page, "system-1", "b")
    assert b.locator(".dr-rank").inner_text() == "2"
    assert b.locator(".dr-score").inner_text() == "0.8"
    assert b.locator(".badge").all_inner_texts() == ["grade 0"]
    assert b.locator(".dr-move").text_content() == "▲22 up from old"
    assert card(page, "system-0", "g#1").locator(".badge").all_inner_texts() == ["gold 2"]
    assert card(page, "system-1", "x").locator(".badge").all_inner_texts() == ["unjudged"]
    assert card(page, "system-1", "n").locator(".badge").all_inner_texts() == ["hard negative"]
    move = card(page, "system-1", "n").locator(".dr-move")
    assert move.text_content() == "newnot in the first 4 of old"
    assert "“new” compare with old." in page.locator(".dr-legend").inner_text()


def test_moves_are_told_against_the_baseline_not_the_list_beside(show):
    page = show(made_views.three_systems(), row=1)

    def moves(key):
        return column(page, key).locator(".dr-move > [aria-hidden]").all_inner_texts()

    # old has x, g#1, c, b: b is first of the third, n is new, x falls by two and c by one
    assert moves("system-2") == ["▲3", "new", "▼2", "▼1"]
    assert moves("system-1") == ["=", "▲2", "new"]
    assert moves("system-0") == []


def test_nothing_moved_against_a_call_that_failed(show):
    made = made_views.three_systems()
    made.details[1]["systems"][0] |= {"status": "failed", "hits": []}
    page = show(made, row=1)
    assert page.locator(".dr-move").count() == 0
    assert "compare with" not in page.locator(".dr-legend").inner_text()


def test_gold_that_is_a_document_is_found_by_its_rank(show):
    page = show(made_views.documents(), row=0)
    assert cards(page, "system-0") == ["x#1", "d#3", "d#1", "e"]
    assert cards(page, "system-1") == ["d#1", "x#1", "e"]
    assert "gold at rank 23" in card(page, "system-0", "e").inner_text()
    assert "not in the final list of 20" in card(page, "system-1", "e").inner_text()
    places = card(page, "gold", "d").locator(".dr-places li").all_inner_texts()
    assert places == ["old: rank 2", "new: rank 1", "BM25: rank 2"]
    for key, item in (("system-0", "d#3"), ("system-1", "d#1"), ("bm25", "d#3")):
        assert "is-gold" in card(page, key, item).get_attribute("class")
    assert "is-gold" not in card(page, "system-0", "d#1").get_attribute("class")
    # from the gold to the second card of old, to the first of new, and to BM25's second
    assert ("d", "from-gold is-gold") in lines(page)
    assert {("d", "up is-gold"), ("d", "down is-gold"), ("d#1", "up is-gold")} <= lines(page)
    card(page, "gold", "d").hover()
    lit = page.locator(".dr-item.is-lit .dr-id")
    assert lit.all_inner_texts() == ["d", "d#3", "d#1", "d#3"]


def test_the_line_from_a_document_ends_at_the_card_of_its_rank(show):
    page = show(made_views.documents(), row=0)
    path = page.locator('.dr-line.from-gold[data-item="d"]').get_attribute("d")
    end = [float(one) for one in re.findall(r"-?[\d.]+", path)][-2:]
    board, box = (
        one.bounding_box() for one in (page.locator(".dr-board"), card(page, "system-0", "d#3"))
    )
    assert end[0] == pytest.approx(box["x"] - board["x"], abs=1)
    assert box["y"] < end[1] + board["y"] < box["y"] + box["height"]


def test_words_of_the_query_are_marked_whatever_case_and_accents(show):
    page = show(made_views.small(), row=1)
    assert card(page, "system-1", "b").locator("mark").all_inner_texts() == ["cote", "cour"]
    marks = card(page, "gold", "g#1").locator("mark").all_inner_texts()
    assert set(marks) == {"COLIS", "facade"}
    page = show(made_views.small(), row=6)
    assert page.evaluate("[...karat.words.terms('退款需要多长时间')].includes('退款')")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("how long does the refund from you take", {"long", "refund", "take"}),
        ("¿Cuándo llega la devolución?", {"llega", "devolucion"}),
        # what is in half of the texts is no help to the eye where it is short, in any language
        ("nie ma zwrot", {"zwrot"}),
        # nothing else to mark
        ("how from the", {"how", "from", "the"}),
        ("IT 42 的", {"it", "42", "的"}),
    ],
)
def test_words_that_any_text_has_are_not_marked(show, query, expected):
    page = show(made_views.small())
    texts = ["zwrot nie tu", "nie ma", "pies nie spi", "kot"]
    found = page.evaluate(
        "([query, texts]) => [...karat.words.terms(query, texts)]", [query, texts]
    )
    assert set(found) == expected


def test_every_button_on_a_card_names_its_item_and_is_large_enough(show):
    page = show(made_views.small(), row=1)
    more = card(page, "gold", "g#1").locator(".dr-more")
    assert more.get_attribute("aria-label") == "more of g#1"
    more.click()
    assert more.get_attribute("aria-label") == "less of g#1"
    for one in page.locator(".dr-more:visible, .dr-id").all():
        box = one.bounding_box()
        assert box["width"] >= 24
        assert box["height"] >= 24


# Cards whose boxes lie on each other, and what of a card is outside the column it stands in.
OVERLAPPING = """() => {
  const all = (kind) => [...document.querySelectorAll(kind)];
  const cards = all(".dr-item").map((one) => one.getBoundingClientRect());
  const meet = (from, to, other, end) => from < end - 1 && other < to - 1;
  const over = (a, b) =>
    meet(a.left, a.right, b.left, b.right) && meet(a.top, a.bottom, b.top, b.bottom);
  const pairs = cards.flatMap((a, at) => cards.slice(at + 1).filter((b) => over(a, b)));
  const wide = all(".dr-column").filter((one) => one.scrollWidth > one.clientWidth);
  return [pairs.length, wide.length];
}"""


@pytest.mark.parametrize("width", [768, 1280, 1920])
def test_no_card_grows_over_its_neighbour(show, width):
    made = made_views.small()
    long = "help-centre/refunds-and-returns/" + "x" * 120
    made.texts["g#1"] |= {"title": "A title that is longer than any column is wide " * 4}
    made.details[1]["gold"][0] |= {"section": "How to ask for it and what to expect " * 4}
    made.details[1]["gold"][1] |= {"item_id": long}
    made.details[1]["systems"][1]["hits"][2][0] = long + "#2"
    page = show(made, row=1, size={"width": width, "height": 900})
    assert page.evaluate(OVERLAPPING) == [0, 0]


@pytest.mark.parametrize(("top", "told"), [(50, "In the retriever’s own list: "), (20, "")])
def test_why_it_was_missed_says_which_list_it_means_where_that_is_another(show, top, told):
    made = made_views.small()
    because = f"not in the top {top}, where the log ends"
    made.details[1]["systems"][1] |= {"searched": 20, "because": because}
    page = show(made, row=1)
    assert page.get_by_text(because).inner_text() == told + because
    assert "not in the final list of 20" in card(page, "system-1", "h#1").inner_text()


def test_the_reason_for_few_bm25_lists_is_told_where_there_is_none(show):
    made = made_views.small()
    made.head["bm25"] = "BM25 was searched for 1 query, those that miss or differ most"
    page = show(made, row=1)
    assert page.locator(".dr-lacks").count() == 0
    page = show(made, row=0)
    assert page.locator(".dr-lacks").all_inner_texts() == [made.head["bm25"]]


def test_gold_that_the_report_leaves_out_is_counted(show):
    made = made_views.small()
    made.details[1]["gold_left_out"] = 7
    page = show(made, row=1)
    assert column(page, "gold").locator(".dr-column-head p").inner_text() == "the best 3 of 10"


def test_much_gold_is_shown_in_part_until_asked_for(show):
    made = made_views.small()
    made.details[0]["gold"] = [
        made_views.gold_of(f"g{at}", {"final": None}, {"final": None}) for at in range(30)
    ]
    page = show(made, row=0)
    assert len(cards(page, "gold")) == 20
    assert "and 25 more gold items outside this list" in column(page, "system-0").inner_text()
    page.get_by_role("button", name="Show 10 more").click()
    assert len(cards(page, "gold")) == 30


@pytest.mark.parametrize("item", ["__proto__", "constructor", "toString"])
def test_an_item_may_have_any_name_and_no_text(show, item):
    made = made_views.small()
    made.details[0]["systems"][0]["hits"][0][0] = item
    page = show(made, row=0)
    assert item in page.locator(".dr-lists").inner_text()
    assert "could not be read" not in page.locator("dialog").inner_text()
