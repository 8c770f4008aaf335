"""Edits of lists: worked by hand, and what holds for every list."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karat.analysis.stress.edits import Drop, Insert, ListToEdit, Shuffle, Truncate

LIST = [("a", 0.9), ("b", 0.7), ("c", 0.5), ("d", 0.1)]


def case(entries=LIST, **told):
    return ListToEdit("q1", entries, **told)


def ids(edited):
    return "".join(edited.ids)


@pytest.mark.parametrize(
    ("ranks", "negatives", "expected"),
    [
        ((1, 2, 3), ["x", "y", "z"], "xyzabcd"),
        ((1, 3), ["x", "y"], "xaybcd"),
        ((2,), ["x", "y"], "axbcd"),
        ((5,), ["x"], "abcdx"),
        ((6,), ["x"], "abcdx"),  # the list does not reach rank 6
        ((1, 9, 10), ["x", "y", "z"], "xabcdyz"),
        ((1,), ["d"], "dabc"),  # moved, not doubled
        ((4,), ["a"], "bcda"),  # down as well
        ((1, 2), ["c", "a"], "cabd"),
        ((1, 2, 3), ["x"], "xabcd"),
        ((1, 2), [], "abcd"),
        ((1, 2), ["x", "x", "y"], "xyabcd"),
    ],
)
def test_negatives_stand_where_they_were_asked_for(ranks, negatives, expected):
    assert ids(Insert(ranks).apply(case(negatives=negatives))) == expected


def test_what_insert_says_of_a_list():
    edited = Insert((1, 2, 8)).apply(
        case(gold={"g": 1.0, "b": 2.0}, negatives=["g", "d", "b", "x"])
    )
    assert ids(edited) == "dxabc"
    assert edited.placed == ("d", "x")
    assert (edited.moved, edited.refused, edited.short, edited.beyond) == (1, 2, True, 0)
    whole = Insert((1, 8)).apply(case(negatives=["x", "y", "z"]))
    assert (whole.moved, whole.refused, whole.short, whole.beyond) == (0, 0, False, 1)
    assert whole.placed == ("x", "y")


def test_an_edit_that_changes_nothing_says_so():
    assert not Insert((1,)).apply(case(negatives=["a"])).changed
    assert not Truncate(4).apply(case()).changed
    assert not Drop("gold").apply(case()).changed
    assert Truncate(3).apply(case()).changed
    assert Insert((1,)).apply(case(negatives=["b"])).changed


def test_an_inserted_item_gets_a_score_between_its_neighbours():
    scored = dict(Insert((2, 3, 6)).apply(case(negatives=["x", "y", "z"])).entries)
    assert scored["x"] == pytest.approx(0.9 - 0.2 / 3)
    assert scored["y"] == pytest.approx(0.9 - 0.4 / 3)
    assert scored["z"] == pytest.approx(0.3)
    assert {item: scored[item] for item, _ in LIST} == dict(LIST)


def test_on_top_a_score_is_barely_above_and_at_the_end_barely_below():
    scores = [score for _, score in Insert((1, 2, 7)).apply(case(negatives="xyz")).entries]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 7
    assert scores[0] == pytest.approx(0.9)
    assert scores[-1] == pytest.approx(0.1)


def test_between_equal_scores_the_score_is_the_same_one():
    tied = [("a", 0.3), ("b", 0.3), ("c", 0.3)]
    edited = Insert((2, 3)).apply(case(tied, negatives=["x", "y"]))
    assert edited.entries[:4] == (("a", 0.3), ("x", 0.3), ("y", 0.3), ("b", 0.3))


def test_the_largest_scores_stay_finite():
    huge = [("a", 1.7976931348623157e308), ("b", -1.7976931348623157e308)]
    scores = [score for _, score in Insert((1, 3, 5)).apply(case(huge, negatives="xyz")).entries]
    assert scores == [huge[0][1], huge[0][1], 0.0, huge[1][1], huge[1][1]]


def test_a_list_without_scores_stays_without():
    bare = [("a", None), ("b", None)]
    assert Insert((1,)).apply(case(bare, negatives=["x"])).entries == (
        ("x", None),
        ("a", None),
        ("b", None),
    )


def test_an_empty_list_is_filled_in_falling_order():
    edited = Insert((1, 2)).apply(case([], negatives=["x", "y"]))
    assert ids(edited) == "xy"
    assert edited.entries[0][1] > edited.entries[1][1]
    assert edited.beyond == 0


def test_the_first_items_are_dropped():
    assert Drop(2).apply(case()).entries == tuple(LIST[2:])
    assert Drop(9).apply(case()).entries == ()
    assert (Drop(4).apply(case()).short, Drop(5).apply(case()).short) == (False, True)


def test_the_best_gold_item_is_dropped():
    assert ids(Drop("gold").apply(case(gold={"b": 1.0, "d": 1.0}))) == "acd"
    assert ids(Drop("gold").apply(case(gold={"b": 1.0, "d": 3.0}))) == "abc"
    nothing = Drop("gold").apply(case(gold={"z": 1.0}))
    assert (ids(nothing), nothing.short) == ("abcd", True)


def test_only_the_first_go_on():
    assert Truncate(3).apply(case()).entries == tuple(LIST[:3])
    assert (Truncate(4).apply(case()).short, Truncate(5).apply(case()).short) == (False, True)


def test_a_shuffled_list_has_the_same_items_and_its_scores_still_fall():
    many = [(str(number), 100.0 - number) for number in range(100)]
    edited = Shuffle(7).apply(case(many))
    assert sorted(edited.ids) == sorted(item for item, _ in many)
    assert edited.ids != [item for item, _ in many]
    assert [score for _, score in edited.entries] == [score for _, score in many]


def test_the_order_after_shuffling_depends_on_seed_and_query_alone():
    many = [(str(number), None) for number in range(100)]
    orders = {
        (seed, name): tuple(Shuffle(seed).apply(ListToEdit(name, many)).ids)
        for seed in (0, 1)
        for name in ("q1", "q2")
    }
    assert len(set(orders.values())) == 4
    assert tuple(Shuffle(1).apply(ListToEdit("q2", many)).ids) == orders[1, "q2"]


def test_every_place_is_as_likely_after_shuffling():
    items = [(str(number), None) for number in range(5)]
    firsts = [Shuffle(0).apply(ListToEdit(f"q{at}", items)).ids[0] for at in range(5000)]
    for item, _ in items:
        # 1,000 are expected, and six standard deviations are 170.
        assert abs(firsts.count(item) - 1000) < 170


def test_scenarios_are_named_as_they_are_typed():
    names = [edit.name for edit in (Insert((1, 3)), Drop(2), Drop("gold"), Shuffle(), Truncate(20))]
    assert names == ["insert 2 at 1,3", "drop 2", "drop gold", "shuffle", "truncate 20"]


items = st.lists(st.sampled_from("abcdefghij"), unique=True)
falling = items.flatmap(
    lambda names: st.lists(st.floats(-1e6, 1e6), min_size=len(names), max_size=len(names)).map(
        lambda scores: list(zip(names, sorted(scores, reverse=True), strict=True))
    )
)
negatives = st.lists(st.sampled_from("fghijklmnop"))
golds = st.dictionaries(st.sampled_from("acegikmo"), st.floats(0.1, 3))
ranks = st.sets(st.integers(1, 15), min_size=1, max_size=5).map(lambda some: tuple(sorted(some)))


@given(entries=falling, some=negatives, gold=golds, at=ranks)
def test_whatever_is_inserted(entries, some, gold, at):
    edited = Insert(at).apply(ListToEdit("q", entries, gold, some))
    before = [item for item, _ in entries]
    assert len(set(edited.ids)) == len(edited.ids)
    assert set(edited.ids) == set(before) | set(edited.placed)
    # Gold is never put in, and what was not touched keeps its order and its score.
    assert not set(edited.placed) & set(gold)
    rest = [item for item in edited.ids if item not in edited.placed]
    assert rest == [item for item in before if item not in edited.placed]
    scores = dict(edited.entries)
    assert all(scores[item] == score for item, score in entries if item not in edited.placed)
    assert all(a[1] >= b[1] for a, b in pairwise(edited.entries))
    assert len(edited.placed) == min(len(at), len(set(some) - set(gold)))
    # Each stands at its rank, unless everything above it is used up.
    for item, rank in zip(edited.placed, at, strict=False):
        place = edited.ids.index(item) + 1
        assert place == rank or (
            place < rank and set(edited.ids[place - 1 :]) <= set(edited.placed)
        )
    assert edited.changed == (edited.ids != before)


@given(entries=falling, gold=golds, count=st.integers(1, 12))
def test_whatever_is_taken_out(entries, gold, count):
    case = ListToEdit("q", entries, gold)
    for edit, most in ((Drop(count), count), (Drop("gold"), 1), (Truncate(count), len(entries))):
        edited = edit.apply(case)
        kept = set(edited.ids)
        assert list(edited.entries) == [entry for entry in entries if entry[0] in kept]
        assert len(entries) - len(kept) <= most
