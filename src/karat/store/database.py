"""Engines for a store's database: SQLite files and servers, safe for threads and forks."""

from __future__ import annotations

import logging
import math
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakSet

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, InvalidatePoolError, NoSuchModuleError
from sqlalchemy.pool import QueuePool, StaticPool

from karat.errors import InputError, MissingExtraError, UsageError, missing_extra, unknown
from karat.store.place import Place

KINDS = ("sqlite", "postgresql")
# How long to wait for another process that saves, and for a server that does not answer.
PATIENCE, _CONNECT_SECONDS = 60.0, 10
# How long a thread waits for a connection to a server. Threads ahead of it are of this process,
# and none of them waits for a lock for long.
POOL_SECONDS = 30.0
# Connections kept open. A server has twice as many at most.
_POOL_SIZE = 8
# Switching a new file to WAL must not wait long for another process that does the same.
_WAL_SECONDS = 1.0
# Packages whose names differ from their drivers'.
_PACKAGES = {"MySQLdb": "mysqlclient", "mysql": "mysql-connector-python"}
_ENGINES: WeakSet[Engine] = WeakSet()
# Changes when a file is replaced or written to: mode, device, inode, time, size.
FileState = tuple[str, int, int, int, int] | None


def check_patience(seconds: float | None) -> None:
    """Refuse a number of seconds that nobody can wait."""
    if seconds is not None and not 0 <= seconds < math.inf:
        raise UsageError(f"patience is {seconds!r}; give seconds from 0 on")


def engine_of(place: Place, patience: float | None = None) -> Engine:
    """Return the engine for a place; nothing is connected to yet."""
    try:
        engine = create_engine(place.url, hide_parameters=True, **_options(place, patience))
    except NoSuchModuleError:
        kind = place.url.get_backend_name()
        if kind in KINDS:
            raise unknown(f"driver of {kind}", place.url.get_driver_name(), ["psycopg"]) from None
        raise unknown("kind of store", kind, KINDS) from None
    except ImportError as error:
        raise _missing_driver(place.url, error) from None
    except (ArgumentError, TypeError, ValueError):
        raise UsageError("the store's URL has options that its driver does not know") from None
    if not place.in_memory:
        _ENGINES.add(engine)
        _close_before_forks()
    if place.path is not None:
        _reopen_replaced_file(engine, place.path)
    if engine.dialect.name == "sqlite":
        _begin_explicitly(engine)
    if engine.dialect.name == "postgresql":
        _silence_psycopg()
        if patience is not None:
            _limit_lock_waits(engine, patience)
    return engine


def _options(place: Place, patience: float | None) -> dict[str, Any]:
    path = place.path
    if path is not None:
        timeout = PATIENCE if patience is None else patience
        return {
            "creator": lambda: open_file(path, timeout),
            "poolclass": QueuePool,
            "pool_size": _POOL_SIZE,
            # No limit: a thread that waits for a lock must not keep others from reading.
            "max_overflow": -1,
            "pool_use_lifo": True,
        }
    if place.in_memory:
        return {"connect_args": {"check_same_thread": False}, "poolclass": StaticPool}
    # A server may have been restarted since the last use of a connection.
    options: dict[str, Any] = {
        "pool_pre_ping": True,
        "pool_size": _POOL_SIZE,
        "max_overflow": _POOL_SIZE,
    }
    if patience is not None:
        options["pool_timeout"] = max(patience, POOL_SECONDS)
    if place.url.drivername == "postgresql+psycopg" and "connect_timeout" not in place.url.query:
        seconds = _CONNECT_SECONDS if patience is None else max(1, math.ceil(patience))
        options["connect_args"] = {"connect_timeout": min(seconds, _CONNECT_SECONDS)}
    return options


def _missing_driver(url: URL, error: ImportError) -> MissingExtraError:
    if url.drivername == "postgresql+psycopg":
        return missing_extra("a store on PostgreSQL", "psycopg", "postgres")
    driver = error.name or url.get_driver_name()
    package = _PACKAGES.get(driver, driver)
    return MissingExtraError(
        f"the store's URL needs the driver {driver}; install it with: pip install {package}"
    )


@cache
def _silence_psycopg() -> None:
    """Keep psycopg from logging a lost connection, which is reported as an error anyway."""
    logging.getLogger("psycopg").addHandler(logging.NullHandler())


@cache
def _close_before_forks() -> None:
    """Close all connections before a fork: a child would use its parent's, and their locks.

    SQLite records its file locks by process, and a child believes that it holds them too.
    """

    def before() -> None:
        for engine in list(_ENGINES):
            engine.dispose()

    def after_in_child() -> None:
        for engine in list(_ENGINES):
            engine.dispose(close=False)

    # Starting another program, as subprocess does, is no fork in this sense.
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_child=after_in_child)


def _reopen_replaced_file(engine: Engine, path: Path) -> None:
    """Replace a pooled connection whose file is no longer the one at the path."""

    @event.listens_for(engine, "checkout")
    def check(connection: FileConnection, record: Any, proxy: Any) -> None:
        if connection.fresh:
            connection.fresh = False
        elif connection.opened_on != file_state(path):
            raise InvalidatePoolError("the file has changed")


def _begin_explicitly(engine: Engine) -> None:
    """Begin with BEGIN IMMEDIATE where a transaction will write: it then waits for the lock."""

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, record: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        # SQLite's own lower() knows only ASCII letters.
        connection.create_function("lower", 1, _lower, deterministic=True)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _limit_lock_waits(engine: Engine, patience: float) -> None:
    @event.listens_for(engine, "connect")
    def configure(connection: Any, record: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {_milliseconds(patience)}")
        connection.commit()


def set_lock_timeout(connection: Connection, patience: float) -> None:
    """Limit how long a server waits for locks in this transaction."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_milliseconds(patience)}")


def _milliseconds(patience: float) -> int:
    # PostgreSQL takes 0 for no limit.
    return max(1, int(patience * 1000))


class FileConnection(sqlite3.Connection):
    """A connection that knows which file it was opened on, and whether it was ever used."""

    opened_on: FileState = None
    fresh = True


def open_file(path: Path, patience: float) -> FileConnection:
    """Open an existing SQLite file, read-only where nothing may be written."""
    state = file_state(path)
    uri = f"{path.absolute().as_uri()}?mode={_open_mode(path)}"
    connection = sqlite3.connect(
        uri, uri=True, timeout=patience, check_same_thread=False, factory=FileConnection
    )
    connection.opened_on = state
    return connection


def file_state(path: Path) -> FileState:
    """Return what identifies the file at a path now, or None if there is none.

    Never opens the file: closing it would give up every lock of this process on it.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return _open_mode(path), status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _open_mode(path: Path) -> str:
    wal = path.with_name(path.name + "-wal")
    if not os.access(path.parent, os.W_OK) and not wal.exists():
        # SQLite writes beside the file even to read it, unless it may assume that nobody writes.
        return "ro&immutable=1"
    return "rw"


def check_not_folder(path: Path) -> None:
    """Refuse a folder."""
    if path.is_dir():
        raise InputError("is a folder; name a file in it", where=str(path))


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written, without creating it."""
    check_not_folder(path)
    folder = path.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise InputError(f"cannot be made: {folder.name} is no folder", where=str(path))
    needed = [folder, path] if path.exists() else [folder]
    if not all(os.access(place, os.W_OK) for place in needed):
        raise InputError("may not be written to", where=str(path))


def create_file(path: Path) -> None:
    """Create the file if there is none."""
    check_writable(path)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another process or thread may have been faster.
        with suppress(FileExistsError):
            path.touch(exist_ok=False)


def use_wal(path: Path, patience: float) -> bool:
    """Switch a file to WAL, where readers read while one process writes; return success.

    If another process is in the way, the next save tries again. A file that is no database is
    reported later.
    """
    timeout = min(patience, _WAL_SECONDS)
    with suppress(sqlite3.Error), closing(open_file(path, timeout)) as connection:
        return bool(connection.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",))
    return False


@contextmanager
def busy_timeout(connection: sqlite3.Connection, patience: float, usual: float) -> Iterator[None]:
    """Wait for locks as long as ``patience`` inside, and as long as ``usual`` afterwards."""
    connection.execute(f"PRAGMA busy_timeout = {int(patience * 1000)}").fetchall()
    try:
        yield
    finally:
        with suppress(sqlite3.Error):
            connection.execute(f"PRAGMA busy_timeout = {int(usual * 1000)}").fetchall()


def checkpoint(connection: sqlite3.Connection, patience: float) -> None:
    """Move saved data from the write-ahead log into the file, unless others read now.

    A copy of the file is then complete, and a file put in its place meets no foreign log.
    """
    # The data is safe in the log: if it cannot be moved now, the next save moves it.
    with suppress(sqlite3.Error), busy_timeout(connection, 0, patience):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
