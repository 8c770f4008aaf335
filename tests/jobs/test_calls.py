"""Calls side by side: in order, a few ahead, and errors when their turn comes."""

from __future__ import annotations

import threading
import time

import pytest

from karat.jobs.calls import RateLimit, retry_after, retry_wait
from karat.parallel import in_order


@pytest.mark.parametrize("concurrency", [1, 3])
def test_outcomes_come_in_the_order_of_the_tasks(concurrency):
    def work(task):
        time.sleep(0.02 if task % 3 == 0 else 0)
        return task * 2

    done = list(in_order(work, iter(range(20)), concurrency=concurrency))
    assert done == [(task, task * 2) for task in range(20)]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_an_error_is_raised_when_its_turn_comes(concurrency):
    def work(task):
        if task == 2:
            raise ValueError("two")
        return task

    outcomes = in_order(work, range(10), concurrency=concurrency)
    assert [next(outcomes), next(outcomes)] == [(0, 0), (1, 1)]
    with pytest.raises(ValueError, match="two"):
        next(outcomes)


def test_tasks_are_taken_only_a_little_ahead():
    taken = []

    def tasks():
        for task in range(1000):
            taken.append(task)
            yield task

    stop = threading.Event()
    outcomes = in_order(lambda task: task, tasks(), concurrency=2, stop=stop)
    assert next(outcomes) == (0, 0)
    assert len(taken) < 20
    outcomes.close()
    assert stop.is_set()


def test_a_rate_limit_spaces_calls_and_a_stop_ends_the_wait():
    limit = RateLimit(50)
    start = time.monotonic()
    for _ in range(4):
        limit.wait()
    assert time.monotonic() - start >= 0.055
    slow = RateLimit(0.001)
    slow.wait()
    slow.stop.set()
    start = time.monotonic()
    slow.wait()
    assert time.monotonic() - start < 1


def test_waits_double_up_to_a_limit_and_respect_the_service():
    assert [retry_wait(tries) for tries in range(3)] == [0.5, 1.0, 2.0]
    assert retry_wait(50) == 30.0
    assert retry_wait(0, least=100.0) == 100.0


@pytest.mark.parametrize("text", ["", "soon", "-3", "nan", "inf"])
def test_a_retry_after_that_cannot_be_read_is_none(text):
    assert retry_after({"retry-after": text}) is None


def test_a_date_in_the_past_asks_for_no_wait():
    assert retry_after({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, now=100) == 0.0
