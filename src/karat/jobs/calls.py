"""Calls side by side: results in the order of the tasks, a few of them held at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

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
    threads = DaemonThreads("karat-call", most=concurrency)
    in_flight: deque[tuple[Task, Future[Outcome]]] = deque()
    try:
        for task in tasks:
            in_flight.append((task, threads.begin(partial(work, task))))
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


_Job = tuple[Callable[[], Any], Future[Any]]


class DaemonThreads:
    """Daemon threads that wait for work; of several that are idle, the oldest gets it.

    There are as many as there is work at once, at most ``most``. Ctrl-C need not wait for calls
    in flight, as it would with an executor.
    """

    def __init__(self, name: str, *, most: int | None = None) -> None:
        self._name = name
        self._most = most
        self._idle: dict[int, SimpleQueue[_Job | None]] = {}
        self._waiting: deque[_Job] = deque()
        self._lock = threading.Lock()
        self._started = 0
        self._stopped = False

    def begin(self, work: Callable[[], Outcome]) -> Future[Outcome]:
        """Have the work done; what it raises is raised by whoever asks for the result."""
        future: Future[Outcome] = Future()
        with self._lock:
            if self._idle:
                self._idle.pop(min(self._idle)).put((work, future))
            elif self._started == self._most:
                self._waiting.append((work, future))
            else:
                inbox: SimpleQueue[_Job | None] = SimpleQueue()
                inbox.put((work, future))
                name = f"{self._name}-{self._started}"
                arguments = (self._started, inbox)
                threading.Thread(target=self._serve, args=arguments, name=name, daemon=True).start()
                self._started += 1
        return future

    def stop(self) -> None:
        """Let every thread end after its current call; what waits is not begun."""
        with self._lock:
            self._stopped = True
            self._waiting.clear()
            idle, self._idle = self._idle, {}
        for inbox in idle.values():
            inbox.put(None)

    def _serve(self, number: int, inbox: SimpleQueue[_Job | None]) -> None:
        while (job := inbox.get()) is not None:
            work, future = job
            result: Any = None
            raised: BaseException | None = None
            try:
                result = work()
            except BaseException as error:
                raised = error
            # Before the caller continues, so that its next call comes to this thread too.
            with self._lock:
                if self._waiting:
                    inbox.put(self._waiting.popleft())
                elif self._stopped:
                    inbox.put(None)
                else:
                    self._idle[number] = inbox
            if raised is None:
                future.set_result(result)
            else:
                future.set_exception(raised)
            # Keep nothing of the call alive while waiting for the next.
            del job, work, future, result, raised
