"""The time that a report may hold: given, never taken from the clock."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from karat.errors import UsageError
from karat.reports.outputs import Output

_EPOCH = "SOURCE_DATE_EPOCH"


def stamp(
    given: str | None, outputs: Sequence[Output], environ: Mapping[str, str] = os.environ
) -> str | None:
    """``--timestamp``, else the environment's SOURCE_DATE_EPOCH, else none; always in UTC.

    >>> stamp(None, [], {})
    """
    wanted = any(output.form.stamped for output in outputs)
    if given is None:
        epoch = environ.get(_EPOCH, "")
        return _of_epoch(epoch) if wanted and epoch else None
    if not wanted:
        raise UsageError("--timestamp is for -o memory:FILE; no other output holds a time")
    try:
        when = datetime.fromisoformat(given)
        # A time without a zone is one in UTC, and a date alone its midnight.
        return _spelled(when.replace(tzinfo=when.tzinfo or UTC).astimezone(UTC))
    except (ValueError, OverflowError):
        raise UsageError(f"--timestamp is {given!r}; write it as 2026-01-31T12:00:00Z") from None


def _of_epoch(text: str) -> str:
    try:
        when = datetime.fromtimestamp(int(text), UTC)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{_EPOCH} is {text!r}; it is a whole number of seconds since 1970, as date +%s prints"
        ) from None
    return _spelled(when)


def _spelled(when: datetime) -> str:
    return f"{when.replace(tzinfo=None).isoformat(timespec='seconds')}Z"
