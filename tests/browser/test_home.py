"""The first page as a user drives it: chosen, compared and tagged, by mouse and by keyboard."""

from __future__ import annotations

import httpx


def test_what_is_ticked_is_compared_with_the_oldest(open_workbench, workbench):
    page = open_workbench("/")
    compare = page.get_by_role("button", name="Compare")
    assert compare.is_disabled()
    page.get_by_role("checkbox", name="Compare 2,").check()
    assert compare.is_disabled()
    page.get_by_role("checkbox", name="Compare 1,").check()
    assert page.locator("#chosen").inner_text() == "2 compared with the baseline 1"
    compare.click()
    page.wait_for_url(workbench.at("/compare?ids=1,2"))
    assert "against" in page.locator("#verdict h1").inner_text()


def test_a_tag_is_given_by_keyboard_and_stays(open_workbench, workbench):
    page = open_workbench("/")
    page.get_by_role("button", name="Add a tag to evaluation 1").focus()
    page.keyboard.press("Enter")
    page.keyboard.type("tried")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="tried").wait_for()
    assert "has the tag tried" in page.locator("#notice").inner_text()
    assert "tried" in httpx.get(workbench.at("/api/evaluations/1")).json()["tags"]
    page.reload()
    page.get_by_role("link", name="tried").click()
    page.wait_for_url(workbench.at("/?tag=tried"))
    assert page.locator(".evaluations tbody tr").count() == 1


def test_a_tag_that_cannot_be_is_refused_where_it_was_typed(open_workbench, pages):
    page = open_workbench("/")
    page.get_by_role("button", name="Add a tag to evaluation 2").click()
    page.keyboard.type("12")
    page.keyboard.press("Enter")
    page.locator("#notice.bad").wait_for()
    assert "would read as an id" in page.locator("#notice").inner_text()
    page.keyboard.press("Escape")
    assert page.locator(".tag-field").count() == 0
    pages.expect("400")


def test_a_filter_works_without_a_script(open_workbench, workbench):
    page = open_workbench("/")
    page.get_by_label("System").select_option("bm25")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**/?system=bm25&**")
    names = page.locator(".evaluations .system").all_inner_texts()
    assert names
    assert set(names) == {"bm25"}
