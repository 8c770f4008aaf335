"""Calls into code that is not karat's: no longer than the time-out, and failures in one line.

A call cannot be stopped from outside, so one that takes too long is left behind in its
thread, and the next one gets another.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from typing import Any, TypeVar

from karat.errors import CallError, KaratError, UsageError
from karat.retrievers.callables import words_of

T = TypeVar("T")
# Makes the context that code runs in.
Around = Callable[[], AbstractContextManager[Any]]

_LONGEST = 300
# Classes of many libraries (httpx, requests, openai, redis, …) whose cause may pass by itself.
_PASSING = frozenset(
    (
        "APIConnectionError",
        "ConnectionError",
        "RateLimitError",
        "Timeout",
        "TimeoutError",
        "TransportError",
    )
)


def may_pass(error: BaseException) -> bool:
    """Whether the same call may succeed later: nobody answered, or not in time."""
    return any(kind.__name__ in _PASSING for kind in type(error).__mro__)


def said(error: BaseException, redact: Callable[[str], str]) -> str:
    """What an exception says in one line; secrets go before it is cut, so that none is halved."""
    text = " ".join(redact(words_of(error)).split())
    return f"{type(error).__name__}: {text[:_LONGEST]}" if text else type(error).__name__


class Foreign:
    """Where someone else's code runs: ``name`` is what messages call it.

    As long as calls come one at a time and in time, all of them run in one thread, the
    one that loaded the code; some libraries' objects work nowhere else.
    """

    def __init__(
        self,
        name: str,
        seconds: float,
        redact: Callable[[str], str],
        *,
        again: bool = False,
        around: Around = nullcontext,
    ) -> None:
        self.name = name
        self.seconds = seconds
        self.redact = redact
        # Whether a call that took too long is worth another try.
        self._again = again
        self._around = around
        self._threads = _Threads()
        weakref.finalize(self, self._threads.stop)

    def load(self, work: Callable[[], T], *, done: str = "made") -> T:
        """What must be done before the first call, told by ``done``; it may take its time."""
        try:
            return self._begin(work).result()
        except (KaratError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise UsageError(
                f"{self.name} failed while it was {done}: {said(error, self.redact)}"
            ) from error

    def call(self, work: Callable[[], T]) -> T:
        """What the work gives; whatever it raises but Ctrl-C is a failed call."""
        future = self._begin(work)
        try:
            error = future.exception(self.seconds)
        except TimeoutError:
            raise CallError(
                f"{self.name} took longer than {self.seconds:g} s; find out why, or raise timeout",
                may_pass=self._again,
            ) from None
        if error is None:
            return future.result()
        if isinstance(error, KeyboardInterrupt):
            raise error
        if isinstance(error, CallError):
            raise error.saying(self.redact(str(error))) from error
        told = f"{self.name} raised {said(error, self.redact)}"
        raise CallError(told, may_pass=may_pass(error)) from error

    def _begin(self, work: Callable[[], T]) -> Future[T]:
        around = self._around

        def inside() -> T:
            with around():
                return work()

        return self._threads.begin(inside)


_Job = tuple[Callable[[], Any], Future[Any]]


class _Threads:
    """Threads that wait for work; the first of those that wait is asked."""

    def __init__(self) -> None:
        self._idle: dict[int, SimpleQueue[_Job | None]] = {}
        self._lock = threading.Lock()
        self._begun = 0
        self._stopped = False

    def begin(self, work: Callable[[], T]) -> Future[T]:
        """Have the work done; the future tells what came of it."""
        future: Future[T] = Future()
        with self._lock:
            if self._idle:
                inbox = self._idle.pop(min(self._idle))
            else:
                inbox = SimpleQueue()
                self._start(inbox)
        inbox.put((work, future))
        return future

    def stop(self) -> None:
        """Let the threads end, each when it has nothing left to do."""
        with self._lock:
            self._stopped = True
            idle, self._idle = self._idle, {}
        for inbox in idle.values():
            inbox.put(None)

    def _start(self, inbox: SimpleQueue[_Job | None]) -> None:
        number = self._begun
        self._begun += 1

        def wait_again() -> None:
            with self._lock:
                if not self._stopped:
                    self._idle[number] = inbox
                    return
            inbox.put(None)

        threading.Thread(
            target=_serve, args=(inbox, wait_again), name=f"karat-foreign-{number}", daemon=True
        ).start()


def _serve(inbox: SimpleQueue[_Job | None], wait_again: Callable[[], None]) -> None:
    while (job := inbox.get()) is not None:
        work, future = job
        given: Any = None
        raised: BaseException | None = None
        try:
            given = work()
        except BaseException as error:
            raised = error
        # Waiting again before the caller goes on, so that its next call comes here too.
        wait_again()
        if raised is None:
            future.set_result(given)
        else:
            future.set_exception(raised)
        # Nothing of the call is kept alive while there is none.
        del job, work, future, given, raised
