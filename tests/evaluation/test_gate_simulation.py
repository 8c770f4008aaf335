from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom, norm

import karat
from karat.evaluation.gate_files import parse_gates
from karat.evaluation.gates import Gating, judge, measures_of

# One resample in 2,000 is the resolution; a handful of them is the tolerance.
CLOSE = 0.004


def judged(run: dict[str, list[str]], *lines: str, gold=None, **more) -> Gating:
    gates, _ = parse_gates(list(lines), "gates.yaml")
    gold = karat.Gold.from_dict(gold or {query_id: ["right"] for query_id in run})
    whole = {"short_lists": "complete"}
    made = karat.Run.from_dict(run)
    scores = karat.evaluate(made, gold, measures_of(gates), settings=whole, **more)
    return judge(gates, scores, more.get("queries"), system="s")


def hits(found: int, n: int) -> dict[str, list[str]]:
    return {f"q{i}": ["right" if i < found else "wrong"] for i in range(n)}


@pytest.mark.parametrize(
    ("found", "n", "limit"), [(95, 100, 0.85), (180, 225, 0.75), (50, 50, 0.8)]
)
def test_one_gate_on_a_share_blocks_as_often_as_the_binomial_says(found, n, limit):
    gating = judged(hits(found, n), f"Hit@1 >= {limit}")
    needed = round(gating.results[0].needed * n)
    assert gating.blocking["at_limits"] == pytest.approx(binom.cdf(needed - 1, n, limit), abs=CLOSE)
    measured = binom.cdf(needed - 1, n, found / n)
    assert gating.blocking["as_measured"] == pytest.approx(measured, abs=CLOSE)


def test_a_gate_on_the_lower_bound_blocks_nearly_every_system_that_is_only_just_good_enough():
    assert judged(hits(95, 100), "Hit@1 >= 0.85").blocking["at_limits"] > 0.95


@pytest.mark.parametrize(
    ("line", "chance"),
    [
        ("mean Hit@1 >= 0.8", binom.cdf(79, 100, 0.8)),
        ("mean Hit@1 > 0.8", binom.cdf(80, 100, 0.8)),
        ("mean FPR@1 <= 0.2", binom.cdf(79, 100, 0.8)),
        ("mean FPR@1 < 0.2", binom.cdf(80, 100, 0.8)),
    ],
)
@pytest.mark.parametrize("found", [100, 90])
def test_a_gate_on_the_mean_blocks_about_every_second_one(found, line, chance):
    blocking = judged(hits(found, 100), line).blocking
    assert blocking["at_limits"] == pytest.approx(chance, abs=CLOSE)


def test_a_share_of_a_low_ceiling_is_a_share():
    gold = {f"q{i}": ["right"] for i in range(100)}
    run = {f"q{i}": ["right" if i < 90 else "wrong"] for i in range(100)}
    blocking = judged(run, "mean P@5 >= 0.16", gold=gold).blocking
    assert blocking["at_limits"] == pytest.approx(binom.cdf(79, 100, 0.8), abs=CLOSE)


def test_a_mean_of_many_values_blocks_as_a_normal_one_would():
    found = np.random.default_rng(0).integers(0, 5, size=400)
    gold = {f"q{i}": [*"abcd"] for i in range(400)}
    run = {f"q{i}": [*"abcd"[:k], "x"] for i, k in enumerate(found)}
    gating = judged(run, "R@5 >= 0.48", gold=gold)
    result = gating.results[0]
    error = np.std(found / 4, ddof=1) / 20
    assert gating.blocking["at_limits"] == pytest.approx(0.975, abs=0.01)
    expected = norm.cdf((result.needed - result.mean) / error)
    assert gating.blocking["as_measured"] == pytest.approx(expected, abs=0.02)


def timed(values: list[float], *lines: str) -> dict[str, float]:
    ids = [f"q{i}" for i in range(len(values))]
    calls = pl.DataFrame({"query_id": ids, "latency.retrieve": values})
    run = karat.Run.from_frame(
        pl.DataFrame({"query_id": ids, "item_id": "a", "rank": 1}), calls=calls
    )
    gates, _ = parse_gates(list(lines), "gates.yaml")
    gold = karat.Gold.from_dict({query_id: ["a"] for query_id in ids})
    return judge(gates, karat.evaluate(run, gold, measures_of(gates)), None, system="s").blocking


def test_a_percentile_blocks_as_its_order_statistic_does():
    values = [float(ms) for ms in range(1, 121)]
    last = next(r for r in range(121) if binom.sf(r - 1, 120, 0.5) <= 0.025)
    blocking = timed(values, "latency.retrieve.p50 <= 80")
    # 80 of the 120 values are at most 80; the end of the interval is the last-th of a new sample.
    assert blocking["as_measured"] == pytest.approx(binom.cdf(last - 1, 120, 80 / 120), abs=CLOSE)
    assert blocking["at_limits"] == pytest.approx(binom.cdf(last - 1, 120, 0.5), abs=CLOSE)
    assert blocking["at_limits"] >= 0.975 - CLOSE


def test_a_percentile_from_below_is_the_mirror_image():
    values = [float(ms) for ms in range(1, 121)]
    mirrored = timed([121 - ms for ms in values], "latency.retrieve.p50 >= 41")
    assert mirrored["as_measured"] == timed(values, "latency.retrieve.p50 <= 80")["as_measured"]


def test_a_percentile_on_its_number_blocks_every_second_one():
    values = [float(ms) for ms in range(1, 122)]
    blocking = timed(values, "mean latency.retrieve.p50 <= 80")
    # The median of 121 is within the limit when at least 61 values are.
    assert blocking["at_limits"] == pytest.approx(binom.cdf(60, 121, 0.5), abs=CLOSE)


def test_the_same_gate_twice_blocks_no_more_than_once():
    once = judged(hits(90, 100), "Hit@1 >= 0.8").blocking
    twice = judged(hits(90, 100), "Hit@1 >= 0.8", "Hit@1 >= 0.8").blocking
    assert twice == once
    both = judged(hits(90, 100), "Hit@1 >= 0.8", "FPR@1 <= 0.2").blocking
    assert both == once


def test_gates_on_different_queries_block_independently():
    queries = karat.Queries.from_dict(
        {f"q{i}": {"text": "t", "language": "en" if i % 2 else "pt"} for i in range(200)}
    )
    run = {f"q{i}": ["right" if i < 180 else "wrong"] for i in range(200)}
    gating = judged(run, "mean Hit@1 [language] >= 0.85", queries=queries)
    one = binom.cdf(84, 100, 0.9)
    assert gating.blocking["as_measured"] == pytest.approx(1 - (1 - one) ** 2, abs=0.02)


def test_more_gates_block_more_often():
    lines = ["mean Hit@1 >= 0.85", "mean RR >= 0.85", "mean nDCG@5 >= 0.85"]
    chances = [
        judged(hits(90, 100), *lines[: n + 1]).blocking["as_measured"] for n in range(len(lines))
    ]
    assert chances == sorted(chances)


def test_what_cannot_be_judged_or_reached_is_left_out():
    gating = judged(hits(40, 40), "mean Hit@1 >= 0.8", "P@5 > 0.7", "Hit@1 >= 0.95")
    assert [one.verdict for one in gating.results] == ["fail", "pass", "unmeasurable"]
    assert judged(hits(40, 40), "P@5 > 0.7").blocking is None
    assert judged(hits(1, 1), "Hit@1 >= 0.5").blocking is None


def test_a_gate_that_no_mean_passes_at_this_n_always_blocks():
    blocking = judged(hits(10, 20), "Hit@1 >= 0.9").blocking
    assert (blocking["at_limits"], blocking["as_measured"]) == (1.0, 1.0)


def test_set_level_measures_take_part():
    gold = {q: [f"{q}{i}" for i in range(50)] for q in "ab"}
    run = {q: [f"{q}{i}" for i in range(45)] for q in "ab"}
    blocking = judged(run, "mean Coverage@50 >= 0.85", gold=gold).blocking
    assert blocking["as_measured"] == pytest.approx(1 - 0.9**2, abs=CLOSE)
    rng = np.random.default_rng(1)
    lists = {
        f"q{i}": [*(f"x{j}" for j in range(place)), "right"]
        for i, place in enumerate(rng.integers(0, 5, size=100))
    }
    assert judged(lists, "GMAP >= 0.2").blocking["at_limits"] == pytest.approx(0.975, abs=0.02)


def test_queries_of_one_group_are_drawn_together():
    queries = karat.Queries.from_dict(
        {f"q{i}": {"text": "t", "group": f"g{i // 10}"} for i in range(200)}
    )
    run = {f"q{i}": ["right" if (i // 10) % 5 else "wrong"] for i in range(200)}
    alone = judged(run, "mean Hit@1 >= 0.7").blocking["as_measured"]
    together = judged(run, "mean Hit@1 >= 0.7", queries=queries).blocking["as_measured"]
    assert together > 3 * alone


def test_the_figures_are_the_same_every_time_and_stand_in_the_report():
    lines = ["Hit@1 >= 0.8", "RR >= 0.8", "mean P@1 > 0.9"]
    first, second = (judged(hits(92, 100), *lines).blocking for _ in range(2))
    assert first == second
    document = dict(first)
    assert document == {"at_limits": first["at_limits"], "as_measured": first["as_measured"]}
