"""Rank overlap against brute force and scipy, on lists that differ in length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from karat.data.tables import Gold, Run
from karat.evaluation.systems import ComparedSystem, overlap
from karat.measure.conventions import Conventions
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare
from karat.measure.score_builder import score

P = 0.9


def overlap_of(a, b):
    gold = prepare(Gold.from_dict({query: ["i0"] for query in a}), Conventions())
    sides = [score(Run.from_dict(run), gold, parse_measures(["RR"]), keep=100) for run in (a, b)]
    return overlap(*(ComparedSystem(scores.system, (scores,)) for scores in sides))


def extrapolated_rbo(a, b, p=P):
    """Webber, Moffat and Zobel (2010), equation 32, term by term."""
    short, long = sorted((a, b), key=len)
    s, n = len(short), len(long)
    shared = [len(set(short[:d]) & set(long[:d])) for d in range(n + 1)]
    first = sum(shared[d] / d * p**d for d in range(1, n + 1))
    second = sum(shared[s] * (d - s) / (s * d) * p**d for d in range(s + 1, n + 1))
    tail = ((shared[n] - shared[s]) / n + shared[s] / s) * p**n
    return (1 - p) / p * (first + second) + tail


def test_identical_lists_overlap_wholly():
    lists = {"q1": ["a", "b", "c"], "q2": ["d", "e"]}
    found = overlap_of(lists, lists)
    assert (found["Jaccard@10"], found["tau"], found["identical"]) == (1.0, 1.0, True)
    assert found["RBO"] == pytest.approx(1.0, abs=1e-12)


def test_reversed_lists_have_tau_minus_one_and_are_not_identical():
    found = overlap_of({"q": list("abc")}, {"q": list("cba")})
    assert (found["Jaccard@10"], found["tau"], found["identical"]) == (1.0, -1.0, False)


def test_lists_without_a_common_item_overlap_nowhere():
    found = overlap_of({"q": list("abc")}, {"q": list("xyz")})
    assert (found["Jaccard@10"], found["RBO"], found["tau"]) == (0.0, 0.0, None)


def test_a_worked_example():
    """Three of five are shared: Jaccard 3/7; agreement at depths 1..5 is 0, 1/2, 2/3, 2/4, 3/5."""
    found = overlap_of({"q": list("abcde")}, {"q": list("bcxya")})
    depths = [0, 1 / 2, 2 / 3, 2 / 4, 3 / 5]
    rbo = sum(0.1 * P ** (d - 1) * agreed for d, agreed in enumerate(depths, 1)) + P**5 * 3 / 5
    assert found["Jaccard@10"] == pytest.approx(3 / 7)
    assert found["RBO"] == pytest.approx(rbo)


def test_only_queries_that_both_answer_take_part():
    found = overlap_of({"q1": ["a"], "q2": ["b"]}, {"q1": ["a"]})
    assert (found["queries"], found["Jaccard@10"], found["identical"]) == (1, 1.0, False)


def test_jaccard_looks_at_ten_and_the_rest_at_a_hundred():
    a = [f"i{n}" for n in range(150)]
    b = [*a[10:20], *a[:10], *a[20:]]
    found = overlap_of({"q": a}, {"q": b})
    assert found["Jaccard@10"] == 0.0
    assert found["tau"] == pytest.approx(kendalltau(range(100), [b.index(i) for i in a[:100]])[0])


items = st.integers(0, 12).map(lambda n: f"i{n}")
lists = st.lists(items, min_size=1, max_size=9, unique=True)


@given(st.lists(st.tuples(lists, lists), min_size=1, max_size=4))
def test_overlap_agrees_with_brute_force(pairs):
    a = {f"q{n}": one for n, (one, _) in enumerate(pairs)}
    b = {f"q{n}": other for n, (_, other) in enumerate(pairs)}
    found = overlap_of(a, b)
    assert found["RBO"] == pytest.approx(np.mean([extrapolated_rbo(*pair) for pair in pairs]))
    jaccards = [len({*x} & {*y}) / len({*x} | {*y}) for x, y in pairs]
    assert found["Jaccard@10"] == pytest.approx(np.mean(jaccards))
    taus = []
    for x, y in pairs:
        common = [item for item in x if item in y]
        if len(common) > 1:
            taus.append(kendalltau(range(len(common)), [y.index(item) for item in common])[0])
    assert found["tau"] == (pytest.approx(np.mean(taus)) if taus else None)
