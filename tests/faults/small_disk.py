"""A disk that is full when a test says so: a real one in memory, or else a limit on files."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SIZE = 12 << 20
KINDS = ("a disk in memory", "a limit on the size of files")
# What karat says on standard error goes to a file too.
_LEAST = 1_024
_FILLER = "filler"


@dataclass(frozen=True)
class Disk:
    """A folder, and how to leave no room in it; ``reason`` is what the system says then."""

    kind: str
    folder: Path
    reason: str

    @contextmanager
    def almost_full(self, left: int) -> Iterator[None]:
        """For a while only so many bytes more can be written, or to each file."""
        if self.kind == KINDS[1]:
            with limited(max(left, _LEAST)):
                yield
            return
        state = os.statvfs(self.folder)
        filler = self.folder / _FILLER
        filler.write_bytes(b"\0" * (state.f_bavail * state.f_frsize - left))
        try:
            yield
        finally:
            filler.unlink()

    def contents(self) -> dict[str, bytes]:
        """Every file by its name, whatever it is called."""
        files = [path for path in sorted(self.folder.rglob("*")) if path.is_file()]
        names = {path.relative_to(self.folder).as_posix(): path for path in files}
        return {name: path.read_bytes() for name, path in names.items() if name != _FILLER}


@contextmanager
def small_disk(kind: str, folder: Path) -> Iterator[Disk]:
    """A disk of this kind at an empty folder."""
    if kind == KINDS[1]:
        yield Disk(kind, folder, "File too large")
        return
    with mounted(folder):
        yield Disk(kind, folder, "No space left on device")


@contextmanager
def mounted(folder: Path, options: str = f"size={SIZE}") -> Iterator[None]:
    """A file system in memory at an empty folder."""
    _mount("-t", "tmpfs", "-o", options, "tmpfs", folder)
    try:
        yield
    finally:
        # Lazily, since a process that failed to end may still be in there.
        subprocess.run(["umount", "-l", folder], check=True)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """For a while a mounted folder takes nothing new."""
    _mount("-o", "remount,ro", folder)
    try:
        yield
    finally:
        _mount("-o", "remount,rw", folder)


@contextmanager
def limited(size: int) -> Iterator[None]:
    """For a while no file of this process, or of one that it starts, may grow beyond a size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@cache
def can_mount() -> bool:
    """Whether this user may mount anything, as root in a container sometimes may."""
    if os.geteuid() != 0:
        return False
    try:
        with tempfile.TemporaryDirectory() as folder, mounted(Path(folder)):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)
