"""What can go wrong with a database, each as one line that names the store, never its password."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError

from sqlalchemy.exc import DBAPIError, SQLAlchemyError, TimeoutError

from karat.errors import InputError
from karat.store.place import Place
from karat.store.turns import NoTurnError

_DAMAGED = "is damaged; restore it from a copy"
_IN_USE = "is in use by another process; try again"
# By the beginning of SQLite's own name for the error.
_SQLITE = {
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
# PostgreSQL's numbers for a lock that was waited for too long, and for a table that is not there.
_NO_LOCK, _NO_TABLE = "55P03", "42P01"
_LONGEST = 300


@contextmanager
def one_line(place: Place) -> Iterator[None]:
    """Turn whatever a database or its file gives into one of karat's errors."""
    try:
        yield
    except DBAPIError as error:
        raise InputError(_told(place, error), where=place.shown) from None
    except NoTurnError:
        raise InputError(_IN_USE, where=place.shown) from None
    except TimeoutError:
        raise InputError("is in use by too many at once; try again", where=place.shown) from None
    except SQLAlchemyError as error:
        raise InputError(f"cannot be used ({type(error).__name__})", where=place.shown) from None
    except JSONDecodeError:
        raise InputError(_DAMAGED, where=place.shown) from None
    except OSError as error:
        told = f"cannot be used: {error.strerror or type(error).__name__}"
        raise InputError(told, where=place.shown) from None


def lacks_a_table(error: DBAPIError) -> bool:
    """Whether the database has no table of the name that it was asked about."""
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorname", "") == "SQLITE_ERROR"
    return getattr(cause, "sqlstate", None) == _NO_TABLE


def _told(place: Place, error: DBAPIError) -> str:
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        name = getattr(cause, "sqlite_errorname", "")
        known = (text for start, text in _SQLITE.items() if name.startswith(start))
        return next(known, f"cannot be used: {cause}")
    if getattr(cause, "sqlstate", None) == _NO_LOCK:
        return _IN_USE
    # PostgreSQL adds the statement to its sentence, and has the sentence by itself.
    sentence = getattr(getattr(cause, "diag", None), "message_primary", None) or str(cause)
    reason = " ".join(sentence.split())[:_LONGEST] or type(cause).__name__
    if any(secret in reason for secret in place.secrets()):
        reason = "check the host, the database, the user and the password"
    return f"cannot be used: {reason}"
