"""Parallel map: one function over many items in threads, with results and errors in order."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# Seconds to wait for running steps when the map ends early; longer ones are left behind.
_PATIENCE = 5.0
# In a worker thread: whether its result is still wanted.
_thread = threading.local()


def cores() -> int:
    """Return how many processors this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return (os.cpu_count() or 1) if affinity is None else len(affinity(0))


def parallel_map(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    at_once: int | None = None,
    begin: Callable[[Item], None] = lambda item: None,
) -> Iterator[Result]:
    """Yield the result for each item, in the order of the items.

    ``at_once`` items are worked on together, by default one per processor. Raises the error of
    the earliest item; work that calls ``stop_if_cancelled`` now and then ends soon after it.
    ``begin`` is called with each item when all items before it are done.

    >>> list(parallel_map(len, ["a", "bcd", "ef"]))
    [1, 3, 2]
    """
    number = min(cores() if at_once is None else at_once, len(items))
    if number < 2:
        for item in items:
            begin(item)
            yield work(item)
        return
    workers = _Workers(work, items, number)
    try:
        for index, item in enumerate(items):
            begin(item)
            yield workers.result(index)
    finally:
        workers.stop()


class _Cancelled(BaseException):
    """Ends work whose result is no longer wanted."""


def stop_if_cancelled() -> None:
    """End the work of this thread if its result is no longer wanted; call it between steps."""
    is_wanted: Callable[[], bool] | None = getattr(_thread, "is_wanted", None)
    if is_wanted is not None and not is_wanted():
        raise _Cancelled


class _Workers(Generic[Item, Result]):
    """Threads that take items in order, and not far ahead of the results that are asked for."""

    def __init__(self, work: Callable[[Item], Result], items: Sequence[Item], size: int) -> None:
        self._work, self._items = work, items
        self._next = self._fetched = 0
        self._stopped = False
        self._done: dict[int, tuple[Any, BaseException | None]] = {}
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(size)]
        for thread in self._threads:
            thread.start()

    def result(self, index: int) -> Result:
        """Return the result of an item, or raise the error of its work."""
        with self._changed:
            self._changed.wait_for(lambda: index in self._done)
            value, error = self._done.pop(index)
            self._fetched = index + 1
            self._changed.notify_all()
        if error is not None:
            raise error
        result: Result = value
        return result

    def stop(self) -> None:
        """End all work; running steps are waited for a while."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(_PATIENCE)

    def _serve(self) -> None:
        _thread.is_wanted = lambda: not self._stopped
        while (index := self._take()) is not None:
            value: Any = None
            failed: BaseException | None = None
            try:
                value = self._work(self._items[index])
            except BaseException as error:  # raised again by whoever asks for the result
                failed = error
            with self._changed:
                self._done[index] = value, failed
                self._changed.notify_all()

    def _take(self) -> int | None:
        with self._changed:
            ahead = 2 * len(self._threads)
            self._changed.wait_for(lambda: self._stopped or self._next < self._fetched + ahead)
            if self._stopped or self._next >= len(self._items):
                return None
            self._next += 1
            return self._next - 1
