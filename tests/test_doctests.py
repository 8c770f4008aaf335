"""The examples in docstrings run and print what they show.

They run where ``karat init first .`` has written its files, and need not import karat.
"""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import karat

SOURCE = Path(__file__).parents[1] / "src"


def modules_with_examples() -> list[str]:
    """Return the modules that hold an example; the others need not be imported.

    Recipes are for users to run, not for karat to import.
    """
    return sorted(
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        for path in (SOURCE / "karat").rglob("*.py")
        if path.relative_to(SOURCE).parts[:2] != ("karat", "recipes")
        and ">>> " in path.read_text(encoding="utf-8")
    )


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_print_what_they_show(name: str, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    karat.init("first", ".")
    result = doctest.testmod(importlib.import_module(name), extraglobs={"karat": karat})
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", sorted(set(karat.__all__) - {"__version__"}))
def test_every_public_name_has_an_example(name: str):
    assert ">>> " in (getattr(karat, name).__doc__ or "")


def test_public_names_are_sorted_and_resolve():
    assert karat.__all__ == sorted(karat.__all__)
    assert all(hasattr(karat, name) for name in karat.__all__)
