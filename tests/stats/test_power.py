"""Standard errors, detectable differences and needed queries against theory and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from karat.stats.power import detectable, queries_needed, standard_error


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
    assert math.isnan(detectable(error, df))


def test_one_group_has_no_error() -> None:
    assert math.isnan(standard_error(np.arange(5.0), np.zeros(5, np.int64))[0])


@pytest.mark.parametrize("n", [10, 30, 200])
def test_a_detectable_difference_is_found_as_often_as_said(n: int) -> None:
    difference = detectable(1 / math.sqrt(n), n - 1)
    limit = stats.t.ppf(0.975, n - 1)
    power = stats.nct.sf(limit, n - 1, difference * math.sqrt(n))
    # The sum of two quantiles of t is the textbook's shortcut for the noncentral t.
    assert power == pytest.approx(0.8, abs=0.02)


def test_more_power_takes_a_larger_difference() -> None:
    assert detectable(1.0, 20, power=0.9) > detectable(1.0, 20)
    assert detectable(1.0, 20, confidence=0.99) > detectable(1.0, 20)


@given(st.floats(0.005, 2), st.floats(0.01, 1))
def test_the_queries_needed_are_the_fewest(difference: float, sd: float) -> None:
    def found(n: int) -> float:
        reach = stats.t.ppf(0.975, n - 1) + stats.t.ppf(0.8, n - 1)
        return float(reach * sd / math.sqrt(n))

    n = queries_needed(difference, sd)
    assert n is not None
    assert found(n) <= difference * (1 + 1e-9)
    assert n == 2 or found(n - 1) > difference * (1 - 1e-9)


def test_a_difference_between_equals_takes_two_queries() -> None:
    assert queries_needed(0.1, 0.0) == 2


@pytest.mark.parametrize("difference", [0.0, -0.1, 1e-12, math.nan])
def test_some_differences_cannot_be_found(difference: float) -> None:
    assert queries_needed(difference, 0.3) is None


def test_an_unknown_spread_gives_no_number() -> None:
    assert queries_needed(0.1, math.nan) is None
