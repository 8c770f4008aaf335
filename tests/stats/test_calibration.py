"""Corrected shares by hand and turned round, and intervals against simulated judges."""

from __future__ import annotations

import math
import random
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karat.errors import UsageError
from karat.stats import calibration
from karat.stats.calibration import (
    Confusion,
    Counted,
    beta_interval,
    cluster_difference,
    cluster_interval,
    corrected,
    rogan_gladen,
)
from karat.stats.means import Resampling

from .bench_judges import World, held, judges

JUDGE = Confusion(tp=360, fn=40, tn=460, fp=140)
PASSED = Counted(judged=1000, judged_relevant=740)


def test_the_worked_example() -> None:
    assert JUDGE.sensitivity == 0.9
    assert JUDGE.specificity == pytest.approx(0.7667, abs=5e-5)
    # (0.74 + 460/600 - 1) / (0.9 + 460/600 - 1) = (304/600) / (400/600)
    assert corrected(PASSED, JUDGE) == pytest.approx(304 / 400, abs=1e-14)


@settings(deadline=None)
@given(st.floats(0, 1), st.floats(0.01, 1), st.floats(0, 1))
def test_the_formula_undoes_what_the_judge_did(share: float, informed: float, lean: float) -> None:
    """Any judge with s + t - 1 = ``informed``, leaning to either side."""
    sensitivity = informed + lean * (1 - informed)
    specificity = 1 + informed - sensitivity
    judged = share * sensitivity + (1 - share) * (1 - specificity)
    assert rogan_gladen(judged, sensitivity, specificity) == pytest.approx(share, abs=1e-9)


def test_a_share_beyond_what_the_judge_could_give_is_an_end() -> None:
    assert rogan_gladen(0.05, 0.9, 0.9) == 0
    assert rogan_gladen(0.95, 0.9, 0.9) == 1


@pytest.mark.parametrize(("s", "t"), [(0.5, 0.5), (0.3, 0.6), (0.0, 1.0), (1.0, 0.0)])
def test_a_judge_no_better_than_chance_corrects_nothing(s: float, t: float) -> None:
    assert rogan_gladen(0.5, s, t) is None


def test_rates_that_nobody_could_see_are_not_known() -> None:
    for judge in (Confusion(tp=5, fn=5), Confusion(tn=5, fp=5), Confusion()):
        assert judge.informed is None
        assert corrected(PASSED, judge) is None


def test_what_people_judged_counts_as_they_said() -> None:
    # The worked example, and as many items again that are known: 250 of them are relevant.
    both = Counted(judged=1000, judged_relevant=740, known=1000, known_relevant=250)
    assert both.raw == (740 + 250) / 2000
    assert corrected(both, JUDGE) == pytest.approx((760 + 250) / 2000, abs=1e-14)


def test_a_judge_that_judged_nothing_is_not_asked() -> None:
    nothing = Counted(judged=0, judged_relevant=0, known=4, known_relevant=3)
    assert nothing.raw == 0.75
    assert corrected(nothing, JUDGE) is None
    assert beta_interval(nothing, JUDGE) is None


def test_beta_draws_are_those_of_the_standard_library() -> None:
    drawn = random.Random(5)
    values = []
    for _ in range(20_000):
        q = drawn.betavariate(741, 261)
        s, t = drawn.betavariate(361, 41), drawn.betavariate(461, 141)
        values.append((q - (1 - t)) / (s + t - 1))
    cuts = statistics.quantiles(values, n=40)
    found = beta_interval(PASSED, JUDGE)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((cuts[0], cuts[-1]), abs=0.004)
    assert found.mean == pytest.approx(statistics.fmean(values), abs=0.002)
    assert (found.draws, found.skipped) == (5000, 0)


class Given:
    """A source of chance that was told what to draw."""

    def __init__(self, *draws) -> None:
        self.draws = iter(draws)

    def beta(self, good: float, bad: float, size: int):
        values = np.asarray(next(self.draws), dtype=float)
        return np.broadcast_to(values, (size,))


def with_draws(monkeypatch, *draws) -> None:
    monkeypatch.setattr(calibration.np.random, "default_rng", lambda seed: Given(*draws))


def test_the_ends_are_the_draws_at_the_places_that_the_recipe_says(monkeypatch) -> None:
    shares = np.random.default_rng(3).permutation(200) / 200
    with_draws(monkeypatch, shares, 1.0, 1.0)
    found = beta_interval(PASSED, JUDGE, draws=200)
    # int(0.025 * 200) = 5 and int(0.975 * 200) - 1 = 194, counted from 0
    assert (found.low, found.high) == pytest.approx((5 / 200, 194 / 200))
    with_draws(monkeypatch, shares, 1.0, 1.0)
    found = beta_interval(PASSED, JUDGE, draws=200, confidence=0.9)
    assert (found.low, found.high) == pytest.approx((10 / 200, 189 / 200))


def test_draws_of_a_judge_no_better_than_chance_are_skipped(monkeypatch) -> None:
    shares = np.arange(100) / 100
    informed = np.where(np.arange(100) < 60, 1.0, 0.0)
    with_draws(monkeypatch, shares, informed, 1.0)
    found = beta_interval(PASSED, JUDGE, draws=100)
    assert found.skipped == 40
    # Of 60 draws those at int(1.5) = 1 and int(58.5) - 1 = 57.
    assert (found.low, found.high) == pytest.approx((1 / 100, 57 / 100))


def test_no_usable_draw_is_no_interval(monkeypatch) -> None:
    with_draws(monkeypatch, 0.5, 0.2, 0.2)
    assert beta_interval(PASSED, JUDGE, draws=50) is None


def groups_of(*rows):
    """Rows of judged, relevant, tp, fn, tn, fp; nothing is known."""
    return np.array([(n, k, 0, 0, *cells) for n, k, *cells in rows], dtype=float)


def test_resampled_queries_give_what_a_plain_loop_gives() -> None:
    rng = np.random.default_rng(11)
    rows = [
        (10, *(int(one) for one in rng.integers((2, 1, 0, 1, 0), (9, 6, 3, 6, 3))))
        for _ in range(100)
    ]
    found = cluster_interval(groups_of(*rows), Resampling(resamples=4000))
    drawn = random.Random(2)
    values = []
    for _ in range(4000):
        n, k, tp, fn, tn, fp = np.sum(drawn.choices(rows, k=100), axis=0)
        s, t = tp / (tp + fn), tn / (tn + fp)
        values.append((k / n + t - 1) / (s + t - 1))
    cuts = statistics.quantiles(values, n=40)
    width = cuts[-1] - cuts[0]
    assert (found.low, found.high) == pytest.approx((cuts[0], cuts[-1]), abs=0.06 * width)
    assert (found.draws, found.skipped, found.drawn) == (4000, 0, ())


def test_known_items_are_resampled_with_their_query() -> None:
    """In one half of the queries all judged items are relevant, in the other all known ones.

    With both rates at 0.9 and q the drawn share of the first half, a resample gives half of
    (q - 0.1)/0.8 + 1 - q, which is 0.5 + (q - 0.5)/8: an eighth of what q itself moves.
    """
    half = [(2, 2, 2, 0, 9, 1, 9, 1)] * 30
    rows = np.array([*half, *[(2, 0, 2, 2, 9, 1, 9, 1)] * 30], dtype=float)
    found = cluster_interval(rows, Resampling())
    reach = 2.0 * math.sqrt(0.25 / 60) / 8
    assert (found.low, found.high) == pytest.approx((0.5 - reach, 0.5 + reach), abs=0.004)


def test_a_rate_that_was_never_seen_to_fail_is_not_taken_as_certain() -> None:
    perfect = groups_of(*[(10, 5, 1, 0, 1, 0)] * 12)
    found = cluster_interval(perfect, Resampling())
    assert found.drawn == ("sensitivity", "specificity")
    assert found.high - found.low > 0.1
    seen = groups_of(*[(10, 5, 3, 1, 3, 1)] * 12)
    assert cluster_interval(seen, Resampling()).drawn == ()


def test_labels_of_one_query_are_not_resampled() -> None:
    rows = groups_of(*[(10, 5, 0, 0, 2, 1)] * 12, (10, 5, 6, 2, 0, 0))
    assert cluster_interval(rows, Resampling()).drawn == ("sensitivity",)


def test_one_query_has_no_interval() -> None:
    alone = (10, 5, 4, 1, 4, 1)
    assert cluster_interval(groups_of(alone), Resampling()) is None
    # Nor has one beside others that only people judged.
    assert cluster_interval(groups_of(alone, (0, 0, 3, 1, 3, 1)), Resampling()) is None


def test_the_seed_decides() -> None:
    rows = groups_of(*[(10, k, 3, 1, 3, 1) for k in (2, 4, 5, 8, 9)])
    once, again, other = (cluster_interval(rows, Resampling(seed=one)) for one in (1, 1, 2))
    assert once == again != other


def test_rows_of_another_shape_are_refused() -> None:
    with pytest.raises(UsageError, match="judged_relevant"):
        cluster_interval(np.zeros((3, 4)), Resampling())


SETS = 250
# Two standard errors of 250 simulated sets at 95 %.
LUCK = 0.028


def shares_of(world: World, **options) -> dict[str, float]:
    return {name: one.share for name, one in held(world, sets=SETS, **options).items()}


@pytest.mark.parametrize("people", ["any pairs", "whole queries", "other queries"])
def test_corrected_intervals_hold_the_truth_where_the_raw_one_does_not(people) -> None:
    world = World(100, 5, 0.3, 0.9, 0.77, labels=100, people=people)
    shares = shares_of(world, resamples=300, seed=1)
    assert shares["raw"] < 0.2
    assert shares["cluster"] >= 0.93 - LUCK
    assert shares["beta"] >= 0.93 - LUCK
    if people == "other queries":
        assert shares["ppi"] is None
    else:
        assert shares["ppi"] >= 0.93 - LUCK


@pytest.mark.parametrize("people", ["any pairs", "whole queries", "other queries"])
def test_items_of_a_query_that_are_alike_need_whole_queries_resampled(people) -> None:
    world = World(40, 20, 0.5, 0.98, 0.98, labels=400, alike=True, people=people)
    shares = shares_of(world, seed=2)
    assert shares["beta"] < 0.75
    assert shares["cluster"] >= 0.93 - LUCK
    assert people == "other queries" or shares["ppi"] >= 0.93 - LUCK


def test_few_labels_make_intervals_wide_and_not_wrong() -> None:
    world = World(100, 5, 0.1, 0.95, 0.95, labels=60)
    found = held(world, sets=SETS, resamples=300, seed=3)
    assert found["raw"].share < 0.5
    assert found["cluster"].share >= 0.93 - LUCK
    assert found["ppi"].share >= 0.93 - LUCK
    assert found["ppi"].width < found["cluster"].width


def rows_of_two(rng, queries: int = 60):
    """Two systems that share a judge: the second finds 10 in 100 more, and queries are alike."""
    hard = rng.beta(2, 2, (queries, 1))
    tables = []
    cells = np.zeros((queries, 4))
    for lift in (0.0, 0.1):
        truth = rng.random((queries, 5)) < np.clip(hard * 0.8 + lift, 0, 1)
        says = np.where(truth, rng.random((queries, 5)) < 0.85, rng.random((queries, 5)) < 0.25)
        seen = rng.random((queries, 5)) < 0.4
        for place, (a, b) in enumerate(((1, 1), (1, 0), (0, 0), (0, 1))):
            cells[:, place] += (seen & (truth == a) & (says == b)).sum(axis=1)
        tables.append(np.stack([np.full(queries, 5), says.sum(axis=1)], axis=1))
    nothing = np.zeros((queries, 2))
    return [np.hstack([one, nothing, cells]) for one in tables]


def test_the_difference_of_two_shares_is_held_by_its_interval() -> None:
    rng = np.random.default_rng(5)
    inside, widths, apart = 0, [], []
    for seed in range(SETS):
        first, second = rows_of_two(rng)
        plan = Resampling(resamples=200, seed=seed)
        ends = cluster_difference(first, second, plan)
        inside += ends.low <= 0.1 <= ends.high
        widths.append(ends.high - ends.low)
        one, other = (cluster_interval(side, plan) for side in (first, second))
        apart.append(math.hypot(one.high - one.low, other.high - other.low))
    assert inside / SETS >= 0.93 - LUCK
    # Queries and rates that both owe something to cancel.
    assert statistics.fmean(widths) < 0.9 * statistics.fmean(apart)


def test_a_system_differs_from_itself_by_nothing() -> None:
    first, _ = rows_of_two(np.random.default_rng(1))
    found = cluster_difference(first, first, Resampling())
    assert (found.low, found.high) == (0, 0)


def test_two_judges_compare_nothing() -> None:
    first, second = rows_of_two(np.random.default_rng(1))
    second[0, 4] += 1
    with pytest.raises(UsageError, match="by one judge"):
        cluster_difference(first, second, Resampling())


def test_what_is_written_down_is_of_the_judges_that_the_script_simulates() -> None:
    page = (Path(judges.__file__).parent / "JUDGES.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    empty = {name: judges.Held(None, None) for name in judges.NAMES}
    expected = list(judges.table(judges.WORLDS, [empty] * len(judges.WORLDS)))
    described = [line.split(" | ")[:5] for line in expected if line.startswith("| ")]
    assert [line.split(" | ")[:5] for line in lines] == described
    told = page[page.index("Required of") : page.index("| judge |")]
    for line in lines[1:]:
        raw, _, cluster, ppi = (cell.split("%")[0] for cell in line.strip("| ").split(" | ")[5:])
        for share in (cluster, ppi):
            # What holds the truth less often is named.
            assert share == "–" or float(share) >= 93 or f"({share}%)" in told
        if line.startswith("| a lenient judge"):
            assert float(raw) < 5
