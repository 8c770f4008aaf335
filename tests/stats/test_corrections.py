"""Holm and Benjamini-Hochberg against figures from statsmodels, and what always holds.

The figures are ``multipletests(ps, method=…)[1]`` of statsmodels 0.15.0, with the methods
``holm`` and ``fdr_bh``.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karat.stats.paired import benjamini_hochberg, holm

STEPS = [0.001, 0.008, 0.039, 0.041, 0.042, 0.06, 0.074, 0.205]
TIES = [0.04, 0.01, 0.03, 0.01, 0.5, 0.9]
FAMILIES = st.lists(st.none() | st.floats(0, 1), max_size=12)


@pytest.mark.parametrize(
    ("ps", "theirs"),
    [
        (STEPS, [0.008, 0.056, 0.234, 0.234, 0.234, 0.234, 0.234, 0.234]),
        (TIES, [0.12, 0.06, 0.12, 0.06, 1.0, 1.0]),
    ],
)
def test_holm_is_that_of_statsmodels(ps: list[float], theirs: list[float]) -> None:
    assert holm(ps) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize(
    ("ps", "theirs"),
    [
        (STEPS, [0.008, 0.032, 0.0672, 0.0672, 0.0672, 0.08, 0.084571428571, 0.205]),
        (TIES, [0.06, 0.03, 0.06, 0.03, 0.6, 0.9]),
    ],
)
def test_benjamini_hochberg_is_that_of_statsmodels(ps: list[float], theirs: list[float]) -> None:
    assert benjamini_hochberg(ps) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("correct", [holm, benjamini_hochberg])
def test_a_test_that_was_not_made_does_not_count(correct: object) -> None:
    assert correct([None, 0.01, None, 0.04]) == [None, 0.02, None, 0.04]  # type: ignore[operator]


@pytest.mark.parametrize("correct", [holm, benjamini_hochberg])
def test_no_tests_have_no_corrections(correct: object) -> None:
    assert correct([]) == []  # type: ignore[operator]


@pytest.mark.parametrize("correct", [holm, benjamini_hochberg])
@given(ps=FAMILIES)
def test_corrected_ps_are_larger_and_in_the_same_order(
    correct: object, ps: list[float | None]
) -> None:
    corrected = correct(ps)  # type: ignore[operator]
    assert [p is None for p in ps] == [p is None for p in corrected]
    known = sorted((p, q) for p, q in zip(ps, corrected, strict=True) if p is not None)
    assert all(p <= q <= 1 for p, q in known)
    assert [q for _, q in known] == sorted(q for _, q in known)


@given(ps=FAMILIES)
def test_holm_is_the_stricter(ps: list[float | None]) -> None:
    pairs = zip(holm(ps), benjamini_hochberg(ps), strict=True)
    assert all(a is None or b is None or a >= b * (1 - 1e-12) for a, b in pairs)
