"""Which commit is checked out here: from git, else from what CI says."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CI = ("GITHUB_SHA", "CI_COMMIT_SHA")
# A network drive may keep git waiting; an evaluation is worth saving without its commit.
_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Revision:
    """The commit that an evaluation was made at; ``dirty`` where files differed from it.

    >>> str(Revision("3f2a1bc09d", dirty=True))
    '3f2a1bc*'
    """

    commit: str
    dirty: bool | None = None

    def __str__(self) -> str:
        return self.commit[:7] + ("*" if self.dirty else "")

    def document(self) -> dict[str, Any]:
        """The revision as it stands in JSON."""
        return {"commit": self.commit, "dirty": self.dirty}


def revision_here(folder: Path | None = None) -> Revision | None:
    """The commit of a folder, the current one unless given; None where there is no way to tell.

    Files that git does not track, such as runs and reports, do not make it dirty.
    """
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    if commit:
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
        return Revision(commit, dirty=None if changed is None else bool(changed))
    told = next((os.environ[name].strip() for name in _CI if os.environ.get(name)), "")
    return Revision(told[:100]) if told.isalnum() else None


def _git(folder: Path | None, *arguments: str) -> str | None:
    """What git answers, None where it has no answer."""
    git = shutil.which("git")
    if git is None:
        return None
    # A repository's own settings must not make git start other programs or take locks.
    command = [git, "--no-optional-locks", "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and no word of it comes from outside
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
