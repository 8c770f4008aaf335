"""A recipe laid down in a folder of its own, as a user has it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from karat.cli.main import main
from karat.project.recipes import init

ROOT = Path(__file__).parents[2]


@pytest.fixture
def laid(tmp_path, monkeypatch):
    """Lay a recipe down and go into its folder."""

    def lay(recipe: str) -> Path:
        folder = init(recipe, str(tmp_path / recipe)).folder
        monkeypatch.chdir(folder)
        return folder

    return lay


@pytest.fixture(scope="session")
def help_centre(tmp_path_factory) -> Path:
    """The recipe rag with both of its evaluations run; to be read, and left as it is."""
    place = init("rag", str(tmp_path_factory.mktemp("recipes") / "rag")).folder
    assert main(["run", str(place / "karat.yaml"), "--quiet"]) == 1
    assert main(["run", str(place / "exercises.yaml"), "--quiet"]) == 1
    return place


@pytest.fixture(scope="session")
def examples() -> ModuleType:
    """What runs the examples of a page."""
    spec = importlib.util.spec_from_file_location("examples", ROOT / "docs" / "examples.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
