"""Percentiles: intervals against binomial sums and simulation, swaps against all there are."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karat.stats.means import percentile_interval, swapped_differences


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


def by_every_swap(a: np.ndarray, b: np.ndarray, share: float, groups: list[int]) -> set[float]:
    """The difference of the percentiles under each way to swap whole groups."""
    found = set()
    for pattern in itertools.product([False, True], repeat=max(groups) + 1):
        swap = np.array([pattern[group] for group in groups])
        one, other = np.where(swap, b, a), np.where(swap, a, b)
        found.add(round(np.percentile(other, 100 * share) - np.percentile(one, 100 * share), 9))
    return found


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("spread", [0.01, 0.3, 5.0])
@pytest.mark.parametrize("groups", [list(range(9)), [0, 0, 1, 2, 2, 2, 3, 4, 4]])
def test_swapping_gives_every_difference_and_no_other(
    share: float, spread: float, groups: list[int]
) -> None:
    rng = np.random.default_rng([int(100 * share), int(100 * spread)])
    a = rng.normal(0, 1, 9).round(1)  # some are equal
    b = a + rng.normal(0, spread, 9)
    drawn = swapped_differences(a, b, share, resamples=6000, groups=np.array(groups))
    assert len(drawn) == 6000
    assert set(drawn.round(9).tolist()) == by_every_swap(a, b, share, groups)
    # Each pattern is as likely as its mirror image.
    assert abs(np.sign(drawn).mean()) < 0.05
