"""The names in docs/architecture.md exist."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
NAMES = sorted(set(re.findall(r"`(karat(?:\.\w+)+)`", PAGE.read_text(encoding="utf-8"))))


@pytest.mark.parametrize("name", NAMES)
def test_a_name_on_the_page_exists(name: str):
    module, _, attribute = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        assert hasattr(importlib.import_module(module), attribute)


def test_the_page_names_every_package():
    import karat

    folders = {
        path.name
        for path in Path(karat.__file__).parent.iterdir()
        if (path / "__init__.py").is_file()
    }
    picture = re.search(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    assert folders <= set(re.findall(r"\w+", picture))


def test_the_walk_has_at_most_ten_steps():
    steps = re.findall(r"^\d+\. ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert 5 <= len(steps) <= 10
