"""Calls: at a limited rate, and repeated after a wait where they may pass."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TypeVar

from karat.errors import CallError

Outcome = TypeVar("Outcome")

# After this many passing failures in a row the service counts as gone: calls are tried once.
GONE_AFTER = 20
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
# The longest wait that a service may ask for, in seconds.
LONGEST_ASKED = 300.0


@dataclass(eq=False)
class RateLimit:
    """Lets calls begin at most ``rate`` times a second, from any number of threads."""

    rate: float | None
    stop: threading.Event = field(default_factory=threading.Event)
    _next: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wait(self) -> None:
        """Return when the next call may begin, or at once when ``stop`` is set."""
        if self.rate is None:
            return
        with self._lock:
            now = time.monotonic()
            begin = max(self._next, now)
            self._next = begin + 1 / self.rate
        self.stop.wait(begin - now)


@dataclass(eq=False)
class Retries:
    """Repeats calls that may pass, at most ``most`` times each, from any number of threads.

    ``before_wait`` gets the failure and the seconds before each repetition. When too many calls
    in a row have failed, the service counts as gone and calls are tried once.
    """

    most: int
    before_wait: Callable[[CallError, float], None]
    stop: threading.Event = field(default_factory=threading.Event)
    _failed_in_a_row: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, attempt: Callable[[], Outcome]) -> Outcome:
        """Return what a call returns; raises the last CallError."""
        tries = 0
        while True:
            try:
                outcome = attempt()
            except CallError as error:
                with self._lock:
                    self._failed_in_a_row = self._failed_in_a_row + 1 if error.may_pass else 0
                gone = self._failed_in_a_row >= GONE_AFTER or self.stop.is_set()
                if not error.may_pass or gone or tries >= self.most:
                    raise
                seconds = retry_wait(tries, min(LONGEST_ASKED, error.wait or 0.0))
                with self._lock:
                    self.before_wait(error, seconds)
                self.stop.wait(seconds)
                tries += 1
            else:
                self._failed_in_a_row = 0
                return outcome


def retry_wait(tries: int, least: float = 0.0) -> float:
    """Return the seconds before retry number ``tries``, counted from 0.

    The wait doubles each time up to 30 s, and is at least what the service asked for.

    >>> [retry_wait(tries) for tries in (0, 1, 10)], retry_wait(0, least=4.0)
    ([0.5, 1.0, 30.0], 4.0)
    """
    return max(min(_LONGEST_WAIT, _FIRST_WAIT * 2.0**tries), least)


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return the seconds that a Retry-After header asks for, given as a number or as a date.

    A date is read by the clock of the service if it sends one (``Date``), else by ``now``, a
    Unix time. Header names are in lower case. None if there is no such header, or none that
    can be read.

    >>> retry_after({"retry-after": "1.5"})
    1.5
    >>> retry_after({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, now=20)
    40.0
    >>> day = "Fri, 02 Jan 1970 00:{}:00 GMT"
    >>> retry_after({"retry-after": day.format("03"), "date": day.format("01")})
    120.0
    """
    text = headers.get("retry-after", "").strip()
    try:
        seconds = float(text)
    except ValueError:
        until = _unix_time(text)
        if until is None:
            return None
        clock = _unix_time(headers.get("date", ""))
        clock = clock if clock is not None else time.time() if now is None else now
        seconds = max(0.0, until - clock)
    return seconds if 0 <= seconds < float("inf") else None


def _unix_time(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError):
        return None
