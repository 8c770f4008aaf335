"""The way into a store: one transaction to read or to write, of a version that is known."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

from sqlalchemy import Connection, Engine, RootTransaction
from sqlalchemy.exc import DBAPIError

from karat.store import files, schema
from karat.store.engines import PATIENCE, checked_patience, engine_of, let_wait, turns_at
from karat.store.place import Place, place_of
from karat.store.records import NoHistoryError
from karat.store.troubles import lacks_a_table, one_line

# So many seconds nobody wonders.
_TOLD_AFTER = 2.0


class Reading(NamedTuple):
    """A transaction that only reads, and the version of the tables it meets."""

    connection: Connection
    version: int


class Access:
    """Transactions on the database at a place; for any number of threads."""

    def __init__(
        self,
        place: Place,
        engine: Engine,
        patience: float,
        waiting: Callable[[str], None] | None = None,
        saving: float | None = None,
    ) -> None:
        self.place, self.engine, self._patience = place, engine, patience
        self._saving = saving
        self._waiting = waiting
        self._turns = turns_at(place, patience if saving is None else saving)
        self._writers = engine.execution_options(writes=True)
        # All questions of one reading are answered from the same state, which SQLite does anyway.
        snapshot = {"isolation_level": "REPEATABLE READ"}
        on_server = engine.dialect.name == "postgresql"
        self._readers = engine.execution_options(**snapshot) if on_server else engine
        self._sure = False
        self._in_wal: tuple[int, int] | None = None
        # Who forgets to close a store leaves no connection open.
        weakref.finalize(self, engine.dispose)

    @classmethod
    def to(
        cls,
        where: str | os.PathLike[str] | None,
        patience: float | None,
        waiting: Callable[[str], None] | None = None,
        saving: float | None = None,
    ) -> Access:
        """By path or URL; nothing is connected to yet."""
        place, patience = place_of(where), checked_patience(patience)
        engine, saving = engine_of(place, patience), checked_patience(saving)
        return cls(place, engine, PATIENCE if patience is None else patience, waiting, saving)

    @property
    def name(self) -> str:
        """Where the store is, without user and password."""
        return self.place.shown

    def check(self) -> None:
        """Refuse what a write would refuse, without making anything."""
        path = self.place.path
        if path is not None:
            files.check_writable(path)
        if path is None or path.exists():
            with one_line(self.place), self._readers.connect() as connection:
                self._version(connection)

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """A transaction that only reads: it makes nothing, and upgrades nothing."""
        with one_line(self.place):
            self._check_there()
            with self._readers.connect() as connection:
                version = self._version(connection)
                if version == 0:
                    raise self._nothing()
                yield Reading(connection, version)

    @contextmanager
    def writing(self, *, make: bool = True, marks: bool = True) -> Iterator[Connection]:
        """A transaction on tables of the newest version; all of it is kept, or nothing.

        A store that is not there yet is made, unless told not to. ``marks`` gives the store
        another stamp.
        """
        with one_line(self.place), self._turns.turn():
            if not make:
                self._check_there()
            self._make_ready()
            with self._writers.connect() as connection:
                with self._waiting_longer(connection), self._begun(connection):
                    if self._saving is not None:
                        let_wait(connection, self._saving)
                    self._turns.got_on()
                    version = self._version(connection)
                    if version == 0 and not make:
                        raise self._nothing()
                    schema.upgrade(connection, self.name, version=version)
                    yield connection
                    if marks:
                        schema.mark(connection)
                # Of many who write, the last does it for all: it takes longer than the writing.
                if self.place.path is not None and not self._turns.wanted:
                    settled = connection.connection.driver_connection
                    files.settle(settled, self._patience)  # type: ignore[arg-type]

    def _waiting_longer(self, connection: Connection) -> AbstractContextManager[None]:
        """Who saves may have more patience than who reads."""
        if self._saving is None or self.place.path is None:
            return nullcontext()
        own = connection.connection.driver_connection
        return files.waiting(own, self._saving, self._patience)  # type: ignore[arg-type]

    def _begun(self, connection: Connection) -> RootTransaction:
        """A transaction; where another process is in the way for long, that is told meanwhile."""
        if self._waiting is None:
            return connection.begin()
        timer = threading.Timer(_TOLD_AFTER, self._waiting, [self.name])
        timer.daemon = True
        timer.start()
        try:
            return connection.begin()
        finally:
            timer.cancel()

    def _version(self, connection: Connection) -> int:
        """Asked in every transaction: a newer karat may have been here since the last one."""
        sure, self._sure = self._sure, False
        try:
            version = schema.version_of(connection, self.name, sure=sure)
        except DBAPIError as error:
            if sure and lacks_a_table(error):
                # Another database is there now, without the tables that were seen before.
                return 0
            raise
        self._sure = version > 0
        return version

    def _check_there(self) -> None:
        path = self.place.path
        if path is not None:
            files.check_file(path)
            if not path.exists():
                raise self._nothing()

    def _make_ready(self) -> None:
        path = self.place.path
        if path is None:
            return
        files.make_room(path)
        found = path.stat()
        own = (found.st_dev, found.st_ino)
        if own != self._in_wal and files.let_readers_read(path, self._patience):
            self._in_wal = own

    def _nothing(self) -> NoHistoryError:
        told = "no history here; begin one with karat eval … --save"
        return NoHistoryError(told, where=self.name)
