"""Wilson's interval against scipy's, at its ends, and turned round."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from karat.errors import UsageError
from karat.stats.proportions import queries_for_perfect, wilson, wilson_needed

Z2 = 3.8414588206941236  # the square of the normal distribution's 97.5 % quantile


@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95, 0.99])
@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (1, 2), (7, 20), (99, 100), (3, 5000)])
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


@given(st.integers(1, 200), st.floats(0, 1), st.booleans())
def test_wilson_needed_is_the_first_share_that_passes(n: int, minimum: float, strict: bool) -> None:
    def passes(k: int) -> bool:
        low = wilson(k / n, n)[0]
        return low > minimum if strict else low >= minimum

    first = next((k / n for k in range(n + 1) if passes(k)), None)
    assert wilson_needed(minimum, n, strict=strict) == first


def test_no_queries_never_pass() -> None:
    assert wilson_needed(0.0, 0) is None


@given(st.floats(0, 0.999))
def test_queries_for_perfect_is_the_first_number_that_passes(minimum: float) -> None:
    n = queries_for_perfect(minimum)
    assert n is not None
    assert n / (n + Z2) >= minimum - 1e-12
    assert n == 1 or (n - 1) / (n - 1 + Z2) < minimum


def test_no_number_of_queries_proves_perfection() -> None:
    assert queries_for_perfect(1.0) is None
    assert queries_for_perfect(1.5) is None


def test_a_minimum_of_nothing_takes_one_query() -> None:
    assert queries_for_perfect(0.0) == queries_for_perfect(-1.0) == 1


def test_a_minimum_next_to_one_ends() -> None:
    assert (queries_for_perfect(1 - 2**-53) or 0) > 10**16
