"""The examples in docstrings run and print what they show."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

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
def test_examples_print_what_they_show(name: str):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
