"""What the command-line tests share: the files of the small set."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import karat

FIRST = Path(karat.__file__).parent / "recipes" / "first"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small set's files in the current folder."""
    folder = tmp_path / "demo"
    shutil.copytree(FIRST, folder)
    monkeypatch.chdir(folder)
    return folder
