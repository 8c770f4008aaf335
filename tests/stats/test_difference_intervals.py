"""The inverted randomisation test against all signs, and its one story with p."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from karat.stats.paired import agreeing_with_p, randomised

Values = NDArray[np.float64]
# Whole numbers, so that equal sums are equal.
SMALL = arrays(np.float64, st.integers(2, 9), elements=st.integers(-4, 4).map(float))


def interval(delta: Values, confidence: float = 0.95, **options: object) -> tuple[float, float]:
    found = randomised(delta[:, None], (confidence,), **options)  # type: ignore[arg-type]
    low, high = found.intervals[0][0].tolist()
    return low, high


def p_at(delta: Values, shift: float, groups: Values | None = None) -> float:
    """The p of the test after the shift was taken from every query, from all signs."""
    moved = delta - shift
    if groups is not None:
        moved = np.array([moved[groups == one].sum() for one in np.unique(groups)])
    signs = np.array(list(product([1, -1], repeat=len(moved))))
    return float(np.mean(np.abs(signs @ moved) >= abs(moved.sum()) - 1e-9))


@settings(max_examples=80, deadline=None)
@given(SMALL, st.sampled_from([0.5, 0.8, 0.9, 0.95]))
def test_the_ends_are_where_the_test_starts_to_reject(delta: Values, confidence: float) -> None:
    low, high = interval(delta, confidence)
    alpha = 1 - confidence - 1e-12
    for end, outwards in ((low, -1.0), (high, 1.0)):
        if np.isinf(end):
            assert p_at(delta, delta.mean() + outwards * 1e6) >= alpha
        else:
            assert p_at(delta, end) >= alpha
            assert p_at(delta, end + outwards * 1e-6) < alpha


def test_groups_change_sign_as_a_whole() -> None:
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(9), rng.integers(1, 4, 9))
    delta = rng.normal(0.4, 1, len(groups))
    low, high = interval(delta, groups=groups)
    assert p_at(delta, low + 1e-9, groups) >= 0.05 > p_at(delta, low - 1e-6, groups)
    assert p_at(delta, high - 1e-9, groups) >= 0.05 > p_at(delta, high + 1e-6, groups)


def test_random_signs_agree_with_all_of_them() -> None:
    delta = np.random.default_rng(2).normal(0.3, 1, 13)
    exact = interval(delta)
    drawn = interval(delta, resamples=4000)
    width = exact[1] - exact[0]
    assert drawn == pytest.approx(exact, abs=0.04 * width)


def test_many_differences_get_about_the_interval_of_t() -> None:
    delta = np.random.default_rng(3).normal(0.2, 1, 300)
    reach = 1.968 * delta.std(ddof=1) / np.sqrt(300)
    assert interval(delta) == pytest.approx(
        (delta.mean() - reach, delta.mean() + reach), abs=0.06 * reach
    )


@pytest.mark.parametrize("n", [1, 2, 5])
def test_up_to_five_queries_rule_nothing_out(n: int) -> None:
    assert interval(np.ones(n)) == (-np.inf, np.inf)


def test_six_queries_that_differ_alike_rule_the_rest_out() -> None:
    assert interval(np.full(6, 0.25)) == (0.25, 0.25)


def test_equal_systems_differ_by_nothing() -> None:
    assert interval(np.zeros(30)) == (0.0, 0.0)


@settings(max_examples=100, deadline=None)
@given(
    arrays(np.float64, st.integers(1, 60), elements=st.integers(-3, 3).map(lambda v: v / 3)),
    st.integers(0, 3),
)
def test_without_a_correction_p_and_interval_hardly_ever_disagree(delta: Values, seed: int) -> None:
    found = randomised(delta[:, None], (0.95,), resamples=999, seed=seed)
    low, high = found.intervals[0][0]
    p = float(found.p[0])
    assert low - 1e-12 <= delta.mean() <= high + 1e-12
    # Exact p beside random signs may disagree by the error of the signs, no more.
    if p < 0.03:
        assert low > -1e-12 or high < 1e-12
    if p > 0.07:
        assert low <= 1e-12
        assert high >= -1e-12


@given(
    st.floats(-1, 1),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from([0.05, 0.1]),
)
def test_p_decides_on_which_side_of_zero_an_interval_ends(
    mean: float, below: float, above: float, p: float, alpha: float
) -> None:
    low, high = agreeing_with_p((mean - below, mean + above), p, alpha, mean)
    if mean == 0 or abs(mean) > 1e-300:
        assert (low > 0 or high < 0) == (p < alpha and mean != 0)
    assert low <= mean <= high


@pytest.mark.parametrize("resamples", [500, 20_000])
def test_a_column_has_the_same_bits_in_any_company(resamples: int) -> None:
    deltas = np.random.default_rng(6).normal(size=(150, 4))
    together = randomised(deltas, (0.95, 0.9), resamples=resamples)
    for j, column in enumerate(deltas.T):
        alone = randomised(column[:, None], (0.95, 0.9), resamples=resamples)
        assert alone.p[0] == together.p[j]
        for one, all_ in zip(alone.intervals, together.intervals, strict=True):
            assert one[0].tolist() == all_[j].tolist()


def test_the_narrower_interval_lies_within_the_wider() -> None:
    deltas = np.random.default_rng(7).normal(size=(40, 5))
    wide, narrow = randomised(deltas, (0.95, 0.9)).intervals
    assert (wide[:, 0] <= narrow[:, 0]).all()
    assert (narrow[:, 1] <= wide[:, 1]).all()


def test_the_memory_of_a_block_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    deltas = np.random.default_rng(8).normal(size=(100, 2))
    whole = randomised(deltas, (0.95,), resamples=1000)
    monkeypatch.setattr("karat.stats.means._CELLS", 1600)
    cut = randomised(deltas, (0.95,), resamples=1000)
    assert cut.p.tolist() == whole.p.tolist()
    assert cut.intervals[0].tolist() == whole.intervals[0].tolist()
