"""The runner: asks a system every query, within limits, with retries, in the order of the queries.

A call that fails for good is an outcome too: a FailedCall.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from karat.errors import CallError
from karat.jobs.calls import in_order
from karat.jobs.rate_limit import GONE_AFTER, LONGEST_ASKED, RateLimit, retry_wait
from karat.retrieve.protocol import Answer, Query, shares


@dataclass(frozen=True, kw_only=True)
class CallLimits:
    """How a system may be called."""

    concurrency: int = 1
    batch: int = 1
    rate: float | None = None
    retries: int = 3


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call that failed for good, and why."""

    reason: str


class Searcher(Protocol):
    """What a runner calls: queries in, one answer for each."""

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]: ...


@dataclass
class Tally:
    """Counts of calls and their outcomes, for the summary."""

    asked: int = 0
    failed: int = 0
    kept: int = 0
    retried: int = 0
    short: int = 0
    unscored: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def note(self, outcome: Answer | FailedCall, k: int) -> None:
        """Count one call."""
        self.asked += 1
        if isinstance(outcome, FailedCall):
            self.fail(outcome)
            return
        self.short += len(outcome.hits) < k
        self.unscored += any(hit.score is None for hit in outcome.hits)

    def fail(self, outcome: FailedCall) -> None:
        """Count one failure with its reason."""
        self.failed += 1
        self.reasons[outcome.reason] += 1


@dataclass(eq=False)
class Runner:
    """Calls a finder with every query it is given.

    ``corpus_size`` is the number of items that can be found, where that is known.
    """

    finder: Searcher
    k: int
    limits: CallLimits
    redact: Callable[[str], str] = str
    corpus_size: int | None = None
    tally: Tally = field(default_factory=Tally)
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _failures_in_a_row: int = 0
    _rate_limit: RateLimit = field(init=False)

    def __post_init__(self) -> None:
        self._rate_limit = RateLimit(self.limits.rate, self._stop)

    def outcomes(self, queries: Iterable[Query]) -> Iterator[tuple[Query, Answer | FailedCall]]:
        """Yield each query with its outcome, in the order given."""
        # A list of the whole corpus cannot be longer.
        full = self.k if self.corpus_size is None else min(self.k, self.corpus_size)
        remaining = iter(queries)
        batches = iter(lambda: list(islice(remaining, self.limits.batch)), [])
        concurrency = self.limits.concurrency
        for batch, outcomes in in_order(
            self._call, batches, concurrency=concurrency, stop=self._stop
        ):
            for query, outcome in zip(batch, outcomes, strict=True):
                self.tally.note(outcome, full)
                yield query, outcome

    def _call(self, batch: Sequence[Query]) -> list[Answer | FailedCall]:
        """Ask a batch; if it fails, ask query by query, so that only the guilty ones fail."""
        try:
            return list(self._retried(batch))
        except CallError as error:
            if len(batch) == 1:
                return [FailedCall(self.redact(" ".join(str(error).split())))]
        return [outcome for query in batch for outcome in self._call([query])]

    def _retried(self, batch: Sequence[Query]) -> list[Answer]:
        """Return the answers, after as many tries as needed and allowed."""
        tries = 0
        while True:
            self._rate_limit.wait()
            start = time.perf_counter()
            try:
                answers = self.finder.find(batch, self.k)
            except CallError as error:
                gone = self._count_failure(error)
                if not error.may_pass or gone or tries >= self.limits.retries:
                    raise
                self._stop.wait(retry_wait(tries, min(LONGEST_ASKED, error.wait or 0.0)))
                tries += 1
                with self._lock:
                    self.tally.retried += 1
                continue
            self._failures_in_a_row = 0
            elapsed = (time.perf_counter() - start) * 1000
            useful = elapsed - sum(answer.aside for answer in answers)
            for answer, ms in zip(answers, shares(useful, answers), strict=True):
                answer.latency["total"] = ms
            return answers

    def _count_failure(self, error: CallError) -> bool:
        """Return whether the service seems to be gone altogether."""
        with self._lock:
            self._failures_in_a_row = self._failures_in_a_row + 1 if error.may_pass else 0
        return self._failures_in_a_row >= GONE_AFTER or self._stop.is_set()
