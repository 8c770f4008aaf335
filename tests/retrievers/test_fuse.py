"""Fusion: against ranx, by hand, and what a fused answer tells of its parts."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import pytest
from given_lists import Failing, Given, hits, ids
from hypothesis import given
from hypothesis import strategies as st

from karat.errors import CallError, InputError
from karat.formats.settings import Place, validate
from karat.retrieve.fuse import (
    Fuse,
    Options,
    by_interpolation,
    by_reciprocal_rank,
    by_weighted_score,
    parts,
)
from karat.retrieve.protocol import Hit, Query

ASKED = [Query("q1", "apple tart")]

# Distinct scores in every list: ranx leaves the order of equal ones open.
FIRST = hits("a", 9.5, "b", 7.25, "c", 4.0, "d", 1.5)
SECOND = hits("c", 0.91, "e", 0.55, "a", 0.5, "f", 0.12, "b", 0.02)
THIRD = hits("f", 120.0, "a", 30.0, "g", -4.0)


def options(**given):
    return validate(Options, given, Place("karat.yaml"))


def fuse(*lists, **how):
    names = [f"p{number}" for number in range(len(lists))]
    finder = Fuse(options(of=names, **how), dict(zip(names, map(Given, lists), strict=True)))
    return finder.find(ASKED, 100)[0]


def scores_of(found):
    return {hit.item_id: hit.score for hit in found}


_RANX = """
import json, sys, warnings
warnings.simplefilter("ignore")
import ranx
fused = []
for lists, norm, method, params in json.load(sys.stdin):
    runs = [ranx.Run({"q1": scores}) for scores in lists]
    run = ranx.fuse(runs=runs, norm=norm, method=method, params=params)
    fused.append({item: float(score) for item, score in run["q1"].items()})
json.dump(fused, sys.stdout)
"""


def by_ranx(jobs):
    """ranx in a process of its own, uncompiled: the same numbers without half a minute of JIT."""
    done = subprocess.run(
        [sys.executable, "-c", _RANX],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )
    return json.loads(done.stdout)


def drawn_lists(seed):
    """A few lists of distinct scores over forty items, on scales of their own."""
    chance = random.Random(seed)
    lists = []
    for _ in range(chance.randint(2, 4)):
        items = chance.sample(range(40), chance.randint(2, 30))
        scores = sorted((chance.gauss(0, 10 ** chance.randint(-2, 3)) for _ in items), reverse=True)
        lists.append([Hit(f"d{item}", score) for item, score in zip(items, scores, strict=True)])
    return lists


def test_rrf_and_weighted_minmax_agree_with_ranx():
    worlds = [[FIRST, SECOND], [FIRST, SECOND, THIRD], *(drawn_lists(seed) for seed in range(20))]
    jobs, ours = [], []
    for at, lists in enumerate(worlds):
        plain = [scores_of(found) for found in lists]
        weights = [round(0.1 + 0.3 * ((at + place) % 4), 1) for place in range(len(lists))]
        jobs.append((plain, None, "rrf", {"k": 60 if at % 2 else 5}))
        ours.append(fuse(*lists, rank_constant=60 if at % 2 else 5).hits)
        jobs.append((plain, "min-max", "wsum", {"weights": weights}))
        ours.append(fuse(*lists, method="weighted", weights=weights).hits)
    for theirs, found in zip(by_ranx(jobs), ours, strict=True):
        assert scores_of(found) == pytest.approx(theirs)


def test_rrf_by_hand_with_weights():
    found = fuse(hits("a", 3.0, "b", 2.0), hits("b", 9.0), weights=[2, 1])
    assert ids(found.hits) == ["b", "a"]
    assert scores_of(found.hits) == pytest.approx({"a": 2 / 61, "b": 2 / 62 + 1 / 61})


def test_rrf_goes_by_the_order_of_a_list_whatever_its_scores():
    found = fuse(hits("a", 1.0, "b", 5.0), hits("a", None, "c", None))
    assert ids(found.hits) == ["a", "b", "c"]


def test_equal_sums_go_by_the_rank_in_the_first_list_then_the_second():
    found = fuse(hits("z", 2.0, "m", 1.0), hits("a", 2.0, "m", 1.0))
    assert ids(found.hits) == ["m", "z", "a"]
    swapped = fuse(hits("z", 2.0, "a", 1.0), hits("a", 2.0, "z", 1.0), hits("a", 1.0, "z", 0.5))
    assert ids(swapped.hits) == ["a", "z"]
    even = fuse(hits("z", 2.0, "a", 1.0), hits("a", 2.0, "z", 1.0))
    assert ids(even.hits) == ["z", "a"]


def test_the_same_ranks_in_another_order_are_a_tie():
    x, y = (1, 2, 7), (7, 1, 2)
    # Added one by one, the two sums differ in their last bit.
    assert sum(1 / (60 + rank) for rank in x) != sum(1 / (60 + rank) for rank in y)
    lists = [[Hit(f"{at}-{rank}") for rank in range(1, 8)] for at in range(3)]
    for at in range(3):
        lists[at][x[at] - 1], lists[at][y[at] - 1] = Hit("x"), Hit("y")
    fused = by_reciprocal_rank(lists, [1, 1, 1])
    assert ids(fused[:2]) == ["x", "y"]
    assert fused[0].score == fused[1].score


def test_weighted_by_hand_without_scaling_counts_what_is_missing_as_the_least():
    found = fuse(
        hits("a", 8.0, "b", 3.0), hits("b", 5.0, "c", 2.0), method="weighted", scale="none"
    )
    assert scores_of(found.hits) == {"a": 8 + 2, "b": 3 + 5, "c": 3 + 2}


def test_weighted_zscore_by_hand():
    # Deviations of 1, 2, 3 from their mean: -1, 0, 1 over sqrt(2/3).
    unit = (3 / 2) ** 0.5
    found = fuse(
        hits("a", 3.0, "b", 2.0, "c", 1.0), hits("c", 10.0, "d", 8.0), method="weighted",
        scale="zscore",
    )  # fmt: skip
    assert scores_of(found.hits) == pytest.approx(
        {"a": unit - 1, "b": -1, "c": -unit + 1, "d": -unit - 1}
    )


def test_where_all_scores_are_equal_minmax_takes_them_for_the_best():
    found = fuse(hits("a", 4.0), hits("b", 3.0, "a", 2.0), method="weighted")
    assert scores_of(found.hits) == {"a": 1.0, "b": 1.0}
    assert ids(found.hits) == ["a", "b"]


def test_an_empty_list_changes_nothing():
    for how in ({"method": "rrf"}, {"method": "weighted"}, {"method": "weighted", "scale": "none"}):
        assert ids(fuse(FIRST, [], **how).hits) == ids(FIRST)
    assert fuse([], [], method="weighted").hits == []
    assert ids(fuse([], SECOND, method="interpolate").hits) == ids(SECOND)


def test_interpolation_by_hand():
    first, second = hits("a", 3.0, "b", 2.0, "c", 1.0), hits("c", 0.9, "d", 0.8, "a", 0.1)
    found = fuse(first, second, method="interpolate", alpha=0.6)
    assert scores_of(found.hits) == pytest.approx(
        {
            "a": 0.6 / 61 + 0.4 / 63,
            "b": 0.6 / 62,
            "c": 0.6 / 63 + 0.4 / 61,
            "d": 0.4 / 62,
        }
    )
    assert ids(found.hits) == ["a", "c", "b", "d"]


def test_interpolation_ranks_by_score_then_id_not_by_the_order_given():
    found = by_interpolation(hits("b", 1.0, "c", 5.0, "a", 1.0), hits("z", 0.5), alpha=1.0)
    assert ids(found) == ["c", "a", "b", "z"]
    assert [hit.score for hit in found] == [1 / 61, 1 / 62, 1 / 63, 0.0]


def test_interpolated_ties_go_by_id():
    found = fuse(hits("b", 2.0), hits("a", 2.0), method="interpolate", alpha=0.5)
    assert ids(found.hits) == ["a", "b"]


@pytest.mark.parametrize("method", ["weighted", "interpolate"])
def test_methods_that_need_scores_say_whose_are_missing(method):
    with pytest.raises(CallError, match=r"part 'p1': item 'x' has no score.*rrf goes by ranks"):
        fuse(FIRST, [Hit("x")], method=method)


def test_of_equal_ids_in_one_list_the_first_counts():
    twice = hits("a", 9.0, "b", 8.0, "a", 1.0, "c", 0.5)
    once = hits("a", 9.0, "b", 8.0, "c", 0.5)
    for how in ("rrf", "weighted", "interpolate"):
        assert fuse(twice, SECOND, method=how).hits == fuse(once, SECOND, method=how).hits


def test_one_part_keeps_its_list_and_its_scores_as_they_are():
    found = [Hit("b", 0.1, text="x"), Hit("a", None, source="s"), Hit("b", 0.1)]
    assert fuse(found).hits == found


def test_hits_keep_what_the_first_part_that_knows_it_says():
    first = [Hit("a", 1.0, doc_id="d1", text=None, similarity=0.25)]
    second = [Hit("a", 7.0, "d2", "2026-01-01", "wiki", 0.75, "apple tart")]
    found = fuse(first, second).hits
    assert found == [Hit("a", 2 / 61, "d1", "2026-01-01", "wiki", 0.25, "apple tart")]


def test_the_answer_holds_lists_times_and_costs_of_its_parts():
    one = Given(FIRST, lists={"raw": SECOND}, latency={"retrieve": 1.0, "rerank": 2.0},
                cost={"usd": 0.25, "calls": 1})  # fmt: skip
    other = Given(SECOND, latency={"retrieve": 1.0}, cost={"usd": 0.5}, rewritten="tart")
    answer = Fuse(options(of=["one", "other"]), {"one": one, "other": other}).find(ASKED, 3)[0]
    assert answer.lists == {"one.raw": SECOND, "one": FIRST[:3], "other": SECOND[:3]}
    assert set(answer.latency) == {"one", "one.retrieve", "one.rerank", "other"}
    assert answer.latency["one.rerank"] == 2.0
    assert answer.cost == {"usd": 0.75, "calls": 1}
    assert answer.rewritten == "tart"
    assert len(answer.hits) == 3


def test_parts_are_asked_for_k_and_all_queries_at_once():
    one, other = Given(FIRST), Given(SECOND)
    finder = Fuse(options(of=["one", "other"]), {"one": one, "other": other})
    answers = finder.find([Query("q1", "a"), Query("q2", "b")], 7)
    assert len(answers) == 2
    assert one.asked == other.asked == [(["q1", "q2"], 7)]


def test_a_part_that_fails_fails_the_call_with_its_name():
    busy = Failing(CallError("status 429", may_pass=True, wait=7.5))
    finder = Fuse(options(of=["one", "live"]), {"one": Given(FIRST), "live": busy})
    with pytest.raises(CallError, match="part 'live': status 429") as caught:
        finder.find(ASKED, 5)
    assert (caught.value.may_pass, caught.value.wait) == (True, 7.5)


def test_sizes_of_the_parts_add_up():
    one = Given([], meta={"index_bytes": 10, "model": "m"})
    other = Given([], meta={"index_bytes": 5, "embedding_updates": 3})
    meta = Fuse(options(of=["one", "other"]), {"one": one, "other": other}).meta
    assert (meta["index_bytes"], meta["embedding_updates"]) == (15, 3)
    assert meta["parts"]["one"] == {"index_bytes": 10, "model": "m"}
    assert "index_bytes" not in Fuse(options(of=["one"]), {"one": Given([])}).meta


def test_local_parts_share_the_larger_batch_and_remote_ones_the_smaller():
    near = Fuse(options(of=["a", "b"]), {"a": Given([], batch=32), "b": Given([])})
    far = Given([], concurrency=8)
    mixed = Fuse(options(of=["a", "b"]), {"a": Given([], batch=32), "b": far})
    assert (near.batch, near.concurrency) == (32, 1)
    assert (mixed.batch, mixed.concurrency) == (1, 1)
    both = Fuse(options(of=["a", "b"]), {"a": Given([], concurrency=4), "b": far})
    assert both.concurrency == 4


def test_it_is_deep_where_every_part_is():
    deep, shallow = Given([]), Given([], deep=False)
    assert Fuse(options(of=["a", "b"]), {"a": deep, "b": deep}).deep
    assert not Fuse(options(of=["a", "b"]), {"a": deep, "b": shallow}).deep


def test_parts_are_called_by_their_names_numbered_where_they_repeat():
    inline = {"retriever": "bm25", "b": 0.3}
    listed = parts(options(of=["bm25", inline, inline, "hybrid"]))
    assert list(listed) == ["bm25", "bm25-2", "bm25-3", "hybrid"]
    assert list(parts(options(of={"words": "bm25", "short": inline}))) == ["words", "short"]


@pytest.mark.parametrize(
    ("given_options", "message"),
    [
        ({"of": []}, "of is empty"),
        ({"of": ["a", "b"], "weights": [1]}, "weights has 1 numbers for 2 retrievers"),
        ({"of": ["a", "b"], "weights": [0, 0]}, "weights are all 0"),
        ({"of": ["a", "b"], "weights": [1, -1]}, "weights is .*it must be a list of numbers"),
        ({"of": ["a", "b"], "weights": [1, float("nan")]}, "it must be a list of numbers"),
        ({"of": ["a", "b", "c"], "method": "interpolate"}, "takes two retrievers; of has 3"),
        ({"of": ["a"], "method": "interpolate"}, "takes two retrievers; of has 1"),
        ({"of": ["a", "b"], "alpha": 0.4}, "alpha goes with method interpolate, not rrf"),
        ({"of": ["a", "b"], "scale": "none"}, "scale goes with method weighted, not rrf"),
        (
            {"of": ["a", "b"], "method": "interpolate", "weights": [1, 2]},
            "weights goes with method rrf or weighted, not interpolate",
        ),
        (
            {"of": ["a", "b"], "method": "weighted", "rank_constant": 5},
            "rank_constant goes with method rrf or interpolate",
        ),
        ({"of": ["a", "b"], "method": "rff"}, "method is 'rff'; it must be rrf, weighted or"),
        ({"of": ["a", "raw"]}, "a part cannot be called 'raw'"),
        ({"of": {"mmr": "bm25"}}, "a part cannot be called 'mmr'"),
        ({"of": "bm25"}, "of is 'bm25'; it must be a list of retrievers"),
        ({"of": ["a", 3]}, "it must be a list of retrievers"),
        ({"method": "rrf"}, "of is missing; give a list of retrievers"),
    ],
)
def test_what_cannot_be_meant_is_refused(given_options, message):
    with pytest.raises(InputError, match=message):
        options(**given_options)


some_hits = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(-1e6, 1e6)), max_size=12).map(
    lambda pairs: [Hit(item, score) for item, score in pairs]
)


@given(st.lists(some_hits, min_size=2, max_size=4))
def test_fused_lists_hold_each_item_once_by_falling_score(lists):
    weights = [1.0] * len(lists)
    wanted = {hit.item_id for found in lists for hit in found}
    pair = {hit.item_id for found in lists[:2] for hit in found}
    for fused, held in (
        (by_reciprocal_rank(lists, weights), wanted),
        (by_weighted_score(lists, weights, "minmax"), wanted),
        (by_weighted_score(lists, weights, "zscore"), wanted),
        (by_weighted_score(lists, weights, "none"), wanted),
        (by_interpolation(lists[0], lists[1], 0.3), pair),
    ):
        assert sorted(ids(fused)) == sorted(held)
        scores = [hit.score for hit in fused]
        assert scores == sorted(scores, reverse=True)


@given(some_hits, some_hits)
def test_the_best_of_both_lists_stays_the_best(first, second):
    for found in (first, second):
        found.sort(key=lambda hit: -hit.score)
        found.insert(0, Hit("best", 2e6))
    for fused in (
        by_reciprocal_rank([first, second], [1, 1]),
        by_weighted_score([first, second], [0.3, 0.7], "minmax"),
        by_interpolation(first, second, 0.8),
    ):
        assert fused[0].item_id == "best"
