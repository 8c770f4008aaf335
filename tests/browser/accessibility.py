"""Whether everyone can use a page: axe-core's rules, the keyboard, and where the texts lie.

Every check gives one line for each trouble; ``assert_usable`` runs them all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import axe_playwright_python
from playwright.sync_api import Page

_AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
_GEOMETRY = (Path(__file__).parent / "geometry.js").read_text()
# WCAG 2 at the levels A and AA, contrast among it, and good practice for headings and landmarks.
_RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
# A page with more to step through than this is not for the keyboard.
MOST_STEPS = 400


def assert_usable(page: Page, *, but: tuple[str, ...] = ()) -> None:
    """Assert that no check finds anything; ``but`` names checks to leave out."""
    checks = {
        "axe": axe,
        "outside": outside,
        "overlapping": overlapping,
        "numbers": numbers,
        "focus": focus,
    }
    found = [
        f"{name}: {one}" for name, look in checks.items() if name not in but for one in look(page)
    ]
    assert not found, "\n".join(found)


def axe(page: Page, *, within: str | None = None) -> list[str]:
    """The rules of axe-core that are broken, each with the elements that break it."""
    page.evaluate(f"() => {{ {_AXE} }}")
    found: dict[str, Any] = page.evaluate(
        """([within, tags]) => axe.run(within || document, {
             runOnly: {type: "tag", values: tags}, resultTypes: ["violations"]})""",
        [within, list(_RULES)],
    )
    return [
        f"{one['id']} ({one['impact']}): {one['help']}: {node['target']} {_why(node)}"
        for one in found["violations"]
        for node in one["nodes"][:5]
    ]


def _why(node: dict[str, Any]) -> str:
    return " ".join(check["message"] for check in [*node["any"], *node["all"], *node["none"]])[:200]


def outside(page: Page) -> list[str]:
    """What makes the page scroll sideways, and texts that are cut without saying so."""
    return _look(page, "outside")


def overlapping(page: Page) -> list[str]:
    """Texts that lie on top of each other."""
    return _look(page, "overlapping")


def numbers(page: Page) -> list[str]:
    """Numbers that do not end at the right, or not below each other."""
    return _look(page, "numbers")


def focus(page: Page) -> list[str]:
    """What Tab does not reach, reaches out of order, or reaches without showing it."""
    expected = _look(page, "startTabbing")
    troubles: list[str] = []
    for _ in range(min(len(expected) + 40, MOST_STEPS)):
        page.keyboard.press("Tab")
        step: dict[str, Any] = page.evaluate("() => window.karatGeometry.step()")
        troubles += step["troubles"]
        if step["over"]:
            break
    return [*troubles, *_look(page, "missed")]


def _look(page: Page, name: str) -> list[str]:
    page.evaluate(f"() => {{ if (!window.karatGeometry) {{ {_GEOMETRY} }} }}")
    found: list[str] = page.evaluate(f"() => window.karatGeometry.{name}()")
    return found
