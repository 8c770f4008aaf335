"""karat's own folder, and results kept there as JSON lines by the digest of their inputs."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from karat.errors import InputError
from karat.formats.files import DISK_FULL, atomic_write, check_writable

# Where karat keeps indexes, vectors, judgments and the history.
CACHE_FOLDER = ".karat"

Value = TypeVar("Value")
_log = logging.getLogger("karat")


class JsonlCache(Generic[Value]):
    """Values by key in one file that is only appended to, so that several processes share it.

    ``encode`` turns a value into a JSON object, to which the key is added; ``decode`` turns the
    object back and raises KeyError, TypeError or ValueError for one that is not its own. Damaged
    lines are left out with a warning. ``remedy`` tells what to do when the file cannot be used.
    """

    def __init__(
        self,
        path: Path,
        encode: Callable[[Value], Mapping[str, Any]],
        decode: Callable[[Mapping[str, Any]], Value],
        *,
        remedy: str = "name another folder with --cache",
    ) -> None:
        self.path = path
        self._encode, self._decode, self._remedy = encode, decode, remedy
        self._values: dict[str, Value] = {}
        self._lock = threading.Lock()
        self._file: int | None = None
        try:
            self._load()
        except FileNotFoundError:
            # A result that cannot be kept is best not computed.
            check_writable(self.path)

    def get(self, key: str) -> Value | None:
        """Return the value under this key, if there is one."""
        return self._values.get(key)

    def put(self, key: str, value: Value) -> None:
        """Keep a value; it is written before this returns."""
        line = json.dumps({"key": key, **self._encode(value)}, ensure_ascii=False) + "\n"
        with self._lock:
            self._values[key] = value
            try:
                self._append(line.encode())
            except OSError as error:
                first = "make room, or " if error.errno in DISK_FULL else ""
                raise InputError(
                    f"cannot be written: {error.strerror}; its entries are kept: "
                    f"{first}{self._remedy}, then resume with --resume",
                    where=str(self.path),
                ) from None

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _append(self, line: bytes) -> None:
        """Write the line in one call, so that lines of several processes do not mix."""
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
            # After a line that was cut off, the next one needs a line of its own.
            size = os.fstat(self._file).st_size
            if size and os.pread(self._file, 1, size - 1) != b"\n":
                os.write(self._file, b"\n")
        # A disk that is nearly full takes a part of the line, then refuses the rest.
        while line:
            line = line[os.write(self._file, line) :]

    def _load(self) -> None:
        damaged = 0
        try:
            with self.path.open("rb") as file:
                for line in file:
                    try:
                        record = json.loads(line)
                        key, value = record["key"], self._decode(record)
                        if not isinstance(key, str):
                            raise TypeError("a key is text")
                    except (ValueError, TypeError, KeyError):
                        damaged += bool(line.strip())
                    else:
                        self._values[key] = value
        except FileNotFoundError:
            raise
        except OSError as error:
            raise InputError(
                f"cannot be read: {error.strerror}; {self._remedy}", where=str(self.path)
            ) from None
        if damaged:
            lines = "line is" if damaged == 1 else "lines are"
            _log.warning("%s: %d damaged %s left out", self.path, damaged, lines)


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def ignore_in_git(folder: Path) -> None:
    """Write a .gitignore into a folder of cached files, unless it has one."""
    ignore = folder / ".gitignore"
    if not ignore.exists():
        with atomic_write(ignore) as temporary:
            temporary.write_text("*\n")
