"""The file of a store in SQLite: whether it may be written, opened, made, and left whole."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from karat.errors import InputError

# What another process may hold for a moment while it makes the same store.
_MAKING_SECONDS = 1.0
# What tells that a file was replaced, or written by someone: where it is on disk, size, time.
Seen = tuple[str, int, int, int, int] | None


class FileConnection(sqlite3.Connection):
    """A connection that knows which file it was opened on, and whether it was ever used."""

    seen: Seen = None
    fresh = True


def opened(path: Path, patience: float) -> FileConnection:
    """Open a file that is there; none is made, and one that may not be written is read."""
    before = seen(path)
    uri = f"{path.absolute().as_uri()}?mode={_mode(path)}"
    connection = sqlite3.connect(
        uri, uri=True, timeout=patience, check_same_thread=False, factory=FileConnection
    )
    connection.seen = before
    return connection


def seen(path: Path) -> Seen:
    """What the file at a path is now; None where there is none.

    Never opens it: closing a file gives up every lock that this process has on it.
    """
    try:
        found = path.stat()
    except OSError:
        return None
    return _mode(path), found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _mode(path: Path) -> str:
    wal = path.with_name(path.name + "-wal")
    if not os.access(path.parent, os.W_OK) and not wal.exists():
        # SQLite wants to write beside the file even to read it, unless told that nobody will.
        return "ro&immutable=1"
    return "rw"


def check_file(path: Path) -> None:
    """Refuse a folder."""
    if path.is_dir():
        raise InputError("is a folder; name a file in it", where=str(path))


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written, without making it."""
    check_file(path)
    folder = path.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise InputError(f"cannot be made: {folder.name} is no folder", where=str(path))
    needed = [folder, path] if path.exists() else [folder]
    if not all(os.access(one, os.W_OK) for one in needed):
        raise InputError("may not be written to", where=str(path))


def make_room(path: Path) -> None:
    """Make the file if there is none."""
    check_writable(path)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another process, or another thread, may have been faster.
        with suppress(FileExistsError):
            path.touch(exist_ok=False)


def let_readers_read(path: Path, patience: float) -> bool:
    """Let readers read while one process writes; whether that is so now.

    Whoever is in the way may do it at the next save; what is no database is told later.
    """
    patience = min(patience, _MAKING_SECONDS)
    with suppress(sqlite3.Error), closing(opened(path, patience)) as connection:
        return bool(connection.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",))
    return False


@contextmanager
def waiting(connection: sqlite3.Connection, patience: float, usual: float) -> Iterator[None]:
    """Meanwhile wait for the lock as long as this patience lasts, not as long as is usual."""
    connection.execute(f"PRAGMA {_waiting(patience)}").fetchall()
    try:
        yield
    finally:
        with suppress(sqlite3.Error):
            connection.execute(f"PRAGMA {_waiting(usual)}").fetchall()


def settle(connection: sqlite3.Connection, patience: float) -> None:
    """Move what was saved from the log beside the file into the file, unless others read now.

    A copy of the file is then whole, and a copy put in its place meets no log of another store.
    """
    # What was saved is safe in the log; if it cannot be moved now, the next save does it.
    for statement in ("busy_timeout = 0", "wal_checkpoint(TRUNCATE)", _waiting(patience)):
        with suppress(sqlite3.Error):
            connection.execute(f"PRAGMA {statement}").fetchall()


def _waiting(patience: float) -> str:
    return f"busy_timeout = {int(patience * 1000)}"
