"""Work on many things at once that looks from outside as if it were done in turn."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

from karat.parallel import cores, parallel_map, stop_if_cancelled


def test_results_come_in_the_order_of_the_things_whoever_is_done_first():
    def slow_at_first(number: int) -> int:
        time.sleep(0.02 if number % 4 == 0 else 0)
        return number * number

    assert list(parallel_map(slow_at_first, range(30), at_once=4)) == [n * n for n in range(30)]


def test_as_many_are_worked_on_at_once_as_asked_for():
    together = threading.Barrier(3, timeout=30)
    # Each waits for two others, so that fewer at once would never end.
    assert list(parallel_map(lambda _: together.wait() >= 0, range(9), at_once=3)) == [True] * 9


@pytest.mark.parametrize("at_once", [0, 1])
def test_one_at_a_time_stays_in_this_thread(at_once):
    here = threading.get_ident()
    seen = list(parallel_map(lambda _: threading.get_ident(), range(3), at_once=at_once))
    assert seen == [here] * 3


def test_a_single_thing_stays_in_this_thread():
    assert list(parallel_map(lambda _: threading.get_ident(), ["one"])) == [threading.get_ident()]
    assert list(parallel_map(len, [])) == []


def test_the_error_of_the_first_thing_is_raised_also_if_a_later_one_fails_sooner():
    later_failed = threading.Event()

    def fail(number: int) -> int:
        if number == 3:
            later_failed.set()
            raise ValueError("the later one")
        if number == 2:
            assert later_failed.wait(30)
            raise KeyError("the first one")
        return number

    found = parallel_map(fail, range(50), at_once=4)
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(KeyError, match="the first one"):
        next(found)


def test_no_work_begins_after_an_error_and_none_goes_on():
    begun, before = [], threading.active_count()

    def work(number: int) -> None:
        begun.append(number)
        if number == 0:
            raise ValueError("at once")
        while True:
            stop_if_cancelled()
            time.sleep(0.001)

    start = time.monotonic()
    with pytest.raises(ValueError, match="at once"):
        list(parallel_map(work, range(100), at_once=2))
    assert time.monotonic() - start < 4
    assert len(begun) <= 4
    assert threading.active_count() <= before


def test_work_that_nobody_stops_goes_on():
    assert list(
        parallel_map(lambda number: stop_if_cancelled() or number, range(20), at_once=2)
    ) == list(range(20))
    # Nor does what is done here, in no crew at all.
    stop_if_cancelled()


def test_a_step_that_takes_long_is_left_behind(monkeypatch):
    monkeypatch.setattr("karat.parallel._PATIENCE", 0.05)
    let_go = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            raise ValueError("at once")
        let_go.wait(60)

    start = time.monotonic()
    with pytest.raises(ValueError, match="at once"):
        list(parallel_map(work, range(4), at_once=2))
    assert time.monotonic() - start < 30
    let_go.set()


def test_nobody_works_far_ahead_of_who_wants_the_results():
    begun: list[int] = []
    found = parallel_map(begun.append, range(100), at_once=2)
    next(found)
    time.sleep(0.1)
    assert len(begun) <= 8
    found.close()
    assert len(begun) <= 8


def test_each_thing_is_announced_when_those_before_it_are_done():
    told: list[str] = []

    def work(name: str) -> str:
        return name.upper()

    for result in parallel_map(work, ["a", "b", "c"], at_once=2, begin=told.append):
        told.append(result)
    assert told == ["a", "A", "b", "B", "c", "C"]


def test_as_many_as_there_are_processors():
    assert cores() >= 1
    program = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
    program += "from karat.parallel import cores; print(cores())"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert told.stdout == b"1\n"


def test_ctrl_c_ends_all_of_it_at_once():
    program = """
import sys, time
from karat.parallel import parallel_map, stop_if_cancelled
def work(number):
    print(number, flush=True)
    for _ in range(100_000):
        stop_if_cancelled()
        time.sleep(0.001)
try:
    list(parallel_map(work, range(10), at_once=2))
except KeyboardInterrupt:
    sys.exit(130)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.readline()
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert rest == b""
    assert time.monotonic() - start < 5
