"""Everyone can use every page: axe-core, the keyboard, light and dark, small and large."""

from __future__ import annotations

from pathlib import Path

import pytest

from .accessibility import assert_usable, axe, focus, outside
from .checks import DESKTOP, PHONE

WORKBENCH = ("/", "/evaluations/1", "/compare?ids=1,2", "/explore", "/label", "/new")

# Contrast hangs on the scheme and the layout on the size: two looks see both of each.
looks = pytest.mark.parametrize(
    ("scheme", "size"), [("light", DESKTOP), ("dark", PHONE)], ids=["light-desktop", "dark-phone"]
)


@pytest.fixture(scope="package")
def report(demo: Path) -> Path:
    return demo / "out" / "report.html"


def drawn(page):
    """The page with its charts drawn, which is what a reader comes to."""
    page.locator("#query-table [role=row][aria-rowindex='2']").first.wait_for()
    figures = page.locator("figure.chart")
    for at in range(figures.count()):
        figures.nth(at).scroll_into_view_if_needed()
        figures.nth(at).locator("svg").first.wait_for()
    page.evaluate("window.scrollTo(0, 0)")
    return page


@looks
def test_the_report_is_usable_by_everyone(open_report, report, scheme, size):
    assert_usable(drawn(open_report(report, scheme=scheme, size=size)))


@looks
def test_the_drawer_is_usable_by_everyone(open_report, report, scheme, size):
    page = open_report(report, scheme=scheme, size=size)
    page.evaluate("location.hash = 'q=q_051'")
    page.locator("#drawer [dir=auto]").first.wait_for()
    assert_usable(page)


def test_the_drawer_gives_the_focus_back(open_report, report):
    page = drawn(open_report(report))
    page.locator("#query-table [role=grid]").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator("#drawer [dir=auto]").first.wait_for()
    assert page.evaluate("document.querySelector('#drawer').contains(document.activeElement)")
    page.keyboard.press("Escape")
    page.locator("#drawer").wait_for(state="hidden")
    assert page.evaluate("document.activeElement.closest('#query-table') !== null")


@looks
@pytest.mark.parametrize("path", WORKBENCH)
def test_a_page_of_the_workbench_is_usable_by_everyone(open_workbench, path, scheme, size):
    page = open_workbench(path, scheme=scheme, size=size)
    page.wait_for_load_state("networkidle")
    assert_usable(page)


def test_the_forced_colours_of_the_system_leave_everything_readable(open_report, report):
    page = drawn(open_report(report, forced_colors="active"))
    assert axe(page) == []
    assert focus(page) == []


def test_twice_the_letter_size_cuts_nothing(open_report, report):
    """WCAG 1.4.4: with letters of twice the size, the page needs no sideways scrolling."""
    page = open_report(report, size={"width": 640, "height": 900})
    page.evaluate("document.documentElement.style.fontSize = '32px'")
    assert outside(page) == []
