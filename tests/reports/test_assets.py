"""The library that draws is made once, and what was kept is used only where it is whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

vl_convert = pytest.importorskip("vl_convert")

from karat.reports.html import assets as vegas  # noqa: E402


@pytest.fixture
def cache(monkeypatch, tmp_path) -> Path:
    """An empty cache of the user's, and a process that has made nothing yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    vegas.vega.cache_clear()
    yield tmp_path / "cache" / "karat"
    vegas.vega.cache_clear()


@pytest.fixture
def making(monkeypatch) -> list[str]:
    """Every time that the library is made; a short one, since the real one takes seconds."""
    made: list[str] = []

    def make(names: str, version: str) -> str:
        made.append(version)
        return f"/* \r\n é */ {names}"

    monkeypatch.setattr(vl_convert, "javascript_bundle", make)
    return made


def again() -> str | None:
    """As another process has it."""
    vegas.vega.cache_clear()
    return vegas.vega()


def test_the_real_one_is_made_once_and_kept_to_the_byte(cache, monkeypatch):
    first = vegas.vega()
    assert "window.vegaEmbed=" in first
    monkeypatch.delattr(vl_convert, "javascript_bundle")
    assert again() == first


def test_what_is_damaged_is_made_again(cache, making):
    first = vegas.vega()
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    for spoilt in (b"", b"\xff"):
        file.write_bytes(spoilt)
        making.clear()
        assert again() == first
        assert making == ["6.4"]
        assert file.read_bytes() == whole


def test_a_pipe_in_its_place_is_not_waited_for(cache, making):
    first = vegas.vega()
    (file,) = cache.iterdir()
    file.unlink()
    os.mkfifo(file)
    assert again() == first


def test_another_version_of_the_library_is_made_anew(cache, making, monkeypatch):
    vegas.vega()
    monkeypatch.setattr(vegas, "version", lambda name: "99.0")
    again()
    assert len(making) == len(list(cache.iterdir())) == 2


def test_where_nothing_can_be_kept_it_is_made_each_time(cache, making, monkeypatch):
    cache.parent.mkdir()
    cache.write_text("a file where the folder would be")
    first = vegas.vega()
    assert again() == first
    assert len(making) == 2
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(Path, "home", homeless)
    assert again() == first
    monkeypatch.setattr(Path, "home", lambda: Path("relative"))
    assert again() == first
    assert len(making) == 4
    assert not Path("relative").exists()


def homeless() -> Path:
    raise RuntimeError("Could not determine home directory.")
