"""What stays of a run: measures computed again from it must be those of the score table."""

from __future__ import annotations

import random

import numpy as np
import pytest

import karat
from karat.measure.conventions import conventions_of
from karat.measure.evaluate_measure import values_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare
from karat.measure.ranked import in_best_order
from karat.measure.score_builder import score

MEASURES = parse_measures(
    "R@{1,3,7}, nDCG@{2,5}, nDCG(gain='exp')@5, P@3, RR, AP, Hit@2, Judged@4, Bpref, RBP, ERR@5"
)


def world(seed: int, queries: int = 30):
    """Gold with grades from -1 to 3, and lists that leave out some queries and some gold."""
    rng = random.Random(seed)
    items = [f"d{n // 3}#{n % 3}" for n in range(24)]
    gold = {
        f"q{at}": {item: rng.randint(-1, 3) for item in rng.sample(items, rng.randint(1, 6))}
        for at in range(queries)
    }
    lists = {
        f"q{at}": {item: round(rng.random(), 1) for item in rng.sample(items, rng.randint(0, 15))}
        for at in rng.sample(range(queries + 3), queries)
    }
    return karat.Gold.from_dict(gold), karat.Run.from_dict(lists)


@pytest.mark.parametrize("level", ["item", "doc"])
@pytest.mark.parametrize("seed", range(5))
def test_every_measure_of_ranks_can_be_computed_again(seed, level):
    gold, run = world(seed)
    ready = prepare(gold, conventions_of("karat", {"level": level}))
    scores = score(run, ready, MEASURES)
    answered = scores.status != "missing"
    for measure in MEASURES:
        again = values_of(measure, scores.trace.ranked, ready)
        np.testing.assert_array_equal(again[answered], scores.values(str(measure))[answered])


def test_blocks_give_the_trace_of_the_whole(monkeypatch):
    gold, run = world(3, queries=200)
    run = karat.Run.from_frame(run.hits)
    ready = prepare(gold, conventions_of("karat"))
    whole = score(run, ready, MEASURES, keep=3)
    monkeypatch.setattr("karat.data.tables.BLOCK_ROWS", 100)
    assert len(list(run.blocks())) > 5
    blocks = score(run, ready, MEASURES, keep=3)
    for part in ("hits", "found"):
        one, other = (getattr(scores.trace.ranked, part) for scores in (whole, blocks))
        for name in ("query", "rank", "grade", "row"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert whole.trace.facts.equals(blocks.trace.facts)
    assert whole.lists.sort("row", "rank").equals(blocks.lists.sort("row", "rank"))


def test_facts_stand_beside_the_hits_that_they_are_about():
    gold, run = world(1)
    ready = prepare(gold, conventions_of("karat"))
    scores = score(run, ready, MEASURES)
    given = {(q, i): s for q, i, s in run.hits.select("query_id", "item_id", "score").iter_rows()}
    hits = scores.trace.ranked.hits
    assert len(hits.query) == scores.trace.facts.height > 20
    grades = {(q, i): g for q, i, g in gold.frame.iter_rows()}
    for code, rank, grade, fact in zip(
        hits.query, hits.rank, hits.grade, scores.trace.facts.iter_rows(named=True), strict=True
    ):
        query = ready.query_ids[code]
        assert fact["score"] == given[query, fact["item_id"]]
        assert grade == grades[query, fact["item_id"]]
        above = [s for (q, _), s in given.items() if q == query and s > fact["score"]]
        assert rank > len(above)
        assert fact["similarity"] is None


def test_the_kept_lists_are_the_top_with_grades_only_where_judged():
    gold = karat.Gold.from_dict({"q1": {"a": 2, "b": 0}})
    run = karat.Run.from_dict({"q1": {"x": 0.9, "b": 0.8, "a": 0.7, "y": 0.6}})
    ready = prepare(gold, conventions_of("karat"))
    lists = score(run, ready, MEASURES, keep=3).lists
    assert lists.select("rank", "item_id", "score", "grade").rows() == [
        (1, "x", 0.9, None),
        (2, "b", 0.8, 0.0),
        (3, "a", 0.7, 2.0),
    ]


def test_the_best_order_has_the_lists_own_gold_on_top():
    gold = karat.Gold.from_dict({"q1": {"a": 1, "b": 3, "c": 2, "z": 0}, "q2": {"a": 1}})
    run = karat.Run.from_dict({"q1": ["x", "a", "z", "b", "y"], "q2": ["x"]})
    ready = prepare(gold, conventions_of("karat"))
    ranked = score(run, ready, MEASURES).trace.ranked
    best = in_best_order(ranked)
    assert best.hits.rank.tolist() == [1, 2]
    assert best.hits.grade.tolist() == [3.0, 1.0]
    recall, gain = parse_measures("R@1, CG@2")
    assert values_of(recall, best, ready).tolist() == [1 / 3, 0.0]
    assert values_of(gain, best, ready).tolist() == [4.0, 0.0]
    without = in_best_order(ranked, keep=ranked.found.grade < 3)
    assert without.hits.grade.tolist() == [1.0]
