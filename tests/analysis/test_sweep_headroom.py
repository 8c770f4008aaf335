"""Headroom: what the gold that a run has would bring at the top."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from swept import staged_of, world

from karat.analysis.sweep.curves import best_values, sweep_system
from karat.data.tables import Gold
from karat.formats.runlog import run_of_records


def ndcg(grades: list[float], gold: list[float], k: int) -> float:
    def dcg(some: list[float]) -> float:
        return sum(grade / math.log2(at + 2) for at, grade in enumerate(some[:k]))

    return dcg(grades) / dcg(sorted(gold, reverse=True))


@pytest.mark.parametrize("seed", range(4))
def test_headroom_is_what_the_gold_in_the_list_brings_when_it_stands_first(seed):
    run, gold = world(seed)
    staged, curves = staged_of(run, gold, ["R", "nDCG"], (1, 3, 10))
    found = sweep_system(staged, curves)
    grades = {}
    for query, item, grade in gold.frame.select("query_id", "item_id", "grade").rows():
        grades.setdefault(query, {})[item] = grade
    lists = {}
    for query, item in run.hits.select("query_id", "item_id").rows():
        lists.setdefault(query, []).append(item)
    for name, best_of in (("R", recall_of), ("nDCG", ndcg)):
        for point in found["measures"][name]["points"]:
            best = []
            for query, judged in grades.items():
                if not any(judged.values()):
                    continue
                has = [judged[item] for item in lists.get(query, []) if item in judged]
                best.append(best_of(sorted(has, reverse=True), list(judged.values()), point["k"]))
            assert point["mean"] + point["headroom"] == pytest.approx(sum(best) / len(best))
            assert point["headroom"] >= 0


def recall_of(grades: list[float], gold: list[float], k: int) -> float:
    return sum(grade >= 1 for grade in grades[:k]) / sum(grade >= 1 for grade in gold)


def test_headroom_counts_what_the_retriever_had_before_it_was_cut():
    gold = Gold.from_dict({"q1": ["A", "B"]})
    log = {"query_id": "q1", "topk": ["X", "A"], "raw": ["X", "A", "Y", "B"], "k_raw": 4}
    run = run_of_records([log], name="log")
    staged, curves = staged_of(run, gold, ["R"], (1, 2))
    points = sweep_system(staged, curves)["measures"]["R"]["points"]
    assert [(point["mean"], point["headroom"]) for point in points] == [(0.0, 0.5), (0.5, 0.5)]


def test_gold_that_only_the_final_list_has_counts_as_well():
    gold = Gold.from_dict({"q1": ["A", "B"]})
    log = {"query_id": "q1", "topk": ["A", "X", "B"], "raw": ["A", "X", "Y"]}
    staged, curves = staged_of(run_of_records([log], name="log"), gold, ["R"], (1, 2, 3))
    headroom = [
        point["headroom"] for point in sweep_system(staged, curves)["measures"]["R"]["points"]
    ]
    assert headroom == [0.0, 0.5, 0.0]


@given(st.integers(0, 10_000), st.sampled_from(["item", "doc"]))
def test_a_better_order_never_takes_anything_away(seed, level):
    run, gold = world(seed, queries=4, depth=12)
    names = ["R", "nDCG", "nDCG(gain='exp')", "AP", "RR", "WR", "Hit", "ERR", "RBP", "DCG"]
    staged, curves = staged_of(run, gold, names, (1, 2, 5, 12), level=level, interval="none")
    best = best_values(staged, curves, (1, 2, 5, 12))
    for measure in (one for curve in curves for one in curve.at.values()):
        values = staged.final.values(str(measure))
        scored = ~np.isnan(values)
        assert (best[str(measure)][scored] >= values[scored] - 1e-12).all(), str(measure)


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("P", "doc"),
        ("F", "doc"),
        ("AUC(of='P')", "doc"),
        ("Hole", "item"),
        ("Judged", "item"),
        ("NumRelRet", "item"),
        ("Coverage", "item"),
        ("DistinctDocs", "item"),
        ("nDCG(gain={1: 5, 2: 1})", "item"),
    ],
)
def test_where_gold_first_is_not_known_to_be_best_there_is_no_headroom(name, level):
    run, gold = world(5)
    staged, curves = staged_of(run, gold, [name], (2, 5), level=level)
    (line,) = sweep_system(staged, curves)["measures"].values()
    assert all(point["headroom"] is None and point["mean"] is not None for point in line["points"])
