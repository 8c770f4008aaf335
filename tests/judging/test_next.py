"""Chances, choice and turns, worked by hand; and a hidden gold that is revealed in that order."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from next_rounds import Hidden

from karat.data.tables import Gold, Run
from karat.errors import InputError
from karat.evaluation.api import evaluate
from karat.label.next_judgments import (
    candidates,
    chances,
    judged_items,
    merge_gold,
    most_informative,
)
from karat.measure.conventions import conventions_of
from karat.measure.judgment_effects import Effects
from karat.measure.names import parse_measure
from karat.measure.prepare import prepare
from karat.measure.ranges import ABSENT
from karat.measure.score_builder import score


def judged(*rows: tuple[int, int, bool]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["first", "second", "relevant"], orient="row")


NOTHING = judged_items([], 1.0)


def test_without_judgments_the_chance_falls_with_the_rank():
    ranks = np.array([1, 2, 4, 6, 11, 21, 51, 1000])
    found = chances(ranks, np.full(8, ABSENT), NOTHING)
    assert (np.diff(found) <= 0).all()
    assert found[0] == 0.4
    assert found[-1] == 0.02


def test_the_chance_is_the_share_of_relevant_ones_and_four_judgments_of_before():
    """Rank 1 in one run: 3 of 6, and 0.4 of 4 more; in both runs: 0 of 1, and 0.4 of 4."""
    known = judged(
        *[(1, ABSENT, True)] * 2, (ABSENT, 1, True), *[(1, ABSENT, False)] * 3, (1, 5, False)
    )
    found = chances(np.array([ABSENT, 1, 2]), np.array([1, 1, ABSENT]), known)
    assert found.tolist() == pytest.approx([(3 + 1.6) / 10, 1.6 / 5, 0.3])


def test_gold_of_relevant_items_alone_tells_nothing_of_chances():
    known = judged((1, ABSENT, True), (1, ABSENT, True))
    assert chances(np.array([1]), np.array([ABSENT]), known).tolist() == [0.4]


def test_judged_items_of_both_runs_are_counted_once():
    gold = Gold.from_dict({"q": {"a": 2, "b": 0, "c": -1, "z": 1}})
    prepared = prepare(gold, conventions_of("karat"))
    runs = [Run.from_dict({"q": ["a", "b", "c", "d"]}), Run.from_dict({"q": ["e", "a", "z"]})]
    scores = [score(run, prepared, [parse_measure("P@5")], keep=10) for run in runs]
    both = judged_items(scores, 1.0)
    assert sorted(both.rows()) == [(1, 2, True), (2, ABSENT, False), (ABSENT, 3, True)]
    alone = judged_items(scores[:1], 1.0)
    assert alone["first"].to_list() == [1, 2]
    assert (alone["second"] == ABSENT).all()


def effects(
    top: list[float], first: list[int] | None = None, alone: list[float] | None = None
) -> Effects:
    n = len(top)
    return Effects(
        np.arange(n),
        np.array(first or [1] * n),
        np.full(n, ABSENT),
        pl.Series([f"d{at}" for at in range(n)]),
        np.array(top),
        np.array(top),
        np.array(top if alone is None else alone),
    )


def chosen(pairs: pl.DataFrame, count: int, *, sides: bool) -> list[str]:
    return most_informative(pairs, count, sides=sides)["item_id"].to_list()


def test_what_moves_the_mean_most_comes_first_and_what_cannot_never():
    pairs = candidates(effects([0.1, 0.0, -0.5, np.nan, 0.3]), NOTHING, 10)
    assert pairs["can_matter"].sum() == 3
    assert chosen(pairs, 9, sides=False) == ["d2", "d4", "d0"]
    assert pairs["effect"].to_list() == pytest.approx([0.01, 0.0, -0.05, 0.03])
    assert pairs["expected"].to_list() == pytest.approx([0.004, 0.0, 0.02, 0.012])
    assert pairs["spread"][2] == pytest.approx(0.05 * np.sqrt(0.4 * 0.6))


def test_the_effect_lies_between_that_of_the_highest_and_of_the_lowest_grade():
    pairs = effects([0.4])
    pairs.least[:] = 0.2
    row = most_informative(candidates(pairs, NOTHING, 2), 1, sides=True).row(0, named=True)
    assert (row["query"], row["item_id"]) == (0, "d0")
    assert (row["first_rank"], row["second_rank"]) == (1, None)
    assert row["effect"] == pytest.approx(0.15)
    assert (row["effect_top"], row["effect_least"]) == pytest.approx((0.2, 0.1))
    assert row["expected"] == pytest.approx(0.4 * 0.15)


def test_both_sides_take_turns_so_that_neither_is_favoured():
    """0.5 for the second, then the first until it has had as much: 0.3 and 0.2; then again."""
    pairs = candidates(effects([0.5, 0.45, 0.4, -0.3, -0.2, -0.1]), NOTHING, 1)
    assert chosen(pairs, 6, sides=True) == ["d0", "d3", "d4", "d1", "d5", "d2"]


def test_turns_go_by_the_ranks_and_not_by_the_effect():
    """Today's effect says that all speak for the first; their ranks say two against one."""
    pairs = candidates(effects([-0.5, -0.4, -0.3], alone=[0.5, 0.5, -0.5]), NOTHING, 1)
    assert chosen(pairs, 3, sides=True) == ["d0", "d2", "d1"]


def test_what_speaks_for_neither_comes_where_its_place_is():
    pairs = effects([0.5, 0.45, 0.4, -0.3], alone=[0.5, 0.45, 0.0, -0.3])
    assert chosen(candidates(pairs, NOTHING, 1), 4, sides=True) == ["d0", "d2", "d3", "d1"]


def test_one_side_alone_is_judged_where_the_other_has_nothing_left():
    pairs = candidates(effects([0.5, 0.4, -0.3]), NOTHING, 1)
    assert len(chosen(pairs, 9, sides=True)) == 3
    assert len(chosen(pairs, 2, sides=True)) == 2
    assert chosen(candidates(effects([0.0]), NOTHING, 1), 5, sides=True) == []


def test_the_first_file_decides_and_the_rest_is_counted():
    files = [{"q": {"a": 2, "b": -1}}, {"q": {"a": 2, "b": 1}, "r": {}}, {"q": {"b": 0, "c": 0}}]
    gold, again, differently = merge_gold([Gold.from_dict(grades) for grades in files])
    assert gold.frame.rows() == [("q", "a", 2.0), ("q", "b", 1.0), ("q", "c", 0.0)]
    assert gold.query_ids == ("q", "r")
    assert (again, differently) == (2, 1)
    assert merge_gold([], ["q1", "q2"])[0].query_ids == ("q1", "q2")


def test_spans_are_no_items():
    frame = pl.DataFrame({"query_id": ["q"], "item_id": ["d"], "start": [0], "end": [9]})
    with pytest.raises(InputError, match="character spans"):
        merge_gold([Gold.from_frame(frame)])


def world(seed: int, queries: int = 40, found: float = 0.65) -> Hidden:
    """Eight relevant items a query; the second system ranks them higher than the first does."""
    rng = np.random.default_rng(seed)
    ids = tuple(f"q{n:02}" for n in range(queries))
    grades, lists = {}, ({}, {})
    for query in ids:
        items = [f"d{n:02}" for n in range(40)]
        relevant = rng.choice(items, 8, replace=False).tolist()
        grades |= {(query, item): float(rng.integers(1, 4)) for item in relevant}
        for own, worth in zip(lists, (0.6, 0.6 + found), strict=True):
            scores = {item: worth * (item in relevant) + rng.normal(0, 0.7) for item in items}
            own[query] = sorted(items, key=lambda item: -scores[item])[:10]
    runs = [Run.from_dict(own) for own in lists]
    return Hidden(*runs, ids, grades, resamples=1000)


def test_the_order_of_next_reaches_the_verdict_with_half_of_the_judgments():
    ratios = []
    for seed in range(2):
        hidden = world(seed, found=0.4)
        assert hidden.final == 1
        order = hidden.by_next()
        assert sorted(order) == list(range(len(hidden.pairs)))
        rng = np.random.default_rng(seed)
        random = [hidden.reached(rng.permutation(len(order)).tolist()) for _ in range(7)]
        ratios.append(hidden.reached(order) / np.median(random))
    assert max(ratios) <= 0.5


def test_systems_that_are_alike_are_seldom_said_to_differ_on_the_way():
    """An order that prefers the items of whoever leads says so most of the time."""
    shares = []
    for seed in range(2, 6):
        hidden = world(seed, found=0.0)
        assert hidden.final == 0
        shares.append((hidden.verdicts(hidden.differences(hidden.by_next())) != 0).mean())
    assert np.mean(shares) <= 0.15


def test_a_verdict_is_settled_only_after_it_is_reached_and_before_all_is_judged():
    hidden = world(3, found=1.2)
    order = hidden.by_next()
    reached, settled = hidden.reached(order), hidden.settled(order)
    assert reached <= settled < len(order)
    # Whatever the rest is labelled, here at random, the verdict is the same.
    rng = np.random.default_rng(0)
    for _ in range(20):
        rest = order[settled:]
        grades = dict(hidden.grades) | {hidden.pairs[at]: float(rng.integers(0, 4)) for at in rest}
        other = Hidden(hidden.first, hidden.second, hidden.query_ids, grades, resamples=1000)
        assert other.final == hidden.final


def test_differences_are_those_of_an_evaluation_of_what_is_revealed():
    hidden = world(1, queries=5)
    order = np.random.default_rng(1).permutation(len(hidden.pairs)).tolist()
    found = hidden.differences(order)
    for step in (0, 7, 30, len(order)):
        gold: dict[str, dict[str, float]] = {query: {} for query in hidden.query_ids}
        for at in order[:step]:
            query, item = hidden.pairs[at]
            gold[query][item] = hidden.truth[at]
        values = [
            evaluate(run, Gold.from_dict(gold), "nDCG@10", settings={"empty_gold": "zero"}).values(
                "nDCG@10"
            )
            for run in (hidden.first, hidden.second)
        ]
        assert found[step].tolist() == pytest.approx((values[1] - values[0]).tolist())
