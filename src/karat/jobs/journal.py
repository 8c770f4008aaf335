"""A file of JSON lines while it is written: under ``.part``, renamed when it is complete.

Whatever stops the writing, complete lines stay. Which lines of an earlier run are still good is
for the subclass to decide: it reads them with ``json_lines`` and calls ``keep``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from karat.errors import InputError, UsageError
from karat.formats.files import DISK_FULL, check_writable

RESUME = "resume with --resume"


class Journal:
    """Writes lines to ``part`` and gives it the name ``path`` in ``finish``.

    ``remedy`` tells how to resume a journal that was stopped, ``noun`` and ``verb`` what a
    line is and how it came about: a call that was logged, a judgment that was made.
    A second writer of the same file is refused.
    """

    def __init__(
        self, path: Path, *, remedy: str = RESUME, noun: str = "call", verb: str = "logged"
    ) -> None:
        if path.is_dir():
            raise InputError("is a folder; a file name is expected", where=str(path))
        check_writable(path)
        # The code that is called may change the current folder.
        self.path = path.absolute()
        self.part = part_of(self.path)
        self._remedy, self._noun, self._verb = remedy, noun, verb
        self._file: IO[bytes] | None = None
        self._truncated = False
        self._kept_lines = self._kept_bytes = self._written = 0

    @property
    def lines(self) -> int:
        """The number of complete lines: those kept from an earlier run and those written now."""
        return self._kept_lines + self._written

    def keep(self, data: bytes) -> None:
        """Keep one more line at the start of the part, which this journal then continues."""
        self._kept_lines += 1
        self._kept_bytes += len(data)

    def lock(self) -> IO[bytes]:
        """Open the part for this process alone: two writers would tear each other's lines."""
        while True:
            file = self.part.open("ab")
            if not _lock(file):
                file.close()
                raise UsageError(
                    f"{self.part} is being written by another karat process; wait until it is done"
                )
            # Another process may have finished and renamed it between opening and locking.
            if self.part.is_file() and os.path.samestat(os.fstat(file.fileno()), self.part.stat()):
                self._file = file
                return file
            file.close()

    def write(self, data: bytes) -> None:
        """Append complete lines; the operating system has them when this returns."""
        try:
            file = self._open()
            file.write(data)
            file.flush()
        except OSError as error:
            raise self._cannot_write(error) from None
        self._written += 1

    def finish(self) -> None:
        """Give the complete file its name."""
        try:
            file = self._open()
            os.fsync(file.fileno())
            self.part.replace(self.path)
        except OSError as error:
            raise self._cannot_write(error) from None
        file.close()

    def discard(self) -> None:
        """Delete the part; a finished file stays as it is."""
        if self._file is not None:
            with suppress(OSError):
                self.part.unlink()
            self._file.close()

    def close(self) -> None:
        """Leave the part for a later resume, or delete it if it has no line."""
        if self._file is not None and not self._file.closed:
            # Before the lock goes, or another process might begin to write what is deleted.
            if self._truncated and not self.lines:
                with suppress(OSError):
                    self.part.unlink()
            # On a full disk the last bytes may fail to be flushed.
            with suppress(OSError):
                self._file.close()

    def interrupted(self, total: int) -> str:
        """Return what is there when it stops now, out of ``total`` lines, and how to resume."""
        if self.lines == total and self.path.is_file() and not self.part.exists():
            return f"interrupted; {self.path} is complete"
        if self.lines:
            kept = f"{self.lines:,} of {total:,} {self._noun}s are kept in {self.part}"
            return f"interrupted; {kept}: {self._remedy}"
        present = [path for path in (self.part, self.path) if path.is_file()]
        unchanged = next((path for path in present if path.stat().st_size), None)
        state = "no file was written" if unchanged is None else f"{unchanged} is unchanged"
        return f"interrupted before the first {self._noun}; {state}"

    def _open(self) -> IO[bytes]:
        """The part, ready for more lines; nothing is changed before the first of them."""
        if self._file is None:
            self.part.parent.mkdir(parents=True, exist_ok=True)
        file = self._file or self.lock()
        if not self._truncated:
            file.truncate(self._kept_bytes)
            self._truncated = True
        return file

    def _cannot_write(self, error: OSError) -> InputError:
        first = "make room" if error.errno in DISK_FULL else "make it writable"
        kept = f"what was {self._verb} is kept" if self.lines else f"nothing was {self._verb}"
        then = self._remedy if self.lines else "run it again"
        return InputError(
            f"cannot be written: {error.strerror}; {kept}: {first}, then {then}",
            where=str(self.part),
        )


def part_of(path: Path) -> Path:
    """Return the name of a journal while it is written."""
    return path.with_name(path.name + ".part")


def json_lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield the complete lines of a file with their objects, up to the first that is neither."""
    with path.open("rb") as file:
        for data in file:
            if not data.endswith(b"\n"):
                return
            try:
                record = json.loads(data)
            except (ValueError, RecursionError):
                return
            if not isinstance(record, dict):
                return
            yield data, record


def _lock(file: IO[bytes]) -> bool:
    """Lock a file for this process; True where it succeeds or where files cannot be locked."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True
