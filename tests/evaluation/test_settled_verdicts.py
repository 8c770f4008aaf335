"""Verdicts under every labelling, counted out one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karat.data.tables import Gold, Run
from karat.errors import UsageError
from karat.evaluation.api import evaluate
from karat.evaluation.bounds import stability_of
from karat.evaluation.comparison import compare_scores
from karat.evaluation.systems import ComparedSystem
from karat.evaluation.verdict import Rule
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measure
from karat.measure.prepare import prepare
from karat.measure.ranges import Range, difference_range, listed
from karat.measure.score_builder import score
from karat.stats.paired import randomisation

N = 8
QUERIES = [f"q{n}" for n in range(N)]
FAST = {"boot": "100", "permutations": "200"}


def p_by_hand(differences: tuple[float, ...]) -> float:
    """Every way to swap the two systems."""
    signs = np.array(list(product((1, -1), repeat=len(differences))))
    sums = signs @ np.array(differences)
    return float((np.abs(sums) >= abs(sums[0]) - 1e-9).mean())


def of_values(first: list[float], second: list[float], **more: str):
    """Scores with these values of RR."""
    gold = Gold.from_dict({q: ["a"] for q in QUERIES[: len(first)]})
    run = Run.from_dict({q: ["a"] for q in QUERIES[: len(first)]})
    scores = evaluate(run, gold, ["RR"], settings=FAST | more)
    return [
        replace(scores, system=name, columns={**scores.columns, "RR": np.array(values)})
        for name, values in (("old", first), ("new", second))
    ]


def ranged(low: list[float], high: list[float]) -> Range:
    return Range(np.array(low), np.array(high), exact=True)


grid = st.sampled_from([-0.5, -0.2, 0.0, 0.1, 0.3, 0.5])


@given(st.lists(st.tuples(grid, grid), min_size=7, max_size=7))
@settings(max_examples=30, deadline=None)
def test_every_labelling_lies_between_the_verdicts_at_both_ends(pairs):
    """All 128 ways to take one end or the other, query by query."""
    low, high = np.sort(np.array(pairs), axis=1).T
    for end, sign in ((low, 1), (high, -1)):
        at_corner = p_by_hand(tuple(end)) < 0.05 and sign * end.sum() > 1e-9
        corners = np.array(list(product((0, 1), repeat=7)))
        every = np.where(corners, high, low)
        p = randomisation(np.ascontiguousarray(every.T))
        holds = (p < 0.05) & (sign * every.sum(axis=1) > 1e-9)
        assert holds.all() == at_corner


def test_better_holds_where_it_holds_at_worst():
    """Seven gains of at least 0.1: p = 2/128 whatever the labels are."""
    old, new = of_values([0.5] * 7, [0.8] * 7)
    found = stability_of(old, new, ranged([0.1] * 7, [0.5] * 7), Rule(), "RR")
    assert (found.now, found.at_worst, found.at_best) == ("better", "better", "better")
    assert (found.holds, found.settled, found.exact) == ("better", True, True)
    assert found.delta == pytest.approx((0.1, 0.5))
    assert found.because == "the verdict is better however the unjudged items are judged"
    assert found.comparison.delta == pytest.approx(0.3)


def test_a_lead_that_labels_could_turn_is_not_settled():
    old, new = of_values([0.5] * 7, [0.8] * 7)
    found = stability_of(old, new, ranged([-0.5] * 7, [0.5] * 7), Rule(), "RR")
    assert (found.now, found.at_worst, found.at_best) == ("better", "worse", "better")
    assert (found.holds, found.settled) == ("unclear", False)
    told = "the verdict is better now, worse under the worst labels and better under the best"
    assert found.because == told


def test_what_holds_may_be_another_verdict_than_now():
    """A measure such as bpref may lie outside its range as long as nothing is judged."""
    old, new = of_values([0.5] * 7, [0.5] * 7)
    found = stability_of(old, new, ranged([0.1] * 7, [0.4] * 7), Rule(), "RR")
    assert found.now != "better"
    assert (found.holds, found.settled) == ("better", False)
    assert f"{found.now} now, better under the worst labels" in found.because


def test_unclear_for_ever_is_settled_and_says_so():
    """Three queries: the least p there can be is 2/8."""
    old, new = of_values([0.5] * 3, [0.9, 0.6, 0.5])
    found = stability_of(old, new, ranged([-0.1, 0.0, -0.2], [0.5, 0.2, 0.3]), Rule(), "RR")
    assert (found.now, found.holds, found.settled) == ("unclear", "unclear", True)
    assert found.because == "the verdict is unclear however the unjudged items are judged"


def test_unclear_is_open_while_sameness_is_in_reach():
    """At its lowest no query differs. Where some do at either end, no interval fits in 0.01."""
    old, new = of_values([0.5] * 7, [1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.5])
    high = [0.5, 0.5, -0.5, 0.5, -0.5, 0.5, 0.0]
    moves = ranged([0.0] * 7, high)
    rule = Rule(margin=0.35, margin_kind="absolute")
    found = stability_of(old, new, moves, rule, "RR")
    assert (found.now, found.at_worst, found.settled) == ("unclear", "same", False)
    narrow = Rule(margin=0.01, margin_kind="absolute")
    moves = ranged([-0.5, 0.5, -0.5, 0.5, 0.0, 0.0, 0.0], high)
    assert stability_of(old, new, moves, narrow, "RR").settled


def test_same_holds_only_within_the_margin_at_both_ends():
    old, new = of_values([0.5] * 7, [0.51, 0.49] * 3 + [0.5])
    rule = Rule(margin=0.1, margin_kind="absolute")
    low, high = [-0.02, -0.01, 0.02] * 2 + [0.0], [0.02, 0.01, -0.01] * 2 + [0.0]
    found = stability_of(old, new, ranged(low, high), rule, "RR")
    assert (found.now, found.holds, found.settled) == ("same", "same", True)
    beyond = stability_of(old, new, ranged([-0.4, 0.2] * 3 + [0.0], high), rule, "RR")
    assert (beyond.holds, beyond.settled) == ("unclear", False)


def test_nothing_unjudged_is_settled():
    old, new = of_values([0.5] * 7, [0.8, 0.2, 0.5, 0.5, 0.6, 0.5, 0.5])
    delta = (np.array(new.values("RR")) - 0.5).tolist()
    found = stability_of(old, new, ranged(delta, delta), Rule(), "RR")
    assert found.settled
    assert found.now == found.holds == found.at_worst == found.at_best


def test_where_low_is_better_the_worst_is_the_high_end():
    """FPR: seven queries that rise are worse."""
    gold = Gold.from_dict({q: {"a": 1, "b": 0} for q in QUERIES})
    lists = {q: ["a", "b", "c"] for q in QUERIES}
    made = evaluate(Run.from_dict(lists), gold, ["FPR@1"], settings=FAST)
    assert made.measures[0].definition.better == "lower"
    other = replace(made, system="other")
    found = stability_of(made, other, ranged([-0.3] * N, [0.2] * N), Rule(), "FPR@1")
    assert (found.at_worst, found.at_best) == ("worse", "better")
    assert found.delta == pytest.approx((-0.3, 0.2))


def labelled(gold: dict, unjudged: list[tuple[str, str]], labels: tuple[int, ...]) -> Gold:
    more = {q: dict(own) for q, own in gold.items()}
    for (query, item), grade in zip(unjudged, labels, strict=True):
        more[query][item] = grade
    return Gold.from_dict(more)


def mixed(rng: np.random.Generator) -> tuple[dict, dict, list[tuple[str, str]]]:
    """Unjudged items in front of either list."""
    old = {q: rng.permutation(["b", "x", "a"]).tolist() for q in QUERIES[:6]}
    new = {q: ["a", "b", "x"] for q in QUERIES[:6]}
    unjudged = [(QUERIES[at % 6], f"u{at}") for at in range(7)]
    for query, item in unjudged:
        (new if rng.random() < 0.3 else old)[query].insert(int(rng.integers(0, 2)), item)
    return old, new, unjudged


def apart(rng: np.random.Generator) -> tuple[dict, dict, list[tuple[str, str]]]:
    """One list is ahead everywhere, and what is unjudged stands at the end of either."""
    old, new = ({q: [*own] for q in QUERIES[:6]} for own in ("xab", "abx"))
    unjudged = [(QUERIES[at % 6], f"u{at}") for at in range(7)]
    for query, item in unjudged:
        (new if rng.random() < 0.5 else old)[query].append(item)
    return old, new, unjudged


@pytest.mark.parametrize(
    ("made", "seed", "swapped", "expected"),
    [
        (mixed, 0, False, {"better", "unclear"}),
        (mixed, 1, True, {"worse", "unclear"}),
        (apart, 0, False, {"better"}),
        (apart, 1, True, {"worse"}),
    ],
)
def test_against_the_comparison_of_every_labelling(made, seed, swapped, expected):
    """Six queries, seven unjudged items, 128 labellings, each scored and compared from scratch."""
    gold = {q: {"a": 1, "b": 1, "x": 0} for q in QUERIES[:6]}
    old, new, unjudged = made(np.random.default_rng(seed))
    if swapped:
        old, new = new, old
    runs = [Run.from_dict(old, name="old"), Run.from_dict(new, name="new")]
    measure = parse_measure("nDCG@3")
    prepared = prepare(Gold.from_dict(gold), conventions_of("karat", FAST))
    scores = [score(run, prepared, [measure], keep=100) for run in runs]
    rule = Rule(margin=0.0)
    found_range = difference_range(measure, *(listed(one) for one in scores), prepared)
    found = stability_of(*scores, found_range, rule, "nDCG@3")
    verdicts = set()
    for labels in product((0, 1), repeat=len(unjudged)):
        more = labelled(gold, unjudged, labels)
        own = prepare(more, conventions_of("karat", FAST))
        pair = [ComparedSystem(run.name, (score(run, own, [measure]),)) for run in runs]
        verdicts.add(compare_scores(pair, rule).of("new", "nDCG@3").verdict)
    assert verdicts == expected
    assert found.now in verdicts
    assert found.settled == (len(verdicts) == 1)
    assert found.holds == (found.now if len(verdicts) == 1 else "unclear")


def test_a_measure_that_was_not_scored_is_refused():
    old, new = of_values([0.5] * 3, [0.6] * 3)
    with pytest.raises(UsageError, match=r"have no R@5"):
        stability_of(old, new, ranged([0.0] * 3, [0.1] * 3), Rule(), "R@5")
