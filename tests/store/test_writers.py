"""Many who write at once: each gets a turn, whoever waits in vain is told, readers read on."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from karat.errors import InputError
from karat.store import LabelItem, Store

ITEMS = [LabelItem(f"q{at}", "d", "?", "!") for at in range(50)]


def test_many_writers_at_once_all_get_their_turn(tmp_path):
    with Store.open(tmp_path / "h.db", patience=20) as store, ThreadPoolExecutor(48) as threads:
        store.add_label_set("one", ITEMS)

        def label(rater: int) -> None:
            for position in range(4):
                store.judge(1, position, f"rater {rater}", position % 4)

        list(threads.map(label, range(48)))
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
