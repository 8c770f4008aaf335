"""t, beta and coin throws against whole fractions, long decimals and scipy."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import special

from karat.stats.distributions import beta_share, heads_at_most, t_p, t_quantile

SIZES = st.floats(-1, 6).map(lambda power: 10.0**power)


def t_p_in_decimals(t: float, df: int) -> float:
    """Return the two-sided p for even degrees of freedom (Abramowitz and Stegun, 26.7.4)."""
    with localcontext(prec=400):
        square = Decimal(t) ** 2
        total = square + df
        term, terms = Decimal(1), Decimal(0)
        for j in range(df // 2):
            terms += term
            term *= Decimal(df) / total * (2 * j + 1) / (2 * j + 2)
        return float(1 - Decimal(t) / total.sqrt() * terms)


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-6, 40), st.integers(1, 500))
def test_t_is_that_of_four_hundred_decimals(t: float, half_df: int) -> None:
    expected = t_p_in_decimals(t, 2 * half_df)
    assume(expected > 1e-300)
    assert t_p(t, 1.0, 2 * half_df) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("t", [0.001, 1.0, 1.7, 1.9, 2.5, 5.0, 25.0])
def test_t_of_many_degrees_of_freedom_is_that_of_four_hundred_decimals(t: float) -> None:
    assert t_p(t, 1.0, 20_000) == pytest.approx(t_p_in_decimals(t, 20_000), rel=1e-12)


@settings(deadline=None)
@given(SIZES, st.floats(1e-5, 1 - 1e-5))
def test_t_quantiles_are_scipys_and_lead_back(df: float, share: float) -> None:
    quantile = t_quantile(share, df)
    # scipy loses digits where there are many degrees of freedom.
    assert quantile == pytest.approx(float(special.stdtrit(df, share)), rel=1e-8, abs=1e-10)
    below = t_p(quantile, 1.0, df) / 2
    assert (below if share < 0.5 else 1 - below) == pytest.approx(share, rel=1e-11)


@pytest.mark.parametrize(("share", "df"), [(0.0, 5.0), (1.0, 5.0), (0.9, 0.0), (0.9, math.nan)])
def test_there_is_no_quantile_at_the_ends_or_without_degrees_of_freedom(
    share: float, df: float
) -> None:
    assert math.isnan(t_quantile(share, df))


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 4096))
def test_beta_is_that_of_whole_fractions(a: int, b: int, part: int) -> None:
    n = a + b - 1
    ways = sum(math.comb(n, j) * part**j * (4096 - part) ** (n - j) for j in range(a, n + 1))
    expected = Fraction(ways, 4096**n)
    assume(not 0 < expected < Fraction(1, 10**300))
    x = part / 4096
    assert beta_share(a, b, x, 1 - x) == pytest.approx(float(expected), rel=1e-12)


@settings(deadline=None)
@given(SIZES, SIZES, st.floats(-30, 30))
def test_beta_is_scipys_wherever_it_lies(a: float, b: float, spreads: float) -> None:
    x = a / (a + b) + spreads * math.sqrt(a * b / (a + b) ** 2 / (a + b + 1))
    assume(0 < x < 1)
    expected = float(special.betainc(a, b, x))
    assert beta_share(a, b, x, 1 - x) == pytest.approx(expected, rel=1e-7, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 4000), st.data())
def test_throws_of_a_coin_are_counted(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    ways = sum(math.comb(n, heads) for heads in range(min(k, n - k - 1) + 1))
    expected = Fraction(ways if k < n / 2 else 2**n - ways, 2**n)
    assume(expected > Fraction(1, 10**300))
    rel = 0 if n <= 1000 else 1e-11
    assert heads_at_most(k, n) == pytest.approx(float(expected), rel=rel)
