"""Intervals of means against second sources, and what must hold for any values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy import stats

from karat.errors import UsageError
from karat.stats.distributions import two_sided_t
from karat.stats.means import (
    Resampling,
    ValueRange,
    mean_intervals,
    percentile_intervals,
    resampled_means,
    rows_for_perfect,
)

Values = NDArray[np.float64]
PLAN = Resampling()
FEW = Resampling(resamples=200)
MANY = Resampling(resamples=40_000)
PERCENTILE = Resampling(method="percentile")
UNIT = (0.0, 1.0)
SHARES = arrays(np.float64, st.integers(2, 25), elements=st.floats(0, 1))


def interval(values: Values, plan: Resampling = PLAN, *, range: ValueRange | None = UNIT) -> Values:
    return mean_intervals(values[:, None], plan, ranges=[range])[0]


def by_dirichlet(values: Values, draws: int = 40_000) -> tuple[float, float]:
    """Gaffke's interval from its definition, with numpy's own Dirichlet distribution."""
    weights = np.random.default_rng(99).dirichlet(np.ones(len(values) + 1), draws)
    low = np.quantile(weights @ np.append(values, 0.0), 0.025)
    return float(low), float(np.quantile(weights @ np.append(values, 1.0), 0.975))


# Gaffke's interval


@pytest.mark.parametrize(("k", "n"), [(0, 20), (3, 20), (36, 40), (40, 40), (95, 100), (50, 500)])
def test_zeros_and_ones_get_the_interval_of_clopper_and_pearson(k: int, n: int) -> None:
    values = (np.arange(n) < k).astype(np.float64)
    theirs = stats.binomtest(k, n).proportion_ci(method="exact")
    width = theirs.high - theirs.low
    assert interval(values, MANY) == pytest.approx(np.array(theirs), abs=0.02 * width)
    assert interval(values) == pytest.approx(np.array(theirs), abs=0.06 * width)


@pytest.mark.parametrize("n", [2, 20, 200])
def test_a_perfect_column_has_hardly_any_error_of_drawing(n: int) -> None:
    low, high = interval(np.ones(n))
    assert low == pytest.approx(0.025 ** (1 / n), rel=0.001 / n + 1e-7)
    assert high == 1.0


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.random(30),
        lambda rng: 1 / rng.integers(1, 11, 50),
        lambda rng: rng.beta(0.3, 2, 200),
        lambda rng: np.where(rng.random(100) < 0.1, 0.5, 1.0),
    ],
)
def test_other_values_get_the_interval_of_its_definition(draw: object) -> None:
    values = draw(np.random.default_rng(3))  # type: ignore[operator]
    low, high = by_dirichlet(values)
    assert interval(values, MANY) == pytest.approx(np.array([low, high]), abs=0.02 * (high - low))


def test_many_values_get_about_the_interval_of_t() -> None:
    values = np.random.default_rng(4).beta(2, 2, 500)
    theirs = stats.t.interval(0.95, 499, values.mean(), stats.sem(values))
    assert interval(values, MANY) == pytest.approx(
        np.array(theirs), abs=0.06 * (theirs[1] - theirs[0])
    )


@settings(max_examples=100, deadline=None)
@given(SHARES, st.data())
@pytest.mark.parametrize("plan", [FEW, Resampling(resamples=200, method="percentile")])
def test_raising_a_value_never_lowers_an_end(
    plan: Resampling, values: Values, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(values) - 1))
    higher = values.copy()
    higher[at] = data.draw(st.floats(values[at], 1))
    before, after = interval(values, plan), interval(higher, plan)
    # Resampled sums are on a grid that fits the largest value, so their last bits may differ.
    bits = 0.0 if plan.method == "gaffke" else 1e-14
    assert (before <= after + bits).all()


@settings(max_examples=100, deadline=None)
@given(SHARES, st.data())
def test_raising_a_value_of_a_group_never_lowers_an_end(
    values: Values, data: st.DataObject
) -> None:
    sizes = st.lists(st.integers(0, 4), min_size=len(values), max_size=len(values))
    groups = np.array(data.draw(sizes))
    higher = values.copy()
    higher[data.draw(st.integers(0, len(values) - 1))] = 1.0
    columns = np.stack([values, higher], axis=1)
    before, after = mean_intervals(columns, FEW, ranges=[UNIT, UNIT], groups=groups)
    if len(np.unique(groups)) < 2:
        assert np.isnan([before, after]).all()
    else:
        assert (before <= after).all()


@settings(max_examples=60, deadline=None)
@given(
    arrays(np.float64, st.integers(2, 25), elements=st.floats(-1, 3)),
    st.sampled_from([None, (-1.0, 3.0), (-2.0, 4.0)]),
)
def test_an_interval_stays_where_values_can_be(values: Values, range: ValueRange | None) -> None:
    low, high = interval(values, FEW, range=range)
    least, most = (values.min(), values.max()) if range is None else range
    assert least <= low <= high <= most


@given(SHARES)
@settings(max_examples=40, deadline=None)
def test_values_turned_round_have_the_interval_turned_round(values: Values) -> None:
    low, high = interval(values, FEW)
    assert interval(1 - values, FEW) == pytest.approx(np.array([1 - high, 1 - low]), abs=1e-7)


@given(SHARES, st.randoms())
@settings(max_examples=40, deadline=None)
def test_the_order_of_the_rows_does_not_matter(values: Values, random: object) -> None:
    shuffled = values.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert interval(shuffled, FEW).tolist() == interval(values, FEW).tolist()


def test_the_range_scales_the_interval() -> None:
    values = np.random.default_rng(5).random(40)
    expected = 0.2 * interval(values)
    assert interval(0.2 * values, range=(0.0, 0.2)) == pytest.approx(expected, abs=1e-8)


def test_a_constant_column_within_a_range_is_not_certain() -> None:
    low, high = interval(np.full(20, 0.3))
    assert low < 0.3 < high


def test_a_constant_column_without_a_range_is_itself() -> None:
    assert interval(np.full(20, 0.3), range=None).tolist() == [0.3, 0.3]


@pytest.mark.parametrize("minimum", [0.01, 0.5, 0.85, 0.9, 0.99])
def test_rows_for_perfect_is_the_first_number_that_passes(minimum: float) -> None:
    n = rows_for_perfect(minimum, PLAN)
    assert n is not None
    assert n < 2 or interval(np.ones(n))[0] >= minimum - 1e-7
    assert n < 3 or interval(np.ones(n - 1))[0] < minimum


def test_no_number_of_rows_proves_perfection() -> None:
    assert rows_for_perfect(1.0, PLAN) is None
    assert rows_for_perfect(0.0, PLAN) == 1


@pytest.mark.parametrize("value", [-0.1, 1.1])
def test_values_beyond_their_range_are_refused(value: float) -> None:
    with pytest.raises(UsageError, match="outside their range"):
        interval(np.array([0.5, value]))


@pytest.mark.parametrize("confidence", [0.5, 0.999, 0.999999])
def test_the_confidence_may_be_extreme(confidence: float) -> None:
    low, high = interval(np.append(np.zeros(9), 1.0), Resampling(confidence=confidence))
    assert 0 <= low < 0.1 < high <= 1


# Either kind of interval


@pytest.mark.parametrize("plan", [PLAN, PERCENTILE])
@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_rows_have_no_interval(n: int, plan: Resampling) -> None:
    assert np.isnan(mean_intervals(np.ones((n, 3)), plan, ranges=[UNIT, None, UNIT])).all()


@pytest.mark.parametrize("plan", [PLAN, PERCENTILE])
def test_fewer_than_two_groups_have_no_interval(plan: Resampling) -> None:
    one, values = np.zeros(10, np.int64), np.random.default_rng(8).random((10, 2))
    assert np.isnan(mean_intervals(values, plan, ranges=[UNIT] * 2, groups=one)).all()


@pytest.mark.parametrize("plan", [PLAN, PERCENTILE])
def test_rows_of_a_group_are_drawn_together(plan: Resampling) -> None:
    copies = np.random.default_rng(9).random((40, 1))
    groups = np.repeat(np.arange(40), 5)
    grouped = mean_intervals(np.repeat(copies, 5, axis=0), plan, ranges=[UNIT], groups=groups)
    assert grouped == pytest.approx(mean_intervals(copies, plan, ranges=[UNIT]), abs=1e-7)


@pytest.mark.parametrize("plan", [PLAN, PERCENTILE])
def test_groups_of_one_row_are_rows(plan: Resampling) -> None:
    values = np.random.default_rng(10).random((60, 2))
    ours = mean_intervals(values, plan, ranges=[UNIT] * 2, groups=np.arange(60) + 7)
    assert ours == pytest.approx(mean_intervals(values, plan, ranges=[UNIT] * 2), abs=1e-7)


@pytest.mark.parametrize("plan", [PLAN, PERCENTILE])
def test_many_rows_are_bundled_to_the_same_interval(plan: Resampling) -> None:
    values = np.random.default_rng(12).beta(0.5, 2, (30_000, 1))
    error = values.std() / np.sqrt(30_000)
    low, high = mean_intervals(values, plan, ranges=[UNIT])[0]
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.15 * error)


def test_the_end_of_the_range_counts_as_one_of_a_million_rows() -> None:
    values = np.zeros((1_000_000, 1))
    _, high = mean_intervals(values, PLAN, ranges=[UNIT])[0]
    assert high == pytest.approx(1 - 0.025 ** (1 / 1_000_000), rel=0.5)


def test_raising_values_among_many_rows_never_lowers_an_end() -> None:
    values = np.random.default_rng(16).random(25_000)
    better = values.copy()
    better[::1000] = 1.0
    before, after = mean_intervals(np.stack([values, better], axis=1), FEW, ranges=[UNIT] * 2)
    assert (before <= after).all()


@pytest.mark.parametrize("plan", [FEW, Resampling(resamples=200, method="percentile")])
def test_a_column_has_the_same_bits_in_any_company(plan: Resampling) -> None:
    values = np.random.default_rng(13).random((500, 7))
    together = mean_intervals(values, plan, ranges=[UNIT] * 7)
    for j in range(7):
        alone = mean_intervals(values[:, [j]], plan, ranges=[UNIT])[0]
        assert alone.tolist() == together[j].tolist()


def test_the_memory_of_a_block_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(17).random((300, 2))
    whole = mean_intervals(values, FEW, ranges=[UNIT] * 2)
    monkeypatch.setattr("karat.stats.means._CELLS", 1000)
    assert mean_intervals(values, FEW, ranges=[UNIT] * 2).tolist() == whole.tolist()


@pytest.mark.parametrize("method", ["gaffke", "percentile"])
def test_a_seed_decides_the_draws(method: str) -> None:
    values = np.random.default_rng(14).random((100, 1))
    first, again, other = (
        mean_intervals(values, Resampling(seed=seed, method=method), ranges=[UNIT])  # type: ignore[arg-type]
        for seed in (1, 1, 2)
    )
    assert first.tolist() == again.tolist() != other.tolist()


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_column_with_gaps_is_refused(broken: float) -> None:
    with pytest.raises(UsageError, match="NaN or infinity"):
        mean_intervals(np.array([[0.0], [broken]]), PLAN)


# The percentile bootstrap


def test_percentile_is_the_recipe_from_the_course() -> None:
    values = np.random.default_rng(6).random((50, 2))
    plan = Resampling(method="percentile", resamples=1000)
    boots = np.sort(resampled_means(values, plan), axis=0)
    recipe = np.stack([boots[int(0.05 / 2 * 1000)], boots[int((1 - 0.05 / 2) * 1000)]], axis=1)
    assert mean_intervals(values, plan, ranges=[UNIT] * 2) == pytest.approx(recipe, abs=1e-12)
    assert percentile_intervals(values, plan)[0] == pytest.approx(recipe, abs=1e-12)


def test_percentile_with_one_resample_has_one_end() -> None:
    low, high = interval(np.arange(9.0), Resampling(resamples=1), range=None)
    assert low == high


def test_unequal_groups_agree_with_a_loop() -> None:
    rng = np.random.default_rng(11)
    groups = np.repeat(np.arange(80), rng.integers(1, 6, 80))
    values = rng.random(80)[groups] * 0.7 + 0.3 * rng.random(len(groups))
    parts = [values[groups == g] for g in range(80)]
    drawn = [
        np.concatenate([parts[g] for g in rng.integers(0, 80, 80)]).mean() for _ in range(4000)
    ]
    ours = resampled_means(values[:, None], PLAN, groups=groups)
    assert ours.mean() == pytest.approx(np.mean(drawn), abs=0.004)
    assert ours.std() == pytest.approx(np.std(drawn), rel=0.06)


def test_all_columns_see_the_same_resamples() -> None:
    values = np.random.default_rng(15).random(200)
    means = resampled_means(np.stack([values, 1 - values], axis=1), FEW)
    assert means.shape == (200, 2)
    assert means.sum(axis=1) == pytest.approx(np.ones(200), abs=1e-12)


def test_no_rows_have_no_resamples() -> None:
    assert resampled_means(np.empty((0, 2)), FEW).shape == (0, 2)


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e300])
def test_the_scale_of_the_values_may_be_extreme(scale: float) -> None:
    low, high = interval(np.arange(30.0) * scale, range=None)
    assert 0 <= low <= high <= 29 * scale


@pytest.mark.parametrize("df", [4, 9, 19, 99, 10_000])
def test_the_series_for_t_is_close_to_scipy(df: int) -> None:
    assert two_sided_t(0.95, df) == pytest.approx(stats.t.ppf(0.975, df), abs=0.001)
    assert two_sided_t(0.9, df) == pytest.approx(stats.t.ppf(0.95, df), abs=0.001)
