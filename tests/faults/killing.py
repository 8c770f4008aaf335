"""karat as a process of its own that can be killed, and the moments at which it is."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

# The full form tries everything as often as docs/reliability.md tells; the short one is a look.
FULL = os.environ.get("KARAT_FAULTS") == "full"
# Longer than anything here takes on a machine that is busy with other things.
PATIENCE = 120.0
# How long to sleep between two looks for a sign.
_LOOK = 0.0005
# What karat writes before it gives a file its name ends like this, or like SQLite's own.
UNFINISHED = (".part", "-wal", "-shm", "-journal")

KARAT = ("-m", "karat")
FATAL = Path(__file__).with_name("fatal.py")

Sign = Callable[[], bool]


class Going:
    """karat on its way, the first of a group of processes; what it says goes to files."""

    def __init__(
        self, *arguments: str, cwd: Path, program: Sequence[str] = KARAT, **environment: str
    ) -> None:
        # A pipe that nobody reads would stop it; closed when it has ended.
        self._out, self._err = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115
        self.begun = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=cwd,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            start_new_session=True,
        )
        self.killed = False
        self.ended = 0.0
        self._said = ("", "")

    @property
    def running(self) -> bool:
        if not self.ended and self.process.poll() is not None:
            self._note_end()
        return not self.ended

    @property
    def code(self) -> int | None:
        return self.process.poll()

    @property
    def out(self) -> str:
        """What it has said so far on standard output."""
        return self._said[0] if self.ended else _text(self._out)

    @property
    def err(self) -> str:
        """What it has said so far on standard error."""
        return self._said[1] if self.ended else _text(self._err)

    def wait(self, code: int | None = 0) -> Going:
        """Let it end by itself, with the exit code that is expected."""
        self.process.wait(PATIENCE)
        assert not self.running
        assert code is None or self.process.returncode == code, (self.process.returncode, self.err)
        return self

    def wait_until(self, moment: float) -> None:
        """Wait for a moment of the monotonic clock, or the end."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, moment - time.monotonic()))

    def wait_for(self, sign: Sign) -> bool:
        """Whether the sign came before the end."""
        while self.running:
            if sign():
                return True
            assert time.monotonic() < self.begun + PATIENCE, self.err
            time.sleep(_LOOK)
        return sign()

    def kill(self) -> bool:
        """kill -9, for all processes of the group; whether it was still running."""
        if self.running:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(PATIENCE)
            self._note_end()
            self.killed = self.process.returncode == -signal.SIGKILL
        return self.killed

    def _note_end(self) -> None:
        self._said = _text(self._out), _text(self._err)
        self.ended = time.monotonic()
        self._out.close()
        self._err.close()


def usual(going: Going, after: Sign | None = None, code: int | None = 0) -> float:
    """How many seconds it takes when nobody interferes, or how many from a sign to the end."""
    begun = going.begun
    if after is not None:
        assert going.wait_for(after), f"the sign never came: {going.err}"
        begun = time.monotonic()
    going.wait(code)
    return going.ended - begun


def killing(
    begin: Callable[[], Going],
    *,
    times: int,
    within: float,
    seed: int,
    after: Sign | None = None,
) -> Iterator[Going]:
    """Every process that was begun and killed at a random moment of so many seconds.

    The seconds count from the start, or from a sign. Goes on until so many kills hit a process
    that was still running; those that came too late are yielded too, and are the fewer.
    """
    chance, landed = random.Random(seed), 0
    for _ in range(2 * times):
        going = begin()
        if after is not None:
            going.wait_for(after)
        start = going.begun if after is None else time.monotonic()
        moment = start + chance.random() * within
        going.wait_until(moment)
        landed += going.kill()
        if not going.killed:
            within = min(within, going.ended - start)
        yield going
        if landed == times:
            return
    raise AssertionError(f"only {landed} of {2 * times} kills came before the end")


def changes(begin: Callable[..., Going], *arguments: str, cwd: Path) -> int:
    """How often a command changes something in the file system when nobody interferes."""
    counted = cwd.parent / f"{cwd.name}.changes"
    begin(*arguments, cwd=cwd, program=(str(FATAL), "0", str(counted))).wait(None)
    return int(counted.read_text())


def killed_before(begin: Callable[..., Going], change: str, *arguments: str, cwd: Path) -> None:
    """Run a command that is killed just before a change, by its number or as fatal.py names it."""
    going = begin(*arguments, cwd=cwd, program=(str(FATAL), change, os.devnull)).wait(None)
    assert going.code == -signal.SIGKILL, (going.code, going.err)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by its name, without what is plainly unfinished."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in files
        if not any(part.endswith(UNFINISHED) for part in path.relative_to(folder).parts)
    }


def state(*paths: Path) -> list[tuple[int, int] | None]:
    """The size and time of files or folders that come and go; what differs was changed."""
    return [_seen(path) for path in paths]


def _seen(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns


def _text(file: IO[bytes]) -> str:
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode()
