"""How far raters are, counted by the database, against counting what counts one by one."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import closing

import pytest

from karat.errors import InputError
from karat.store import LabelItem, NotStoredError, RaterTally, Store

ITEMS = [LabelItem(f"q{at}", "d", "?", "!") for at in range(5)]


def test_a_tally_counts_the_newest_word_on_each_item_and_no_decision(store):
    store.add_label_set("one", ITEMS)
    store.add_label_set("two", ITEMS[:2])
    assert store.tallies(1) == []
    store.judge(1, 0, "bo", 1)
    store.judge(1, 0, "Ana", None)
    store.judge(1, 1, "Ana", None)
    store.judge(1, 1, "Ana", 3)
    store.judge(1, 2, "Ana", 2)
    store.judge(1, 2, "Ana", None)
    store.judge(1, 3, "Ana", 1, source="adjudication")
    store.judge(1, 4, "cy", 1)
    store.take_back(1, "cy")
    # Of Ana's three items, she could not tell of 0 and, in the end, of 2.
    assert store.tallies(1) == [RaterTally("Ana", 3, 2), RaterTally("bo", 1, 0)]
    store.take_back(1, "Ana")
    assert store.tallies(1) == [RaterTally("Ana", 3, 1), RaterTally("bo", 1, 0)]
    assert store.tallies(2) == []
    with pytest.raises(NotStoredError, match="no label set 7"):
        store.tallies(7)


def test_tallies_are_what_counting_every_judgment_gives(store):
    chance = random.Random(5)
    store.add_label_set("one", ITEMS)
    for _ in range(60):
        rater, act = chance.choice(["ana", "bo", "cy"]), chance.random()
        if act < 0.2:
            store.take_back(1, rater)
        else:
            source = "adjudication" if act > 0.85 else "human"
            grade = chance.choice([0, 1, None])
            store.judge(1, chance.randrange(5), rater, grade, source=source)
    counts = [one for one in store.judgments(1) if not one.decides]
    judged = Counter(one.rater for one in counts)
    unsure = Counter(one.rater for one in counts if one.grade is None)
    assert store.tallies(1) == [
        RaterTally(name, judged[name], unsure[name]) for name in sorted(judged)
    ]


def test_who_saves_may_have_more_patience_than_who_reads(tmp_path):
    path = tmp_path / "h.db"
    with Store.open(path) as store:
        store.add_label_set("one", ITEMS)
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        Store.open(path, patience=60, saving=0.2) as store,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InputError, match="is in use by another process"):
            store.judge(1, 0, "ana", 1)
        # Who reads has the usual patience again on the same connection.
        with store._database.readers.connect() as connection:
            (usual,) = connection.exec_driver_sql("PRAGMA busy_timeout").one()
        assert usual == 60_000
        other.execute("ROLLBACK")
        store.judge(1, 0, "ana", 1)


def test_who_saves_on_a_server_may_have_less_patience_too(postgres):
    with Store.open(postgres, patience=60, saving=0.2) as store, Store.open(postgres) as other:
        store.add_label_set("one", ITEMS)
        store.judge(1, 0, "ana", 1)
        with other._database.writing() as connection:
            connection.exec_driver_sql("SELECT * FROM karat_label_sets FOR UPDATE")
            with pytest.raises(InputError, match="is in use by another process"):
                store.take_back(1, "ana")
        assert store.take_back(1, "ana").grade == 1
