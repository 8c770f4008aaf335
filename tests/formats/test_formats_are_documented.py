"""A format that the documentation does not name fails the build."""

from __future__ import annotations

from pathlib import Path

import pytest

from karat.formats.registry import FORMATS

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"


@pytest.mark.parametrize("name", FORMATS)
def test_the_page_describes_the_format(name: str) -> None:
    form = FORMATS[name]
    row = next((r for r in PAGE.read_text().splitlines() if r.startswith(f"| `{name}` |")), "")
    assert row, f"docs/formats.md has no row for it: add one that begins with | `{name}` |"
    for told in (form.about, ", ".join(form.carries), form.keeps):
        assert told in row
