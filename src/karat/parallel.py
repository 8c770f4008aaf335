"""Parallel map: one function over many items in threads, with results and errors in order."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from itertools import islice
from queue import SimpleQueue
from typing import TypeVar

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
    most = 1 if len(items) < 2 else at_once
    number = min(cores() if most is None else most, len(items))
    if number < 2:
        for item in items:
            begin(item)
            yield work(item)
        return
    tasks: SimpleQueue[tuple[Item, Future[Result]] | None] = SimpleQueue()
    futures: deque[Future[Result]] = deque()
    upcoming = iter(items)
    stopped = threading.Event()

    def submit(count: int) -> None:
        for item in islice(upcoming, count):
            futures.append(Future())
            tasks.put((item, futures[-1]))

    threads = [
        threading.Thread(target=_serve, args=(work, tasks, stopped), daemon=True)
        for _ in range(number)
    ]
    for thread in threads:
        thread.start()
    try:
        # Work is not begun far ahead of the results that are fetched.
        submit(2 * number)
        for item in items:
            begin(item)
            future = futures.popleft()
            # Python may notice a Ctrl-C only when a wait ends.
            while not future.done():
                wait((future,), timeout=1.0)
            submit(1)
            yield future.result()
    finally:
        stopped.set()
        for _ in threads:
            tasks.put(None)
        for thread in threads:
            thread.join(_PATIENCE)


def _serve(
    work: Callable[[Item], Result],
    tasks: SimpleQueue[tuple[Item, Future[Result]] | None],
    stopped: threading.Event,
) -> None:
    _thread.is_wanted = lambda: not stopped.is_set()
    while (task := tasks.get()) is not None and not stopped.is_set():
        item, future = task
        try:
            future.set_result(work(item))
        except BaseException as error:  # raised again where the result is fetched
            future.set_exception(error)


class _Cancelled(BaseException):
    """Ends work whose result is no longer wanted."""


def stop_if_cancelled() -> None:
    """End the work of this thread if its result is no longer wanted; call it between steps."""
    is_wanted: Callable[[], bool] | None = getattr(_thread, "is_wanted", None)
    if is_wanted is not None and not is_wanted():
        raise _Cancelled
