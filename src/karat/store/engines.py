"""Connections to the database of a store: kept open, checked before use, let go before a fork."""

from __future__ import annotations

import logging
import math
import os
import sqlite3
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakSet

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, InvalidatePoolError, NoSuchModuleError
from sqlalchemy.pool import QueuePool, StaticPool

from karat.errors import MissingExtraError, UsageError, missing_extra, unknown
from karat.store import files
from karat.store.place import Place
from karat.store.turns import Turns

KINDS = ("sqlite", "postgresql")
# How long to wait for another process that saves, and for a server that does not answer.
PATIENCE, _CONNECT_SECONDS = 60.0, 10
# A page asks from many threads at once; what is open beyond this is closed after use.
_KEPT = 8
# To a server there are twice as many connections at most; half of them are left to readers.
_WRITERS, _POOL_SECONDS = 8, 30.0
# What has the drivers that are not called as their packages are.
_PACKAGES = {"MySQLdb": "mysqlclient", "mysql": "mysql-connector-python"}
_OPEN: WeakSet[Engine] = WeakSet()


def engine_of(place: Place, patience: float | None = None) -> Engine:
    """The engine for a place; nothing is connected to yet."""
    try:
        options = _options(place, patience)
        engine = create_engine(place.url, hide_parameters=True, **options)
    except NoSuchModuleError:
        kind = place.url.get_backend_name()
        if kind in KINDS:
            raise unknown(f"driver of {kind}", place.url.get_driver_name(), ["psycopg"]) from None
        raise unknown("kind of store", kind, KINDS) from None
    except ImportError as error:
        raise _no_driver(place.url, error) from None
    except (ArgumentError, TypeError, ValueError):
        raise UsageError("the store's URL has options that its driver does not know") from None
    if not place.in_memory:
        _OPEN.add(engine)
        _let_go_before_forks()
    if place.path is not None:
        _the_file_of_now(engine, place.path)
    if engine.dialect.name == "sqlite":
        _own_transactions(engine)
    if engine.dialect.name == "postgresql":
        _say_nothing_twice()
        if patience is not None:
            _bounded_waiting(engine, patience)
    return engine


@cache
def _say_nothing_twice() -> None:
    """Keep psycopg from telling, on standard error too, of a lost connection that is an error."""
    logging.getLogger("psycopg").addHandler(logging.NullHandler())


def turns_at(place: Place, patience: float) -> Turns:
    """Who writes waits in line: for the lock of a file, or for one of a server's connections."""
    if place.path is not None or place.in_memory:
        return Turns(1, patience)
    return Turns(_WRITERS, max(patience, _POOL_SECONDS))


def checked_patience(seconds: float | None) -> float | None:
    """How long to wait for others, in seconds."""
    if seconds is not None and not 0 <= seconds < math.inf:
        raise UsageError(f"patience is {seconds!r}; give seconds from 0 on")
    return seconds


def _options(place: Place, patience: float | None) -> dict[str, Any]:
    path = place.path
    if path is not None:
        waiting = PATIENCE if patience is None else patience
        # No limit: who waits for a lock must not keep others from reading.
        kept = {"pool_size": _KEPT, "max_overflow": -1, "pool_use_lifo": True}
        return {"creator": lambda: files.opened(path, waiting), "poolclass": QueuePool, **kept}
    if place.in_memory:
        return {"connect_args": {"check_same_thread": False}, "poolclass": StaticPool}
    # A server may have been started anew since the last question.
    options: dict[str, Any] = {"pool_pre_ping": True, "pool_size": _KEPT, "max_overflow": _KEPT}
    if patience is not None:
        # Not how long to wait for others: those before one in line are of this process, and none
        # of them waits for a lock for long.
        options["pool_timeout"] = max(patience, _POOL_SECONDS)
    if place.url.drivername == "postgresql+psycopg" and "connect_timeout" not in place.url.query:
        seconds = _CONNECT_SECONDS if patience is None else max(1, math.ceil(patience))
        options["connect_args"] = {"connect_timeout": min(seconds, _CONNECT_SECONDS)}
    return options


@cache
def _let_go_before_forks() -> None:
    """A child must find nothing open: it would use its parent's connections, and its locks.

    SQLite notes by process which locks it has on a file, and a child believes to have them too.
    """

    def before() -> None:
        for engine in list(_OPEN):
            engine.dispose()

    def in_the_child() -> None:
        for engine in list(_OPEN):
            engine.dispose(close=False)

    # What starts another program, as subprocess does, is no fork in this sense.
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_child=in_the_child)


def _the_file_of_now(engine: Engine, path: Path) -> None:
    """A connection is of the file that was there; after it was replaced, a new one is needed."""

    @event.listens_for(engine, "checkout")
    def taken(connection: files.FileConnection, record: Any, proxy: Any) -> None:
        if connection.fresh:
            connection.fresh = False
        elif connection.seen != files.seen(path):
            raise InvalidatePoolError("the file has changed")


def _own_transactions(engine: Engine) -> None:
    """Who will write says so at once, and waits for others then: later would be too late."""

    @event.listens_for(engine, "connect")
    def connected(connection: sqlite3.Connection, record: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        # SQLite's own knows only the letters of English.
        connection.create_function("lower", 1, _lower, deterministic=True)

    @event.listens_for(engine, "begin")
    def began(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def let_wait(connection: Connection, patience: float) -> None:
    """Have a server wait so long for what others hold, in this transaction."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_milliseconds(patience)}")


def _milliseconds(patience: float) -> int:
    # 0 would be for ever.
    return max(1, int(patience * 1000))


def _bounded_waiting(engine: Engine, patience: float) -> None:
    """Have the server give up waiting for what another holds."""

    @event.listens_for(engine, "connect")
    def connected(connection: Any, record: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {_milliseconds(patience)}")
        connection.commit()


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _no_driver(url: URL, error: ImportError) -> MissingExtraError:
    if url.drivername == "postgresql+psycopg":
        return missing_extra("a store on PostgreSQL", "psycopg", "postgres")
    driver = error.name or url.get_driver_name()
    package = _PACKAGES.get(driver, driver)
    return MissingExtraError(
        f"the store's URL needs the driver {driver}; install it with: pip install {package}"
    )
