"""The same work on many things, several at a time, with results and errors as if in turn."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

Thing = TypeVar("Thing")
Result = TypeVar("Result")

# How long to wait for a step to end that is under way; what takes longer is left behind.
_PATIENCE = 5.0
# What the thread that asks works for, if it is one of these here.
_own = threading.local()


def cores() -> int:
    """How many processors this process may use."""
    # Where a process cannot be bound to some of them, it may use all.
    own = getattr(os, "sched_getaffinity", None)
    return (os.cpu_count() or 1) if own is None else len(own(0))


def abreast(
    work: Callable[[Thing], Result],
    things: Sequence[Thing],
    *,
    at_once: int | None = None,
    begin: Callable[[Thing], None] = lambda thing: None,
) -> Iterator[Result]:
    """The result for each thing, in the order of the things.

    So many are worked on ``at_once``, as many as there are processors unless said; of errors the
    one is raised whose thing comes first, and no work goes on after it that asks ``go_on`` from
    time to time. ``begin`` is called with each thing when all before it are done.

    >>> list(abreast(len, ["a", "bcd", "ef"]))
    [1, 3, 2]
    """
    number = min(cores() if at_once is None else at_once, len(things))
    if number < 2:
        for thing in things:
            begin(thing)
            yield work(thing)
        return
    crew = _Crew(work, things, number)
    try:
        for place, thing in enumerate(things):
            begin(thing)
            yield crew.result(place)
    finally:
        crew.stop()


class _Unwanted(BaseException):
    """Ends work whose result nobody waits for any more."""


def go_on() -> None:
    """To be called between the steps of long work: ends it here if its result is not wanted."""
    wanted: Callable[[], bool] | None = getattr(_own, "wanted", None)
    if wanted is not None and not wanted():
        raise _Unwanted


class _Crew(Generic[Thing, Result]):
    """Threads that take the things one after the other, and not far ahead of who wants them."""

    def __init__(self, work: Callable[[Thing], Result], things: Sequence[Thing], size: int) -> None:
        self._work, self._things = work, things
        self._next = self._fetched = 0
        self._stopped = False
        self._done: dict[int, tuple[Any, BaseException | None]] = {}
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._labour, daemon=True) for _ in range(size)]
        for thread in self._threads:
            thread.start()

    def result(self, place: int) -> Result:
        """What came of one thing; raises what its work raised."""
        with self._changed:
            self._changed.wait_for(lambda: place in self._done)
            value, error = self._done.pop(place)
            self._fetched = place + 1
            self._changed.notify_all()
        if error is not None:
            raise error
        result: Result = value
        return result

    def stop(self) -> None:
        """End all work; what is under way ends with its step."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(_PATIENCE)

    def _labour(self) -> None:
        _own.wanted = lambda: not self._stopped
        while (place := self._take()) is not None:
            value: Any = None
            failed: BaseException | None = None
            try:
                value = self._work(self._things[place])
            except BaseException as error:  # raised again by whoever wants the result
                failed = error
            with self._changed:
                self._done[place] = value, failed
                self._changed.notify_all()

    def _take(self) -> int | None:
        with self._changed:
            ahead = 2 * len(self._threads)
            self._changed.wait_for(lambda: self._stopped or self._next < self._fetched + ahead)
            if self._stopped or self._next >= len(self._things):
                return None
            self._next += 1
            return self._next - 1
