"""Near-duplicates within lists against brute force, and the measures beside them."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from returned import Corpus, Run, staged_of

from karat.analysis.diagnose.diversity import diversity, diversity_measures
from karat.errors import UsageError
from karat.evaluation.top_lists import MOST

# pay and pay2 share all words, fee has 4 of 5 words of pay (0.8), tax 4 of 5 of fee, 3 of 5 of pay
TEXTS = {
    "pay#1": "you pay by card monthly",
    "pay#2": "monthly YOU pay by card!",
    "fee#1": "you pay by card",
    "tax#1": "you pay by card taxes",
    "sea#1": "ships sail the sea",
    "sea#2": "storms break many masts",
}


def looked_at(lists, texts=TEXTS, *, k=5, overlap=0.8, keep=10, gold=None, **settings):
    corpus = None if texts is None else Corpus(texts)
    gold = gold or {query: ["sea#1"] for query in lists}
    staged = staged_of(
        Run(lists), gold, diversity_measures(k), corpus=corpus, keep=keep, **settings
    )
    return diversity(staged, k=k, overlap=overlap), staged


def test_near_duplicates_of_higher_places_are_counted():
    lists = {
        "q1": ["pay#1", "sea#1", "pay#2", "fee#1"],
        "q2": ["sea#1", "sea#2"],
        "q3": ["sea#1", "pay#2", "pay#1"],
    }
    near = looked_at(lists)[0]["near"]
    assert (near["places"], near["repeats"], near["queries"]) == (9, 3, 2)
    # of q1 two of four, of q2 none, of q3 one of three
    assert near["share"]["mean"] == pytest.approx((2 / 4 + 0 + 1 / 3) / 3)
    assert near["share"]["n"] == 3
    assert near["clusters"] == 2
    assert near["largest"][0] == {
        "query_id": "q1",
        "size": 3,
        "ranks": [1, 3, 4],
        "items": ["pay#1", "pay#2", "fee#1"],
        "text": "you pay by card monthly",
    }
    assert near["largest"][1]["items"] == ["pay#2", "pay#1"]


def test_pairs_that_occur_together_most_often_come_first():
    lists = {
        "q1": ["pay#1", "pay#2", "fee#1"],
        "q2": ["fee#1", "pay#1"],
        "q3": ["pay#1", "sea#1", "fee#1"],
    }
    pairs = looked_at(lists)[0]["near"]["pairs"]
    assert [(pair["items"], pair["queries"]) for pair in pairs] == [
        (["fee#1", "pay#1"], 3),
        (["fee#1", "pay#2"], 1),
        (["pay#1", "pay#2"], 1),
    ]
    assert [pair["similarity"] for pair in pairs] == [0.8, 0.8, 1.0]
    assert pairs[0]["texts"] == ["you pay by card", "you pay by card monthly"]


def test_clusters_are_joined_through_what_lies_between():
    """tax is near fee and fee near pay, though tax is not near pay: one cluster, one repeat."""
    near = looked_at({"q1": ["pay#1", "tax#1", "fee#1"]})[0]["near"]
    assert (near["repeats"], near["clusters"]) == (1, 1)
    assert near["largest"][0]["ranks"] == [1, 2, 3]


def test_only_the_top_k_and_one_list_at_a_time():
    lists = {"q1": ["pay#1", "sea#1", "pay#2"], "q2": ["pay#2", "sea#2"]}
    near = looked_at(lists, k=2)[0]["near"]
    assert (near["places"], near["repeats"], near["largest"], near["pairs"]) == (4, 0, [], [])


def test_the_overlap_that_counts_can_be_set():
    lists = {"q1": ["pay#1", "tax#1"]}
    # 4 of 6 words
    assert looked_at(lists, overlap=0.66)[0]["near"]["repeats"] == 1
    assert looked_at(lists, overlap=0.67)[0]["near"]["repeats"] == 0
    with pytest.raises(UsageError, match=r"from 0\.5 to 1"):
        looked_at(lists, overlap=0.4)


def test_items_without_a_text_take_no_part():
    texts = {"a": "", "b": "  ", "c": "how to pay", "d": "how to pay"}
    near = looked_at({"q1": ["a", "b", "unknown", "c", "d"]}, texts)[0]["near"]
    assert (near["places"], near["without_text"], near["repeats"]) == (5, 3, 1)
    assert near["share"]["mean"] == 0.5


def test_the_measures_are_those_of_the_report():
    lists = {"q1": ["pay#1", "pay#2", "sea#1"], "q2": ["sea#1", "fee#1"], "q3": []}
    found, staged = looked_at(lists, k=3)
    assert [one["measure"] for one in found["measures"]] == diversity_measures(3)
    docs, redundancy, novelty = found["measures"]
    # q3 was answered with nothing, so nothing of it repeats and nothing is new
    assert docs["mean"] == pytest.approx((2 + 2 + 0) / 3)
    assert (redundancy["mean"], redundancy["n"]) == (pytest.approx((1 / 3 + 1 / 3) / 2), 2)
    assert novelty["mean"] == pytest.approx((2 / 3 + 1) / 2)
    for one in found["measures"]:
        expected = staged.final.summaries[one["measure"]]
        assert (one["mean"], one["n"]) == (expected.mean, expected.n)
        assert one["ci"] == pytest.approx(list(expected.ci))


words = st.lists(st.sampled_from("abcdefgh"), min_size=3, max_size=8, unique=True).map(" ".join)


@settings(max_examples=40)
@given(
    st.lists(words, min_size=2, max_size=7),
    st.lists(st.permutations(range(7)), min_size=1, max_size=4),
    st.integers(1, 7),
    st.sampled_from([0.5, 0.6, 0.8, 1.0]),
)
def test_brute_force_finds_the_same(texts, orders, k, overlap):
    texts = {f"i{n}": text for n, text in enumerate(texts)}
    sets = {item: frozenset(text.split()) for item, text in texts.items()}
    lists = {
        f"q{n}": [f"i{at}" for at in order if f"i{at}" in texts] for n, order in enumerate(orders)
    }

    def close(one, other):
        return len(sets[one] & sets[other]) >= overlap * len(sets[one] | sets[other])

    shares, sizes, together = [], [], Counter()
    for items in lists.values():
        top = items[:k]
        pairs = [
            pair for pair in combinations(range(len(top)), 2) if close(*(top[i] for i in pair))
        ]
        shares.append(len({lower for _, lower in pairs}) / len(top))
        together.update(tuple(sorted(top[i] for i in pair)) for pair in pairs)
        cluster = {place: {place} for place in range(len(top))}
        for a, b in pairs:
            merged = cluster[a] | cluster[b]
            cluster.update(dict.fromkeys(merged, merged))
        sizes += [len(one) for one in {frozenset(c) for c in cluster.values()} if len(one) > 1]
    gold = {query: ["i0"] for query in lists}
    found = looked_at(lists, texts, k=k, overlap=overlap, gold=gold, boot=100)[0]["near"]
    assert found["share"]["mean"] == pytest.approx(np.mean(shares))
    assert found["clusters"] == len(sizes)
    assert [one["size"] for one in found["largest"]] == sorted(sizes, reverse=True)[:MOST]
    assert {tuple(one["items"]): one["queries"] for one in found["pairs"]} == dict(
        sorted(together.items(), key=lambda one: (-one[1], one[0]))[:MOST]
    )


@settings(max_examples=40)
@given(st.lists(words, min_size=2, max_size=6))
def test_what_is_no_repeat_is_novel(texts):
    """One list of all texts: the measure with this overlap says the same."""
    corpus = Corpus({f"i{n}": text for n, text in enumerate(texts)})
    measures = [*diversity_measures(6), "Novelty(overlap=0.8)@6"]
    run = Run({"q": list(corpus.frame["item_id"])})
    staged = staged_of(run, {"q": ["i0"]}, measures, corpus=corpus)
    novelty = staged.final.means()["Novelty(overlap=0.8)@6"]
    assert diversity(staged, k=6)["near"]["share"]["mean"] == pytest.approx(1 - novelty)


def test_without_a_corpus_documents_are_counted_and_texts_are_asked_for():
    found, _ = looked_at({"q1": ["pay#1", "pay#2"]}, None)
    assert [one["measure"] for one in found["measures"]] == ["DistinctDocs@5", "Redundancy@5"]
    assert found["near"] is None
    assert found["lacks"] == ["Novelty needs the items' texts: give --corpus"]


def test_an_empty_run_is_looked_at_too():
    near = looked_at({"q1": []})[0]["near"]
    assert (near["places"], near["repeats"], near["share"]["mean"]) == (0, 0, None)
    assert json.dumps(looked_at({"q1": []})[0].to_dict(), allow_nan=False)


def test_the_document_is_the_same_every_time():
    lists = {f"q{n}": ["pay#1", "pay#2", "fee#1", "sea#1"][: n % 4 + 1] for n in range(8)}
    one, again = (json.dumps(looked_at(lists)[0].to_dict()) for _ in range(2))
    assert one == again
