"""Hubs against counting by hand, scipy's skewness and binomial test, and lists by chance."""

from __future__ import annotations

import json

import numpy as np
import pytest
from returned import Corpus, Gold, Run, staged_of
from scipy.stats import binom, binomtest, skew

from karat.analysis.diagnose.hubs import hubs
from karat.errors import UsageError
from karat.evaluation.stages import Thresholds

N, K = 60, 3


def planted(*, corpus=True, k=K, lines=None, **settings):
    """Sixty queries, each with three items of its own but for one hub.

    The hub stands in the lists of q0 to q9: it is gold of q0, judged 0 for q1 to q4 and not
    judged for the others. q8 and q9 ask for the same.
    """
    lists = {f"q{n}": [f"i{n}a", f"i{n}b", f"i{n}c"] for n in range(N)}
    for n in range(10):
        lists[f"q{n}"][1] = "hub"
    grades = {f"q{n}": {f"i{n}a": 1.0} for n in range(N)}
    grades["q0"]["hub"] = 2.0
    for n in range(1, 5):
        grades[f"q{n}"]["hub"] = 0.0
    grades["q9"]["i8a"] = 1.0
    texts = {"hub": "  the   home page "} | {
        item: item for items in lists.values() for item in items if item != "hub"
    }
    texts |= {f"never{n}": "never" for n in range(129)}
    given = Corpus(texts) if corpus else None
    staged = staged_of(Run(lists), Gold(grades), corpus=given, **settings)
    return hubs(staged, k=k, thresholds=lines)


def test_a_hub_is_told_with_what_it_was_judged_as():
    found = planted()
    # 60 x 3 places, 171 items in them and 129 that nothing leads to
    assert (found["queries"], found["places"], found["items"], found["of"]) == (
        60,
        180,
        300,
        "corpus",
    )
    assert found["needed"] == 3
    assert found["count"] == 1
    [hub] = found["hubs"]
    assert hub["item_id"] == "hub"
    assert hub["text"] == "the home page"
    counts = {"queries": 10, "gold": 1, "unrelated": 9, "not_relevant": 4, "unjudged": 5}
    assert {name: hub[name] for name in counts} == counts
    # q8 and q9 share gold: nine queries ask for eight different things
    assert hub["topics"] == 8
    assert (found["hub_places"], found["unrelated_places"]) == (10, 9)
    assert found.to_dict()["share"] == 10 / 180


def test_the_chance_is_that_of_a_binomial_test_over_all_items():
    found = planted()
    # any item is in a top 3 with a chance of 3 in 300; it is gold of one query
    expected = binomtest(9, N - 1, 3 / 300, alternative="greater").pvalue * 300
    assert found["hubs"][0]["p"] == pytest.approx(expected)
    assert found["expected"] == pytest.approx(60 * 3 / 300)


def test_skewness_is_that_of_all_items():
    found = planted()
    counts = [10] + [1] * 170 + [0] * 129
    assert found["skewness"] == pytest.approx(skew(counts))
    assert found["by_chance"] == pytest.approx(float(binom.stats(60, 3 / 300, moments="s")))


def test_without_a_corpus_only_what_was_returned_is_known():
    found = planted(corpus=False)
    assert (found["items"], found["of"]) == (171, "returned")
    assert found["skewness"] == pytest.approx(skew([10] + [1] * 170))
    assert found["hubs"][0]["text"] is None


def test_without_a_corpus_chance_is_that_of_items_in_at_least_one_list():
    """Of three lists of one a is in two. Of X in {1, 2, 3} with odds 3pqq : 3ppq : ppp and a
    mean of 3/2, worked by hand: 3p = 1.5 (1 - qqq), so pp - 3p + 1 = 0 and p is (3 - √5) / 2.
    """
    lists = {"q1": ["a"], "q2": ["a"], "q3": ["b"]}
    found = hubs(staged_of(Run(lists), {query: ["z"] for query in lists}), k=1)
    p = (3 - 5**0.5) / 2
    odds = np.array([3 * p * (1 - p) ** 2, 3 * p**2 * (1 - p), p**3])
    odds /= odds.sum()
    apart = np.array([1, 2, 3]) - 1.5
    assert odds @ apart == pytest.approx(0)
    assert found["by_chance"] == pytest.approx(odds @ apart**3 / (odds @ apart**2) ** 1.5)
    assert found["skewness"] == pytest.approx(0)


def test_without_a_corpus_items_in_one_list_or_in_all_have_no_skewness():
    for lists in ({"q1": ["a"], "q2": ["b"]}, {"q1": ["a", "b"], "q2": ["b", "a"]}):
        found = hubs(staged_of(Run(lists), {query: ["z"] for query in lists}))
        assert (found["skewness"], found["by_chance"]) == (None, None)


@pytest.mark.parametrize(("items", "queries"), [(1500, 80), (300, 80), (100, 200), (12, 40)])
def test_without_a_corpus_lists_by_chance_have_the_skewness_of_chance(items, queries):
    rng = np.random.default_rng(7)
    apart = []
    for _ in range(25):
        lists = {
            f"q{n}": [f"i{i}" for i in rng.choice(items, 5, replace=False)] for n in range(queries)
        }
        found = hubs(staged_of(Run(lists), {query: ["i0"] for query in lists}), k=5)
        assert found["of"] == "returned"
        apart.append(found["skewness"] - found["by_chance"])
    # four standard errors of the mean, and what few items cost
    assert abs(np.mean(apart)) < 4 * np.std(apart) / 5 + 0.02
    assert abs(np.mean(apart)) < 0.15


def test_lines_say_how_many_queries_make_a_hub():
    assert planted(lines=Thresholds(dominant_queries=9))["count"] == 1
    assert planted(lines=Thresholds(dominant_queries=10))["count"] == 0
    assert planted(lines=Thresholds(dominant_share=0.15))["count"] == 1
    assert planted(lines=Thresholds(dominant_share=0.151))["count"] == 0


def test_only_the_top_k_counts():
    found = planted(k=1)
    assert (found["count"], found["places"]) == (0, 60)


def test_where_every_list_holds_everything_nothing_is_a_hub():
    """Each item is in each list, often without being gold, but no more than it must."""
    items = [f"i{n}" for n in range(8)]
    lists = {f"q{n}": items for n in range(40)}
    gold = {f"q{n}": [items[n % 8]] for n in range(40)}
    found = hubs(staged_of(Run(lists), gold, corpus=Corpus(dict.fromkeys(items, "x"))), k=8)
    assert found["needed"] == 3
    assert (found["count"], found["skewness"], found["by_chance"]) == (0, None, None)


def test_lists_by_chance_have_hardly_ever_a_hub_and_the_skewness_of_chance():
    rng = np.random.default_rng(4)
    items = [f"i{n}" for n in range(200)]
    corpus = Corpus(dict.fromkeys(items, "x"))
    with_hubs, apart = 0, []
    for _ in range(60):
        lists = {f"q{n}": list(rng.choice(items, 5, replace=False)) for n in range(80)}
        staged = staged_of(Run(lists), {query: ["i0"] for query in lists}, corpus=corpus)
        found = hubs(staged, k=5)
        with_hubs += found["count"] > 0
        apart.append(found["skewness"] - found["by_chance"])
    # at most 5 in a hundred by design; 60 worlds allow for chance
    assert with_hubs <= 7
    assert abs(np.mean(apart)) < 0.06


def test_a_second_chunk_of_a_gold_document_is_gold():
    lists = {f"q{n}": ["doc#1", "doc#2", f"x{n}", f"y{n}"] for n in range(6)}
    gold = {f"q{n}": ["doc"] for n in range(6)}
    found = hubs(staged_of(Run(lists), gold, level="doc"), k=4)
    assert found["count"] == 0
    other = hubs(staged_of(Run(lists), {f"q{n}": ["doc#1"] for n in range(6)}), k=4)
    assert [hub["item_id"] for hub in other["hubs"]] == ["doc#2"]


def test_hubs_come_by_how_often_they_do_not_belong():
    lists = {f"q{n}": ["a"] + (["b"] if n % 2 else []) + [f"x{n}"] for n in range(20)}
    gold = {f"q{n}": [f"x{n}"] for n in range(20)}
    corpus = Corpus(
        {item: item for items in lists.values() for item in items}
        | {f"never{n}": "never" for n in range(200)}
    )
    found = hubs(staged_of(Run(lists), gold, corpus=corpus), k=3)
    assert [(hub["item_id"], hub["unrelated"]) for hub in found["hubs"]] == [("a", 20), ("b", 10)]


def test_an_empty_run_has_no_hubs():
    document = hubs(staged_of(Run({"q1": []}), {"q1": ["a"]})).to_dict()
    assert (document["count"], document["skewness"], document["share"]) == (0, None, None)
    assert json.dumps(document, allow_nan=False)


def test_a_cut_off_must_be_one():
    with pytest.raises(UsageError, match="k is 0; a whole number above 0"):
        planted(k=0)
