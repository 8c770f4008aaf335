"""Templates are compiled once, and a damaged copy of one is compiled again."""

from __future__ import annotations

import pytest

from karat.reports.html.render import environment

DAMAGES = (b"", b"not a template", None)


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """An empty cache of the user."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "karat"


def test_a_template_is_compiled_once(cache, monkeypatch):
    first = environment().get_template("sections/nav.html")
    (file,) = cache.iterdir()
    again = environment()
    monkeypatch.setattr(again, "_parse", None)
    assert sorted(again.get_template("sections/nav.html").blocks) == sorted(first.blocks)
    assert [file] == list(cache.iterdir())


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_copy_is_replaced(cache, damage):
    environment().get_template("sections/nav.html")
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    environment().get_template("sections/nav.html")
    assert file.read_bytes() == whole


def test_a_template_needs_no_cache(cache):
    cache.write_text("a file where the folder would be")
    assert environment().get_template("sections/nav.html")
