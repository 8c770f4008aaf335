"""Standard errors, detectable differences and needed queries against theory and simulation."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from karat.stats.distributions import standard_error
from karat.stats.paired import randomisation
from karat.stats.power import Power, detectable_by_t

Values = NDArray[np.float64]


def test_the_standard_error_is_scipys() -> None:
    delta = np.random.default_rng(0).normal(size=37)
    assert standard_error(delta) == (pytest.approx(stats.sem(delta), rel=1e-12), 36)


def test_groups_of_one_row_are_rows() -> None:
    delta = np.random.default_rng(1).normal(size=37)
    error, df = standard_error(delta, np.arange(37)[::-1].copy())
    assert (error, df) == (pytest.approx(stats.sem(delta), rel=1e-12), 36)


def test_copies_of_a_row_in_a_group_teach_nothing() -> None:
    delta = np.random.default_rng(2).normal(size=30)
    error, df = standard_error(np.repeat(delta, 4), np.repeat(np.arange(30), 4))
    assert (error, df) == (pytest.approx(stats.sem(delta), rel=1e-12), 29)


def test_the_error_of_groups_is_that_of_simulated_means() -> None:
    rng = np.random.default_rng(3)
    groups = np.repeat(np.arange(60), 1 + np.arange(60) % 5)
    sets = rng.normal(size=(2000, 60))[:, groups] + rng.normal(size=(2000, len(groups)))
    errors = [standard_error(row, groups)[0] for row in sets]
    assert np.mean(errors) == pytest.approx(sets.mean(axis=1).std(), rel=0.05)


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_rows_have_no_error(n: int) -> None:
    error, df = standard_error(np.zeros(n))
    assert math.isnan(error)
    assert df == 0
    assert math.isnan(detectable_by_t(error, df))


def test_one_group_has_no_error() -> None:
    assert math.isnan(standard_error(np.arange(5.0), np.zeros(5, np.int64))[0])


def normal(n: int) -> Values:
    return np.random.default_rng(n).normal(size=n)


def sparse(n: int, differing: int, sizes: Sequence[float]) -> Values:
    rng = np.random.default_rng(n + differing)
    delta = np.zeros(n)
    delta[:differing] = rng.choice(sizes, differing) * rng.choice([-1, 1], differing)
    return delta


def share_found(delta: Values, true: float, n: int) -> float:
    """How often the randomisation test itself finds this difference, at the least, among systems
    of which more queries differ in one direction, and among those with a constant added.
    """
    rng = np.random.default_rng(7)
    sizes = np.abs(delta)
    drawn = sizes[rng.integers(0, len(sizes), (n, 600))]
    up = (1 + true / sizes.mean()) / 2
    turned = np.where(rng.random(drawn.shape) < up, drawn, -drawn)
    more = np.where(drawn > 0, true / np.mean(sizes > 0), 0.0)
    moved = np.where(rng.random(drawn.shape) < 0.5, drawn, -drawn) + more
    return min(
        float(np.mean(randomisation(sets, resamples=999) < 0.05)) for sets in (turned, moved)
    )


DIFFERENCES = [
    normal(12),
    normal(40),
    normal(150),
    normal(700),
    sparse(100, 10, [1.0]),
    sparse(100, 14, [0.5, 1.0]),
    sparse(100, 25, [0.5, 1 / 3, 0.75, 1.0]),
    sparse(1000, 30, [0.2]),
]


@pytest.mark.parametrize("delta", DIFFERENCES)
def test_a_detectable_difference_is_found_as_often_as_said(delta: Values) -> None:
    difference = Power(delta).detectable()
    assert difference is not None
    # Never much less than said; a little more where very few differ, and p comes in large steps.
    assert 0.75 <= share_found(delta, difference, len(delta)) <= 0.97
    assert share_found(delta, difference / 2, len(delta)) < 0.5


@pytest.mark.parametrize("delta", DIFFERENCES)
def test_the_queries_needed_find_the_difference_as_often_as_said(delta: Values) -> None:
    difference = float(np.abs(delta).mean()) / 3
    n = Power(delta).queries_needed(difference)
    assert n is not None
    assert share_found(delta, difference, n) == pytest.approx(0.8, abs=0.06)


@pytest.mark.parametrize(("n", "differing"), [(12, 10), (20, 10), (50, 12), (200, 12)])
def test_power_does_not_come_from_differences_that_nearly_vanish(n: int, differing: int) -> None:
    # Equal differences, half of them turned, and nearly their own size added to each: those that
    # were turned nearly vanish, and too few are left for a small p.
    delta = sparse(n, differing, [1.0])
    difference = Power(delta).detectable()
    assert difference is not None
    assert share_found(delta, difference, n) >= 0.75


def test_groups_are_counted_as_wholes() -> None:
    groups = np.repeat(np.arange(40), 5)
    delta = np.repeat(normal(40), 5)
    power = Power(delta, groups)
    assert power.detectable() == pytest.approx(Power(normal(40)).detectable())
    assert power.queries_needed(0.3) == 5 * (Power(normal(40)).queries_needed(0.3) or 0)


def test_more_power_takes_a_larger_difference() -> None:
    own = Power(normal(60)).detectable()
    assert own is not None
    for stricter in (Power(normal(60), power=0.9), Power(normal(60), confidence=0.99)):
        assert (stricter.detectable() or 0) > own


@pytest.mark.parametrize("differing", [0, 1, 5, 9])
def test_with_fewer_than_ten_differing_queries_no_number_is_given(differing: int) -> None:
    power = Power(sparse(100, differing, [1.0]))
    assert power.detectable() is None
    assert power.queries_needed(0.1) is None
    assert f"only {differing} of 100 queries differ" in (power.why_unknown or "")


def test_what_even_the_largest_difference_cannot_show_is_not_promised() -> None:
    # One query outweighs all others: the test can hardly ever reject.
    power = Power(np.append(np.full(11, 1e-3), 1.0))
    assert power.detectable() is None
    assert "too few" in (power.why_unknown or "")


@pytest.mark.parametrize("difference", [0.0, -0.1, 1e-12, 1e-300, math.nan])
def test_some_differences_cannot_be_found(difference: float) -> None:
    assert Power(normal(50)).queries_needed(difference) is None


def test_the_same_seed_gives_the_same_numbers() -> None:
    first, again = Power(normal(50), seed=3), Power(normal(50), seed=3)
    assert first.detectable() == again.detectable()
    assert first.queries_needed(0.2) == again.queries_needed(0.2)


def test_the_work_is_bounded_however_many_queries_there_are() -> None:
    started = time.process_time()
    power = Power(np.random.default_rng(0).normal(size=1_000_000))
    assert power.detectable() == pytest.approx(2.8 / 1000, rel=0.02)
    assert power.queries_needed(0.01) == pytest.approx((2.8 / 0.01) ** 2, rel=0.02)
    assert time.process_time() - started < 2


@pytest.mark.parametrize("n", [10, 30, 200])
def test_of_repeated_runs_a_t_test_finds_the_difference_as_often_as_said(n: int) -> None:
    difference = detectable_by_t(1 / math.sqrt(n), n - 1)
    limit = stats.t.ppf(0.975, n - 1)
    power = stats.nct.sf(limit, n - 1, difference * math.sqrt(n))
    # The sum of two quantiles of t is the textbook's shortcut for the noncentral t.
    assert power == pytest.approx(0.8, abs=0.02)
