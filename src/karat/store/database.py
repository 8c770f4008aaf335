"""The database of a store: its address, safe connections, transactions and errors."""

from __future__ import annotations

import logging
import math
import os
import re
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, RootTransaction, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError, TimeoutError
from sqlalchemy.pool import NullPool, QueuePool

from karat.errors import InputError, UsageError, missing_extra, unknown
from karat.jobs.cache import CACHE_FOLDER
from karat.store.records import NoHistoryError
from karat.store.schema import mark_changed, newest, upgrade, version_of

VARIABLE = "KARAT_STORE"
DEFAULT = Path(CACHE_FOLDER) / "history.db"
_SQLITE, _PSYCOPG = "sqlite", "postgresql+psycopg"
# Seconds to wait for another process that saves, and for a server to accept a connection.
PATIENCE, _CONNECT_SECONDS = 60.0, 10
# Seconds that a thread waits at least for other threads of this process to return a connection.
_SERVER_QUEUE_SECONDS = 30.0
# Seconds before a user learns that another process holds the store.
_NOTICE_SECONDS = 2.0
_POOL_SIZE = 16

_ADDRESS = ("host", "hostaddr", "port")
# Looks like a mistyped URL, or like an option of SQLite. With ./ before it, it is a file's name.
_MISTYPED = re.compile(
    r"[a-z][a-z0-9+.-]+:[/\\]|(sqlite|postgres(ql)?)(\+\w+)?:|(?![./\\~]).*:.*@.|file:|:memory:",
    re.I | re.S,
)
_COMPANIONS = ("-wal", "-shm", "-journal")

_DAMAGED = "is damaged; restore it from a copy"
_IN_USE = "is in use by another process; try again"
# By the beginning of SQLite's name for the error.
_SQLITE_MESSAGES = {
    "SQLITE_NOTADB": "is no SQLite database; give another file, or a URL",
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_READONLY": "may not be written to",
    "SQLITE_FULL": "cannot be written: the disk is full; make room, then try again",
    "SQLITE_IOERR": "cannot be read or written; make room, or look at the disk, then try again",
    "SQLITE_BUSY": _IN_USE,
    "SQLITE_LOCKED": _IN_USE,
}
# PostgreSQL's code for a lock timeout.
_LOCK_NOT_AVAILABLE = "55P03"
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where a store is; ``name`` is shown in messages, ``path`` is its SQLite file."""

    url: URL
    name: str
    path: Path | None = None

    @property
    def in_memory(self) -> bool:
        """Return whether the store ends with the process."""
        return self.path is None and self.url.drivername == _SQLITE

    def files(self) -> list[str]:
        """Return the SQLite file and its companions, which nothing else may write."""
        if self.path is None:
            return []
        # The companions of a symbolic link may be beside the link or beside its target.
        paths = dict.fromkeys((str(self.path), os.path.realpath(self.path)))
        return [path + ending for path in paths for ending in ("", *_COMPANIONS)]

    def secrets(self) -> list[str]:
        """Return what no message may show: the password, and options, which may hold one."""
        options = [option for option in self.url.query.items() if option[0] not in _ADDRESS]
        return [str(text) for text in (self.url.password, *chain(*options)) if text]


def store_address(where: str | os.PathLike[str] | None = None) -> StoreAddress:
    """Read a path or URL; by default that of ``$KARAT_STORE``, else .karat/history.db.

    >>> store_address("postgresql://ann:secret@db.example/karat").name
    'postgresql://db.example/karat'
    """
    if where == "":
        raise UsageError("the store has an empty name; give a file or a URL, or leave it out")
    where = where or os.environ.get(VARIABLE) or DEFAULT
    if not isinstance(where, str) or "://" not in where:
        path = _checked_path(os.fspath(where)).expanduser()
        return StoreAddress(URL.create("sqlite", database=str(path)), name=str(path), path=path)
    url = _url(where)
    if url.drivername == _SQLITE:
        if url.host or url.username:
            raise UsageError("a URL of SQLite has three slashes, as in sqlite:///history.db")
        if url.database in (None, "", ":memory:"):
            return StoreAddress(url, name="sqlite in memory")
        path = _checked_path(str(url.database))
        return StoreAddress(url, name=str(path), path=path)
    shown = URL.create(url.get_backend_name(), host=url.host, port=url.port, database=url.database)
    return StoreAddress(url, name=str(shown))


def _checked_path(text: str) -> Path:
    """Return a file's path; refuse a mistyped URL, which would be shown with its password."""
    if _MISTYPED.match(text):
        raise UsageError(
            "the store looks like a URL but is none; write postgresql://user@host:5432/database,"
            " or a file's name with ./ before it"
        )
    return Path(text)


def _url(text: str) -> URL:
    scheme, _, address = text.partition("://")
    try:
        url = make_url("postgresql://" + address if scheme == "postgres" else text)
    except (ArgumentError, ValueError):
        raise UsageError(
            "the store's URL cannot be read; write it as postgresql://user@host:5432/database"
        ) from None
    in_database = "@" in (url.database or "") and url.get_backend_name() != "sqlite"
    if in_database or "@" in (url.host or ""):
        raise UsageError("the store's URL has one @ too many; in a password write it as %40")
    # SQLAlchemy's own choice of a driver has changed between its versions.
    return url.set(drivername=_PSYCOPG) if url.drivername == "postgresql" else url


class Database:
    """Transactions on the database at a path or URL; safe for any number of threads.

    ``patience`` and ``waiting`` are those of ``Store.open``. Writers of a SQLite file wait for
    its lock, whether they are threads or processes. ``readers`` shares the connections of
    ``writers``.
    """

    def __init__(
        self,
        where: str | os.PathLike[str] | None,
        *,
        patience: float | None = None,
        waiting: Callable[[str], None] | None = None,
    ) -> None:
        if patience is not None and not 0 <= patience < math.inf:
            raise UsageError(f"patience is {patience!r}; give seconds from 0 on")
        self.address = store_address(where)
        self._waiting = waiting
        self.writers = _engine(self.address, patience)
        reading: dict[str, Any] = {"reading": True}
        if self.writers.dialect.name == "postgresql":
            # All statements of one reading see the same state, as they do in SQLite anyway.
            reading["isolation_level"] = "REPEATABLE READ"
        self.readers = self.writers.execution_options(**reading)
        # A store that is never closed leaves no connection open.
        weakref.finalize(self, self.writers.dispose)

    def close(self) -> None:
        """Close all connections."""
        self.writers.dispose()

    def check(self) -> None:
        """Refuse what a write would refuse, without creating anything."""
        path = self.address.path
        if path is not None:
            _check_writable(path)
        if path is None or path.exists():
            with database_errors(self.address), self.readers.connect() as connection:
                version_of(connection, self.address.name)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Begin a read-only transaction; a store of an older karat is upgraded before."""
        with database_errors(self.address):
            self._check_exists()
            with self.readers.connect() as connection:
                version = version_of(connection, self.address.name)
                if version == 0:
                    raise self._no_history()
                if version == newest():
                    yield connection
                    return
            with self.writing(create=False):
                pass
            with self.readers.connect() as connection:
                yield connection

    @contextmanager
    def writing(self, *, create: bool = True, marks: bool = True) -> Iterator[Connection]:
        """Begin a transaction on tables of the newest version; it is saved whole or not at all.

        ``create`` makes a store that does not exist yet. ``marks`` changes the store's stamp.
        """
        with database_errors(self.address):
            if not create:
                self._check_exists()
            if self.address.path is not None:
                _create_file(self.address.path)
            with self.writers.connect() as connection, self._begin(connection):
                version = version_of(connection, self.address.name)
                if version == 0 and not create:
                    raise self._no_history()
                upgrade(connection, self.address.name, version=version)
                yield connection
                if marks:
                    mark_changed(connection)

    def _begin(self, connection: Connection) -> RootTransaction:
        """Begin a transaction; call ``waiting`` if another process holds the store for long."""
        if self._waiting is None:
            return connection.begin()
        timer = threading.Timer(_NOTICE_SECONDS, self._waiting, [self.address.name])
        timer.daemon = True
        timer.start()
        try:
            return connection.begin()
        finally:
            timer.cancel()

    def _check_exists(self) -> None:
        path = self.address.path
        if path is not None:
            _check_not_folder(path)
            if not path.exists():
                raise self._no_history()

    def _no_history(self) -> NoHistoryError:
        return NoHistoryError(
            "no history here; begin one with karat eval … --save", where=self.address.name
        )


def _engine(address: StoreAddress, patience: float | None) -> Engine:
    """Return an engine; nothing is connected to yet."""
    kind = address.url.drivername
    if kind not in (_SQLITE, _PSYCOPG):
        raise unknown("kind of store", kind, ("sqlite", "postgresql"))
    options: dict[str, Any]
    if address.path is not None:
        seconds = PATIENCE if patience is None else patience
        # No pool: opening a file is cheap, and it may be replaced at any time.
        options = {"creator": partial(_open_file, address.path, seconds), "poolclass": NullPool}
    elif address.in_memory:
        # A database in memory ends with its only connection.
        options = {"poolclass": QueuePool, "pool_size": 1, "max_overflow": 0}
        options["connect_args"] = {"check_same_thread": False}
    else:
        # A lost connection is reported as an error; psycopg would log it as well.
        logging.getLogger("psycopg").setLevel(logging.CRITICAL)
        options = {
            # A server may have been restarted since the last use of a connection.
            "pool_pre_ping": True,
            "pool_size": _POOL_SIZE,
            "max_overflow": 0,
            "pool_timeout": max(patience or 0, _SERVER_QUEUE_SECONDS),
        }
        if "connect_timeout" not in address.url.query:
            seconds = _CONNECT_SECONDS if patience is None else max(1, math.ceil(patience))
            options["connect_args"] = {"connect_timeout": min(seconds, _CONNECT_SECONDS)}
    try:
        engine = create_engine(address.url, hide_parameters=True, **options)
    except ImportError:
        raise missing_extra("a store on PostgreSQL", "psycopg", "postgres") from None
    except (ArgumentError, TypeError, ValueError):
        raise UsageError("the store's URL has options that its driver does not know") from None
    if kind == _SQLITE:
        _configure_sqlite(engine)
    else:
        _forget_connections_in_forks(engine)
        if patience is not None:
            _limit_lock_waits(engine, patience)
    return engine


def _forget_connections_in_forks(engine: Engine) -> None:
    """Make a forked child open connections of its own instead of using its parent's."""
    reference = weakref.ref(engine)

    def forget() -> None:
        if (inherited := reference()) is not None:
            inherited.dispose(close=False)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)


def _configure_sqlite(engine: Engine) -> None:
    """Begin a transaction that will write with the lock for it."""

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, record: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")

        # SQLite's own lower() knows only ASCII letters.
        def lower(value: Any) -> Any:
            return value.lower() if isinstance(value, str) else value

        connection.create_function("lower", 1, lower, deterministic=True)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        reading = connection.get_execution_options().get("reading")
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _limit_lock_waits(engine: Engine, patience: float) -> None:
    # PostgreSQL takes 0 for no limit.
    milliseconds = max(1, int(patience * 1000))

    @event.listens_for(engine, "connect")
    def configure(connection: Any, record: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {milliseconds}")
        connection.commit()


def _open_file(path: Path, patience: float) -> sqlite3.Connection:
    """Open an existing SQLite file, read-only where nothing may be written."""
    mode = "rw"
    wal = path.with_name(path.name + "-wal")
    if not os.access(path.parent, os.W_OK) and not wal.exists():
        # SQLite writes beside the file even to read it, unless it may assume that nobody writes.
        mode = "ro&immutable=1"
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=patience, check_same_thread=False)


def _check_not_folder(path: Path) -> None:
    if path.is_dir():
        raise InputError("is a folder; name a file in it", where=str(path))


def _check_writable(path: Path) -> None:
    """Refuse a file that could not be written, without creating it."""
    _check_not_folder(path)
    place = path.absolute()
    while not place.exists():
        place = place.parent
    needed = [place, place.parent] if path.exists() else [place]
    if not place.is_dir() and not path.exists():
        raise InputError(f"cannot be made: {place.name} is no folder", where=str(path))
    if not all(os.access(name, os.W_OK) for name in needed):
        raise InputError("may not be written to", where=str(path))


def _create_file(path: Path) -> None:
    """Create the file if there is none, with a write-ahead log: readers and a writer do not wait.

    The last connection that is closed moves the log into the file.
    """
    _check_writable(path)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        # Another process that creates the file at this moment sets the same.
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")


@contextmanager
def database_errors(address: StoreAddress) -> Iterator[None]:
    """Turn every error of a database or its file into an InputError of one line."""
    try:
        yield
    except DBAPIError as error:
        raise InputError(_reason(address, error), where=address.name) from None
    except TimeoutError:
        raise InputError(_IN_USE, where=address.name) from None
    except SQLAlchemyError as error:
        raise InputError(f"cannot be used ({type(error).__name__})", where=address.name) from None
    except JSONDecodeError:
        raise InputError(_DAMAGED, where=address.name) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"cannot be used: {reason}", where=address.name) from None


def _reason(address: StoreAddress, error: DBAPIError) -> str:
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
    if any(secret in reason for secret in address.secrets()):
        reason = "check the host, the database, the user and the password"
    return f"cannot be used: {reason}"
