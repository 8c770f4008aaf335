"""A short form of bench/simulate.py: do the intervals hold the truth as often as they say?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from karat.stats.means import Resampling, mean_intervals
from karat.stats.paired import randomised

Values = NDArray[np.float64]
SETS = 400


def reciprocal_ranks(rng: np.random.Generator, n: int) -> Values:
    """Found at rank one to four, or not at all, all equally likely."""
    return np.array([1, 1 / 2, 1 / 3, 1 / 4, 0])[rng.integers(0, 5, (n, SETS))]


def rarely_found(rng: np.random.Generator, n: int) -> Values:
    """Five in a hundred are found, with any grade."""
    return np.where(rng.random((n, SETS)) < 0.05, rng.random((n, SETS)), 0.0)


def nearly_perfect(rng: np.random.Generator, n: int) -> Values:
    return 1 - rarely_found(rng, n)


def skewed(rng: np.random.Generator, n: int) -> Values:
    return rng.beta(0.4, 1.6, (n, SETS))


def hits(rng: np.random.Generator, n: int) -> Values:
    return (rng.random((n, SETS)) < 0.3).astype(np.float64)


@pytest.mark.parametrize("n", [20, 100])
@pytest.mark.parametrize(
    ("draw", "truth"),
    [
        (reciprocal_ranks, 25 / 60),
        (rarely_found, 0.025),
        (nearly_perfect, 0.975),
        (skewed, 0.2),
        (hits, 0.3),
    ],
)
def test_intervals_hold_the_truth(
    draw: Callable[[np.random.Generator, int], Values], truth: float, n: int
) -> None:
    sets = draw(np.random.default_rng(n), n)
    low, high = mean_intervals(sets, Resampling(), ranges=[(0.0, 1.0)] * SETS).T
    held = np.mean((low <= truth) & (truth <= high))
    # 93 %, less two standard errors of 400 simulations; the bench asks for more.
    assert held >= 0.93 - 0.025


@pytest.mark.parametrize("n", [20, 50, 200])
@pytest.mark.parametrize("differing", [0.05, 0.5, 1.0])
def test_intervals_of_differences_hold_the_truth_under_the_null(n: int, differing: float) -> None:
    rng = np.random.default_rng(n)
    sizes = np.where(rng.random((n, SETS)) < differing, rng.choice([0.5, 1.0], (n, SETS)), 0.0)
    deltas = sizes * rng.choice([-1.0, 1.0], (n, SETS))
    found = randomised(deltas, (0.95,), resamples=1000)
    low, high = found.intervals[0].T
    assert np.mean((low <= 0) & (high >= 0)) >= 0.93 - 0.025


def test_intervals_of_differences_hold_the_truth_of_one_sided_effects() -> None:
    rng = np.random.default_rng(1)
    deltas = np.where(rng.random((100, SETS)) < 0.15, rng.choice([0.5, 1.0], (100, SETS)), 0.0)
    low, high = randomised(deltas, (0.95,), resamples=1000).intervals[0].T
    truth = 0.15 * 0.75
    assert np.mean((low <= truth) & (truth <= high)) >= 0.90 - 0.03
