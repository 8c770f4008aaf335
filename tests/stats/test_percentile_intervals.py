"""Order-statistic intervals against binomial sums by brute force, and against simulation."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karat.stats.order import percentile_interval


def binomial(n: int, share: float, counts: range) -> float:
    """The chance of these counts, term by term."""
    return math.fsum(math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in counts)


def by_brute_force(n: int, share: float, each_side: float) -> tuple[int, int] | None:
    first = max((r for r in range(n + 1) if binomial(n, share, range(r)) <= each_side), default=0)
    last = min(r for r in range(n + 2) if binomial(n, share, range(r, n + 1)) <= each_side)
    return (first, last) if first >= 1 and last <= n else None


@given(
    st.integers(1, 120),
    st.sampled_from([0.25, 0.5, 0.9, 0.95]),
    st.sampled_from([0.9, 0.95, 0.99]),
)
def test_the_ends_are_those_of_brute_force(n: int, share: float, confidence: float) -> None:
    ranks = np.arange(1.0, n + 1)
    assert percentile_interval(ranks, share, confidence=confidence) == by_brute_force(
        n, share, (1 - confidence) / 2
    )


@pytest.mark.parametrize(("share", "least"), [(0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368)])
def test_too_few_values_have_no_interval(share: float, least: int) -> None:
    values = np.arange(400.0)
    assert percentile_interval(values[: least - 1], share) is None
    assert percentile_interval(values[:least], share) is not None


def test_nothing_has_no_interval() -> None:
    assert percentile_interval(np.empty(0), 0.5) is None


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_largest_of_all_has_no_interval(share: float) -> None:
    assert percentile_interval(np.arange(1000.0), share) is None


def test_the_order_of_the_values_does_not_matter() -> None:
    values = np.random.default_rng(0).lognormal(size=500)
    assert percentile_interval(values, 0.9) == percentile_interval(np.sort(values), 0.9)


@pytest.mark.parametrize(("share", "n"), [(0.5, 20), (0.5, 200), (0.9, 100), (0.95, 300)])
def test_the_interval_holds_the_true_percentile(share: float, n: int) -> None:
    sets = np.random.default_rng(1).exponential(size=(2000, n))
    truth = -math.log(1 - share)
    ends = np.array([percentile_interval(row, share) for row in sets])
    below, above = np.mean(ends[:, 1] < truth), np.mean(ends[:, 0] > truth)
    # Each side keeps its own level; 0.0105 is three standard errors.
    assert max(below, above) <= 0.025 + 0.0105
    assert below + above >= 0.01


def test_a_million_values_take_no_time() -> None:
    values = np.random.default_rng(2).random(1_000_000)
    started = time.perf_counter()
    ends = percentile_interval(values, 0.99)
    assert time.perf_counter() - started < 1
    assert ends is not None
    assert ends[0] < 0.99 < ends[1]
