"""Prediction-powered shares by hand, by leaving queries out, and against simulated truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import t as student

from karat.errors import UsageError
from karat.stats.calibration import prediction_powered, prediction_powered_difference
from karat.stats.distributions import wilson

from .bench_judges import World


def drawn(seed: int, **changes) -> np.ndarray:
    told = {"queries": 40, "k": 6, "share": 0.4, "sensitivity": 0.9, "specificity": 0.8}
    told |= {"labels": 80, "alike": True} | changes
    return World(**told).groups(np.random.default_rng(seed))


def by_hand(groups, weight: float) -> float:
    """The judge's share of everything, and its mean error on what people judged."""
    judged, called, known, right, tp, fn, tn, fp = groups.sum(axis=0)
    labels = tp + fn + tn + fp
    found = weight * called / judged + ((tp + fn) - weight * (tp + fp)) / labels
    return (found * judged + right) / (judged + known)


@pytest.mark.parametrize("seed", range(5))
def test_the_share_is_the_judges_less_its_error_at_the_weight(seed: int) -> None:
    groups = drawn(seed)
    found = prediction_powered(groups)
    assert found.value == pytest.approx(by_hand(groups, found.weight), abs=1e-12)
    assert (found.labels, found.groups) == (80, np.count_nonzero(groups[:, 4:].sum(axis=1)))


def spread_of(groups, weight: float) -> float:
    """The variance by leaving out one query after another."""
    left = [by_hand(np.delete(groups, at, axis=0), weight) for at in range(len(groups))]
    return (len(left) - 1) / len(left) * float(((np.array(left) - np.mean(left)) ** 2).sum())


@pytest.mark.parametrize("seed", range(4))
def test_the_weight_is_the_one_of_the_least_variance(seed: int) -> None:
    groups = drawn(seed, queries=150, labels=400)
    best = minimize_scalar(lambda weight: spread_of(groups, weight), bounds=(0, 1)).x
    assert prediction_powered(groups).weight == pytest.approx(best, abs=0.03)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("known", [False, True])
def test_the_interval_is_wilsons_with_the_variance_of_queries(seed: int, known: bool) -> None:
    """Of as many things as would have the variance found by leaving queries out."""
    groups = drawn(seed, queries=200, labels=500)
    if known:
        rng = np.random.default_rng(seed)
        groups[:, 2] = rng.integers(0, 4, len(groups))
        groups[:, 3] = rng.binomial(groups[:, 2].astype(int), 0.7)
    found = prediction_powered(groups)
    part = groups[:, 0].sum() / groups[:, [0, 2]].sum()
    variance = spread_of(groups, found.weight) + (part / 500) ** 2
    reach = student.ppf(0.975, found.groups - 1)
    square = reach**2 * variance / (found.value * (1 - found.value))
    middle = (found.value + square / 2) / (1 + square)
    half = math.sqrt(found.value * (1 - found.value) * square + square**2 / 4) / (1 + square)
    assert (found.low, found.high) == pytest.approx((middle - half, middle + half), abs=4e-4)


def test_labels_of_everything_are_people_alone() -> None:
    """Every item judged by people, one a query: Wilson's interval, with one disagreement more."""
    rng = np.random.default_rng(3)
    kinds = rng.choice(4, 3000, p=[0.3, 0.1, 0.5, 0.1])
    cells = np.eye(4)[kinds]
    called = np.isin(kinds, (0, 3))
    groups = np.hstack([np.ones((3000, 1)), called[:, None], np.zeros((3000, 2)), cells])
    found = prediction_powered(groups)
    share = np.isin(kinds, (0, 1)).mean()
    assert found.value == pytest.approx(share, abs=1e-12)
    assert (found.low, found.high) == pytest.approx(wilson(share, 3000), abs=2e-4)


def test_a_judge_who_guesses_has_no_weight_and_one_who_knows_has_most() -> None:
    wild = World(300, 5, 0.5, 0.5, 0.5, labels=300).groups(np.random.default_rng(1))
    wise = World(300, 5, 0.5, 1.0, 1.0, labels=300).groups(np.random.default_rng(1))
    assert prediction_powered(wild).weight < 0.15
    assert prediction_powered(wise).weight == pytest.approx(1, abs=1e-9)
    assert width(wise) < 0.6 * width(wild)


def width(groups) -> float:
    found = prediction_powered(groups)
    return found.high - found.low


def test_agreement_without_a_fault_is_not_taken_as_certain() -> None:
    """Twenty labels, none at odds: the true rate of error may well be five in a hundred."""
    groups = np.array([[50, 25, 0, 0, 1, 0, 1, 0]] * 10, dtype=float)
    found = prediction_powered(groups)
    assert found.value == 0.5
    assert found.high - found.low > 0.15


counts = st.tuples(*[st.integers(0, 3)] * 4, st.integers(0, 5), st.integers(0, 5))


@settings(max_examples=200)
@given(st.lists(counts, min_size=2, max_size=8))
def test_ends_lie_around_the_value_and_between_none_and_all(rows) -> None:
    table = []
    for tp, fn, tn, fp, more, known in rows:
        judged = tp + fn + tn + fp + more
        table.append((judged, tp + fp + more // 2, known, known // 2, tp, fn, tn, fp))
    groups = np.array(table, dtype=float)
    found = prediction_powered(groups)
    if not groups[:, 4:].sum():
        assert found is None
        return
    assert 0 <= found.value <= 1
    if np.count_nonzero(groups[:, 4:].sum(axis=1)) < 2:
        assert found.low is found.high is None
    else:
        assert 0 <= found.low <= found.value <= found.high <= 1


def test_labels_of_other_things_are_refused() -> None:
    with pytest.raises(UsageError, match="more labels than judged things"):
        prediction_powered(np.array([[1, 1, 0, 0, 2, 0, 0, 0]], dtype=float))
    with pytest.raises(UsageError, match="judged_relevant"):
        prediction_powered(np.zeros((2, 3)))


def two(rng, queries: int = 80):
    """Two systems whose shares differ by 0.1, on queries that are hard or easy for both."""
    hard = rng.beta(2, 2, (queries, 1))
    tables = []
    for lift in (0.0, 0.1):
        truth = rng.random((queries, 5)) < hard * 0.8 + lift
        says = np.where(truth, rng.random((queries, 5)) < 0.85, rng.random((queries, 5)) < 0.2)
        seen = rng.random((queries, 5)) < 0.3
        cells = [
            (seen & (truth == a) & (says == b)).sum(axis=1)
            for a, b in ((1, 1), (1, 0), (0, 0), (0, 1))
        ]
        zero = np.zeros(queries)
        columns = [np.full(queries, 5), says.sum(axis=1), zero, zero, *cells]
        tables.append(np.stack(columns, axis=1).astype(float))
    return tables


def test_the_difference_of_two_systems_is_held_by_its_interval() -> None:
    rng, sets, inside = np.random.default_rng(9), 500, 0
    for _ in range(sets):
        value, (low, high) = prediction_powered_difference(*two(rng))
        assert low <= value <= high
        inside += low <= 0.1 <= high
    # Two standard errors of 500 sets.
    assert 0.93 - 0.02 <= inside / sets <= 0.985


def test_the_same_system_twice_differs_by_nothing() -> None:
    first, second = two(np.random.default_rng(2))
    assert prediction_powered_difference(first, first) == (0, (0, 0))
    assert prediction_powered_difference(first, np.zeros_like(second)) is None
    with pytest.raises(UsageError, match="both shares are of the same"):
        prediction_powered_difference(first, second[:-1])
