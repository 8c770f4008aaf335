"""Place: the path or URL of a store, shown in messages without its password."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from karat.errors import UsageError
from karat.jobs.cache import CACHE_FOLDER

VARIABLE = "KARAT_STORE"
DEFAULT = Path(CACHE_FOLDER) / "history.db"
_ADDRESS = ("host", "hostaddr", "port")
# Looks like a mistyped URL. With ./ before it, it is the name of a file.
_MISTYPED = re.compile(
    r"[a-z][a-z0-9+.-]+:[/\\]|(sqlite|postgres(ql)?)(\+\w+)?:|(?![./\\~]).*:.*@.", re.I | re.S
)
_FILE_URI = re.compile("file:", re.I)
_IN_MEMORY = ":memory:"
_COMPANIONS = ("-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class Place:
    """A store's address; ``shown`` is its name in messages, ``path`` its SQLite file."""

    url: URL
    shown: str
    path: Path | None = None

    @property
    def in_memory(self) -> bool:
        """Return whether the store ends with the process."""
        return self.path is None and self.url.get_backend_name() == "sqlite"

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


def place_of(where: str | os.PathLike[str] | None = None) -> Place:
    """Read a path or URL; by default that of ``$KARAT_STORE``, else .karat/history.db.

    >>> place_of("postgresql://ann:secret@db.example/karat").shown
    'postgresql://db.example/karat'
    """
    if where == "":
        raise UsageError("the store has an empty name; give a file or a URL, or leave it out")
    where = where or os.environ.get(VARIABLE) or DEFAULT
    if not isinstance(where, str) or "://" not in where:
        path = Path(_checked_path(os.fspath(where))).expanduser()
        return Place(URL.create("sqlite", database=str(path)), shown=str(path), path=path)
    url = _url(where)
    if url.get_backend_name() == "sqlite":
        if url.host or url.username:
            raise UsageError("a URL of SQLite has three slashes, as in sqlite:///history.db")
        in_memory = url.database in (None, "", _IN_MEMORY)
        file = None if in_memory else Path(_refuse_file_uri(str(url.database)))
        return Place(url, shown="sqlite in memory" if file is None else str(file), path=file)
    shown = URL.create(url.get_backend_name(), host=url.host, port=url.port, database=url.database)
    return Place(url, shown=str(shown))


def _checked_path(text: str) -> str:
    """Return a file's name; refuse a mistyped URL, which would be shown with its password."""
    if text == _IN_MEMORY:
        raise UsageError("a store in memory keeps nothing; name a file")
    if _MISTYPED.match(_refuse_file_uri(text)):
        raise UsageError(
            "the store looks like a URL but is none; write postgresql://user@host:5432/database,"
            " or a file's name with ./ before it"
        )
    return text


def _refuse_file_uri(text: str) -> str:
    """Refuse SQLite's file: URIs, whose options would become part of the name."""
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
