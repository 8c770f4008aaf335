"""Where a store is: a path or URL read, and named without its password."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from karat.errors import UsageError
from karat.own_folder import OWN_FOLDER

VARIABLE = "KARAT_STORE"
DEFAULT = Path(OWN_FOLDER) / "history.db"
_ADDRESS = ("host", "hostaddr", "port")
# What was meant as a URL, though it lacks a slash or a colon; ./ before it makes it a file's name.
_MISTYPED = re.compile(
    r"[a-z][a-z0-9+.-]+:[/\\]|(sqlite|postgres(ql)?)(\+\w+)?:|(?![./\\~]).*:.*@.", re.I | re.S
)
_FILE_URI = re.compile("file:", re.I)
_IN_MEMORY = ":memory:"
_BESIDE = ("-wal", "-shm", "-journal")


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

    def files(self) -> list[str]:
        """The file of SQLite and what may lie beside it, all of which only SQLite may write."""
        if self.path is None:
            return []
        # A link leads elsewhere, and so does what lies beside it.
        places = dict.fromkeys((str(self.path), os.path.realpath(self.path)))
        return [place + ending for place in places for ending in ("", *_BESIDE)]

    def secrets(self) -> list[str]:
        """What no message may hold: a password, or options, which may be parts of one."""
        options = [one for one in self.url.query.items() if one[0] not in _ADDRESS]
        return [str(one) for one in (self.url.password, *chain(*options)) if one]


def place_of(where: str | os.PathLike[str] | None = None) -> Place:
    """Read a path or URL; without one the environment's ``KARAT_STORE``, else the default file.

    >>> place_of("postgresql://ann:secret@db.example/karat").shown
    'postgresql://db.example/karat'
    """
    if where == "":
        raise UsageError("the store has an empty name; give a file or a URL, or leave it out")
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
