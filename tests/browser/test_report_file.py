"""The report as a file, opened with the network cut: the demo's, and ones with awkward data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from . import worlds
from .accessibility import outside, overlapping
from .checks import DESKTOP, PHONE, SCHEMES
from .made_views import until

# From top to bottom; those in the middle are there where there is something to show.
SECTIONS = (
    *("verdict", "systems", "counts", "segments", "curves", "losses", "latency", "trade"),
    *("failures", "queries", "provenance", "downloads"),
)
FIRST_ROW = "#query-table [role=row][aria-rowindex='2']"
CHARTS = ("curves", "losses", "latency", "trade")

sizes = pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])


@pytest.fixture(scope="package")
def report(demo: Path) -> Path:
    return demo / "out" / "report.html"


def sections(page) -> list[str]:
    return page.eval_on_selector_all("main section[id]", "all => all.map((one) => one.id)")


def settled(page):
    """The page once its table is filled."""
    page.locator(FIRST_ROW).first.wait_for()
    return page


def test_the_demo_s_report_has_every_section_in_its_order(open_report, report):
    found = sections(settled(open_report(report)))
    assert [one for one in found if one in SECTIONS] == list(SECTIONS)


def test_every_section_has_a_heading_and_can_be_gone_to(open_report, report):
    page = open_report(report)
    for one in sections(page):
        assert page.locator(f"#{one}").locator("h1, h2").first.inner_text().strip(), one
    linked = page.eval_on_selector_all("nav a[href^='#']", "all => all.map((a) => a.hash.slice(1))")
    assert set(SECTIONS) <= set(linked)
    for one in linked:
        assert page.locator(f"#{one}").count() == 1, one


def test_the_file_names_nothing_that_a_browser_would_fetch(report):
    text = report.read_text()
    text = re.sub(r"<script\b.*?</script>", "", text, flags=re.DOTALL)
    assert not re.findall(
        r"""(?:src|href|srcset|poster|data|action)\s*=\s*["']?(?:https?:)?//""", text
    )
    assert not re.findall(r"url\(\s*[\"']?(?!data:|#)|@import", text)
    assert "<link" not in text.replace('<link rel="icon" href="data:,">', "")


def test_the_page_s_own_policy_lets_nothing_in(pages, open_report, report):
    page = open_report(report)
    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    asked = "fetch('https://karat.example/').then(() => 'sent', () => 'refused')"
    assert page.evaluate(asked) == "refused"
    pages.expect("refused by connect-src: https://karat.example/")
    pages.expect("console error: .* Content Security Policy")


def test_it_can_be_printed_with_all_of_its_sections(open_report, report):
    page = settled(open_report(report))
    page.emulate_media(media="print")
    hidden = [one for one in SECTIONS if not page.locator(f"#{one}").is_visible()]
    # What only makes sense on a screen may be left out.
    assert set(hidden) <= {"downloads", "queries"}
    paper = page.pdf(format="A4")
    assert paper.startswith(b"%PDF-")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", paper)) <= 60


def test_charts_are_drawn_with_a_table_beside_each(open_report, report):
    page = settled(open_report(report))
    figures = page.locator("figure.chart")
    assert figures.count() >= len(CHARTS)
    for at in range(figures.count()):
        figures.nth(at).scroll_into_view_if_needed()
        figures.nth(at).locator("svg").first.wait_for()
        assert figures.nth(at).locator("table").count() == 1


def test_light_and_dark_are_two_pictures_and_the_toggle_goes_between_them(open_report, report):
    grounds = {}
    for scheme in SCHEMES:
        page = open_report(report, scheme=scheme)
        grounds[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert lightness(grounds["light"]) > 0.8
    assert lightness(grounds["dark"]) < 0.25
    page = open_report(report)
    seen = set()
    for _ in range(3):
        page.locator("#theme").click()
        seen.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert seen == set(grounds.values())


def lightness(colour: str) -> float:
    parts = [float(part) for part in re.findall(r"[\d.]+", colour)[:3]]
    return sum(parts) / 3 / 255


def test_who_wants_no_motion_sees_none(open_report, report):
    page = settled(open_report(report, reduced_motion="reduce"))
    moving = page.evaluate(
        """() => [...document.querySelectorAll("*")].filter((one) => {
             const style = getComputedStyle(one);
             const times = `${style.transitionDuration},${style.animationDuration}`.split(",");
             return times.some((time) => parseFloat(time) > 0.01)
               || style.scrollBehavior === "smooth";
           }).map((one) => one.tagName + one.className)"""
    )
    assert moving == []


def test_without_scripts_all_but_the_queries_and_charts_can_be_read(open_report, report):
    page = open_report(report, java_script_enabled=False)
    text = page.locator("main").inner_text()
    for words in ("5 of 8 gates fail", "reranked", "pt-BR", "help-centre-2026-02"):
        assert words in text, words


def test_on_a_phone_nothing_lies_outside_or_on_top_of_another(open_report, report):
    page = settled(open_report(report, size=PHONE))
    assert outside(page) == []
    assert overlapping(page) == []


@pytest.fixture(scope="package")
def segmented(tmp_path_factory) -> Path:
    return worlds.segmented(tmp_path_factory.mktemp("segmented"), 300)


@sizes
def test_three_hundred_segments_leave_the_page_whole(open_report, segmented, size):
    page = settled(open_report(segmented, size=size))
    assert "team 299" in page.locator("#segments").text_content()
    assert outside(page) == []
    assert overlapping(page) == []


@pytest.mark.parametrize("queries", [1, 12])
@pytest.mark.parametrize("systems", [1, 2])
def test_judgments_and_lists_alone_make_a_whole_page(open_report, tmp_path, queries, systems):
    """No corpus, no texts, no segments, and down to one query: what is missing is not there."""
    page = settled(open_report(worlds.bare(tmp_path, queries=queries, systems=systems)))
    found = sections(page)
    assert {"verdict", "systems", "counts", "queries", "provenance", "downloads"} <= set(found)
    assert "segments" not in found
    text = page.locator("main").inner_text()
    assert not re.search(r"NaN|undefined|\[object|\bnull\b|\bNone\b(?! beats)", text)
    page.evaluate("location.hash = 'q=q0'")
    page.locator("#drawer").wait_for()
    assert outside(page) == []


@pytest.fixture(scope="package")
def awkward(tmp_path_factory) -> Path:
    return worlds.awkward(tmp_path_factory.mktemp("awkward"))


@sizes
def test_awkward_texts_are_shown_as_text(open_report, awkward, size):
    page = settled(open_report(awkward, size=size))
    active = "document.querySelectorAll('script, iframe, object, embed').length"
    before = page.evaluate(active)
    drawer = page.locator("#drawer")
    for name, text in worlds.AWKWARD.items():
        page.evaluate(f"location.hash = 'q=q-{name}'")
        told = "id => document.querySelector('#drawer').textContent.includes(id)"
        until(page, told, f"q-{name}")
        assert squeezed(seen(text)[:500]) in squeezed(drawer.text_content()), name
        assert drawer.locator("img, a[href^='javascript:'], [onload], [onerror]").count() == 0
        assert outside(page) == [], name
    assert page.evaluate(active) == before


def seen(text: str) -> str:
    """The text as a page shows it: what is no letter, tab or line end becomes a mark."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "\ufffd", text)


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def test_awkward_texts_leave_the_table_and_the_sections_whole(open_report, awkward):
    page = settled(open_report(awkward))
    assert outside(page) == []
    assert overlapping(page) == []
    assert worlds.AWKWARD_NAME in page.locator("#systems").inner_text()
