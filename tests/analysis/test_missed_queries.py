"""The queries that miss, listed with the gold that they should have found."""

from __future__ import annotations

import pytest
from failing import failures_of, fillers

from karat.analysis import failures as classes


@pytest.fixture
def found():
    gold = {"q1": ["g"], "q2": {"low": 1, "high": 2, "not": 0}, "q3": ["g"], "q4": {"n": 0}}
    records = [
        {"query_id": "q1", "topk": [*fillers(10), "g"]},
        {"query_id": "q2", "topk": fillers(12)},
        {"query_id": "q3", "topk": ["g"]},
        {"query_id": "q4", "topk": fillers(5)},
    ]
    return failures_of(records, gold)


def test_every_miss_has_its_class_and_its_relevant_gold_best_first(found):
    for queries in (True, False):
        told = found.to_dict(queries=queries)
        assert told["missed"] == [
            {"query_id": "q1", "class": "low_rank", "gold": ["g"]},
            {"query_id": "q2", "class": "complete_miss", "gold": ["high", "low"]},
        ]
        assert (told["misses"], told["missed_left_out"]) == (2, 0)


def test_a_long_list_of_misses_is_cut_and_says_so(monkeypatch):
    monkeypatch.setattr(classes, "LISTED", 3)
    gold = {f"q{n}": ["g"] for n in range(5)}
    found = failures_of([{"query_id": one, "topk": ["x"]} for one in gold], gold)
    told = found.to_dict(queries=False)
    assert [one["query_id"] for one in told["missed"]] == ["q0", "q1", "q2"]
    assert (told["misses"], told["missed_left_out"]) == (5, 2)
