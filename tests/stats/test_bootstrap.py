"""Bootstrap intervals against scipy's, their special cases, and what must never happen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy import stats

from karat.errors import UsageError
from karat.stats.bootstrap import Resampling, mean_intervals, resampled_means
from karat.stats.proportions import wilson
from karat.stats.quantiles import two_sided_t

Values = NDArray[np.float64]
PLAN = Resampling()
FEW = Resampling(resamples=200)


def interval(values: Values, plan: Resampling = PLAN, *, top: float | None = None) -> Values:
    return mean_intervals(values[:, None], plan, tops=[top])[0]


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.random(300),
        lambda rng: 1 / rng.integers(1, 11, 400),
        lambda rng: rng.exponential(size=500),
        lambda rng: rng.beta(0.3, 2, 300),
        lambda rng: np.where(rng.random(300) < 0.3, rng.random(300), 1.0),
        lambda rng: -rng.lognormal(size=400),
    ],
)
def test_bca_agrees_with_scipy(draw: object) -> None:
    values = draw(np.random.default_rng(3))  # type: ignore[operator]
    plan = Resampling(resamples=20_000)
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="BCa", rng=np.random.default_rng(4)
    ).confidence_interval
    # Two sets of 20,000 resamples differ by about 3 % of a standard error at the ends.
    error = values.std() / np.sqrt(len(values))
    assert interval(values, plan) == pytest.approx(np.array(theirs), abs=0.1 * error)


def test_few_rows_are_given_a_wider_interval() -> None:
    values = np.random.default_rng(5).normal(size=10)
    plan = Resampling(resamples=20_000)
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="BCa", rng=np.random.default_rng(4)
    ).confidence_interval
    wider = np.ptp(interval(values, plan)) / (theirs.high - theirs.low)
    # The quantile of t with 9 degrees of freedom is 15 % more than the normal one.
    assert wider == pytest.approx(stats.t.ppf(0.975, 9) / stats.norm.ppf(0.975), abs=0.05)


@pytest.mark.parametrize("df", [4, 9, 19, 99, 10_000])
def test_the_series_for_t_is_close_to_scipy(df: int) -> None:
    assert two_sided_t(0.95, df) == pytest.approx(stats.t.ppf(0.975, df), abs=0.001)
    assert two_sided_t(0.9, df) == pytest.approx(stats.t.ppf(0.95, df), abs=0.001)


def test_percentile_is_the_recipe_from_the_course() -> None:
    values = np.random.default_rng(6).random((50, 2))
    plan = Resampling(method="percentile", resamples=1000)
    boots = np.sort(np.concatenate(list(resampled_means(values, plan))), axis=0)
    recipe = np.stack([boots[int(0.05 / 2 * 1000)], boots[int((1 - 0.05 / 2) * 1000)]], axis=1)
    assert mean_intervals(values, plan) == pytest.approx(recipe, abs=1e-12)


def test_percentile_has_no_special_rules() -> None:
    perfect = np.ones(20)
    assert interval(perfect, Resampling(method="percentile"), top=1.0).tolist() == [1, 1]


def test_percentile_with_one_resample_has_one_end() -> None:
    low, high = interval(np.arange(9.0), Resampling(method="percentile", resamples=1))
    assert low == high


@pytest.mark.parametrize("top", [1.0, 4.0])
def test_a_column_of_shares_gets_wilson(top: float) -> None:
    values = top * (np.arange(50) < 12)
    expected = top * np.array(wilson(0.24, 50))
    assert interval(values, top=top) == pytest.approx(expected, abs=1e-12)


def test_a_column_of_two_values_gets_wilson_between_them() -> None:
    values = np.where(np.arange(50) < 40, 0.2, 0.0)
    assert interval(values, top=1.0) == pytest.approx(0.2 * np.array(wilson(0.8, 50)), abs=1e-12)


def test_a_perfect_column_is_not_certain() -> None:
    low, high = interval(np.ones(20), top=1.0)
    assert (low, high) == (pytest.approx(20 / (20 + 3.841459), abs=1e-6), 1.0)


def test_a_constant_column_within_bounds_is_not_certain() -> None:
    low, high = interval(np.full(20, 0.3), top=1.0)
    assert low < 0.2
    assert high > 0.4


def test_a_constant_column_without_bounds_is_itself() -> None:
    assert interval(np.full(20, 0.3)).tolist() == [0.3, 0.3]


def test_a_column_near_its_end_gets_wilson_with_its_mean() -> None:
    values = np.append(np.zeros(98), [1.0, 0.5])
    assert interval(values, top=1.0) == pytest.approx(np.array(wilson(0.015, 100)), abs=1e-12)
    assert interval(1 - values, top=1.0) == pytest.approx(np.array(wilson(0.985, 100)), abs=1e-12)


def test_a_column_that_is_not_quite_so_near_is_resampled() -> None:
    values = np.append(np.zeros(97), [0.9, 0.8, 0.7])
    assert interval(values, top=1.0).tolist() == interval(values).tolist()


def test_resamples_that_tie_with_the_mean_count_half() -> None:
    low, high = interval(np.repeat([-1.0, 0.0, 1.0], 10), Resampling(resamples=20_000))
    # A mean can only be a multiple of 1/30, and one that is off by a tie is off by 1/30.
    assert low + high == pytest.approx(0, abs=0.5 / 30)


def test_a_column_away_from_its_ends_is_resampled() -> None:
    values = np.random.default_rng(7).random(100)
    assert interval(values, top=1.0).tolist() == interval(values).tolist()


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("method", ["bca", "percentile"])
def test_fewer_than_two_rows_have_no_interval(n: int, method: str) -> None:
    plan = Resampling(method=method)  # type: ignore[arg-type]
    assert np.isnan(mean_intervals(np.ones((n, 3)), plan, tops=[1.0] * 3)).all()


def test_fewer_than_two_groups_have_no_interval() -> None:
    one = np.zeros(10, np.int64)
    assert np.isnan(
        mean_intervals(np.random.default_rng(8).random((10, 2)), PLAN, groups=one)
    ).all()


def test_rows_of_a_group_are_drawn_together() -> None:
    copies = np.random.default_rng(9).random((40, 1))
    groups = np.repeat(np.arange(40), 5)
    grouped = mean_intervals(np.repeat(copies, 5, axis=0), PLAN, groups=groups)
    assert grouped == pytest.approx(mean_intervals(copies, PLAN), abs=1e-9)


def test_groups_of_one_row_are_rows() -> None:
    values = np.random.default_rng(10).random((60, 2))
    groups = np.arange(60) + 7
    ours = mean_intervals(values, PLAN, groups=groups)
    assert ours == pytest.approx(mean_intervals(values, PLAN), abs=1e-12)


def test_unequal_groups_agree_with_a_loop() -> None:
    rng = np.random.default_rng(11)
    groups = np.repeat(np.arange(80), rng.integers(1, 6, 80))
    values = rng.random(80)[groups] * 0.7 + 0.3 * rng.random(len(groups))
    parts = [values[groups == g] for g in range(80)]
    drawn = [
        np.concatenate([parts[g] for g in rng.integers(0, 80, 80)]).mean() for _ in range(4000)
    ]
    ours = np.concatenate(list(resampled_means(values[:, None], PLAN, groups=groups)))
    assert ours.mean() == pytest.approx(np.mean(drawn), abs=0.004)
    assert ours.std() == pytest.approx(np.std(drawn), rel=0.06)


def test_one_large_group_counts_for_little_near_an_end() -> None:
    groups = np.append(np.zeros(1000, np.int64), np.arange(1, 11))
    low, _ = mean_intervals(np.ones((1010, 1)), PLAN, tops=[1.0], groups=groups)[0]
    assert low == pytest.approx(wilson(1.0, 1)[0])


def test_many_rows_are_bundled_to_the_same_interval() -> None:
    values = np.random.default_rng(12).beta(0.5, 2, (30_000, 1))
    error = values.std() / np.sqrt(30_000)
    low, high = mean_intervals(values, PLAN)[0]
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.15 * error)


def test_a_column_has_the_same_bits_in_any_company() -> None:
    values = np.random.default_rng(13).random((500, 7))
    together = mean_intervals(values, FEW)
    for j in range(7):
        assert mean_intervals(values[:, [j]], FEW)[0].tolist() == together[j].tolist()


def test_a_seed_decides_the_draws() -> None:
    values = np.random.default_rng(14).random((100, 1))
    first, again, other = (mean_intervals(values, Resampling(seed=seed)) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()


def test_all_columns_see_the_same_resamples() -> None:
    values = np.random.default_rng(15).random(200)
    means = np.concatenate(list(resampled_means(np.stack([values, 1 - values], axis=1), FEW)))
    assert means.shape == (200, 2)
    assert means.sum(axis=1) == pytest.approx(np.ones(200), abs=1e-12)


def test_no_rows_have_no_resamples() -> None:
    assert list(resampled_means(np.empty((0, 2)), FEW)) == []


@pytest.mark.parametrize("confidence", [0.999, 0.9999, 0.999999])
def test_the_confidence_may_be_extreme(confidence: float) -> None:
    values = np.append(np.zeros(9), 1.0)
    low, high = interval(values, Resampling(confidence=confidence))
    assert 0 <= low < 0.1 < 0.3 < high <= 1


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e300])
def test_the_scale_of_the_values_may_be_extreme(scale: float) -> None:
    low, high = interval(np.arange(30.0) * scale)
    assert 0 <= low <= high <= 29 * scale


@settings(max_examples=60, deadline=None)
@given(
    arrays(np.float64, st.integers(2, 25), elements=st.floats(0, 1)),
    st.sampled_from([None, 1.0, 2.0]),
)
def test_an_interval_stays_where_values_can_be(values: Values, top: float | None) -> None:
    low, high = interval(values, FEW, top=top)
    # Wilson's may reach beyond what was seen, not beyond what can be.
    least, most = (0, top) if top is not None else (values.min(), values.max())
    assert least <= low <= high <= most


def test_a_top_of_zero_is_no_top() -> None:
    assert interval(np.zeros(9), top=0.0).tolist() == [0, 0]


@pytest.mark.parametrize("value", [-0.1, 1.1])
def test_values_beyond_their_top_are_refused(value: float) -> None:
    with pytest.raises(UsageError, match="top"):
        interval(np.array([0.5, value]), top=1.0)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_column_with_gaps_is_refused(broken: float) -> None:
    with pytest.raises(UsageError, match="NaN or infinity"):
        mean_intervals(np.array([[0.0], [broken]]), PLAN)


@pytest.mark.parametrize(
    "wrong", [{"confidence": 1.0}, {"resamples": 0}, {"seed": -1}, {"method": "student"}]
)
def test_a_plan_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Resampling(**wrong)  # type: ignore[arg-type]
