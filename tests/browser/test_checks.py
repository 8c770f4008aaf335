"""The checks themselves: each finds the fault planted for it, and nothing on a sound page."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import accessibility
from .checks import PHONE, Pages
from .conftest import program

SOUND = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Sound</title>
<style>
  .num { text-align: right; font-variant-numeric: tabular-nums }
  .wide { overflow-x: auto } .wide pre { width: 900px }
  .hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%) }
  FAULTY
</style></head>
<body><main><h1>Sound</h1>
<p id="first">One line of text.</p><p id="second">Another line of text.</p>
<span class="hidden">for screen readers alone</span>
<table><tr><th class="num">n</th></tr><tr><td class="num">1</td></tr>
<tr><td class="num" id="long">1,234.5</td></tr></table>
<div class="wide" tabindex="0" role="region" aria-label="wide"><pre>wide</pre></div>
<button id="one">One button</button> <button id="two">Two buttons</button>
<input type="radio" name="r" id="r1"><label for="r1">r1</label>
<input type="radio" name="r" id="r2"><label for="r2">r2</label>
BODY</main></body></html>"""


def opened(pages: Pages, tmp_path: Path, *, style: str = "", body: str = "", **options):
    path = tmp_path / "page.html"
    path.write_text(SOUND.replace("FAULTY", style).replace("BODY", body))
    page = pages.new(**options)
    page.goto(path.as_uri())
    return page


def test_a_sound_page_has_no_troubles(pages, tmp_path):
    accessibility.assert_usable(opened(pages, tmp_path, size=PHONE))
    assert pages.troubles() == []


@pytest.mark.parametrize(
    ("check", "style", "body", "told"),
    [
        ("axe", "#first { color: #aaa }", "", "color-contrast"),
        ("axe", "", "<button></button>", "button-name"),
        ("axe", "", "<h4>jumped</h4>", "heading-order"),
        ("axe", "", "<input>", "label"),
        ("outside", "#first { width: 600px }", "", "ends at"),
        ("outside", "#first { width: 600px }", "", "the page is"),
        ("outside", "#first { width: 20px; overflow: hidden; white-space: nowrap }", "", "cut at"),
        ("overlapping", "#second { margin-top: -2.1em }", "", '"One line of text."'),
        ("overlapping", "#first { height: 2px; margin: 0 } #second { margin: 0 }", "", "second"),
        ("numbers", "#long { text-align: left }", "", "aligned left"),
        ("numbers", "#long { padding-right: 9px }", "", "not below each other"),
        ("numbers", ".num { font-variant-numeric: normal }", "", "digits of different widths"),
        ("focus", "button { outline: none !important }", "", "cannot be seen: <button#one>"),
        ("focus", "", '<a href="#one" tabindex="3">three</a>', "tabindex 3"),
        ("focus", "#one { position: relative; left: 300px }", "", "out of order: <button#one>"),
    ],
)
def test_a_planted_fault_is_found(pages, tmp_path, check, style, body, told):
    page = opened(pages, tmp_path, style=style, body=body, size=PHONE)
    found = getattr(accessibility, check)(page)
    assert any(told in one for one in found), found


def test_what_tab_does_not_reach_is_found(pages, tmp_path):
    body = """<div onkeydown="event.preventDefault()"><button>trap</button></div>
    <button id="after">after</button>"""
    assert any("#after" in one for one in accessibility.focus(opened(pages, tmp_path, body=body)))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('<img alt="" src="http://karat.example/a.png">', "request: http://karat.example/a.png"),
        ('<img alt="" src="beside.png">', "request: file:"),
        ("<script>console.error('oh')</script>", "console error: oh"),
        ("<script>console.warn('hm')</script>", "console warning: hm"),
        ("<script>throw new Error('boo')</script>", "error: boo"),
        ("<script>alert(1)</script>", "dialog: 1"),
    ],
)
def test_what_goes_wrong_on_a_page_is_seen(pages, tmp_path, body, told):
    opened(pages, tmp_path, body=body)
    pages.expect(told)
    # What follows from it, which the browser words.
    for more in ("Failed to load resource", "^failed: "):
        if "img" in body:
            pages.expect(more)


def test_what_the_content_security_policy_refuses_is_seen(pages, tmp_path):
    policy = """<meta http-equiv="Content-Security-Policy" content="script-src 'none'">"""
    opened(pages, tmp_path, style=f"</style>{policy}<style>", body="<script>1</script>")
    pages.expect("refused by script-src-elem: inline")
    pages.expect("Content Security Policy directive")


def test_without_a_browser_the_command_that_installs_it_is_said(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(pytest.fail.Exception, match="sudo apt-get install chromium-headless-shell"):
        program()
