"""Repeated runs: variance components against simulation, and the error that they add."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from karat.stats.distributions import standard_error, t_p
from karat.stats.paired import between_runs, total_error


def simulated(runs: int, spread: float, seed: int, sets: int = 2000) -> np.ndarray:
    """Sets of 40 queries: how hard each is, how lucky each run, and noise."""
    rng = np.random.default_rng(seed)
    hard = rng.normal(size=(sets, 40, 1))
    luck = spread * rng.normal(size=(sets, 1, runs))
    return hard + luck + 0.5 * rng.normal(size=(sets, 40, runs))


def test_the_variance_between_runs_is_found() -> None:
    found = [between_runs(values) for values in simulated(5, 0.3, seed=0)]
    assert np.mean(found) == pytest.approx(0.09, rel=0.07)


def test_noise_at_queries_is_no_variance_between_runs() -> None:
    found = [between_runs(values) for values in simulated(5, 0.0, seed=1)]
    # The run means vary by 0.25/40 from this noise alone; half of what remains is cut off at 0.
    assert np.mean(found) < 0.25 / 40 / 2
    assert np.mean(np.array(found) == 0) > 0.4


def test_the_variance_is_that_of_an_analysis_by_hand() -> None:
    values = np.array([[1.0, 2.0, 4.0], [2.0, 2.0, 6.0], [0.0, 3.0, 5.0]])
    # Runs: means 1, 7/3, 5 around 25/9; their squares 3 · 74/9 over 2 degrees of freedom.
    runs = 3 * sum((mean - 25 / 9) ** 2 for mean in (1, 7 / 3, 5)) / 2
    total = ((values - values.mean()) ** 2).sum()
    rows = 3 * ((values.mean(axis=1) - values.mean()) ** 2).sum()
    residual = (total - rows - 2 * runs) / 4
    assert between_runs(values) == pytest.approx((runs - residual) / 3, rel=1e-12)


@pytest.mark.parametrize("shape", [(1, 3), (5, 1), (0, 3)])
def test_one_run_or_one_query_says_nothing(shape: tuple[int, int]) -> None:
    assert math.isnan(between_runs(np.zeros(shape)))


def test_without_variance_between_runs_the_error_is_the_plain_one() -> None:
    delta = np.random.default_rng(2).normal(size=50)
    error, df = total_error(standard_error(delta), [(0.0, 3), (0.0, 3)])
    assert error == pytest.approx(stats.sem(delta), rel=1e-12)
    assert df == pytest.approx(49)


def test_the_degrees_of_freedom_are_those_of_welch() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=12), 3 * rng.normal(size=5)
    error, df = total_error(standard_error(a), [(float(b.var(ddof=1)), 5)])
    welch = stats.ttest_ind(a, b, equal_var=False)
    assert df == pytest.approx(welch.df, rel=1e-12)
    assert t_p(a.mean() - b.mean(), error, df) == pytest.approx(welch.pvalue, rel=1e-10)


def test_luck_of_runs_is_not_taken_for_a_difference() -> None:
    first, second = simulated(4, 0.3, seed=4), simulated(4, 0.3, seed=5)
    # The queries are as hard for both.
    second += first.mean(axis=2, keepdims=True) - second.mean(axis=2, keepdims=True)
    rng = np.random.default_rng(6)
    second += 0.15 * rng.normal(size=(len(second), 1, 1)) - 0.15 * rng.normal(
        size=(len(second), 1, 1)
    )
    second += 0.25 * rng.normal(size=(len(second), 40, 1))
    ps = []
    for a, b in zip(first, second, strict=True):
        delta = (a - b).mean(axis=1)
        ps.append(
            t_p(
                delta.mean(),
                *total_error(standard_error(delta), [(between_runs(a), 4), (between_runs(b), 4)]),
            )
        )
    assert np.mean(np.array(ps) < 0.05) <= 0.06


@pytest.mark.parametrize(("mean", "p"), [(0.0, 1.0), (0.1, 0.0)])
def test_an_error_of_zero_leaves_no_doubt(mean: float, p: float) -> None:
    assert t_p(mean, 0.0, 5) == p


def test_an_unknown_error_leaves_every_doubt() -> None:
    assert t_p(0.1, math.nan, 0) == 1.0
