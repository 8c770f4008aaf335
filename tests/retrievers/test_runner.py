"""The runner: order, concurrency, rate, retries, and failures that are counted, never zero."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import ClassVar

import pytest

from karat.errors import CallError
from karat.jobs import calls
from karat.retrieve.protocol import Answer, Hit, Query
from karat.retrieve.search import CallRunner, FailedCall


class Scripted:
    """A finder that does what a function says, and notes what it was asked when."""

    batch = 1
    concurrency = 1
    deep = False
    meta: ClassVar[dict[str, object]] = {}

    def __init__(self, act):
        self.act = act
        self.asked = []
        self.running = self.most = 0
        self.lock = threading.Lock()

    def find(self, queries, k):
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.asked.append((time.monotonic(), [query.query_id for query in queries]))
        try:
            return [Answer(self.act(query)) for query in queries]
        finally:
            with self.lock:
                self.running -= 1


def queries(n):
    return [Query(f"q{i}", f"text {i}") for i in range(n)]


def outcomes(finder, n, **limits):
    runner = CallRunner(finder.find, 10, **limits)
    return runner, list(runner.outcomes(queries(n)))


@pytest.mark.parametrize("concurrency", [1, 2, 16])
def test_answers_come_in_the_order_of_the_queries_whatever_the_concurrency(concurrency):
    def act(query):
        time.sleep(0.001 * (hash(query.query_id) % 7))
        return [Hit(query.query_id)]

    _, got = outcomes(Scripted(act), 60, concurrency=concurrency)
    assert [query.query_id for query, _ in got] == [f"q{i}" for i in range(60)]
    assert all(answer.hits == [Hit(query.query_id)] for query, answer in got)


def test_as_many_calls_run_at_once_as_allowed_and_no_more():
    gate = threading.Barrier(4, timeout=10)

    def act(query):
        gate.wait()
        return []

    finder = Scripted(act)
    outcomes(finder, 8, concurrency=4)
    assert finder.most == 4


def test_queries_are_not_read_far_ahead_of_the_answers():
    taken = []

    def some():
        for query in queries(1000):
            taken.append(query)
            yield query

    runner = CallRunner(Scripted(lambda query: []).find, 10, concurrency=2)
    got = runner.outcomes(some())
    next(got)
    assert len(taken) <= 10
    got.close()


def test_a_rate_is_kept():
    finder = Scripted(lambda query: [])
    outcomes(finder, 11, concurrency=8, rate=50)
    times = sorted(at for at, _ in finder.asked)
    # Eleven calls at 50 a second have ten gaps of 20 ms.
    assert times[-1] - times[0] >= 0.195


def test_what_may_pass_later_is_tried_again_and_counted(monkeypatch):
    monkeypatch.setattr("karat.jobs.calls._FIRST_WAIT", 0.01)
    left = {"q1": 2}

    def act(query):
        if left.get(query.query_id, 0):
            left[query.query_id] -= 1
            raise CallError("busy", may_pass=True)
        return [Hit("d")]

    runner, got = outcomes(Scripted(act), 3)
    assert [len(answer.hits) for _, answer in got] == [1, 1, 1]
    assert (runner.tally.retried, runner.tally.failed) == (2, 0)


def test_waits_double_and_respect_what_the_server_asks_for(monkeypatch):
    monkeypatch.setattr("karat.jobs.calls._FIRST_WAIT", 0.04)
    waits = iter([None, None, 0.3])

    def act(query):
        try:
            raise CallError("busy", may_pass=True, wait=next(waits))
        except StopIteration:
            return []

    told: list[float] = []

    def noted(tries, asked):
        told.append(wait(tries, asked))
        return told[-1]

    wait = calls.retry_wait
    monkeypatch.setattr(calls, "retry_wait", noted)
    finder = Scripted(act)
    outcomes(finder, 1, retries=3)
    # What is waited is exact; how long it takes is up to the machine, but never less.
    assert told == [0.04, 0.08, 0.3]
    times = [at for at, _ in finder.asked]
    gaps = [after - before for before, after in pairwise(times)]
    assert len(gaps) == 3
    assert all(gap >= waited for gap, waited in zip(gaps, told, strict=True))


def test_what_will_not_pass_is_not_tried_again():
    finder = Scripted(lambda query: (_ for _ in ()).throw(CallError("no such index")))
    runner, got = outcomes(finder, 2, retries=5)
    assert [outcome for _, outcome in got] == [FailedCall("no such index")] * 2
    assert len(finder.asked) == 2
    assert runner.tally.reasons == {"no such index": 2}


def test_a_server_that_is_gone_does_not_cost_the_waits_of_every_call(monkeypatch):
    monkeypatch.setattr("karat.jobs.calls._FIRST_WAIT", 0.01)

    def act(query):
        raise CallError("connection refused", may_pass=True)

    finder = Scripted(act)
    runner, got = outcomes(finder, 200, retries=3)
    assert runner.tally.failed == len(got) == 200
    # After twenty failures in a row each call is tried once only.
    assert len(finder.asked) < 20 + 200


def test_in_a_batch_only_the_guilty_query_fails():
    def act(query):
        if query.query_id == "q2":
            raise CallError("bad query")
        return [Hit("d")]

    _, got = outcomes(Scripted(act), 5, batch=5)
    assert [isinstance(outcome, FailedCall) for _, outcome in got] == [
        False,
        False,
        True,
        False,
        False,
    ]


def test_a_bug_in_a_retriever_is_not_a_failed_call():
    with pytest.raises(ZeroDivisionError):
        outcomes(Scripted(lambda query: 1 / 0), 1)
    with pytest.raises(ZeroDivisionError):
        outcomes(Scripted(lambda query: 1 / 0), 4, concurrency=2)


def test_fewer_hits_than_k_and_missing_scores_are_counted():
    runner, _ = outcomes(Scripted(lambda query: [Hit("a", 1.0), Hit("b", None)]), 3)
    assert (runner.tally.short, runner.tally.unscored) == (3, 3)


def test_secrets_are_taken_out_of_reasons():
    finder = Scripted(lambda query: (_ for _ in ()).throw(CallError("key hunter2 is wrong")))
    runner = CallRunner(finder.find, 10, redact=lambda text: text.replace("hunter2", "${KEY}"))
    [(_, outcome)] = list(runner.outcomes(queries(1)))
    assert outcome == FailedCall("key ${KEY} is wrong")
