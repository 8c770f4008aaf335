"""Work in threads: results and errors come in order, and threads wait for the next work."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

Task = TypeVar("Task")
Outcome = TypeVar("Outcome")

# Tasks in flight for each thread: enough that a slow one does not hold up the others.
_AHEAD = 4
# Seconds that a map which ends early waits for running work; longer work is left behind.
_PATIENCE = 5.0
# In a thread of a map: the event that is set when its result is no longer wanted.
_thread = threading.local()


def cores() -> int:
    """Return how many processors this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return (os.cpu_count() or 1) if affinity is None else len(affinity(0))


def parallel_map(
    work: Callable[[Task], Outcome],
    items: Sequence[Task],
    *,
    at_once: int | None = None,
    begin: Callable[[Task], None] = lambda item: None,
) -> Iterator[Outcome]:
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
    stop = threading.Event()

    def cancellable(item: Task) -> Outcome:
        _thread.stop = stop
        return work(item)

    outcomes = in_order(cancellable, items, concurrency=number, stop=stop, patience=_PATIENCE)
    with closing(outcomes):
        for item in items:
            begin(item)
            yield next(outcomes)[1]


class _Cancelled(BaseException):
    """Ends work whose result is no longer wanted."""


def stop_if_cancelled() -> None:
    """End the work of this thread if its result is no longer wanted; call it between steps."""
    stop: threading.Event | None = getattr(_thread, "stop", None)
    if stop is not None and stop.is_set():
        raise _Cancelled


def in_order(
    work: Callable[[Task], Outcome],
    tasks: Iterable[Task],
    *,
    concurrency: int = 1,
    stop: threading.Event | None = None,
    patience: float = 0.0,
) -> Generator[tuple[Task, Outcome]]:
    """Yield each task with its outcome, in the order of the tasks.

    Tasks are taken from the iterable as they are needed, in the caller's thread. What a task
    raises is raised when its turn comes. ``stop`` is set when the caller leaves early or the
    work is done, so that waiting calls can give up; running ones get ``patience`` seconds to
    end. With ``concurrency=1`` no thread is started, and ``stop`` is left alone.

    >>> list(in_order(len, ["a", "bcd", "ef"], concurrency=2))
    [('a', 1), ('bcd', 3), ('ef', 2)]
    """
    if concurrency == 1:
        for task in tasks:
            yield task, work(task)
        return
    threads = DaemonThreads("karat-call", most=concurrency)
    in_flight: deque[tuple[Task, Future[Outcome]]] = deque()
    try:
        for task in tasks:
            in_flight.append((task, threads.begin(partial(work, task))))
            if len(in_flight) >= concurrency * _AHEAD:
                yield _first_of(in_flight)
        while in_flight:
            yield _first_of(in_flight)
    finally:
        if stop is not None:
            stop.set()
        threads.stop()
        threads.join(patience)


def _first_of(in_flight: deque[tuple[Task, Future[Outcome]]]) -> tuple[Task, Outcome]:
    task, future = in_flight.popleft()
    # Python may notice a Ctrl-C only when a wait ends.
    while not future.done():
        wait((future,), timeout=1.0)
    return task, future.result()


_Job = tuple[Callable[[], Any], Future[Any]]


class DaemonThreads:
    """Daemon threads that wait for work, as many as there is work at once, at most ``most``.

    Ctrl-C need not wait for calls in flight, as it would with an executor.
    """

    def __init__(self, name: str, *, most: int | None = None) -> None:
        self._name = name
        self._most = most
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._lock = threading.Lock()
        self._stopped = False

    def begin(self, work: Callable[[], Outcome]) -> Future[Outcome]:
        """Have the work done; what it raises is raised by whoever asks for the result."""
        future: Future[Outcome] = Future()
        self._jobs.put((work, future))
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif len(self._threads) != self._most:
                name = f"{self._name}-{len(self._threads)}"
                thread = threading.Thread(target=self._serve, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
        return future

    def stop(self) -> None:
        """Let every thread end after its current call; what waits is not begun."""
        self._stopped = True
        for _ in self._threads:
            self._jobs.put(None)

    def join(self, patience: float) -> None:
        """Wait at most so many seconds for each thread to end."""
        for thread in self._threads:
            thread.join(patience)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None and not self._stopped:
            work, future = job
            try:
                settle = partial(future.set_result, work())
            except BaseException as error:
                settle = partial(future.set_exception, error)
            # Before the caller continues, so that its next call needs no further thread.
            with self._lock:
                self._idle += 1
            settle()
            # Keep nothing of the call alive while waiting for the next.
            del job, work, future, settle
