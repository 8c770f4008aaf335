"""The commit that an evaluation is saved with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from karat.data.revision import Revision, revision_here


def git(*arguments: str) -> str:
    identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    done = subprocess.run(
        ["git", *identity, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is in no repository, on a machine that is no CI's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for name in ("GITHUB_SHA", "CI_COMMIT_SHA", "GIT_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def commit(folder: Path) -> str:
    git("init", "-q")
    (folder / "a.txt").write_text("a")
    git("add", "a.txt")
    git("commit", "-q", "-m", "first")
    return git("rev-parse", "HEAD")


def test_outside_of_a_repository_there_is_none():
    assert revision_here() is None


def test_a_repository_without_a_commit_has_none():
    git("init", "-q")
    assert revision_here() is None


def test_a_clean_tree(commit, folder):
    (folder / "run.trec").write_text("files that are not tracked do not count")
    assert revision_here() == Revision(commit, dirty=False)


@pytest.mark.parametrize("staged", [False, True])
def test_a_changed_file_makes_it_dirty(commit, folder, staged):
    (folder / "a.txt").write_text("b")
    if staged:
        git("add", "a.txt")
    assert revision_here() == Revision(commit, dirty=True)


def test_git_wins_over_what_ci_says(commit, monkeypatch):
    monkeypatch.setenv("GITHUB_SHA", "abc")
    assert revision_here() == Revision(commit, dirty=False)


@pytest.mark.parametrize("name", ["GITHUB_SHA", "CI_COMMIT_SHA"])
def test_without_git_ci_is_asked(monkeypatch, name):
    monkeypatch.setenv("PATH", "")
    assert revision_here() is None
    monkeypatch.setenv(name, "3f2a1bc")
    assert revision_here() == Revision("3f2a1bc", dirty=None)
    monkeypatch.setenv(name, "; rm -rf")
    assert revision_here() is None


def test_a_repository_s_settings_start_no_program(commit, folder):
    git("config", "core.fsmonitor", f"touch {folder / 'started'}; false")
    assert revision_here() == Revision(commit, dirty=False)
    assert not (folder / "started").exists()
