"""What one judgment changes, against trec_eval's own code with and without that judgment."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import pytrec_eval

from karat.data.tables import Gold, Run
from karat.measure import judgment_effects
from karat.measure.conventions import conventions_of
from karat.measure.judgment_effects import changes, effects, relevant_grades
from karat.measure.names import parse_measure
from karat.measure.prepare import prepare
from karat.measure.ranges import ABSENT, listed
from karat.measure.score_builder import score

RNG = random.Random(5)
ITEMS = [f"d{n:02}" for n in range(14)]
QUERIES = [f"q{n}" for n in range(6)]
LISTS = [{q: RNG.sample(ITEMS, 8) for q in QUERIES} for _ in range(2)]
GOLD = {q: {d: RNG.choice([0, 1, 2]) for d in RNG.sample(ITEMS, 5)} for q in QUERIES}
for grades in GOLD.values():
    grades[next(iter(grades))] = 2
NAMES = {"nDCG@5": "ndcg_cut_5", "P@5": "P_5", "R@5": "recall_5", "AP": "map", "RR": "recip_rank"}


def by_trec_eval(ranking: list[str], judgments: dict[str, int], name: str) -> float:
    run = {"q": {item: float(-place) for place, item in enumerate(ranking)}}
    (value,) = pytrec_eval.RelevanceEvaluator({"q": judgments}, {name}).evaluate(run)["q"].values()
    return value


def world(measure: str, gold: dict = GOLD, **settings: str):
    prepared = prepare(Gold.from_dict(gold), conventions_of("karat", settings))
    wanted = parse_measure(measure)
    lists = [listed(score(Run.from_dict(one), prepared, [wanted], keep=100)) for one in LISTS]
    return wanted, lists, prepared


@pytest.mark.parametrize("measure", NAMES)
def test_a_difference_changes_as_trec_eval_says(measure):
    wanted, lists, prepared = world(measure)
    found = effects(wanted, lists, prepared)
    seen = set()
    for at, (place, item) in enumerate(zip(found.query, found.item_id, strict=True)):
        query = QUERIES[place]
        seen.add((query, item))
        for effect, grade in ((found.top[at], 2), (found.least[at], 1)):
            judged = GOLD[query] | {item: grade}
            sides = [
                by_trec_eval(one[query], judged, NAMES[measure])
                - by_trec_eval(one[query], GOLD[query], NAMES[measure])
                for one in LISTS
            ]
            assert effect == pytest.approx(sides[1] - sides[0], abs=1e-6)
    returned = {(q, d) for one in LISTS for q, ranking in one.items() for d in ranking}
    assert seen == {(q, d) for q, d in returned if d not in GOLD[q]}


@pytest.mark.parametrize("measure", NAMES)
def test_a_value_changes_as_trec_eval_says(measure):
    wanted, lists, prepared = world(measure)
    found = effects(wanted, lists[:1], prepared)
    assert (found.second == ABSENT).all()
    for at, (place, item) in enumerate(zip(found.query, found.item_id, strict=True)):
        ranking, judged = LISTS[0][QUERIES[place]], GOLD[QUERIES[place]]
        assert ranking[found.first[at] - 1] == item
        more = by_trec_eval(ranking, judged | {item: 2}, NAMES[measure])
        now = by_trec_eval(ranking, judged, NAMES[measure])
        assert found.top[at] == pytest.approx(more - now, abs=1e-6)


def test_an_item_that_a_system_lacks_counts_against_it():
    """Recall 1 of 2, then 1 of 3."""
    gold = {"q0": {LISTS[0]["q0"][0]: 1, "elsewhere": 1}}
    wanted, lists, prepared = world("R@5", gold)
    changed = changes(wanted, lists[0], prepared, np.array([0]), np.array([ABSENT]), 1.0)
    assert changed.tolist() == pytest.approx([1 / 3 - 1 / 2])


def test_a_query_without_gold_has_no_effect_unless_it_counts_as_zero():
    gold = {q: ({} if q == "q0" else GOLD[q]) for q in QUERIES}
    wanted, lists, prepared = world("RR", gold)
    found = effects(wanted, lists[:1], prepared)
    assert np.isnan(found.top[found.query == 0]).all()
    assert not np.isnan(found.top[found.query != 0]).any()
    wanted, lists, prepared = world("RR", gold, empty_gold="zero")
    found = effects(wanted, lists[:1], prepared)
    assert found.top[found.query == 0].tolist() == [1 / rank for rank in range(1, 9)]


def test_alone_is_what_the_ranks_say_whatever_is_judged():
    """The one relevant item of a query: 1 / log2(rank + 1) of each list that has it."""
    for gold in (GOLD, {q: {"elsewhere": 1} for q in QUERIES}):
        wanted, lists, prepared = world("nDCG@5", gold)
        found = effects(wanted, lists, prepared)
        for at, (place, item) in enumerate(zip(found.query, found.item_id, strict=True)):
            gains = []
            for one in LISTS:
                top = one[QUERIES[place]][:5]
                gains.append(1 / math.log2(top.index(item) + 2) if item in top else 0.0)
            assert found.alone[at] == pytest.approx(gains[1] - gains[0])


def test_blocks_change_nothing(monkeypatch):
    wanted, lists, prepared = world("nDCG@5")
    whole = effects(wanted, lists, prepared)
    monkeypatch.setattr(judgment_effects, "_LISTS", 7)
    parts = effects(wanted, lists, prepared)
    assert whole.top.tolist() == parts.top.tolist()
    assert whole.least.tolist() == parts.least.tolist()


@pytest.mark.parametrize(
    ("measure", "gold", "expected"),
    [
        ("nDCG@5", {"q0": {"a": 4, "b": 0}}, (4, 1)),
        ("P(rel=2)@5", {"q0": {"a": 3, "b": 0}}, (3, 2)),
        ("P@5", {"q0": {}, "q1": {}}, (1, 1)),
        # Nothing that the gold knows would be relevant: the highest stands for it.
        ("P(rel=3)@5", {"q0": {"a": 1}}, (1, 1)),
    ],
)
def test_grades_run_from_the_threshold_to_the_highest_of_the_gold(measure, gold, expected):
    wanted, _, prepared = world(measure, gold)
    assert relevant_grades(wanted, prepared) == expected
