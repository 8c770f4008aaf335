"""The modules, functions and files that the documentation names exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import karat

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PAGES = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
PACKAGE = Path(karat.__file__).parent
FOLDERS = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
NAME = re.compile(rf"\bkarat\.(?:{'|'.join(sorted(FOLDERS))})\b(?:\.\w+)*")
FILE = re.compile(rf"(?<![\w/])(?:{'|'.join(sorted(FOLDERS))})/(?!test_)[\w/]+\.py\b")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_names_and_files_on_a_page_exist(page: Path):
    text = page.read_text(encoding="utf-8")
    for name in sorted(set(NAME.findall(text))):
        module, _, attribute = name.rpartition(".")
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), attribute), name
    for file in sorted(set(FILE.findall(text))):
        assert (PACKAGE / file).is_file(), file


def test_the_page_names_every_package():
    picture = re.search(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    assert not FOLDERS - set(re.findall(r"\w+", picture))


def test_the_walk_has_at_most_ten_steps():
    steps = re.findall(r"^\d+\. ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert 5 <= len(steps) <= 10
