"""Calls: side by side with results in order, at a limited rate, and the waits before retries."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from karat.errors import CallError

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


def retry_wait(tries: int, asked: float | None = None) -> float:
    """Return the seconds before retry number ``tries``, counted from 0.

    The wait doubles each time up to 30 s, and is at least what the service asked for.

    >>> [retry_wait(tries) for tries in (0, 1, 10)], retry_wait(0, asked=4.0)
    ([0.5, 1.0, 30.0], 4.0)
    """
    return max(min(_LONGEST_WAIT, _FIRST_WAIT * 2.0**tries), asked or 0.0)


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
