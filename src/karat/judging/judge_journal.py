"""A label file while it is being written: line by line under ``.part``, renamed when whole.

Each line carries the digest of what it depends on, so that going on later never mixes
judgments of another model, prompt or text into it.
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
from karat.judging.judge_answers import Judgment, Outcome
from karat.judging.judge_pairs import Pair


class Task(NamedTuple):
    """A pair and the digest of what its judgment depends on."""

    pair: Pair
    key: str

    @property
    def digest(self) -> str:
        """As much of the key as a label carries."""
        return self.key[:16]


class Line(NamedTuple):
    """One complete line: of which pair and digest, its grade or error, and its bytes."""

    query_id: str
    item_id: str
    digest: str
    grade: int | None
    error: str | None
    data: bytes

    def is_of(self, task: Task) -> bool:
        pair = task.pair
        told = (self.query_id, self.item_id, self.digest)
        return told == (pair.query_id, pair.item_id, task.digest)


def line_of(task: Task, outcome: Outcome, rater: str) -> Line:
    """The line of a judgment, or of why there is none."""
    pair = task.pair
    record: dict[str, Any] = {"query_id": pair.query_id, "item_id": pair.item_id}
    if isinstance(outcome, Judgment):
        record |= {"grade": outcome.grade, "rationale": outcome.rationale}
    else:
        record |= {"error": outcome.error}
    record |= {"rater": rater, "source": "judge", "digest": task.digest}
    return _line(record, (json.dumps(record, ensure_ascii=False) + "\n").encode())


class Journal:
    """Writes labels; ``done`` lines stand in it already when it goes on with an earlier one."""

    def __init__(self, path: Path, tasks: Sequence[Task], *, resume: bool, restart: bool) -> None:
        if path.is_dir():
            raise InputError("is a folder; a file name is expected", where=str(path))
        refuse_closed_folder(path)
        self.path = path
        self.part = path.with_name(path.name + ".part")
        self.done: list[Line] = []
        self._file: IO[bytes] | None = None
        self._clean = False
        self._written = 0
        self._earlier: dict[tuple[str, str, str], Line] = {}
        try:
            if self.part.is_file():
                self._file = self._locked()
                if not restart:
                    self._go_on(tasks, resume=resume)
            if path.is_file() and not self.done and not restart:
                self._earlier = self._finished(tasks, resume=resume)
        except KaratError:
            self.close()
            raise

    def kept(self, task: Task) -> Line | None:
        """The judgment that a finished file already has; what failed is asked again."""
        return self._earlier.get((task.pair.query_id, task.pair.item_id, task.digest))

    def write(self, line: Line) -> None:
        """Add a line; it is with the operating system when this returns."""
        try:
            file = self._opened()
            file.write(line.data)
            file.flush()
        except OSError as error:
            raise self._stuck(error) from None
        self._written += 1

    def finish(self) -> None:
        """The labels are whole: give the file its name."""
        try:
            file = self._opened()
            os.fsync(file.fileno())
            self.part.replace(self.path)
        except OSError as error:
            raise self._stuck(error) from None
        file.close()

    def discard(self) -> None:
        """Take away what was written; a finished file stays as it is."""
        if self._file is not None:
            with suppress(OSError):
                self.part.unlink()
            self._file.close()

    def _stuck(self, error: OSError) -> InputError:
        first = "make room" if error.errno in FULL else "let it be written"
        kept = "what was judged is kept" if self.done or self._written else "nothing was judged"
        then = "go on with --resume" if self.done or self._written else "run it again"
        return InputError(
            f"cannot be written: {error.strerror}; {kept}: {first}, then {then}",
            where=str(self.part),
        )

    def close(self) -> None:
        """Leave what there is for a later --resume; where there is no line, nothing."""
        if self._file is not None and not self._file.closed:
            # Before the lock is given up, or another might begin to write what is taken away.
            if self._clean and not self.done and not self._written:
                with suppress(OSError):
                    self.part.unlink()
            # A full disk may keep what was not written yet from being flushed.
            with suppress(OSError):
                self._file.close()

    def _go_on(self, tasks: Sequence[Task], *, resume: bool) -> None:
        """Keep the lines of an interrupted run as far as they are whole and in order."""
        for line, task in zip(_lines(self.part), tasks, strict=False):
            if not line.is_of(task):
                break
            self.done.append(line)
        if self.done and not resume:
            raise UsageError(
                f"{self.part} holds {len(self.done):,} judgments of an interrupted run; "
                "go on with --resume, or start over with --restart"
            )
        if not self.done and next(_lines(self.part), None) is not None:
            raise self._of_another(self.part, "start over with --restart")

    def _finished(self, tasks: Sequence[Task], *, resume: bool) -> dict[tuple[str, str, str], Line]:
        """The judgments of a finished file to keep; one that is not of this run is not replaced."""
        every = list(_lines(self.path))
        wanted = {(task.pair.query_id, task.pair.item_id, task.digest) for task in tasks}
        of_this = {line[:3]: line for line in every if line[:3] in wanted}
        size = self.path.stat().st_size
        if resume:
            if size and not of_this:
                raise self._of_another(self.path, "choose another name, or use --restart")
            return {name: line for name, line in of_this.items() if line.grade is not None}
        # Lines that cannot be read, or that nothing here judges again, would be lost.
        if sum(len(line.data) for line in every if line[:3] in wanted) < size:
            on = "go on with --resume, " if of_this else ""
            raise UsageError(
                f"{self.path} holds labels that are not of this run; choose another name, {on}"
                "or replace them with --restart"
            )
        return {}

    def _of_another(self, path: Path, todo: str) -> UsageError:
        return UsageError(
            f"{path} is of another run: the pool, the model, the prompt or what is sent changed "
            f"since; {todo}"
        )

    def _locked(self) -> IO[bytes]:
        """The part, opened by nobody else: two writers would tear each other's lines."""
        while True:
            file = self.part.open("ab")
            if not _lock(file):
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
            self._file.truncate(sum(len(line.data) for line in self.done))
            self._clean = True
        return self._file


def _lock(file: IO[bytes]) -> bool:
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


def _lines(path: Path) -> Iterator[Line]:
    """The complete lines of a label file that can be read, up to the first that cannot."""
    with path.open("rb") as file:
        for data in file:
            try:
                record = json.loads(data)
            except (ValueError, RecursionError):
                return
            names = ("query_id", "item_id")
            if not data.endswith(b"\n") or not isinstance(record, dict):
                return
            if not all(isinstance(record.get(name), str) for name in names):
                return
            yield _line(record, data)


def _line(record: Mapping[str, Any], data: bytes) -> Line:
    names = (record["query_id"], record["item_id"], str(record.get("digest")))
    return Line(*names, record.get("grade"), record.get("error"), data)
