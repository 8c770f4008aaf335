"""The written sections as they are seen: on a phone, on paper, in the reader's own colours."""

from __future__ import annotations

from pathlib import Path

import pytest

from .checks import DESKTOP, PHONE
from .made_views import until

FIRST_ROW = "#query-table [role=row][aria-rowindex='2']"


@pytest.fixture(scope="package")
def report(demo: Path) -> Path:
    return demo / "out" / "report.html"


def overflow(page, selector: str) -> int:
    return page.eval_on_selector(selector, "(one) => one.scrollWidth - one.clientWidth")


def test_the_table_of_two_systems_fits_a_desktop(open_report, report):
    assert overflow(open_report(report, size=DESKTOP), ".scroll:has(> .pair)") <= 0


def test_on_a_phone_a_gate_is_read_without_moving_it_sideways(open_report, report):
    page = open_report(report, size=PHONE)
    assert overflow(page, ".scroll:has(> .gates)") <= 0
    row = page.locator(".gates tbody tr").first
    box = row.bounding_box()
    for cell in row.locator("th, td").all():
        own = cell.bounding_box()
        assert own["x"] >= box["x"]
        assert own["x"] + own["width"] <= box["x"] + box["width"] + 1
    names = row.locator("td[data-label]").evaluate_all(
        "all => all.map((one) => getComputedStyle(one, '::before').content)"
    )
    assert names == ['"value"', '"interval"', '"margin"', '"n"', '"needed"']


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_table_that_goes_on_has_a_shadow_at_its_edge(open_report, report, scheme):
    page = open_report(report, size=PHONE, scheme=scheme)
    kept = page.eval_on_selector(
        ".scroll:has(> .pair)", "(one) => getComputedStyle(one).backgroundAttachment"
    )
    assert kept == "local, local, scroll, scroll"
    covers = page.eval_on_selector_all(
        ".pair tbody tr:not(.primary) > td",
        "all => [...new Set(all.map((one) => getComputedStyle(one).backgroundColor))]",
    )
    # What is laid over the shadow would hide it.
    assert covers == ["rgba(0, 0, 0, 0)"]


def test_the_list_of_sections_marks_the_one_in_view(open_report, report):
    page = open_report(report)
    page.locator(FIRST_ROW).first.wait_for()
    current = page.locator("nav.contents a[aria-current]")
    current.first.wait_for()
    assert current.get_attribute("href") == "#verdict"
    for one in ("segments", "failures", "downloads"):
        page.locator(f"nav.contents a[href='#{one}']").click()
        page.locator(f"nav.contents a[href='#{one}'][aria-current]").wait_for()
        assert current.count() == 1


def test_a_class_of_misses_leads_to_its_queries(open_report, report):
    page = open_report(report)
    page.locator(FIRST_ROW).first.wait_for()
    link = page.locator("table.failures a").first
    count = int(link.inner_text())
    link.click()
    until(page, f"document.querySelectorAll('#query-table [role=row]').length === {count + 1}")


def test_where_the_colours_are_the_reader_s_own_swatches_differ_by_their_lines(open_report, report):
    page = open_report(report, forced_colors="active")
    styles = page.eval_on_selector_all(
        ".legend .swatch", "all => all.map((one) => getComputedStyle(one).borderInlineStartStyle)"
    )
    assert styles[:4] == ["solid", "dotted", "double", "solid"]
    widths = page.eval_on_selector_all(
        ".legend .swatch", "all => all.map((one) => getComputedStyle(one).borderInlineStartWidth)"
    )
    assert widths[0] != widths[3]


def test_on_paper_heads_stay_with_their_first_row(open_report, report):
    page = open_report(report)
    page.emulate_media(media="print")
    for selector in ("h2", "h3", ".grid-table thead", ".grid-table thead tr"):
        kept = page.eval_on_selector_all(
            selector, "all => all.every((one) => getComputedStyle(one).breakAfter === 'avoid')"
        )
        assert kept, selector


def test_who_wants_no_motion_gets_none(open_report, report):
    page = open_report(report, reduced_motion="reduce")
    moving = page.eval_on_selector_all(
        "body *",
        "all => [...new Set(all.map((one) => getComputedStyle(one).transitionDuration))]",
    )
    assert moving == ["0s"]
