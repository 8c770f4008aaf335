"""Intervals of shares against scipy's, at their ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from karat.errors import UsageError
from karat.stats.distributions import clopper_pearson, wilson

Z2 = 3.8414588206941236  # the square of the normal distribution's 97.5 % quantile
SHARES = [(0, 1), (1, 1), (1, 2), (7, 20), (99, 100), (3, 5000), (499_000, 500_000)]


@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95, 0.99])
@pytest.mark.parametrize(("k", "n"), SHARES)
def test_clopper_and_pearson_are_scipys(k: int, n: int, confidence: float) -> None:
    theirs = binomtest(k, n).proportion_ci(confidence, method="exact")
    assert clopper_pearson(k, n, confidence=confidence) == pytest.approx(tuple(theirs), abs=1e-9)


@given(st.integers(1, 300), st.data())
def test_one_more_success_never_lowers_an_end(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n - 1))
    fewer, more = clopper_pearson(k, n), clopper_pearson(k + 1, n)
    assert fewer[0] <= more[0]
    assert fewer[1] <= more[1]
    assert 0 <= fewer[0] <= k / n <= fewer[1] <= 1


@pytest.mark.parametrize(("k", "n"), [(0, 0), (-1, 5), (6, 5)])
def test_a_count_beyond_n_is_refused(k: int, n: int) -> None:
    with pytest.raises(UsageError):
        clopper_pearson(k, n)


@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95, 0.99])
@pytest.mark.parametrize(("k", "n"), SHARES)
def test_wilson_is_scipys_wilson(k: int, n: int, confidence: float) -> None:
    theirs = binomtest(k, n).proportion_ci(confidence, method="wilson")
    assert wilson(k / n, n, confidence=confidence) == pytest.approx(tuple(theirs), abs=1e-12)


def test_wilson_of_a_perfect_column_is_below_one() -> None:
    assert wilson(1.0, 20) == (pytest.approx(20 / (20 + Z2), abs=1e-12), 1.0)


def test_wilson_of_an_empty_handed_column_starts_at_zero() -> None:
    assert wilson(0.0, 20) == (0.0, pytest.approx(Z2 / (20 + Z2), abs=1e-12))


@given(st.integers(1, 500), st.data())
def test_wilson_holds_the_share_and_stays_in_range(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    low, high = wilson(k / n, n)
    assert 0 <= low <= k / n <= high <= 1


@pytest.mark.parametrize(("mean", "n"), [(0.5, 0), (1.1, 10), (-0.1, 10), (float("nan"), 10)])
def test_wilson_refuses_what_is_no_share(mean: float, n: int) -> None:
    with pytest.raises(UsageError):
        wilson(mean, n)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95])
def test_a_confidence_is_between_zero_and_one(confidence: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        wilson(0.5, 10, confidence=confidence)
