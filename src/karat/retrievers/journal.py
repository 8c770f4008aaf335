"""A run log while it is being written: line by line under ``.part``, renamed when it is whole.

Whatever stops the writing, complete lines stay. Going on later needs the same digest in
them, so that a log never holds answers of two different systems or sets of queries.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from karat.errors import InputError, KaratError, UsageError
from karat.formats.files import FULL, refuse_closed_folder

DIGEST = "run_digest"
REMEDY = "go on with --resume"
# What a call says of itself; the rest of a record is about the run.
_CALL = ("topk", "raw", "stages", "latency_ms", "cost", "rewritten", "query", "source", "error")


class Line(NamedTuple):
    """One complete line of a log: whose call, whether it failed, and its bytes."""

    query_id: str
    failed: bool
    data: bytes


class Journal:
    """Writes a log; ``done`` lines stand in it already when it goes on with an earlier one.

    ``remedy`` is how to go on with one that was stopped, for whoever reads that it was.
    """

    def __init__(
        self,
        path: Path,
        digest: str,
        query_ids: Sequence[str],
        *,
        resume: bool,
        restart: bool = False,
        remedy: str = REMEDY,
    ) -> None:
        if path.is_dir():
            raise InputError("is a folder; a file name is expected", where=str(path))
        refuse_closed_folder(path)
        # Whoever is called may change the current folder.
        self.path = path.absolute()
        self.part = part_of(self.path)
        self.digest = digest
        self.done: list[tuple[str, bool]] = []
        self._whole = 0
        self._written = 0
        self._remedy = remedy
        self.meta: dict[str, Any] | None = None
        self._file: IO[bytes] | None = None
        self._earlier: _Earlier | None = None
        self._clean = False
        try:
            if self.part.is_file():
                self._file = self._locked()
                if not restart:
                    self._go_on(resume, query_ids)
            if resume and path.is_file():
                self._earlier = self._finished()
        except KaratError:
            self.close()
            raise
        if self._earlier is not None:
            self._earlier.skip(len(self.done))
            self.meta = self.meta or self._earlier.meta

    def _finished(self) -> _Earlier | None:
        """A finished log of this very run; one of another is only in the way of a new part."""
        if begins_with(self.path, self.digest):
            return _Earlier(self.path)
        if self.done:
            return None
        raise UsageError(
            f"{self.path} is of another run: the system, the queries or the corpus changed "
            "since; leave out --resume to ask everything again"
        )

    def _locked(self) -> IO[bytes]:
        """The part, opened by nobody else: two writers would tear each other's lines."""
        while True:
            file = self.part.open("ab")
            if not lock(file):
                file.close()
                raise UsageError(
                    f"{self.part} is being written by another karat; wait until it is done"
                )
            # It may have been finished and renamed between the opening and the lock.
            if self.part.is_file() and os.path.samestat(os.fstat(file.fileno()), self.part.stat()):
                return file
            file.close()

    def _opened(self) -> IO[bytes]:
        """The file, ready for more lines; until the first of them nothing is changed."""
        if self._file is None:
            self.part.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._locked()
        if not self._clean:
            self._file.truncate(self._whole)
            self._clean = True
        return self._file

    def _go_on(self, resume: bool, query_ids: Sequence[str]) -> None:
        """Keep the lines of an interrupted run as far as they are whole and in order."""
        for (line, record), query_id in zip(_lines(self.part), query_ids, strict=False):
            if self.meta is None:
                self._refuse_other(record)
                self.meta = meta_of(record)
            if line.query_id != query_id:
                break
            self.done.append((line.query_id, line.failed))
            self._whole += len(line.data)
        if self.done and not resume:
            raise UsageError(
                f"{self.part} holds {len(self.done):,} calls of an interrupted run; "
                "go on with --resume, or start over with --restart"
            )

    def _refuse_other(self, record: Mapping[str, Any]) -> None:
        if record.get(DIGEST) != self.digest:
            raise UsageError(
                f"{self.part} is of another run: the system, the queries or the corpus changed "
                "since; start over with --restart"
            )

    def kept(self, query_id: str) -> bytes | None:
        """The line of a finished log that need not be asked again; failed calls are."""
        return None if self._earlier is None else self._earlier.good(query_id)

    def write(self, data: bytes) -> None:
        """Add complete lines; they are with the operating system when this returns."""
        try:
            file = self._opened()
            file.write(data)
            file.flush()
        except OSError as error:
            raise self._stuck(error) from None
        self._written += 1

    def finish(self, *, all_failed: bool = False) -> None:
        """The log is whole: give it its name.

        One in which every call failed stands beside a log with answers, and does not replace it.
        """
        if all_failed and has_answers(self.path):
            self.path = failed_of(self.path)
        try:
            file = self._opened()
            os.fsync(file.fileno())
            self.part.replace(self.path)
        except OSError as error:
            raise self._stuck(error) from None
        file.close()

    def _stuck(self, error: OSError) -> InputError:
        first = "make room" if error.errno in FULL else "let it be written"
        lines = len(self.done) + self._written
        kept = "what was logged is kept" if lines else "nothing was logged"
        then = self._remedy if lines else "run it again"
        return InputError(
            f"cannot be written: {error.strerror}; {kept}: {first}, then {then}",
            where=str(self.part),
        )

    def close(self) -> None:
        """Leave what there is for going on later; where there is no line, nothing."""
        if self._file is not None and not self._file.closed:
            # Before the lock is given up, or another might begin to write what is taken away.
            if self._clean and not self.done and not self._written:
                with suppress(OSError):
                    self.part.unlink()
            # A full disk may keep what was not written yet from being flushed.
            with suppress(OSError):
                self._file.close()

    def left(self, calls: int) -> str:
        """What is there when it is stopped now, of so many calls, and how to go on."""
        lines = len(self.done) + self._written
        if lines == calls and self.path.is_file() and not self.part.exists():
            return f"interrupted; {self.path} is whole"
        if lines:
            kept = f"{lines:,} of {calls:,} calls are kept in {self.part}"
            return f"interrupted; {kept}: {self._remedy}"
        there = [path for path in (self.part, self.path) if path.is_file() and path.stat().st_size]
        told = f"{there[0]} is as it was" if there else "no log was begun"
        return f"interrupted before the first call; {told}"


def lock(file: IO[bytes]) -> bool:
    """Whether the file is now this process's alone; where files cannot be locked, it is."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


class _Earlier:
    """A finished log, read along with the queries, whose order it has."""

    def __init__(self, path: Path) -> None:
        self._lines = _lines(path)
        self._ahead = next(self._lines, None)
        self.meta = None if self._ahead is None else meta_of(self._ahead[1])

    def skip(self, lines: int) -> None:
        """Go past lines that another log already has."""
        for _ in range(lines):
            self._ahead = next(self._lines, None)

    def good(self, query_id: str) -> bytes | None:
        """The line of this query if its call went well; queries come in the log's order."""
        if self._ahead is None or self._ahead[0].query_id != query_id:
            return None
        line = self._ahead[0]
        self._ahead = next(self._lines, None)
        return None if line.failed else line.data


def part_of(path: Path) -> Path:
    """Where a log stands while it is written."""
    return path.with_name(path.name + ".part")


def failed_of(path: Path) -> Path:
    """Where a log stands in which every call failed, if there is an earlier one with answers."""
    return path.with_name(f"{path.stem}.failed{path.suffix}")


def has_answers(path: Path) -> bool:
    """Whether a log has a call that went well."""
    return path.is_file() and any(not line.failed for line, _ in _lines(path))


def begins_with(path: Path, digest: str) -> bool:
    """Whether a log was begun under this digest."""
    first = next(_lines(path), None) if path.is_file() else None
    return first is not None and first[1].get(DIGEST) == digest


def first_meta(path: Path) -> dict[str, Any]:
    """What a log says of its run; nothing where it has no line."""
    first = next(_lines(path), None)
    return {} if first is None else meta_of(first[1])


def is_complete(path: Path, digest: str, query_ids: list[str]) -> bool:
    """Whether a log answers exactly these queries under this digest, without a failed call."""
    if not path.is_file():
        return False
    wanted = iter(query_ids)
    try:
        for line, record in _lines(path):
            if record.get(DIGEST) != digest or line.failed or next(wanted, None) != line.query_id:
                return False
    except OSError:
        return False
    return next(wanted, None) is None


def meta_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says of the run rather than of its call."""
    return {key: value for key, value in record.items() if key != "query_id" and key not in _CALL}


def _lines(path: Path) -> Iterator[tuple[Line, dict[str, Any]]]:
    """The complete lines of a log that can be read, up to the first that cannot."""
    with path.open("rb") as file:
        for data in file:
            if not data.endswith(b"\n"):
                return
            try:
                record = json.loads(data)
            except (ValueError, RecursionError):
                return
            if not isinstance(record, dict) or not isinstance(record.get("query_id"), str):
                return
            yield Line(record["query_id"], bool(record.get("error")), data), record
