"""The workbench as a user drives it: from the list to an evaluation, a comparison, a query."""

from __future__ import annotations

import re

import pytest

from .checks import PHONE
from .conftest import listening


def test_the_list_leads_to_an_evaluation_and_its_queries(open_workbench, workbench):
    page = open_workbench("/")
    page.wait_for_load_state("networkidle")
    assert {"bm25", "reranked"} <= set(re.findall(r"\w+", page.locator("main").inner_text()))
    page.locator("main a[href='/evaluations/1']").first.click()
    page.wait_for_url(workbench.at("/evaluations/1"))
    page.locator("#query-table [role=row][aria-rowindex='2']").first.wait_for()
    assert "bm25" in page.locator("#systems").inner_text()


def test_two_evaluations_are_compared_query_by_query(open_workbench):
    page = open_workbench("/compare?ids=1,2")
    page.locator("#query-table [role=row][aria-rowindex='2']").first.wait_for()
    text = page.locator("main").inner_text()
    assert "reranked" in text
    page.evaluate("location.hash = 'q=q_051'")
    page.locator("#drawer [dir=auto]").first.wait_for()


@pytest.mark.parametrize("path", ["/", "/evaluations/2", "/compare?ids=1,2", "/explore", "/label"])
def test_no_page_asks_anyone_else_for_anything(open_workbench, pages, path):
    page = open_workbench(path, size=PHONE)
    page.wait_for_load_state("networkidle")
    assert pages.troubles() == []
    assert page.evaluate(
        "performance.getEntriesByType('resource').every((one) => one.name.startsWith(origin))"
    )


@pytest.mark.parametrize("path", ["/evaluations/999", "/nothing-here", "/compare?ids=1,999"])
def test_what_is_not_there_is_said_in_a_page(open_workbench, pages, path):
    page = open_workbench(path)
    pages.expect("404")
    assert page.locator("main").inner_text().strip()
    assert page.locator("nav a, header a").count() > 0


def test_an_empty_store_has_a_page_that_says_what_to_do(pages, tmp_path):
    with listening(store=str(tmp_path / "empty.db")) as url:
        page = pages.new(url)
        page.goto(f"{url}/")
        page.wait_for_load_state("networkidle")
        assert "--save" in page.locator("main").inner_text()
        page.context.close()


def test_the_token_leads_to_what_was_asked_for_and_an_ended_session_is_told(pages, tmp_path):
    pages.expect("401")
    with listening(store=str(tmp_path / "history.db"), token="t" * 20) as url:
        page = pages.new(url)
        page.goto(f"{url}/#mode=misses")
        page.get_by_label("Token").fill("t" * 20)
        page.keyboard.press("Enter")
        page.get_by_role("navigation", name="Workbench").wait_for()
        assert page.url == f"{url}/#mode=misses"
        page.context.clear_cookies()
        told = page.evaluate("karat.api.get('/api/evaluations').catch((error) => error.message)")
        assert told == "your session has ended; load the page again and enter the token"


@pytest.mark.parametrize("follow", ["click", "refresh"])
def test_a_link_with_the_token_on_another_page_leads_in_and_leaves_no_token(
    pages, tmp_path, follow
):
    pages.expect("401")
    pages.expect("request: file:")
    token = "t" * 20
    with listening(store=str(tmp_path / "history.db"), token=token) as url:
        link, other = f"{url}/explore?token={token}", tmp_path / "other.html"
        head = f'<meta http-equiv="refresh" content="0;url={link}">' if follow == "refresh" else ""
        other.write_text(f'{head}<a href="{link}">workbench</a>')
        page = pages.new(url)
        page.goto(other.as_uri())
        if follow == "click":
            page.get_by_text("workbench").click()
        page.get_by_role("navigation", name="Workbench").wait_for()
        assert page.url == f"{url}/explore"
        assert page.evaluate("document.referrer") == ""
        entries = page.context.new_cdp_session(page).send("Page.getNavigationHistory")["entries"]
        assert token not in "".join(entry["url"] for entry in entries)
        page.reload()
        page.get_by_role("navigation", name="Workbench").wait_for()
