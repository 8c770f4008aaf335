"""Calls side by side: results in the order of the tasks, a few of them held at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Generic, TypeVar

Task = TypeVar("Task")
Outcome = TypeVar("Outcome")

# Tasks in flight for each thread: enough that a slow one does not hold up the others.
_AHEAD = 4


def in_order(
    work: Callable[[Task], Outcome],
    tasks: Iterable[Task],
    *,
    concurrency: int = 1,
    stop: threading.Event | None = None,
) -> Generator[tuple[Task, Outcome]]:
    """Yield each task with its outcome, in the order of the tasks.

    Tasks are taken from the iterable as they are needed, in the caller's thread. What a task
    raises is raised when its turn comes. ``stop`` is set when the caller leaves early or the
    work is done, so that waiting calls can give up. With ``concurrency=1`` no thread is started,
    and ``stop`` is left alone.

    >>> list(in_order(len, ["a", "bcd", "ef"], concurrency=2))
    [('a', 1), ('bcd', 3), ('ef', 2)]
    """
    if concurrency == 1:
        for task in tasks:
            yield task, work(task)
        return
    threads = _Threads(concurrency, work)
    in_flight: deque[tuple[Task, Future[Outcome]]] = deque()
    try:
        for task in tasks:
            in_flight.append((task, threads.submit(task)))
            if len(in_flight) >= concurrency * _AHEAD:
                first, future = in_flight.popleft()
                yield first, future.result()
        while in_flight:
            first, future = in_flight.popleft()
            yield first, future.result()
    finally:
        if stop is not None:
            stop.set()
        threads.stop()


class _Threads(Generic[Task, Outcome]):
    """Daemon threads: Ctrl-C need not wait for calls in flight, as it would with an executor."""

    def __init__(self, number: int, work: Callable[[Task], Outcome]) -> None:
        self._work = work
        self._number = number
        self._inbox: SimpleQueue[tuple[Task, Future[Outcome]] | None] = SimpleQueue()
        for index in range(number):
            threading.Thread(target=self._serve, name=f"karat-call-{index}", daemon=True).start()

    def submit(self, task: Task) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        self._inbox.put((task, future))
        return future

    def stop(self) -> None:
        """Let every thread end after its current call."""
        for _ in range(self._number):
            self._inbox.put(None)

    def _serve(self) -> None:
        while (message := self._inbox.get()) is not None:
            task, future = message
            try:
                future.set_result(self._work(task))
            except BaseException as error:
                # Raised again by whoever asks for the result.
                future.set_exception(error)
