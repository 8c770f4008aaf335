"""Paired tests against scipy's, and how often they are wrong where nothing differs."""

from __future__ import annotations

import time
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy import stats

from karat.errors import UsageError
from karat.stats.paired import (
    all_pairs,
    randomisation,
    sign_test,
    t_test,
    wilcoxon,
)

Values = NDArray[np.float64]
DELTAS = arrays(np.float64, st.integers(1, 40), elements=st.integers(-5, 5).map(lambda v: v / 10))


def p_of(delta: Values, **options: int) -> float:
    return float(randomisation(delta[:, None], **options)[0])


@pytest.mark.parametrize("n", [2, 5, 12])
def test_few_differences_are_tested_exactly_as_by_scipy(n: int) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.random(n), rng.random(n)
    theirs = stats.permutation_test(
        (a, b), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=np.inf
    )
    assert p_of(a - b) == pytest.approx(theirs.pvalue, abs=1e-12)


def test_a_single_difference_proves_nothing() -> None:
    assert p_of(np.array([0.4])) == 1.0


def test_twenty_differences_are_tested_exactly() -> None:
    delta = np.random.default_rng(0).normal(0.3, 1, 20)
    signs = np.array(list(product([1, -1], repeat=10)))
    sums = (signs @ delta[:10])[:, None] + signs @ delta[10:]
    expected = np.mean(np.abs(sums) >= abs(delta.sum()) - 1e-9)
    assert p_of(delta) == expected
    assert p_of(delta, seed=5) == expected


def test_zeros_do_not_count_as_differences() -> None:
    delta = np.random.default_rng(1).normal(0.3, 1, 15)
    assert p_of(np.append(delta, np.zeros(500))) == p_of(delta)


def test_many_differences_are_tested_as_by_scipy() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.random((2, 100))
    theirs = stats.permutation_test(
        (a, b),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=20_000,
        rng=rng,
    )
    assert p_of(a - b, resamples=20_000) == pytest.approx(theirs.pvalue, abs=0.015)


def test_sums_that_are_equal_on_paper_count_as_hits() -> None:
    # 0.3 - 0.1 is not 0.2 in floats, nor is 0.1 + 0.2 = 0.3.
    delta = np.array([0.1, 0.2, 0.3, 0.3 - 0.1, 0.1 + 0.2, -0.1, 0.7 - 0.6])
    whole = np.array([1, 2, 3, 2, 3, -1, 1])
    signs = np.array(list(product([1, -1], repeat=7)))
    assert p_of(delta) == np.mean(np.abs(signs @ whole) >= whole.sum())


def test_small_differences_of_large_values_tie_too() -> None:
    steps = np.random.default_rng(3).integers(-2, 4, 15)
    base = np.random.default_rng(4).integers(100, 900, 15)
    assert p_of((base + steps) / 999 - base / 999) == p_of(steps.astype(np.float64))


@pytest.mark.parametrize("n", [0, 3, 50])
def test_identical_systems_have_a_p_of_one(n: int) -> None:
    assert randomisation(np.zeros((n, 2))).tolist() == [1.0, 1.0]


def test_a_p_is_never_zero() -> None:
    assert p_of(np.ones(200), resamples=500) == 1 / 501


def test_groups_are_swapped_as_a_whole() -> None:
    delta = np.random.default_rng(5).normal(0.2, 1, 60)
    groups = np.repeat(np.arange(12), 5)
    sums = delta.reshape(12, 5).sum(axis=1)
    assert randomisation(delta[:, None], groups=groups)[0] == p_of(sums)


def test_a_column_has_the_same_p_in_any_company() -> None:
    deltas = np.random.default_rng(6).normal(size=(200, 5))
    together = randomisation(deltas, resamples=300)
    assert [p_of(column, resamples=300) for column in deltas.T] == together.tolist()


def test_gaps_are_refused() -> None:
    with pytest.raises(UsageError):
        randomisation(np.array([[np.nan, 1.0], [1.0, 1.0]]))


@settings(max_examples=50, deadline=None)
@given(DELTAS)
def test_a_p_lies_between_zero_and_one_and_ignores_direction(delta: Values) -> None:
    p = p_of(delta, resamples=100)
    assert 0 < p <= 1
    assert p_of(-delta, resamples=100) == p


def test_t_is_that_of_scipy() -> None:
    a, b = np.random.default_rng(7).random((2, 30))
    assert t_test(a - b) == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-10)


def test_t_needs_a_spread() -> None:
    assert t_test(np.ones(5)) is None
    assert t_test(np.ones(1)) is None
    assert t_test(np.empty(0)) is None
    assert t_test(np.zeros(5)) == 1.0


@pytest.mark.parametrize("n", [1, 5, 30, 300])
def test_wilcoxon_is_that_of_scipy_with_pratts_zeros(n: int) -> None:
    delta = np.random.default_rng(n).integers(-4, 6, n) / 4
    theirs = stats.wilcoxon(delta, zero_method="pratt").pvalue if delta.any() else 1.0
    assert wilcoxon(delta) == pytest.approx(theirs, rel=1e-12)


def test_wilcoxon_sees_ties_that_floats_hide() -> None:
    delta = np.array([0.3 - 0.1, -0.2, 0.2, 0.7 - 0.6, -0.1, 0.5])
    assert wilcoxon(delta) == pytest.approx(
        stats.wilcoxon([2, -2, 2, 1, -1, 5], zero_method="pratt").pvalue
    )


def test_the_sign_test_is_scipys_binomial_test() -> None:
    delta = np.random.default_rng(8).integers(-4, 6, 80) / 4
    gains, losses = (delta > 0).sum(), (delta < 0).sum()
    assert sign_test(delta) == pytest.approx(stats.binomtest(gains, gains + losses).pvalue)


@pytest.mark.parametrize("test", [wilcoxon, sign_test])
def test_nothing_to_rank_is_no_difference(test: object) -> None:
    assert test(np.zeros(9)) == 1.0  # type: ignore[operator]
    assert test(np.empty(0)) is None  # type: ignore[operator]


@pytest.mark.parametrize("n", [20, 50, 200])
def test_tests_reject_no_more_than_their_level_where_nothing_differs(n: int) -> None:
    values = 1 / np.random.default_rng(n).integers(1, 11, (2, n, 1000))
    deltas = values[0] - values[1]
    ps = {
        "randomisation": randomisation(deltas, resamples=1000),
        "t": np.array([t_test(delta) for delta in deltas.T]),
        "wilcoxon": np.array([wilcoxon(delta) for delta in deltas.T]),
        "sign": np.array([sign_test(delta) for delta in deltas.T]),
    }
    limit = 0.05 + 2 * np.sqrt(0.05 * 0.95 / 1000)
    assert {name: share for name, p in ps.items() if (share := np.mean(p < 0.05)) > limit} == {}


def alike(n: int, systems: int, sets: int, seed: int) -> Values:
    """Systems that are alike, on queries that are hard or easy for all of them."""
    rng = np.random.default_rng(seed)
    return rng.random((n, 1, sets)) + rng.beta(0.5, 0.5, (n, systems, sets))


def second_of(systems: int) -> NDArray[np.int64]:
    """The second system of every pair."""
    return np.triu_indices(systems, k=1)[1]


@pytest.mark.parametrize("shifted", [0, 2])
def test_all_pairs_keep_their_level_over_the_family(shifted: int) -> None:
    columns = alike(40, 5, 600, seed=9)
    columns[:, 5 - shifted :] += 0.5 * np.arange(1, shifted + 1)[:, None]
    _, adjusted = all_pairs(columns, resamples=600)
    wrong = (adjusted[second_of(5) < 5 - shifted] < 0.05).any(axis=0)
    assert wrong.mean() <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 600)


def test_all_pairs_find_what_differs() -> None:
    columns = alike(200, 4, 1, seed=10)
    columns[:, 3] += 0.3
    _, adjusted = all_pairs(columns, resamples=2000)
    assert (adjusted[second_of(4) == 3] < 0.01).all()
    assert (adjusted[second_of(4) < 3] > 0.05).all()


def test_the_p_of_a_pair_is_that_of_its_own_test() -> None:
    columns = alike(80, 4, 2, seed=11)
    p, _ = all_pairs(columns, resamples=20_000)
    first, second = np.triu_indices(4, k=1)
    deltas = columns[:, first] - columns[:, second]
    own = randomisation(deltas.reshape(80, -1), resamples=20_000, seed=1).reshape(-1, 2)
    assert p == pytest.approx(own, abs=0.02)


def test_a_more_significant_pair_has_no_larger_adjusted_p() -> None:
    columns = alike(30, 6, 20, seed=18)
    _, adjusted = all_pairs(columns, resamples=500)
    first, second = np.triu_indices(6, k=1)
    deltas = columns[:, first] - columns[:, second]
    statistics = np.abs(deltas.sum(axis=0)) / np.sqrt((deltas**2).sum(axis=0))
    for statistic, of_set in zip(statistics.T, adjusted.T, strict=True):
        assert (np.diff(of_set[np.argsort(statistic)]) <= 0).all()


def tukey(columns: Values, resamples: int) -> Values:
    """Randomised Tukey HSD (Carterette 2012): the labels of systems permuted within each query."""
    n, systems = columns.shape
    rng = np.random.default_rng(0)
    permuted = rng.permuted(np.broadcast_to(columns, (resamples, n, systems)), axis=2)
    ranges = np.ptp(permuted.mean(axis=1), axis=1)
    first, second = np.triu_indices(systems, k=1)
    means = columns.mean(axis=0)
    return (ranges[:, None] >= np.abs(means[first] - means[second]) - 1e-9).mean(axis=0)


def test_all_pairs_agree_with_randomised_tukey() -> None:
    columns = alike(100, 5, 1, seed=12)
    columns[:, 4] += 0.12
    ours = all_pairs(columns, resamples=5000)[1][:, 0]
    theirs = tukey(columns[:, :, 0], resamples=5000)
    # Step-down is never less powerful than one step with the same statistic.
    assert (ours <= theirs + 0.03).all()
    assert ours.min() == pytest.approx(theirs.min(), abs=0.03)


def test_a_noisy_system_does_not_hide_a_steady_difference() -> None:
    rng = np.random.default_rng(14)
    columns = np.stack([np.zeros(60), rng.normal(0.1, 0.05, 60), rng.normal(0, 5, 60)], axis=1)
    assert all_pairs(columns[:, :, None], resamples=1000)[1][0, 0] < 0.01
    assert tukey(columns, resamples=1000)[0] > 0.5


def test_identical_systems_are_no_pair_to_tell_apart() -> None:
    columns = alike(50, 3, 2, seed=15)
    columns[:, 1] = columns[:, 0]
    p, adjusted = all_pairs(columns, resamples=500)
    assert p[0].tolist() == adjusted[0].tolist() == [1.0, 1.0]


def test_all_pairs_swap_groups_as_a_whole() -> None:
    columns = alike(30, 3, 1, seed=16)
    groups = np.repeat(np.arange(10), 3)
    sums = columns.reshape(10, 3, 3, 1).sum(axis=1)
    grouped, summed = (
        all_pairs(columns, resamples=500, groups=groups),
        all_pairs(sums, resamples=500),
    )
    assert grouped[0].tolist() == summed[0].tolist()
    assert grouped[1].tolist() == summed[1].tolist()


@settings(max_examples=30, deadline=None)
@given(
    arrays(
        np.float64,
        st.tuples(st.integers(1, 12), st.integers(2, 4), st.integers(1, 2)),
        elements=st.integers(0, 4).map(lambda v: v / 4),
    )
)
def test_an_adjusted_p_is_no_smaller(columns: Values) -> None:
    p, adjusted = all_pairs(columns, resamples=100)
    assert (p > 0).all()
    assert (p <= adjusted).all()
    assert (adjusted <= 1).all()


def test_twenty_systems_take_less_than_a_second() -> None:
    columns = alike(1000, 20, 3, seed=17)
    started = time.perf_counter()
    p, adjusted = all_pairs(columns, resamples=10_000)
    assert time.perf_counter() - started < 3  # 0.15 seconds on an idle machine
    assert p.shape == adjusted.shape == (190, 3)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=7))
def test_wilcoxon_of_few_queries_is_that_of_all_signs_as_scipy_has_it(steps: list[int]) -> None:
    delta = np.array(steps) / 4
    expected = stats.wilcoxon(delta, zero_method="pratt").pvalue if delta.any() else 1.0
    assert wilcoxon(delta) == pytest.approx(expected, abs=1e-12)


def test_wilcoxon_of_thirteen_queries_with_ties_takes_no_time() -> None:
    # scipy goes through all 8,192 signs, one list of ranks each
    delta = np.array([0, 1, 1, 2, -1, 0, 3, 3, -2, 1, 0, 2, 1]) / 4
    start = time.process_time()
    for _ in range(200):
        wilcoxon(delta)
    assert time.process_time() - start < 1.0
