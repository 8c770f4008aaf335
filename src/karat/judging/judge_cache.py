"""Judgments that were made before, kept by the digest of all that they depend on.

One file of lines that is only ever added to, so that several runs can share it. It holds
grades and rationales, neither queries nor texts nor keys; what failed is not in it.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path

from karat.errors import InputError
from karat.formats.files import FULL, refuse_closed_folder
from karat.judging.judge_answers import Judgment
from karat.judging.labels import GRADES

_NAME = "judgments.jsonl"
_log = logging.getLogger("karat")


class JudgmentCache:
    """The judgments in a folder; what is put there is on its way to the disk at once."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / _NAME
        self._known: dict[str, Judgment] = {}
        self._lock = threading.Lock()
        self._file: int | None = None
        try:
            self._load()
        except FileNotFoundError:
            # A judgment that cannot be kept is best not paid for.
            refuse_closed_folder(self.path)

    def get(self, key: str) -> Judgment | None:
        """What was said before under this digest."""
        return self._known.get(key)

    def put(self, key: str, judgment: Judgment) -> None:
        """Keep a judgment."""
        record = {"key": key, "grade": judgment.grade, "rationale": judgment.rationale}
        line = json.dumps(record, ensure_ascii=False) + "\n"
        with self._lock:
            self._known[key] = judgment
            try:
                self._write(line.encode())
            except OSError as error:
                first = "make room, or " if error.errno in FULL else ""
                raise InputError(
                    f"cannot be written: {error.strerror}; what was judged is kept: {first}name "
                    "another folder with --cache, then go on with --resume",
                    where=str(self.path),
                ) from None

    def _write(self, line: bytes) -> None:
        """One call for the whole line, so that several processes can add to the file.

        A disk that is about to be full takes half of it, and refuses the rest.
        """
        file = self._opened()
        while line:
            line = line[os.write(file, line) :]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _opened(self) -> int:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
            self._file = os.open(self.path, flags, 0o666)
            # A stop in the middle of a line must not spoil the next one.
            if (size := os.fstat(self._file).st_size) and os.pread(
                self._file, 1, size - 1
            ) != b"\n":
                os.write(self._file, b"\n")
        return self._file

    def _load(self) -> None:
        damaged = 0
        try:
            with self.path.open("rb") as file:
                for line in file:
                    found = _read(line)
                    if found is None:
                        damaged += bool(line.strip())
                    else:
                        self._known[found[0]] = found[1]
        except FileNotFoundError:
            raise
        except OSError as error:
            raise InputError(
                f"cannot be read: {error.strerror}; name another folder with --cache",
                where=str(self.path),
            ) from None
        if damaged:
            told = "line is" if damaged == 1 else "lines are"
            _log.warning("%s: %d damaged %s left out", self.path, damaged, told)


def _read(line: bytes) -> tuple[str, Judgment] | None:
    try:
        record = json.loads(line)
        key, grade, rationale = record["key"], record["grade"], record["rationale"]
    except (ValueError, TypeError, KeyError):
        return None
    texts = isinstance(key, str) and isinstance(rationale, str)
    if not texts or type(grade) is not int or grade not in GRADES:
        return None
    return key, Judgment(grade, rationale)
