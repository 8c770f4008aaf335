"""Where a store is: a path or URL read, connected to, and named without its password."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import NullPool, StaticPool

from karat.errors import InputError, MissingExtraError, UsageError, missing_extra, unknown

VARIABLE = "KARAT_STORE"
DEFAULT = Path(".karat") / "history.db"
KINDS = ("sqlite", "postgresql")
# How long to wait for another process that saves, and for a server that does not answer.
_BUSY_SECONDS, _CONNECT_SECONDS = 60, 10
_ADDRESS = ("host", "hostaddr", "port")
# What was meant as a URL, though it lacks a slash or a colon; ./ before it makes it a file's name.
_MISTYPED = re.compile(
    r"[a-z][a-z0-9+.-]+:[/\\]|(sqlite|postgres(ql)?)(\+\w+)?:|(?![./\\~]).*:.*@.", re.I | re.S
)
_FILE_URI = re.compile("file:", re.I)
_IN_MEMORY = ":memory:"


@dataclass(frozen=True, slots=True)
class Place:
    """A store's address: ``shown`` is how messages name it, ``path`` the file of SQLite."""

    url: URL
    shown: str
    path: Path | None = None

    @property
    def in_memory(self) -> bool:
        """Whether it ends with the process."""
        return self.path is None and self.url.get_backend_name() == "sqlite"

    def secrets(self) -> list[str]:
        """What no message may hold: a password, or options, which may be parts of one."""
        options = [one for one in self.url.query.items() if one[0] not in _ADDRESS]
        return [str(one) for one in (self.url.password, *chain(*options)) if one]


def place_of(where: str | os.PathLike[str] | None = None) -> Place:
    """Read a path or URL; without one the environment's ``KARAT_STORE``, else the default file.

    >>> place_of("postgresql://ann:secret@db.example/karat").shown
    'postgresql://db.example/karat'
    """
    where = where or os.environ.get(VARIABLE) or DEFAULT
    if not isinstance(where, str) or "://" not in where:
        path = Path(_file_name(os.fspath(where))).expanduser()
        return Place(URL.create("sqlite", database=str(path)), shown=str(path), path=path)
    url = _url(where)
    if url.get_backend_name() == "sqlite":
        if url.host or url.username:
            raise UsageError("a URL of SQLite has three slashes, as in sqlite:///history.db")
        in_memory = url.database in (None, "", _IN_MEMORY)
        file = None if in_memory else Path(_no_uri(str(url.database)))
        return Place(url, shown="sqlite in memory" if file is None else str(file), path=file)
    shown = URL.create(url.get_backend_name(), host=url.host, port=url.port, database=url.database)
    return Place(url, shown=str(shown))


def _file_name(text: str) -> str:
    """The name of a file; what was meant as a URL would be shown with its password."""
    if text == _IN_MEMORY:
        raise UsageError("a store in memory keeps nothing; name a file")
    if _MISTYPED.match(_no_uri(text)):
        raise UsageError(
            "the store looks like a URL but is none; write postgresql://user@host:5432/database,"
            " or a file's name with ./ before it"
        )
    return text


def _no_uri(text: str) -> str:
    """Refuse SQLite's own kind of URL, whose options would become part of a name."""
    if _FILE_URI.match(text):
        raise UsageError("the store's file is named by its path alone, without file:")
    return text


def _url(text: str) -> URL:
    scheme, _, rest = text.partition("://")
    try:
        url = make_url("postgresql://" + rest if scheme == "postgres" else text)
    except (ArgumentError, ValueError):
        raise UsageError(
            "the store's URL cannot be read; write it as postgresql://user@host:5432/database"
        ) from None
    if "@" in (url.host or ""):
        raise UsageError("the store's URL has more than one @; in a password write it as %40")
    if "@" in (url.database or "") and url.get_backend_name() != "sqlite":
        raise UsageError("the store's URL has an @ in its database; are there too many slashes?")
    # SQLAlchemy's own choice of a driver has changed between its versions.
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def engine_of(place: Place) -> Engine:
    """The engine for a place; nothing is connected to yet."""
    try:
        engine = create_engine(place.url, hide_parameters=True, **_options(place))
    except NoSuchModuleError:
        kind = place.url.get_backend_name()
        if kind in KINDS:
            raise unknown(f"driver of {kind}", place.url.get_driver_name(), ["psycopg"]) from None
        raise unknown("kind of store", kind, KINDS) from None
    except ImportError as error:
        raise _no_driver(place.url, error) from None
    except (ArgumentError, TypeError, ValueError):
        raise UsageError("the store's URL has options that its driver does not know") from None
    if engine.dialect.name == "sqlite":
        _own_transactions(engine)
    return engine


def _options(place: Place) -> dict[str, Any]:
    path = place.path
    if path is not None:
        return {"creator": lambda: _sqlite(path), "poolclass": NullPool}
    if place.in_memory:
        return {"connect_args": {"check_same_thread": False}, "poolclass": StaticPool}
    if place.url.drivername == "postgresql+psycopg" and "connect_timeout" not in place.url.query:
        return {"connect_args": {"connect_timeout": _CONNECT_SECONDS}}
    return {}


def _sqlite(path: Path) -> sqlite3.Connection:
    """Open a file that is there; ``rw`` makes none, and reads one that may not be written."""
    mode = "rw"
    wal = path.with_name(path.name + "-wal")
    if not os.access(path.parent, os.W_OK) and not wal.exists():
        # SQLite wants to write beside the file even to read it, unless told that nobody will.
        mode = "ro&immutable=1"
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, check_same_thread=False)


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
    """Make the file, and let readers read while one process writes."""
    check_writable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.touch()
    # Whoever is in the way now may do it at the next save; what is no database is told later.
    with suppress(sqlite3.Error), closing(_sqlite(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


def _own_transactions(engine: Engine) -> None:
    """Who will write says so at once, and waits for others then: later would be too late."""

    @event.listens_for(engine, "connect")
    def connected(connection: sqlite3.Connection, record: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def began(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _no_driver(url: URL, error: ImportError) -> MissingExtraError:
    if url.drivername == "postgresql+psycopg":
        return missing_extra("a store on PostgreSQL", "psycopg", "postgres")
    driver = error.name or url.get_driver_name()
    return MissingExtraError(f"the store needs {driver}; install it with: pip install {driver}")
