"""What intervals promise, on whole evaluations: monotone, inside the range, one story with p."""

from __future__ import annotations

import numpy as np
import pytest
from compared import gold_of, run_of
from gated import gates_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import karat
from karat.evaluation.api import compare
from karat.evaluation.gates import judge


def two_gold_items(missing_one: int, n: int = 40):
    """Queries with two gold items each, some of which miss one of them."""
    gold = karat.Gold.from_dict({f"q{i}": ["a", "b"] for i in range(n)})
    run = {f"q{i}": [*("ax" if i < missing_one else "ab"), *"yzw"] for i in range(n)}
    return karat.evaluate(karat.Run.from_dict(run), gold, ["R@5"])


def test_a_better_system_passes_every_gate_that_the_other_passes():
    lows = [two_gold_items(missing).summaries["R@5"].ci[0] for missing in range(41)]
    assert lows == sorted(lows, reverse=True)
    for limit in np.arange(0.7, 1.0, 0.01).tolist():
        worse, better = (
            judge(gates_of(f"R@5 >= {limit}"), two_gold_items(missing), None, system="s")
            for missing in (4, 3)
        )
        assert worse.verdict != "pass" or better.verdict == "pass"


def test_what_would_pass_does_and_says_with_this_spread():
    gold = karat.Gold.from_dict({f"q{i}": ["a", "b"] for i in range(40)})
    run = {f"q{i}": [*("ax" if i < 20 else "ab"), *"yzw"] for i in range(40)}
    scores = karat.evaluate(karat.Run.from_dict(run), gold, ["R@5"])
    (result,) = judge(gates_of("R@5 >= 0.8"), scores, None, system="s").results
    assert (result.mean, result.verdict) == (0.75, "fail")
    assert "a mean of about" in result.because
    # Half of the values moved towards 1 by the same share, by a second way to the interval.
    moved = np.repeat([2 * result.needed - 1, 1.0], 20)
    rng = np.random.default_rng(1)
    weights = rng.dirichlet(np.ones(41), 40_000)
    low = np.quantile(weights[:, 1:] @ moved, 0.025)
    assert low == pytest.approx(0.8, abs=0.01)


def test_gold_items_that_are_found_together_do_not_narrow_the_interval_of_coverage():
    # 5 gold items a query, all found or none: 200 items, and what 40 queries know.
    gold = karat.Gold.from_dict({f"q{i}": [f"g{i}.{j}" for j in range(5)] for i in range(40)})
    found = {f"q{i}": [f"{'g' if i < 32 else 'x'}{i}.{j}" for j in range(5)] for i in range(40)}
    settings = {"short_lists": "complete"}
    scores = karat.evaluate(karat.Run.from_dict(found), gold, ["Coverage@5"], settings=settings)
    summary = scores.summaries["Coverage@5"]
    exact = stats.binomtest(32, 40).proportion_ci(method="exact")
    assert summary.mean == 0.8
    assert summary.ci == pytest.approx((exact.low, exact.high))
    (gate,) = judge(gates_of("Coverage@5 >= 0.7"), scores, None, system="s").results
    assert gate.verdict == "fail"
    # The first count of 40 whose exact lower end reaches 0.7.
    lows = [stats.binomtest(k, 40).proportion_ci(method="exact").low for k in range(41)]
    assert gate.needed == next(k for k in range(41) if lows[k] >= 0.7) / 40


def test_three_wins_of_twenty_prove_nothing_and_the_interval_says_so():
    row = compare(
        [run_of([0] * 10 + [1] * 10, "old"), run_of([1] * 3 + [0] * 7 + [1] * 10, "new")],
        gold_of(20),
        ["Hit@5"],
    ).rows[0]
    assert (row.delta, row.p) == (pytest.approx(0.15), 0.25)
    assert row.ci[0] <= 0 < row.ci[1]


@pytest.mark.parametrize("measure", ["nDCG@10", "RR", "Hit@5", "FPR@1"])
def test_two_queries_give_no_impossible_difference(measure):
    row = compare([run_of([1, 0], "old"), run_of([3, 2], "new")], gold_of(2), [measure]).rows[0]
    assert -1 <= row.ci[0] <= row.delta <= row.ci[1] <= 1


def test_no_power_is_promised_where_one_query_differs():
    ranks = np.ones(100, dtype=int)
    other = ranks.copy()
    other[0] = 2
    row = compare([run_of(ranks, "old"), run_of(other, "new")], gold_of(100), ["RR"]).rows[0]
    assert row.detectable is None
    assert row.needed is None
    assert "1 of 100" in row.power_because


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 30).flatmap(
        lambda n: st.tuples(*[st.lists(st.integers(0, 4), min_size=n, max_size=n)] * 2)
    )
)
def test_the_interval_of_a_difference_excludes_zero_exactly_when_p_is_small(ranks):
    old, new = ranks
    found = compare(
        [run_of(old, "old"), run_of(new, "new")],
        gold_of(len(old)),
        ["RR", "Hit@1", "P@5"],
        settings={"permutations": 500, "missing_ids": "allow"},
    )
    for row in found.rows:
        low, high = row.ci
        assert (low > 0 or high < 0) == (row.p < 0.05)
        assert low <= row.delta + 1e-9
        assert row.delta - 1e-9 <= high
        least = 0.2 if row.measure == "P@5" else 1.0
        assert -least <= low <= high <= least
        narrow_low, narrow_high = row.ci_same
        assert (narrow_low > 0 or narrow_high < 0) == (row.p < 0.1)
        assert low <= narrow_low <= narrow_high <= high
