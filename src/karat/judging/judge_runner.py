"""Asking a judge about every pair: side by side, again where that may help, in order.

Outcomes come back in the order of the pairs, whatever order they arrive in; each is in the
cache as soon as it is there, so that a stop costs no judgment that was made.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue

from karat.judging.judge_answers import Judge, JudgeGoneError, Judgment, Outcome, Unjudged
from karat.judging.judge_cache import JudgmentCache
from karat.judging.judge_journal import Task

# So many calls in a row that failed for a passing reason mean that the other side is gone;
# until one succeeds, calls are tried once only.
_GONE = 20
# So many that were refused before any was answered mean that all will be.
_REFUSED = 5
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
# The endpoint may ask for more than that, up to this; whoever asks for longer wants us gone.
LONGEST_ASKED = 300.0
# A shorter wait is over before anyone would wonder.
_WORTH_TELLING = 5.0
# Calls under way for each that runs: enough that a slow one does not hold up the rest.
_AHEAD = 4


@dataclass
class Tally:
    """What came of asking, for the summary at the end."""

    asked: int = 0
    cached: int = 0
    retried: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    untold: int = 0
    """Answers that did not say how many tokens they took."""


@dataclass(eq=False)
class Runner:
    """Asks a judge about every pair it is given."""

    judge: Judge
    concurrency: int = 1
    retries: int = 3
    cache: JudgmentCache | None = None
    tally: Tally = field(default_factory=Tally)
    waits: Callable[[float, str], None] = lambda seconds, why: None
    """Hears of waits that take long: for how many seconds, and why."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _failed_in_a_row: int = 0
    _refused: int = 0
    _answered: bool = False
    _last_failure: Unjudged | None = None
    _gone: JudgeGoneError | None = None
    _told_until: float = 0.0

    @property
    def unanswered(self) -> Unjudged | None:
        """The last failure, where calls were made and the endpoint answered none of them."""
        return None if self._answered else self._last_failure

    def outcomes(self, tasks: Iterable[Task]) -> Generator[tuple[Task, Outcome]]:
        """Each pair with what came of it, in the order given."""
        workers = _Workers(self.concurrency, self._judged)
        waiting: deque[tuple[Task, Future[Outcome]]] = deque()
        try:
            for task in tasks:
                waiting.append((task, workers.submit(task)))
                if len(waiting) >= self.concurrency * _AHEAD:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            self._stop.set()
            workers.stop()

    def _judged(self, task: Task) -> Outcome:
        for name, text in (("query", task.pair.query), ("item's text", task.pair.text)):
            if not text.strip():
                return Unjudged(f"the {name} is blank")
        found = None if self.cache is None else self.cache.get(task.key)
        if found is not None:
            with self._lock:
                self.tally.cached += 1
            return found
        outcome = self._tried(task)
        if self.cache is not None and isinstance(outcome, Judgment):
            self.cache.put(task.key, outcome)
        return outcome

    def _tried(self, task: Task) -> Outcome:
        """The outcome after as many tries as it takes and the limits allow."""
        with self._lock:
            self.tally.asked += 1
        tries = 0
        while True:
            if self._stop.is_set():
                raise self._gone or JudgeGoneError("stopped")
            outcome = self._once(task)
            if isinstance(outcome, Judgment) or not outcome.may_pass:
                return outcome
            if tries >= self.retries or self._failed_in_a_row >= _GONE:
                return outcome
            self._wait(_wait(tries, outcome.wait), outcome.reason)
            tries += 1
            with self._lock:
                self.tally.retried += 1

    def _wait(self, seconds: float, why: str) -> None:
        """Wait, and say so unless it is short or another call waits as long already."""
        now = time.monotonic()
        with self._lock:
            tell = seconds >= _WORTH_TELLING and now + seconds > self._told_until + _WORTH_TELLING
            self._told_until = now + seconds if tell else self._told_until
        if tell:
            self.waits(seconds, why)
        self._stop.wait(seconds)

    def _once(self, task: Task) -> Outcome:
        try:
            reply = self.judge.ask(task.pair)
        except JudgeGoneError as error:
            raise self._given_up(error) from None
        outcome, tokens = reply.outcome, reply.tokens
        with self._lock:
            if tokens is not None:
                self.tally.prompt_tokens += tokens.prompt
                self.tally.completion_tokens += tokens.completion
            elif _is_answer(outcome):
                self.tally.untold += 1
            self._note(outcome)
        return outcome

    def _note(self, outcome: Outcome) -> None:
        """Tell an endpoint that is gone, or that refuses everything, from a bad moment."""
        if isinstance(outcome, Unjudged) and (outcome.wait or 0.0) > LONGEST_ASKED:
            raise self._given_up(
                JudgeGoneError(
                    f"{outcome.reason} and asks to wait {outcome.wait:,.0f} s; karat waits"
                    f" {LONGEST_ASKED:g} s at most, so try again then"
                )
            )
        if _is_answer(outcome):
            self._answered, self._failed_in_a_row = True, 0
            return
        if isinstance(outcome, Unjudged):
            self._last_failure = outcome
        if isinstance(outcome, Unjudged) and outcome.may_pass:
            self._failed_in_a_row += 1
        elif isinstance(outcome, Unjudged) and outcome.refused and not self._answered:
            self._refused += 1
            if self._refused >= _REFUSED:
                raise self._given_up(
                    JudgeGoneError(
                        f"the first {_REFUSED} calls were all refused: {outcome.error}; correct "
                        "--model or what --body adds to every call"
                    )
                )

    def _given_up(self, error: JudgeGoneError) -> JudgeGoneError:
        """Stop the other calls, which fail for the same reason."""
        self._gone = self._gone or error
        self._stop.set()
        return error


def _is_answer(outcome: Outcome) -> bool:
    """Whether the endpoint took the request, whatever it made of it."""
    return isinstance(outcome, Judgment) or (outcome.status is None and not outcome.may_pass)


def _wait(tries: int, asked: float | None) -> float:
    """Twice as long each time, and at least as long as the other side asked for."""
    return max(min(_LONGEST_WAIT, _FIRST_WAIT * 2.0**tries), asked or 0.0)


class _Workers:
    """Threads that end with the process: Ctrl-C need not wait for calls under way."""

    def __init__(self, number: int, work: Callable[[Task], Outcome]) -> None:
        self._work = work
        self._number = number
        self._todo: SimpleQueue[tuple[Task, Future[Outcome]] | None] = SimpleQueue()
        for at in range(number):
            threading.Thread(target=self._serve, name=f"karat-judge-{at}", daemon=True).start()

    def submit(self, task: Task) -> Future[Outcome]:
        """Have a pair judged as soon as a thread is free."""
        future: Future[Outcome] = Future()
        self._todo.put((task, future))
        return future

    def stop(self) -> None:
        """Let every thread end after the call that it is at."""
        for _ in range(self._number):
            self._todo.put(None)

    def _serve(self) -> None:
        while (item := self._todo.get()) is not None:
            task, future = item
            try:
                future.set_result(self._work(task))
            except BaseException as error:
                # Whatever it is, it belongs to whoever waits for the result.
                future.set_exception(error)
