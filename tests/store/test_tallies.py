"""How far raters are, and how long writers wait."""

from __future__ import annotations

import pytest

from karat.errors import InputError
from karat.label.raters import progress
from karat.store import LabelItem, NotStoredError, Store

ITEMS = [LabelItem(f"q{at}", "d", "?", "!") for at in range(5)]


def tallies(store, set_id):
    judgments = store.judgments(set_id)
    return [(each["rater"], each["judged"], each["cannot_tell"]) for each in progress(5, judgments)]


def test_a_tally_counts_the_newest_word_on_each_item_and_no_decision(store):
    store.add_label_set("one", ITEMS)
    store.add_label_set("two", ITEMS[:2])
    assert tallies(store, 1) == []
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
    assert tallies(store, 1) == [("Ana", 3, 2), ("bo", 1, 0)]
    store.take_back(1, "Ana")
    assert tallies(store, 1) == [("Ana", 3, 1), ("bo", 1, 0)]
    assert tallies(store, 2) == []
    with pytest.raises(NotStoredError, match="no label set 7"):
        tallies(store, 7)


def test_who_saves_on_a_server_waits_as_long_as_told(postgres):
    with Store.open(postgres, patience=0.2) as store, Store.open(postgres) as other:
        store.add_label_set("one", ITEMS)
        store.judge(1, 0, "ana", 1)
        with other._database.writing() as connection:
            connection.exec_driver_sql("SELECT * FROM karat_label_sets FOR UPDATE")
            with pytest.raises(InputError, match="is in use by another process"):
                store.take_back(1, "ana")
        assert store.take_back(1, "ana").grade == 1
