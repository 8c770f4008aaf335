"""Asking a system every query: side by side, not too fast, again where that may help.

Answers come back in the order of the queries, whatever order they arrive in, and only a
few of them are held at a time. A call that fails for good is an answer too.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from queue import SimpleQueue
from threading import Thread

from karat.errors import CallError
from karat.pacing import Pace
from karat.retrievers.protocol import Answer, Finder, Query, shares

# So many calls in a row that failed for a passing reason mean that the other side is gone;
# until one succeeds, calls are tried once only.
_GONE = 20
_FIRST_WAIT, _LONGEST_WAIT, _LONGEST_ASKED = 0.5, 30.0, 300.0
# Batches under way for each that runs: enough that a slow one does not hold up the rest.
_AHEAD = 4


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How a system may be called."""

    concurrency: int = 1
    batch: int = 1
    rate: float | None = None
    retries: int = 3


@dataclass(frozen=True, slots=True)
class Failed:
    """A call that failed for good, and why."""

    reason: str


@dataclass
class Tally:
    """What came of the calls, for the summary at the end."""

    asked: int = 0
    failed: int = 0
    kept: int = 0
    retried: int = 0
    short: int = 0
    unscored: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def note(self, outcome: Answer | Failed, k: int) -> None:
        """Count one call."""
        self.asked += 1
        if isinstance(outcome, Failed):
            self.fail(outcome)
            return
        self.short += len(outcome.hits) < k
        self.unscored += any(hit.score is None for hit in outcome.hits)

    def fail(self, outcome: Failed) -> None:
        """Count one failure with its reason."""
        self.failed += 1
        self.reasons[outcome.reason] += 1


_Task = tuple[list[Query], "Future[list[Answer | Failed]]"]


@dataclass(eq=False)
class Runner:
    """Calls a finder with every query it is given.

    ``there`` is how many items there are to be found, where that is known.
    """

    finder: Finder
    k: int
    limits: Limits
    redact: Callable[[str], str] = str
    there: int | None = None
    tally: Tally = field(default_factory=Tally)
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _in_a_row: int = 0
    _pace: Pace = field(init=False)

    def __post_init__(self) -> None:
        self._pace = Pace(self.limits.rate, self._stop)

    def outcomes(self, queries: Iterable[Query]) -> Iterator[tuple[Query, Answer | Failed]]:
        """Each query with what came of it, in the order given."""
        # A list of all that there is cannot be longer.
        full = self.k if self.there is None else min(self.k, self.there)
        for batch, outcomes in self._batches(iter(queries)):
            for query, outcome in zip(batch, outcomes, strict=True):
                self.tally.note(outcome, full)
                yield query, outcome

    def _batches(
        self, queries: Iterator[Query]
    ) -> Iterator[tuple[list[Query], list[Answer | Failed]]]:
        batches = iter(lambda: list(islice(queries, self.limits.batch)), [])
        if self.limits.concurrency == 1:
            for batch in batches:
                yield batch, self._call(batch)
            return
        workers = _Workers(self.limits.concurrency, self._call)
        waiting: deque[tuple[list[Query], Future[list[Answer | Failed]]]] = deque()
        try:
            for batch in batches:
                waiting.append((batch, workers.submit(batch)))
                if len(waiting) >= self.limits.concurrency * _AHEAD:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            self._stop.set()
            workers.stop()

    def _call(self, batch: Sequence[Query]) -> list[Answer | Failed]:
        """A batch; one that fails is asked query by query, so that only the guilty fail."""
        try:
            return list(self._tried(batch))
        except CallError as error:
            if len(batch) == 1:
                return [Failed(self.redact(" ".join(str(error).split())))]
        return [outcome for query in batch for outcome in self._call([query])]

    def _tried(self, batch: Sequence[Query]) -> list[Answer]:
        """The answers, after as many tries as it takes and the limits allow."""
        tries = 0
        while True:
            self._pace.wait()
            start = time.perf_counter()
            try:
                answers = self.finder.find(batch, self.k)
            except CallError as error:
                gone = self._note_failure(error)
                if not error.may_pass or gone or tries >= self.limits.retries:
                    raise
                self._stop.wait(_wait(tries, error.wait))
                tries += 1
                with self._lock:
                    self.tally.retried += 1
                continue
            self._in_a_row = 0
            elapsed = (time.perf_counter() - start) * 1000
            useful = elapsed - sum(answer.aside for answer in answers)
            for answer, took in zip(answers, shares(useful, answers), strict=True):
                answer.latency["total"] = took
            return answers

    def _note_failure(self, error: CallError) -> bool:
        """Whether the other side seems to be gone altogether."""
        with self._lock:
            self._in_a_row = self._in_a_row + 1 if error.may_pass else 0
        return self._in_a_row >= _GONE or self._stop.is_set()


class _Workers:
    """Threads that end with the process: Ctrl-C need not wait for calls under way."""

    def __init__(self, number: int, work: Callable[[list[Query]], list[Answer | Failed]]) -> None:
        self._work = work
        self._number = number
        self._todo: SimpleQueue[_Task | None] = SimpleQueue()
        for at in range(number):
            Thread(target=self._serve, name=f"karat-call-{at}", daemon=True).start()

    def submit(self, batch: list[Query]) -> Future[list[Answer | Failed]]:
        """Have a batch asked as soon as a thread is free."""
        future: Future[list[Answer | Failed]] = Future()
        self._todo.put((batch, future))
        return future

    def stop(self) -> None:
        """Let every thread end after the call that it is at."""
        for _ in range(self._number):
            self._todo.put(None)

    def _serve(self) -> None:
        while (task := self._todo.get()) is not None:
            batch, future = task
            try:
                future.set_result(self._work(batch))
            except BaseException as error:
                # Whatever it is, it belongs to whoever waits for the result.
                future.set_exception(error)


def _wait(tries: int, asked: float | None) -> float:
    """Twice as long each time, and at least as long as the other side asked for."""
    return max(min(_LONGEST_WAIT, _FIRST_WAIT * 2.0**tries), min(_LONGEST_ASKED, asked or 0.0))
