"""All@k: 1 if every relevant item is in the top k, with its ceiling and its range."""

from __future__ import annotations

import pytest
from short import Gold, Run

import karat

LISTS = {"q1": ["a", "x", "b"], "q2": ["c", "y"], "q3": ["z"]}
JUDGED = {"q1": ["a", "b"], "q2": ["c"], "q3": ["d"]}


def test_every_relevant_item_must_be_in_the_top_k():
    scores = karat.evaluate(Run(LISTS), Gold(JUDGED), "All@1, All@2, All@3")
    assert scores.table.select("All@1", "All@2", "All@3").rows() == [
        (0.0, 0.0, 1.0),
        (1.0, 1.0, 1.0),
        (0.0, 0.0, 0.0),
    ]


def test_it_is_1_exactly_where_recall_is_1():
    scores = karat.evaluate(Run(LISTS), Gold(JUDGED), "All@2, R@2")
    assert [a == float(r == 1) for a, r in scores.table.select("All@2", "R@2").rows()] == [True] * 3


def test_more_gold_than_places_cannot_be_reached():
    ceilings = karat.evaluate(Run(LISTS), Gold(JUDGED), "All@1, All@2").summaries
    assert ceilings["All@1"].ceiling == pytest.approx(2 / 3)
    assert ceilings["All@2"].ceiling == 1.0


def test_grades_decide_what_must_be_found():
    gold = Gold({"q": {"a": 2, "b": 1}})
    run = Run({"q": ["a", "x"]})
    found = karat.evaluate(run, gold, "All@2, All(rel=2)@2").means()
    assert found == {"All@2": 0.0, "All(rel=2)@2": 1.0}


def test_counts_are_summed_over_queries():
    found = karat.evaluate(Run(LISTS), Gold(JUDGED), "NumRet, NumRel, NumRelRet").means()
    assert found == {"NumRet": 6.0, "NumRel": 4.0, "NumRelRet": 3.0}
