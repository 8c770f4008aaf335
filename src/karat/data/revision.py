"""Revision: the commit that is checked out, from git or from the CI environment."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CI_VARIABLES = ("GITHUB_SHA", "CI_COMMIT_SHA")
# Git may hang on a network drive; an evaluation is worth saving without its commit.
_GIT_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Revision:
    """The commit of an evaluation; ``dirty`` if tracked files differed from it.

    >>> str(Revision("3f2a1bc09d", dirty=True))
    '3f2a1bc*'
    """

    commit: str
    dirty: bool | None = None

    def __str__(self) -> str:
        return self.commit[:7] + ("*" if self.dirty else "")

    def document(self) -> dict[str, Any]:
        """Return the revision as JSON has it."""
        return {"commit": self.commit, "dirty": self.dirty}


def revision_here(folder: Path | None = None) -> Revision | None:
    """Return the commit of a folder, None if unknown; untracked files do not make it dirty."""
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    if commit:
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
        return Revision(commit, dirty=None if changed is None else bool(changed))
    commit = next((os.environ[name].strip() for name in _CI_VARIABLES if os.environ.get(name)), "")
    return Revision(commit[:100]) if commit.isalnum() else None


def _git(folder: Path | None, *arguments: str) -> str | None:
    """Return the output of git, or None if it fails."""
    git = shutil.which("git")
    if git is None:
        return None
    # A repository's own settings must not make git start other programs or take locks.
    command = [git, "--no-optional-locks", "-c", "core.fsmonitor=false", *arguments]
    try:
        result = subprocess.run(  # noqa: S603 - no shell, and no word of it comes from outside
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
