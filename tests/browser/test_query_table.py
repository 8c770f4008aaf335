"""The query table in a browser: modes, sorting, searching, filters, keys, links."""

from __future__ import annotations

import pytest

from . import made_views
from .accessibility import assert_usable
from .checks import PHONE, SCHEMES
from .made_views import drawn, until

MODES = ("all", "misses", "regressed", "improved", "different", "unjudged")
# Read off the columns of made_views.SMALL, looking at "new".
IN_MODE = {
    "all": ["q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q10"],
    "misses": ["q2", "q4", "q9"],
    "regressed": ["q2", "q5"],
    "improved": ["q1", "q7"],
    "different": ["q1", "q2", "q5", "q7"],
    "unjudged": ["q2", "q3", "q6"],
}


@pytest.fixture
def show(pages, tmp_path):
    return made_views.shower(pages, tmp_path)


def ids(page) -> list[str]:
    """The queries that are shown, from top to bottom."""
    return page.evaluate("karat.table.shown.map((row) => karat.table.model.rows.query_id[row])")


def counts(page) -> dict[str, str]:
    return {mode: page.locator(f"[data-mode={mode}] .qt-number").inner_text() for mode in MODES}


def press(page, mode):
    page.locator(f"[data-mode={mode}]").click()


def pick(page, control, label):
    page.locator(f'[data-control="{control}"]').select_option(label=label)


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_shows_its_queries_and_says_how_many(show, mode):
    page = show(made_views.small())
    press(page, mode)
    assert set(drawn(page)) == set(IN_MODE[mode])
    assert drawn(page) == ids(page)
    n = len(IN_MODE[mode])
    told = "All 10 queries" if mode == "all" else f"{n} of 10 queries"
    assert page.locator(".qt-count").inner_text() == told
    assert page.locator(".qt-count").get_attribute("aria-live") == "polite"
    assert counts(page) == {one: str(len(rows)) for one, rows in IN_MODE.items()}
    pressed = page.locator(".qt-mode[aria-pressed=true]")
    assert [one.get_attribute("data-mode") for one in pressed.all()] == [mode]


def test_the_largest_change_comes_first_where_changes_are_looked_at(show):
    page = show(made_views.small())
    press(page, "regressed")
    assert drawn(page) == ["q2", "q5"]
    press(page, "improved")
    assert drawn(page) == ["q1", "q7"]
    head = page.locator('[role=columnheader]:has([data-by="delta"])')
    assert head.get_attribute("aria-sort") == "descending"


def test_where_lower_is_better_a_higher_value_is_a_regression(show):
    page = show(made_views.small())
    pick(page, "measure", "Cost")
    assert counts(page) | {"regressed": "2", "improved": "1"} == counts(page)
    press(page, "regressed")
    assert drawn(page) == ["q1", "q7"]
    deltas = page.locator(".qt-body .is-delta")
    assert deltas.all_inner_texts() == ["+10.0000", "+2.0000"]
    assert "bad" in deltas.first.get_attribute("class")
    press(page, "improved")
    assert drawn(page) == ["q2"]


def test_a_measure_without_a_better_side_has_no_regressions(show):
    page = show(made_views.small(), "#mode=regressed")
    pick(page, "measure", "Length")
    assert page.locator("[data-mode=regressed]").get_attribute("aria-disabled") == "true"
    assert "Length has no better direction" in page.locator(".qt-lacks").inner_text()
    assert page.locator(".qt-count").inner_text() == "All 10 queries"


def test_looking_at_the_other_system_changes_misses_and_unjudged(show):
    page = show(made_views.small())
    pick(page, "system", "old")
    assert counts(page) == {
        "all": "10", "misses": "3", "regressed": "–", "improved": "–", "different": "4",
        "unjudged": "10",
    }  # fmt: skip
    assert "old is the baseline itself" in page.locator(".qt-lacks").inner_text()
    press(page, "misses")
    assert drawn(page) == ["q1", "q4", "q9"]


def test_with_one_system_what_compares_is_off_and_says_why(show):
    page = show(made_views.one_system(), "#mode=different")
    assert page.locator(".qt-count").inner_text() == "All 10 queries"
    told = page.locator(".qt-lacks").inner_text()
    assert told == (
        "Regressed, Improved and Different not available: this report has only one system."
    )
    for mode in ("regressed", "improved", "different"):
        button = page.locator(f"[data-mode={mode}]")
        assert button.get_attribute("aria-disabled") == "true"
        button.click(force=True)
        assert len(ids(page)) == 10
    assert page.locator('[data-by="delta"]').count() == 0
    assert not page.locator('[data-control="system"]').is_visible()
    assert counts(page)["misses"] == "3"


# Ascending and descending, by the rules: what has no value stands last both times, ties stay in
# the order of the report, and gold that was not found is behind every rank.
SORTED = {
    "id": (["q1 q2 q3 q4 q5 q6 q7 q8 q9 q10"], ["q10 q9 q8 q7 q6 q5 q4 q3 q2 q1"]),
    "text": (["q9 q8 q1 q10 q2 q5 q3 q6 q7 q4"], ["q7 q6 q3 q5 q2 q10 q1 q8 q9 q4"]),
    "value.0": (["q1 q4 q9 q7 q6 q2 q8 q3 q5 q10"], ["q3 q5 q8 q2 q6 q7 q1 q4 q9 q10"]),
    "value.1": (["q2 q4 q9 q7 q6 q5 q8 q1 q3 q10"], ["q1 q3 q8 q5 q6 q7 q2 q4 q9 q10"]),
    "delta": (["q2 q5 q3 q4 q6 q8 q9 q7 q1 q10"], ["q1 q7 q3 q4 q6 q8 q9 q5 q2 q10"]),
    "rank": (["q1 q3 q8 q5 q6 q7 q2 q4 q9 q10"], ["q2 q4 q9 q7 q6 q5 q1 q3 q8 q10"]),
    "class": (["q4 q9 q2 q1 q3 q5 q6 q7 q8 q10"], ["q2 q9 q4 q1 q3 q5 q6 q7 q8 q10"]),
}


@pytest.mark.parametrize("by", SORTED)
def test_every_column_sorts_both_ways(show, by):
    page = show(made_views.small())
    head = page.locator(f'[role=columnheader]:has([data-by="{by}"])')
    for way, (expected,) in zip(("ascending", "descending"), SORTED[by], strict=True):
        head.locator("button").click()
        assert drawn(page) == expected.split()
        assert head.get_attribute("aria-sort") == way
        assert page.evaluate("document.activeElement.dataset.by") == by
    sorted_heads = page.locator("[aria-sort=ascending], [aria-sort=descending]")
    assert sorted_heads.count() == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("REFUND", ["q1", "q5"]),
        ("facade COTE", ["q2"]),
        ("OÙ", ["q2"]),
        ("strasse und strasse", ["q3"]),
        ("straße", ["q3"]),
        ("q1", ["q1", "q10"]),
        ("address", ["q8", "q9"]),
        ("refund card", ["q5"]),
        ("card refund", ["q5"]),
        ("退款", ["q7"]),
        ("مرحبا", ["q6"]),
        ("nothing like it", []),
    ],
)
def test_search_finds_ids_and_texts_whatever_case_and_accents(show, words, expected):
    page = show(made_views.small())
    page.locator(".qt-search").fill(words)
    until(page, "n => karat.table.shown.length === n", len(expected))
    assert drawn(page) == expected
    assert page.locator(".qt-count").inner_text() == f"{len(expected)} of 10 queries"
    assert page.locator(".qt-empty").is_visible() == (not expected)


def test_filters_and_modes_narrow_each_other(show):
    page = show(made_views.small())
    pick(page, "in.language", "en (6)")
    assert drawn(page) == ["q1", "q4", "q5", "q8", "q9", "q10"]
    assert counts(page) == {
        "all": "6", "misses": "2", "regressed": "1", "improved": "1", "different": "2",
        "unjudged": "0",
    }  # fmt: skip
    pick(page, "in.topic", "refunds (4)")
    assert drawn(page) == ["q1", "q4", "q5"]
    press(page, "regressed")
    assert drawn(page) == ["q5"]
    page.locator(".qt-clear").click()
    assert len(drawn(page)) == 10
    assert page.locator('[data-control="in.language"]').input_value() == ""
    assert page.url.endswith("made.html")


def test_queries_without_a_value_in_a_column_can_be_asked_for(show):
    page = show(made_views.small())
    pick(page, "in.language", "none (2)")
    assert drawn(page) == ["q6", "q7"]
    pick(page, "in.topic", "none (3)")
    assert drawn(page) == ["q6"]


def test_failure_class_and_status_are_those_of_the_system_looked_at(show):
    page = show(made_views.small())
    pick(page, "class", "low rank (1)")
    assert drawn(page) == ["q2"]
    pick(page, "class", "any")
    pick(page, "status", "no answer (1)")
    assert drawn(page) == ["q10"]
    pick(page, "status", "missing (1)")
    assert drawn(page) == ["q4"]
    options = page.locator('[data-control="class"] option').all_inner_texts()
    assert options == ["any", "not in run (1)", "complete miss (1)", "low rank (1)"]


def test_a_row_says_its_values_difference_rank_and_outcome(show):
    page = show(made_views.small())
    cells = page.locator("#query-row-1 > [role=gridcell]").all_inner_texts()
    assert cells == [
        "q2", "Où est mon colis, façade côté cour", "0.5000", "0.0000", "−0.5000", "not found",
        "low rank",
    ]  # fmt: skip
    assert page.locator("#query-row-9 > [role=gridcell]").all_inner_texts() == [
        "q10", "nobody can answer this", "–", "–", "–", "–", "no answer",
    ]  # fmt: skip
    assert page.locator("#query-row-3 > .asked").inner_text() == "(no text)"


def test_a_link_reproduces_the_view(show, pages):
    page = show(made_views.small())
    pick(page, "measure", "Cost")
    pick(page, "in.topic", "refunds (4)")
    page.locator(".qt-search").fill("re")
    page.locator('[data-by="value.0"]').click()
    page.locator('[data-by="value.0"]').click()
    until(page, "location.hash.includes('search=re')")
    shown, url = drawn(page), page.url
    # refund, and nothing for the one without a text; 10 before 5
    assert shown == ["q1", "q5"]
    other = pages.new()
    other.goto(url)
    other.locator(".qt-count").wait_for()
    assert drawn(other) == shown
    assert other.locator(".qt-search").input_value() == "re"
    assert other.locator('[data-control="measure"]').input_value() == "Cost"
    head = other.locator('[role=columnheader]:has([data-by="value.0"])')
    assert head.get_attribute("aria-sort") == "descending"


def test_a_link_in_the_page_changes_the_view_and_an_anchor_leaves_it(show):
    page = show(made_views.small())
    page.evaluate("location.hash = 'mode=misses&in.language=en'")
    until(page, "karat.table.shown.length === 2")
    assert drawn(page) == ["q4", "q9"]
    page.evaluate(
        """() => new Promise((done) => {
          addEventListener("hashchange", () => requestAnimationFrame(() => done()), {once: true});
          location.hash = "downloads";
        })"""
    )
    assert drawn(page) == ["q4", "q9"]


def test_a_link_to_what_the_report_does_not_have_shows_all_of_it(show):
    page = show(
        made_views.small(), "#mode=nonsense&system=x&measure=y&class=z&in.language=xx&sort=w"
    )
    assert len(drawn(page)) == 10
    page = show(made_views.small(), "#q=nobody")
    told = page.locator(".qt-count").inner_text()
    assert told == "This report has no query “nobody”."
    assert not page.locator("#drawer").is_visible()


def test_keys_search_move_open_and_close(show):
    page = show(made_views.small())
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.className") == "qt-search"
    page.keyboard.type("refund")
    until(page, "karat.table.shown.length === 2")
    page.keyboard.press("ArrowDown")
    grid = page.locator("[role=grid]")
    assert grid.get_attribute("aria-activedescendant") == "query-row-0"
    page.keyboard.press("ArrowDown")
    assert grid.get_attribute("aria-activedescendant") == "query-row-4"
    page.keyboard.press("ArrowDown")
    assert grid.get_attribute("aria-activedescendant") == "query-row-4"
    page.keyboard.press("Enter")
    page.locator("#drawer").wait_for()
    assert page.locator(".dr-title").inner_text() == "refund to a debit card"
    page.keyboard.press("Escape")
    page.locator("#drawer").wait_for(state="hidden")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "grid"
    assert grid.get_attribute("aria-activedescendant") == "query-row-4"
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    until(page, "karat.table.shown.length === 10")


def test_a_drawer_closed_after_the_anchor_of_a_section_leaves_the_reader_in_place(
    open_report, demo
):
    page = open_report(demo / "out" / "report.html")
    page.get_by_role("link", name="Systems").first.click()
    until(page, "location.hash === '#systems'")
    grid = page.locator("#query-table [role=grid]")
    grid.scroll_into_view_if_needed()
    grid.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator("#drawer [dir=auto]").first.wait_for()
    before = page.evaluate("scrollY")
    page.keyboard.press("Escape")
    page.locator("#drawer").wait_for(state="hidden")
    until(page, "location.hash === '#systems' && karat.table.returning === null")
    assert page.evaluate("scrollY") == before > 0
    assert page.evaluate("document.activeElement.getAttribute('role')") == "grid"


def test_a_drawer_that_a_link_opened_gives_the_focus_to_the_table(open_report, demo):
    page = open_report(f"{demo / 'out' / 'report.html'}")
    page.evaluate("location.hash = 'q=q_051'")
    page.reload()
    page.locator("#drawer [dir=auto]").first.wait_for()
    page.keyboard.press("Escape")
    page.locator("#drawer").wait_for(state="hidden")
    until(page, "document.activeElement.getAttribute('role') === 'grid'")


def test_a_step_back_to_the_bare_address_shows_all_again(show):
    page = show(made_views.small())
    page.evaluate("location.hash = 'mode=misses'")
    until(page, "karat.table.shown.length < 10")
    page.go_back()
    until(page, "karat.table.shown.length === 10")


def test_a_slash_that_is_typed_stays_a_slash(show):
    page = show(made_views.small())
    page.locator(".qt-search").focus()
    page.keyboard.type("a/b")
    assert page.locator(".qt-search").input_value() == "a/b"


def test_on_a_phone_a_row_is_two_lines_and_nothing_is_wider_than_the_screen(show):
    page = show(made_views.small(), size=PHONE)
    row = page.locator("#query-row-1")
    text, value = row.locator(".asked").bounding_box(), row.locator(".is-looked").bounding_box()
    assert text["y"] + text["height"] <= value["y"] + 1
    assert row.bounding_box()["height"] == 62
    assert row.locator(".badge").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    pick(page, "sort", "difference, ascending")
    assert drawn(page)[:2] == ["q2", "q5"]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", [{"width": 1280, "height": 900}, PHONE], ids=["desktop", "phone"])
def test_the_table_is_usable_by_everyone(show, scheme, size):
    assert_usable(show(made_views.small(), scheme=scheme, size=size))


def test_whatever_a_file_holds_the_table_stays_whole_and_nothing_runs(show):
    page = show(made_views.hostile())
    assert len(drawn(page)) == 10
    assert page.evaluate("window.ran") is None
    assert page.locator("main img, main script, main iframe").count() == 0
    heights = page.locator(".qt-body > [role=row]").evaluate_all(
        "rows => rows.map(r => r.offsetHeight)"
    )
    assert set(heights) == {36}
    assert page.locator("#query-row-0 .asked").inner_text() == made_views.HOSTILE


def test_rows_that_cannot_be_unpacked_are_told(pages, tmp_path):
    page = pages.new()
    path = tmp_path / "broken.html"
    whole = made_views.small().page()
    start = whole.index('id="karat-rows">') + len('id="karat-rows">')
    path.write_text(whole[:start] + "AAAA" + whole[whole.index("</script>", start) :])
    page.goto(path.as_uri())
    page.locator("#query-table .notice.bad").wait_for()
    assert "could not be read" in page.locator("#query-table").inner_text()


@pytest.mark.parametrize("column", ["__proto__", "constructor", "toString"])
def test_a_column_may_have_any_name(show, column):
    made = made_views.small()
    # As JSON has it: in a page the name is that of a column, and of nothing else.
    of = [[number % 2] for number in range(10)]
    made.rows["segments"] = {column: {"names": ["even", "odd"], "of": of}}
    made.head["columns"] = [column]
    page = show(made)
    pick(page, f"in.{column}", "odd (5)")
    assert ids(page) == ["q2", "q4", "q6", "q8", "q10"]
    assert page.evaluate("({}).even") is None
