"""What can go wrong with a database, each as one line that names the store, never its password."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from karat.errors import InputError
from karat.store.place import Place

# By the beginning of SQLite's own name for the error.
_SQLITE = {
    "SQLITE_NOTADB": "is no SQLite database; give another file, or a URL",
    "SQLITE_CORRUPT": "is damaged; restore it from a copy",
    "SQLITE_READONLY": "may not be written to",
    "SQLITE_PERM": "may not be written to",
    "SQLITE_CANTOPEN": "cannot be opened; check the path and who may write there",
    "SQLITE_FULL": "cannot be written: the disk is full",
    "SQLITE_IOERR": "cannot be read or written: the disk gave an error or is full",
    "SQLITE_BUSY": "is in use by another process; try again",
    "SQLITE_LOCKED": "is in use by another process; try again",
}
_LONGEST = 300


@contextmanager
def one_line(place: Place) -> Iterator[None]:
    """Turn whatever a database or its file gives into one of karat's errors."""
    try:
        yield
    except DBAPIError as error:
        raise InputError(_told(place, error), where=place.shown) from None
    except SQLAlchemyError as error:
        raise InputError(f"cannot be used ({type(error).__name__})", where=place.shown) from None
    except OSError as error:
        told = f"cannot be used: {error.strerror or type(error).__name__}"
        raise InputError(told, where=place.shown) from None


def _told(place: Place, error: DBAPIError) -> str:
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        name = getattr(cause, "sqlite_errorname", "")
        known = (text for start, text in _SQLITE.items() if name.startswith(start))
        return next(known, f"cannot be used: {cause}")
    # PostgreSQL adds the statement to its sentence, and has the sentence by itself.
    sentence = getattr(getattr(cause, "diag", None), "message_primary", None) or str(cause)
    reason = " ".join(sentence.split())[:_LONGEST] or type(cause).__name__
    if any(secret in reason for secret in place.secrets()):
        reason = "check the host, the database, the user and the password"
    return f"cannot be used: {reason}"
