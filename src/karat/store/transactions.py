"""Transactions on a store: begun in turn, on tables of a known version, with karat's own errors."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from json import JSONDecodeError
from typing import NamedTuple

from sqlalchemy import Connection, RootTransaction
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, TimeoutError

from karat.errors import InputError
from karat.store import database, schema
from karat.store.place import Place, place_of
from karat.store.records import NoHistoryError

# Seconds before a user hears that another process holds the store.
_NOTICE_SECONDS = 2.0
# On a server, half of the connections are left to readers.
_SERVER_WRITERS = 8

_DAMAGED = "is damaged; restore it from a copy"
_IN_USE = "is in use by another process; try again"
# By the beginning of SQLite's name for the error.
_SQLITE_MESSAGES = {
    "SQLITE_NOTADB": "is no SQLite database; give another file, or a URL",
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_READONLY": "may not be written to",
    "SQLITE_PERM": "may not be written to",
    "SQLITE_CANTOPEN": "cannot be opened; check the path and who may write there",
    "SQLITE_FULL": "cannot be written: the disk is full; make room, then try again",
    "SQLITE_IOERR": "cannot be read or written: the disk gave an error or is full; "
    "make room, or look at the disk",
    "SQLITE_BUSY": _IN_USE,
    "SQLITE_LOCKED": _IN_USE,
}
# PostgreSQL's codes for a lock timeout and for a missing table.
_LOCK_NOT_AVAILABLE, _UNDEFINED_TABLE = "55P03", "42P01"
_LONGEST_REASON = 300


class Reading(NamedTuple):
    """A read-only transaction, and the version of the tables in it."""

    connection: Connection
    version: int


class Access:
    """Transactions on the database at a path or URL; safe for any number of threads.

    ``patience``, ``waiting`` and ``saving`` are those of ``Store.open``.
    """

    def __init__(
        self,
        where: str | os.PathLike[str] | None,
        *,
        patience: float | None = None,
        waiting: Callable[[str], None] | None = None,
        saving: float | None = None,
    ) -> None:
        self.place = place_of(where)
        database.check_patience(patience)
        database.check_patience(saving)
        self.engine = database.engine_of(self.place, patience)
        self._patience = database.PATIENCE if patience is None else patience
        self._saving, self._waiting = saving, waiting
        limit = self._patience if saving is None else saving
        if self.place.path is not None or self.place.in_memory:
            self._queue = WriteQueue(1, limit)
        else:
            self._queue = WriteQueue(_SERVER_WRITERS, max(limit, database.POOL_SECONDS))
        self._writers = self.engine.execution_options(writes=True)
        self._readers = self.engine
        if self.engine.dialect.name == "postgresql":
            # All statements of one reading see the same state, as they do in SQLite anyway.
            self._readers = self.engine.execution_options(isolation_level="REPEATABLE READ")
        self._tables_seen = False
        self._in_wal: tuple[int, int] | None = None
        # A store that is never closed leaves no connection open.
        weakref.finalize(self, self.engine.dispose)

    @property
    def name(self) -> str:
        """Return where the store is, without user and password."""
        return self.place.shown

    def check(self) -> None:
        """Refuse what a write would refuse, without creating anything."""
        path = self.place.path
        if path is not None:
            database.check_writable(path)
        if path is None or path.exists():
            with database_errors(self.place), self._readers.connect() as connection:
                self._version(connection)

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """Begin a read-only transaction; it creates and upgrades nothing."""
        with database_errors(self.place):
            self._check_exists()
            with self._readers.connect() as connection:
                version = self._version(connection)
                if version == 0:
                    raise self._no_history()
                yield Reading(connection, version)

    @contextmanager
    def writing(self, *, create: bool = True, marks: bool = True) -> Iterator[Connection]:
        """Begin a transaction on tables of the newest version; it is saved whole or not at all.

        ``create`` makes a store that does not exist yet. ``marks`` changes the store's stamp.
        """
        with database_errors(self.place), self._queue.slot():
            if not create:
                self._check_exists()
            self._prepare_file()
            with self._writers.connect() as connection:
                with self._saving_patience(connection), self._begin(connection):
                    if self._saving is not None:
                        database.set_lock_timeout(connection, self._saving)
                    self._queue.note_progress()
                    version = self._version(connection)
                    if version == 0 and not create:
                        raise self._no_history()
                    schema.upgrade(connection, self.name, version=version)
                    yield connection
                    if marks:
                        schema.mark_changed(connection)
                # A checkpoint takes longer than the write: the last writer in line does it.
                if self.place.path is not None and not self._queue.has_waiters:
                    driver = connection.connection.driver_connection
                    database.checkpoint(driver, self._patience)  # type: ignore[arg-type]

    def _saving_patience(self, connection: Connection) -> AbstractContextManager[None]:
        if self._saving is None or self.place.path is None:
            return nullcontext()
        driver = connection.connection.driver_connection
        return database.busy_timeout(driver, self._saving, self._patience)  # type: ignore[arg-type]

    def _begin(self, connection: Connection) -> RootTransaction:
        """Begin a transaction; call ``waiting`` if another process holds the store for long."""
        if self._waiting is None:
            return connection.begin()
        timer = threading.Timer(_NOTICE_SECONDS, self._waiting, [self.name])
        timer.daemon = True
        timer.start()
        try:
            return connection.begin()
        finally:
            timer.cancel()

    def _version(self, connection: Connection) -> int:
        """Read the version in every transaction: a newer karat may have upgraded the tables."""
        seen, self._tables_seen = self._tables_seen, False
        try:
            version = schema.version_of(connection, self.name, tables_seen=seen)
        except DBAPIError as error:
            if seen and _is_missing_table(error):
                # Another database took its place, without the tables that were seen before.
                return 0
            raise
        self._tables_seen = version > 0
        return version

    def _check_exists(self) -> None:
        path = self.place.path
        if path is not None:
            database.check_not_folder(path)
            if not path.exists():
                raise self._no_history()

    def _prepare_file(self) -> None:
        path = self.place.path
        if path is None:
            return
        database.create_file(path)
        status = path.stat()
        file = (status.st_dev, status.st_ino)
        if file != self._in_wal and database.use_wal(path, self._patience):
            self._in_wal = file

    def _no_history(self) -> NoHistoryError:
        return NoHistoryError(
            "no history here; begin one with karat eval … --save", where=self.name
        )


class WriteQueueTimeoutError(Exception):
    """No writer ahead in the queue made progress for too long."""


class WriteQueue:
    """A first-come, first-served queue of writers, of whom ``slots`` write at once.

    SQLite gives its lock to whoever asks when it is free, so that of many writers some never get
    it. Here only the first in line asks SQLite. On a server, writers that wait for each other
    leave connections to readers.
    """

    def __init__(self, slots: int, patience: float) -> None:
        self._slots, self._patience = slots, patience
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._taken = 0
        self._last_progress = 0.0

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Wait in line; give up when no writer made progress for as long as the patience."""
        if self._process != os.getpid():
            # After a fork, whoever had a slot is a thread of the parent.
            self._reset()
        self._take()
        try:
            yield
        finally:
            with self._lock:
                if self._waiting:
                    self._waiting.popleft().set()
                else:
                    self._taken -= 1

    def note_progress(self) -> None:
        """Record that a writer got the database's lock, so that those in line keep waiting."""
        self._last_progress = time.monotonic()

    @property
    def has_waiters(self) -> bool:
        """Return whether another writer waits in line."""
        return bool(self._waiting)

    def _take(self) -> None:
        with self._lock:
            if self._taken < self._slots:
                self._taken += 1
                return
            my_turn = threading.Event()
            self._waiting.append(my_turn)
        start = time.monotonic()
        while not my_turn.wait(max(0.0, self._deadline(start) - time.monotonic())):
            with self._lock:
                if not my_turn.is_set() and self._deadline(start) <= time.monotonic():
                    self._waiting.remove(my_turn)
                    raise WriteQueueTimeoutError

    def _deadline(self, start: float) -> float:
        return max(start, self._last_progress) + self._patience


@contextmanager
def database_errors(place: Place) -> Iterator[None]:
    """Turn every error of a database or its file into an InputError of one line."""
    try:
        yield
    except DBAPIError as error:
        raise InputError(_reason(place, error), where=place.shown) from None
    except WriteQueueTimeoutError:
        raise InputError(_IN_USE, where=place.shown) from None
    except TimeoutError:
        raise InputError("is in use by too many at once; try again", where=place.shown) from None
    except SQLAlchemyError as error:
        raise InputError(f"cannot be used ({type(error).__name__})", where=place.shown) from None
    except JSONDecodeError:
        raise InputError(_DAMAGED, where=place.shown) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"cannot be used: {reason}", where=place.shown) from None


def _reason(place: Place, error: DBAPIError) -> str:
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        name = getattr(cause, "sqlite_errorname", "")
        messages = (text for start, text in _SQLITE_MESSAGES.items() if name.startswith(start))
        return next(messages, f"cannot be used: {cause}")
    if getattr(cause, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
        return _IN_USE
    # str() of a PostgreSQL error includes the statement; the primary message does not.
    sentence = getattr(getattr(cause, "diag", None), "message_primary", None) or str(cause)
    reason = " ".join(sentence.split())[:_LONGEST_REASON] or type(cause).__name__
    if any(secret in reason for secret in place.secrets()):
        reason = "check the host, the database, the user and the password"
    return f"cannot be used: {reason}"


def _is_missing_table(error: DBAPIError) -> bool:
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorname", "") == "SQLITE_ERROR"
    return getattr(cause, "sqlstate", None) == _UNDEFINED_TABLE
