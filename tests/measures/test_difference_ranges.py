"""How far apart two systems could be: ranges held against every labelling, tried one by one."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import brute_force
import numpy as np
import pytest
import worlds
from hypothesis import given, settings
from hypothesis import strategies as st

import karat
from karat.errors import UsageError
from karat.measure.conventions import conventions_of
from karat.measure.evaluate_measure import values_of, why_unbounded
from karat.measure.names import Measure, parse_measure
from karat.measure.prepare import prepare
from karat.measure.ranges import (
    Range,
    Unjudged,
    difference_range,
    in_common,
    judged_more,
    listed,
    range_of,
)
from karat.measure.score_builder import score

OTHERS = [
    *("AUC(of='AP')@4", "AUC(of='F')@4", "AUC(of='ERR')@4", "AUC(of='nDCG')@4", "AUC(of='RR')@7"),
    *("AUC(of='WR')@7", "AUC(of='Hit')@7", "AUC(of='DCG')@4", "AP@2"),
]


class Two:
    """Two systems and their gold, ready to be compared."""

    def __init__(self, first, second, gold, names, *, own_k=None, **changes):
        conventions = conventions_of("karat", changes)
        queries = own_k and karat.Queries.from_dict(
            {query: {"text": query, "k": k} for query, k in own_k.items()}
        )
        self.gold = prepare(karat.Gold.from_dict(gold), conventions, queries=queries or None)
        every = [parse_measure(name, conventions=conventions) for name in names]
        self.measures = [m for m in dict.fromkeys(every) if why_unbounded(m, self.gold) is None]
        self.first, self.second = (
            listed(score(karat.Run.from_dict(run), self.gold, self.measures, keep=10**6))
            for run in (first, second)
        )

    def range(self, measure: Measure) -> Range:
        return difference_range(measure, self.first, self.second, self.gold)

    def apart(self, measure: Measure) -> dict[str, tuple[float, float]]:
        """Return the ranges of the difference if each system had labels of its own."""
        items, ends = in_common(self.first, self.second), []
        for lists, rank in ((self.first, items.first), (self.second, items.second)):
            order = np.lexsort((rank, items.query))
            both = Unjudged(items.query[order], rank[order], items.item_id.gather(order))
            ends.append(range_of(measure, replace(lists, unjudged=both), self.gold))
        first, second = ends
        return self.by_query(Range(second.low - first.high, second.high - first.low, False))

    def by_query(self, found: Range) -> dict[str, tuple[float, float]]:
        ends = zip(found.low.tolist(), found.high.tolist(), strict=True)
        return dict(zip(self.gold.query_ids, ends, strict=True))

    def ends(self, measure: Measure) -> dict[str, tuple[float, float]]:
        return self.by_query(self.range(measure))


def ends(name, first, second, gold):
    """The range of one query."""
    two = Two({"q": first}, {"q": second}, {"q": gold, "other": {"Z": 1}}, [name])
    return two.ends(two.measures[0])["q"]


@cache
def every_measure() -> tuple[str, ...]:
    # A world's own measures, each once, and those whose differences are put together.
    return (*worlds.every(without_calls=True), *OTHERS)


@st.composite
def comparisons(draw, top, unjudged):
    """Two systems over three queries: lists that share some items, or are the same, or missing."""
    grades = st.sampled_from([-1.0, 0.0, 0.0, 1.0, float(top), 0.5])
    gold, first, second, own_k = {"other": {"Z": float(top)}}, {}, {}, {"other": 3}
    for query in ("q1", "q2", "q3"):
        judged = [f"J{number}" for number in range(draw(st.integers(1, 6)))]
        pooled = iter([-1.0])
        # One item that was pooled and not judged is one more to be labelled.
        gold[query] = {
            item: next(pooled, 0.0) if grade < 0 else grade
            for item, grade in ((item, draw(grades)) for item in judged)
        }
        items = [*judged, *(f"U{number}" for number in range(draw(st.integers(0, unjudged))))]
        for run in (first, second):
            length = draw(st.integers(0, len(items)))
            run[query] = draw(st.permutations(items))[:length]
            if run[query] and draw(st.booleans()):
                at = draw(st.integers(1, length))
                run[query].insert(at, draw(st.sampled_from(run[query][:at])))
        if draw(st.integers(0, 9)) == 0:
            second[query] = list(first[query])
        if draw(st.integers(0, 9)) == 0:
            del first[query]
        own_k[query] = draw(st.integers(1, 4))
    first.setdefault("other", ["U1"])
    second.setdefault("other", ["Z"])
    return first, second, gold, own_k


CHANGES = st.sampled_from(
    [
        *({}, {"empty_gold": "zero"}, {"rel": 2}, {"missing": "skip"}),
        *({"gain": "exp"}, {"gain": "{1: 5, 2: 0.4}"}),
    ]
)


def hold_against_every_labelling(comparison, changes):
    first, second, gold, own_k = comparison
    two = Two(first, second, gold, every_measure(), own_k=own_k, **changes)
    names = [str(measure) for measure in two.measures]
    truth = brute_force.all_extremes(
        names, first, gold, second=second, own_k=own_k, settings=changes
    )
    for name, measure in zip(names, two.measures, strict=True):
        found = two.range(measure)
        apart = two.apart(measure)
        for query, (low, high) in two.by_query(found).items():
            lowest, highest = truth[name][query]
            if found.exact or math.isnan(lowest):
                assert (low, high) == pytest.approx((lowest, highest), abs=1e-9, nan_ok=True), name
            assert not low > lowest + 1e-9, name
            assert not high < highest - 1e-9, name
            # As wide as a range of each system by itself, at most.
            assert not low < apart[query][0] - 1e-9, name
            assert not high > apart[query][1] + 1e-9, name
            if query in first and first[query] == second[query] and not math.isnan(low):
                assert low == high == 0, name


@pytest.mark.parametrize(("top", "unjudged"), [(3, 3), (2, 4), (1, 5)])
def test_no_common_labelling_leads_out_of_a_range(top, unjudged):
    @settings(max_examples=6, deadline=None, derandomize=True, database=None)
    @given(comparisons(top, unjudged), CHANGES)
    def check(comparison, changes):
        hold_against_every_labelling(comparison, changes)

    check()


# With x and y for whether X and Y are relevant, |G| is 1 + x + y.
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("P@2", -1 / 2, 0),  # (x + y) / 2 - (1 + x) / 2
        ("R@2", -1, 0),  # (y - 1) / (1 + x + y)
        ("RR", -1, 0),  # the first list has 1 at once; the second 1, 1/2 or 0
        ("Hit@1", -1, 0),
        ("FPR@1", 0, 1),
        ("AP", -1, 1 / 6),  # safe: the second has 0 to 1, the first at least 5/6 if it has no 1
        ("DCG@2", -1, 0),  # x + y/log2(3) - 1 - x/log2(3), at x = y = 0 and x = y = 1
        ("NumRelRet", -1, 0),
        ("NumRel", 0, 0),
    ],
)
def test_a_comparison_that_can_be_worked_by_hand(name, low, high):
    assert ends(name, ["A", "X"], ["X", "Y"], {"A": 1}) == pytest.approx((low, high), abs=1e-12)


def test_one_labelling_for_both_leaves_less_room_than_one_for_each():
    gold, first, second = {"A": 1}, ["A", "X"], ["X", "Y"]
    two = Two({"q": first}, {"q": second}, {"q": gold}, ["P@2"])
    one, other = (range_of(two.measures[0], own, two.gold) for own in (two.first, two.second))
    apart = (other.low[0] - one.high[0], other.high[0] - one.low[0])
    assert apart == (-1, 0.5)
    assert two.ends(two.measures[0])["q"] == (-0.5, 0)


def test_an_item_of_one_list_grows_the_gold_of_the_other():
    # Alone, A stays at recall 1; with B relevant too, each list has half of the gold.
    gold, first, second = {"A": 1}, ["A"], ["B"]
    assert ends("R@1", first, second, gold) == (-1, 0)
    assert ends("nDCG", first, second, gold) == (-1, 0)
    assert ends("AP", first, second, gold) == (-1, 0)


def test_an_item_beyond_every_cut_off_still_grows_the_gold():
    gold = {"A": 1}
    low, high = ends("R@1", ["A", "U1", "U2"], ["N", "U3"], {**gold, "N": 0})
    assert (low, high) == (-1, pytest.approx(-1 / 4))


def test_a_middling_grade_may_be_the_best_for_the_difference():
    # Grade 1 makes the second list ideal; grade 2 would be misplaced at rank 2.
    gold = {"q": {"A": 1, "B": 1, "N": 0}, "other": {"Z": 2}}
    two = Two({"q": ["N"]}, {"q": ["B", "U"]}, gold, ["nDCG@2"])
    discount = 1 / math.log2(3)
    assert (1 + 2 * discount) / (2 + discount) < 0.9
    assert two.ends(two.measures[0])["q"] == pytest.approx((1 / (1 + discount), 1), abs=1e-12)


def test_a_shared_item_lifts_a_miss_to_a_draw():
    assert ends("Hit@2", ["A", "X"], ["N", "X"], {"A": 1, "N": 0}) == (-1, 0)
    assert ends("RR", ["A", "X"], ["N", "X"], {"A": 1, "N": 0}) == (-1, -1 / 2)


def test_the_same_lists_never_differ():
    items = [f"U{number}" for number in range(40)]
    run = {"q": [*items[:20], "A", *items[20:]], "p": items}
    two = Two(run, dict(run), {"q": {"A": 2, "B": 1}, "p": {"B": 3}}, every_measure())
    for measure in two.measures:
        found = two.range(measure)
        assert found.exact, measure
        known = ~np.isnan(two.first.values(str(measure)))
        assert known.any()
        assert not found.low[known].any(), measure
        assert not found.high[known].any(), measure


def world(seed):
    """Long lists that share much, with little gold: far too many labellings to try."""
    rng = np.random.default_rng(seed)
    gold, runs = {}, ({}, {})
    for query in ("q1", "q2", "q3", "q4"):
        size = int(rng.integers(15, 40))
        items = [f"I{number}" for number in range(size)]
        gold[query] = {items[at]: float(rng.integers(0, 4)) for at in rng.choice(size, 5)}
        gold[query]["Z"] = 1.0
        near = rng.normal(size=size)
        for run in runs:
            order = np.argsort(near + rng.normal(size=size) * rng.choice([0.2, 1.0]))
            run[query] = [items[at] for at in order[: int(rng.integers(size // 2, size + 1))]]
    return Two(*runs, gold, ["nDCG@5", "RR", "R@10", "WR@5", "F@5", *LONG])


LONG = (
    *("AP", "AP@10", "AP(norm='k')@10", "ERR", "ERR@20", "SetF", "All@5"),
    *("AUC(of='AP')@10", "AUC(of='ERR')@10", "AUC(of='nDCG')@10"),
)


@pytest.mark.parametrize("seed", range(3))
def test_no_labelling_of_long_lists_leads_out_of_the_range(seed):
    two = world(seed)
    rng = np.random.default_rng(seed)
    common = in_common(two.first, two.second)
    size, n = len(common.query), len(two.gold.query_ids)
    share = rng.choice([0.02, 0.1, 0.5, 1.0], size=(150, 1))
    labels = np.where(rng.random((150, size)) < share, rng.integers(1, 4, (150, size)), 0)
    # What is better placed in one list is what is likely to set it apart.
    above = [common.second < common.first, common.first < common.second]
    helpful = [np.where(side & (rng.random(size) < p), 3, 0) for side in above for p in (0.3, 1)]
    labels = np.vstack((labels, helpful, np.zeros(size))).astype(np.float64)
    of = np.tile(np.arange(n), len(labels))
    owner = (n * np.arange(len(labels))[:, None] + common.query).ravel()
    lists = [
        judged_more(own.ranked, of, owner, np.tile(ranks, len(labels)), labels.ravel())
        for own, ranks in ((two.first, common.first), (two.second, common.second))
    ]
    for measure in two.measures:
        first, second = (values_of(measure, ranked, two.gold) for ranked in lists)
        gap, found = (second - first).reshape(-1, n), two.range(measure)
        assert (gap <= found.high + 1e-9).all(), measure
        assert (gap >= found.low - 1e-9).all(), measure


def test_a_list_of_many_unjudged_items_may_win_by_all_of_them():
    # 20 relevant items at its top are 20 of 25: no other number of them is a larger share.
    lists = {"q": [f"U{number}" for number in range(20)]}
    gold = {"q": {**{f"A{number}": 1 for number in range(5)}, "N": 0}}
    two = Two({"q": ["N"]}, lists, gold, ["AP", "AP@20"])
    for measure in two.measures:
        assert two.ends(measure)["q"] == pytest.approx((0, 20 / 25), abs=1e-4), measure


def test_swapping_the_systems_swaps_the_ends():
    two = world(7)
    for measure in two.measures:
        found, back = (
            difference_range(measure, *pair, two.gold)
            for pair in ((two.first, two.second), (two.second, two.first))
        )
        np.testing.assert_allclose(found.low, -back.high, atol=1e-12)


def test_a_measure_without_bounds_is_refused_with_the_reason():
    two = Two({"q": ["A"]}, {"q": ["B"]}, {"q": {"A": 1}}, ["P@1"])
    with pytest.raises(UsageError, match="Judged@5 counts which items are judged"):
        difference_range(parse_measure("Judged@5"), two.first, two.second, two.gold)


def test_a_query_without_a_value_has_no_range():
    gold = {"q": {"A": 1}, "empty": {"B": 0}}
    lists = {"q": ["A", "U"], "empty": ["U"]}
    two = Two(lists, {"q": ["U"], "empty": ["V"]}, gold, ["nDCG", "P@1", "AP"])
    for measure in two.measures:
        low, high = two.ends(measure)["empty"]
        assert math.isnan(low)
        assert math.isnan(high)
