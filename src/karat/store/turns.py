"""Writers of one process wait in line; what other processes do is no part of it."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class NoTurnError(Exception):
    """Nobody before this one got on for too long."""


class Turns:
    """A queue of writers, of whom so many write at once.

    SQLite gives its lock to whoever happens to ask when it is free; of many who ask, some never
    get it. Here everybody waits in line, and only the first asks SQLite. On a server those who
    write, and wait for each other there, leave connections to those who read.
    """

    def __init__(self, at_once: int, patience: float) -> None:
        self._at_once, self._patience = at_once, patience
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._line: deque[threading.Event] = deque()
        self._taken = 0
        self._got_on = 0.0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait in line; gives up when nobody got on for as long as the patience lasts."""
        if self._process != os.getpid():
            # After a fork: whoever had a turn is a thread of the parent.
            self._begin_anew()
        self._take()
        try:
            yield
        finally:
            self._pass_on()

    def got_on(self) -> None:
        """Tell those in line that their waiting is not in vain."""
        self._got_on = time.monotonic()

    @property
    def wanted(self) -> bool:
        """Whether somebody waits in line."""
        return bool(self._line)

    def _take(self) -> None:
        with self._lock:
            if self._taken < self._at_once:
                self._taken += 1
                return
            mine = threading.Event()
            self._line.append(mine)
        since = time.monotonic()
        while not mine.wait(max(0.0, self._ends(since) - time.monotonic())):
            with self._lock:
                if not mine.is_set() and self._ends(since) <= time.monotonic():
                    self._line.remove(mine)
                    raise NoTurnError

    def _ends(self, since: float) -> float:
        return max(since, self._got_on) + self._patience

    def _pass_on(self) -> None:
        with self._lock:
            if self._line:
                self._line.popleft().set()
            else:
                self._taken -= 1
