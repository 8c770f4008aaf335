"""A store that is open for long: threads, forks, and a database that changes behind its back."""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text

from karat.errors import InputError
from karat.store import LabelItem, NoHistoryError, Store

from .conftest import small

ITEMS = [LabelItem(f"q{i}", "d", "?", "!") for i in range(100)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a store with one evaluation, of the system bm25."""
    with Store.open(tmp_path / "history.db") as store:
        store.save(*small())
    return tmp_path / "history.db"


def other(folder: Path) -> Path:
    """The file of another store, in which two evaluations of dense are."""
    with Store.open(folder / "other.db") as store:
        store.save(*small(name="dense"))
        store.save(*small(name="dense"))
    return folder / "other.db"


def systems(store: Store) -> list[str]:
    return [one.system for one in store.listed().evaluations]


@pytest.mark.parametrize("replace", [os.replace, shutil.copyfile], ids=["moved", "copied"])
def test_a_file_that_is_replaced_is_read_anew(file, tmp_path, replace):
    new = other(tmp_path)
    with Store.open(file) as store:
        store.save(*small())
        assert systems(store) == ["bm25", "bm25"]
        before = store.stamp()
        replace(new, file)
        assert systems(store) == ["dense", "dense"]
        assert store.stamp() != before
        store.save(*small("x"))
        assert systems(store) == ["bm25", "dense", "dense"]
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def test_a_file_that_is_replaced_by_something_else_is_told(file, tmp_path):
    music = tmp_path / "music.db"
    with sqlite3.connect(music) as connection:
        connection.execute("CREATE TABLE songs (name TEXT)")
    connection.close()
    with Store.open(file) as store:
        assert store.listed().total == 1
        music.replace(file)
        for _ in range(2):
            with pytest.raises(NoHistoryError):
                store.listed()
        file.write_text("not a database, but a text of some length\n" * 1000)
        with pytest.raises(InputError, match="is no SQLite database"):
            store.listed()
        file.unlink()
        with pytest.raises(NoHistoryError):
            store.stamp()
        store.save(*small())
        assert store.listed().total == 1


def test_tables_that_were_dropped_are_told_and_made_again(store):
    store.save(*small())
    assert store.listed().total == 1
    with store._database.writers.begin() as connection:
        for table in ("judgments", "label_items", "label_sets", "parts", "tags", "scores"):
            connection.execute(text(f"DROP TABLE karat_{table}"))
        for table in ("measures", "evaluations", "reports", "store"):
            connection.execute(text(f"DROP TABLE karat_{table}"))
    for use in (store.listed, store.stamp, lambda: store.tag(1, ["x"])):
        with pytest.raises(NoHistoryError):
            use()
    store.save(*small())
    assert store.listed().total == 1


def test_a_newer_karat_that_upgrades_the_store_is_noticed_at_once(store, where):
    store.save(*small())
    store.listed()
    with Store.open(where) as newer, newer._database.writing() as connection:
        connection.execute(text("UPDATE karat_store SET version = 4"))
    for use in (store.listed, store.stamp, lambda: store.save(*small())):
        with pytest.raises(InputError, match=r"newer karat \(store version 4, this one knows 3\)"):
            use()


def test_what_is_saved_is_in_the_file_and_a_copy_of_it_is_whole(file, tmp_path):
    with Store.open(file) as store, Store.open(file) as reader:
        store.save(*small())
        reader.listed()
        store.tag(1, ["main"])
        shutil.copyfile(file, tmp_path / "copy.db")
        with Store.open(tmp_path / "copy.db") as copy:
            assert copy.stamp() == store.stamp()
            assert copy.listed(tag="main").total == 1


def test_a_reader_in_the_middle_of_it_keeps_nobody_from_saving(file):
    with Store.open(file) as reader, Store.open(file, patience=5) as store:
        with reader._database.reading() as connection:
            count = text("SELECT count(*) FROM karat_evaluations")
            assert connection.execute(count).scalar() == 1
            store.save(*small())
            assert connection.execute(count).scalar() == 1
            assert store.listed().total == 2
        assert reader.listed().total == 2


def test_threads_share_a_store(where):
    with Store.open(where) as store, ThreadPoolExecutor(12) as threads:
        own = store.add_label_set("one", ITEMS)
        store.save(*small())

        def label(rater: int) -> int:
            for position in range(20):
                store.judge(own.id, position, f"rater {rater}", 1)
                assert len(store.judgments(own.id, rater=f"rater {rater}")) == position + 1
                assert store.listed().total == 1
            return store.listed().total

        assert list(threads.map(label, range(12))) == [1] * 12
        assert len(store.judgments(own.id)) == 240


FORKING = """
import os, sys
from karat.store import LabelItem, Store

with Store.open(sys.argv[1]) as store:
    own = store.add_label_set("one", [LabelItem(f"q{i}", "d", "?", "!") for i in range(40)])
    store.label_sets()
    children = []
    for child in range(3):
        if (pid := os.fork()) == 0:
            for position in range(40):
                store.judge(own.id, position, f"child {child}", 1)
            store.close()
            os._exit(0 if len(store.judgments(own.id, rater=f"child {child}")) == 40 else 1)
        children.append(pid)
    for position in range(40):
        store.judge(own.id, position, "parent", 1)
    ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    print(ended, len(store.judgments(own.id)), store.label_sets() == [own])
"""


def test_a_forked_process_opens_its_own_connections(where):
    command = [sys.executable, "-W", "error", "-c", FORKING, where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == ("[0, 0, 0] 160 True\n", "")


def test_a_server_that_was_started_anew_is_connected_to_again(postgres, server):
    with Store.open(postgres) as store:
        store.save(*small())
        store.listed()
        # What a restart does to every connection.
        server.psql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend';"
        )
        assert store.listed().total == 1
        store.save(*small())


def test_a_store_that_nobody_closed_leaves_no_connection_open(file):
    before = open_files(file)
    store = Store.open(file)
    store.listed()
    del store
    gc.collect()
    assert open_files(file) == before


def open_files(file: Path) -> int:
    """How often this process has the file open; Linux tells."""
    links = Path("/proc/self/fd").iterdir()
    return sum(link.is_symlink() and str(link.readlink()) == str(file) for link in links)


def test_a_store_that_is_closed_can_be_used_again(store):
    store.save(*small())
    store.close()
    assert store.listed().total == 1
