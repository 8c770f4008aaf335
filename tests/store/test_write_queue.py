"""Many who write at once: each gets a turn, whoever waits in vain is told, readers read on."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from karat.errors import InputError
from karat.store import LabelItem, Store
from karat.store.transactions import WriteQueue, WriteQueueTimeoutError

ITEMS = [LabelItem(f"q{at}", "d", "?", "!") for at in range(50)]


def waiting(queue: WriteQueue, count: int) -> None:
    """Return once so many are in line."""
    until = time.monotonic() + 20
    while len(queue._waiting) < count:
        assert time.monotonic() < until
        time.sleep(0.001)


def test_turns_are_given_in_the_order_in_which_they_were_asked_for():
    queue, got = WriteQueue(1, 60.0), []

    def take(at: int) -> None:
        with queue.slot():
            got.append(at)

    threads = [threading.Thread(target=take, args=(at,)) for at in range(20)]
    with queue.slot():
        for at, thread in enumerate(threads):
            thread.start()
            waiting(queue, at + 1)
    for thread in threads:
        thread.join(20)
    assert got == list(range(20))


@pytest.mark.parametrize("at_once", [1, 3])
def test_only_so_many_have_a_turn_at_once(at_once):
    queue, within, most, lock = WriteQueue(at_once, 60.0), [0], [0], threading.Lock()

    def work(_: int) -> None:
        with queue.slot():
            with lock:
                within[0] += 1
                most[0] = max(most[0], within[0])
            time.sleep(0.005)
            with lock:
                within[0] -= 1

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(work, range(40)))
    assert most == [at_once]


def test_who_waits_while_others_get_on_does_not_give_up_and_who_waits_in_vain_does():
    queue, got = WriteQueue(1, 0.3), []

    def wait() -> None:
        with queue.slot():
            got.append(True)

    patient = threading.Thread(target=wait)
    with queue.slot():
        queue.note_progress()
        patient.start()
        until = time.monotonic() + 0.9
        while time.monotonic() < until:
            time.sleep(0.02)
            queue.note_progress()
        assert queue.has_waiters
    patient.join(20)
    assert got == [True]
    with queue.slot(), ThreadPoolExecutor(1) as threads:
        start = time.monotonic()
        with pytest.raises(WriteQueueTimeoutError):
            threads.submit(wait).result(20)
        assert time.monotonic() - start >= 0.3
        assert not queue.has_waiters


def test_writers_that_need_longer_than_their_patience_together_all_get_their_turn(tmp_path):
    with Store.open(tmp_path / "h.db", patience=0.2) as store, ThreadPoolExecutor(48) as threads:
        store.add_label_set("one", ITEMS)

        def label(rater: int) -> None:
            for position in range(4):
                store.judge(1, position, f"rater {rater}", position % 4)

        start = time.monotonic()
        list(threads.map(label, range(48)))
        assert time.monotonic() - start > 0.2
        assert len(store.judgments(1, every=True)) == 48 * 4


def test_while_another_process_writes_all_are_told_so_together(tmp_path):
    path = tmp_path / "h.db"
    with Store.open(path) as store:
        store.add_label_set("one", ITEMS)
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        Store.open(path, patience=0.5) as store,
        ThreadPoolExecutor(12) as threads,
    ):
        other.execute("BEGIN IMMEDIATE")
        start = time.monotonic()
        asked = [threads.submit(store.judge, 1, 0, f"rater {at}", 1) for at in range(12)]
        for one in asked:
            with pytest.raises(InputError, match="is in use by another process; try again"):
                one.result(60)
        # One after the other they would have taken six seconds.
        assert time.monotonic() - start < 4
        assert store.label_set(1).size == 50
        other.execute("ROLLBACK")
        store.judge(1, 0, "rater", 1)


def test_after_many_have_written_the_file_by_itself_holds_everything(tmp_path):
    path = tmp_path / "h.db"
    with Store.open(path) as store, ThreadPoolExecutor(16) as threads:
        store.add_label_set("one", ITEMS)
        list(threads.map(lambda at: store.judge(1, at, "ana", 1), range(50)))
        (tmp_path / "copy.db").write_bytes(path.read_bytes())
    with Store.open(tmp_path / "copy.db") as copy:
        assert len(copy.judgments(1)) == 50


def test_more_threads_than_a_server_has_connections_for_are_all_answered(postgres):
    with Store.open(postgres, patience=1.0) as store, ThreadPoolExecutor(64) as threads:
        store.add_label_set("one", ITEMS)

        def use(at: int) -> None:
            store.judge(1, at % 50, f"rater {at}", 1)
            assert len(store.judgments(1, rater=f"rater {at}")) == 1

        list(threads.map(use, range(192)))
        assert len(store.judgments(1)) == 192


FORKING = """
import os, sys
from karat.store.transactions import WriteQueue

queue = WriteQueue(1, 5.0)
with queue.slot():
    child = os.fork()
    if child == 0:
        with queue.slot():
            os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_does_not_wait_for_a_turn_of_its_parent(tmp_path: Path):
    command = [sys.executable, "-c", FORKING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ)
    assert (done.stdout, done.stderr) == ("7\n", "")
