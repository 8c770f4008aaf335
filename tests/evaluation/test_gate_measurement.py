from __future__ import annotations

import math

import numpy as np
import pytest
from gated import gates_of, hits, lower_end, only, ranks, smallest_passing, timed
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

import karat
from karat.evaluation.gates import judge

# Which number is held against the limit


def test_a_minimum_is_held_against_the_lower_bound():
    result = hits(95, 100, "Hit@5 >= 0.90")
    assert result.on == "ci_low"
    assert result.value == pytest.approx(lower_end(95, 100), abs=0.004)  # 0.887
    assert result.verdict == "fail"
    assert hits(95, 100, "Hit@5 >= 0.88").verdict == "pass"


def test_a_maximum_is_held_against_the_upper_bound():
    result = hits(95, 100, "FPR@1 <= 0.10")
    assert result.on == "ci_high"
    assert result.value == pytest.approx(1 - lower_end(95, 100), abs=0.004)  # 0.113
    assert result.verdict == "fail"
    assert hits(95, 100, "FPR@1 <= 0.12").verdict == "pass"


def test_on_mean_the_number_itself_counts():
    result = hits(95, 100, "mean Hit@5 >= 0.95")
    assert (result.on, result.value, result.verdict, result.needed) == ("mean", 0.95, "pass", 0.95)


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("mean Hit@5 >= 0.9", "pass"),
        ("mean Hit@5 > 0.9", "fail"),
        ("mean FPR@1 <= 0.1", "pass"),
        ("mean FPR@1 < 0.1", "fail"),
    ],
)
def test_strict_and_non_strict_differ_at_equality(line, verdict):
    assert hits(9, 10, line).verdict == verdict


def test_a_rounding_error_is_no_difference():
    # 3 · 0.2 / 10 is 0.06, and 0.06000000000000001 in floats.
    places = [1, 2, 3, None, None, None, None, None, None, None]
    for off in (0.06, math.nextafter(0.06, 0), math.nextafter(0.06, 1)):
        assert only(ranks(*places, lines=[f"mean P@5 > {off!r}"])).verdict == "fail"
        assert only(ranks(*places, lines=[f"mean P@5 >= {off!r}"])).verdict == "pass"


def test_a_measure_without_a_better_side_takes_its_direction_from_the_gate():
    assert hits(5, 5, "NumRet >= 5").verdict == "pass"
    assert hits(5, 5, "NumRet <= 4").verdict == "fail"


def test_a_gate_may_ask_for_less_of_what_is_better():
    assert hits(50, 50, "mean Hit@5 <= 0.5").verdict == "fail"
    assert hits(0, 50, "mean FPR@1 >= 0.5").verdict == "pass"


# The mean that would pass


@pytest.mark.parametrize(("limit", "n"), [(0.9, 225), (0.5, 30), (0.85, 40)])
def test_the_needed_share_is_the_smallest_that_passes(limit, n):
    result = hits(n // 2, n, f"Hit@5 >= {limit}")
    assert result.needed == pytest.approx(smallest_passing(limit, n), abs=1.1 / n)
    k = round(result.needed * n)
    assert hits(k, n, f"Hit@5 >= {limit}").verdict == "pass"
    assert hits(k - 1, n, f"Hit@5 >= {limit}").verdict == "fail"


def test_the_needed_share_under_a_maximum_is_the_largest_that_passes():
    largest = 1 - smallest_passing(0.9, 100)
    needed = hits(50, 100, "FPR@1 <= 0.1").needed
    assert needed == pytest.approx(largest, abs=0.011)
    wrong = round(100 * needed)
    assert hits(100 - wrong, 100, "FPR@1 <= 0.1").verdict == "pass"
    assert hits(99 - wrong, 100, "FPR@1 <= 0.1").verdict == "fail"


def test_a_share_of_a_low_ceiling_is_counted_out_too():
    # P@5 with one gold item is 0.2 times a share.
    result = hits(60, 100, "P@5 >= 0.1")
    assert result.needed == pytest.approx(0.2 * smallest_passing(0.5, 100), abs=0.0021)
    assert result.value == pytest.approx(0.2 * lower_end(60, 100), abs=0.001)


@pytest.mark.parametrize(("limit", "verdict"), [(0.6, "fail"), (0.3, "pass")])
def test_other_means_are_found_by_moving_the_values_in_equal_proportion(limit, verdict):
    places = np.array([1, 2, 3, 4, 5] * 20)
    result = only(ranks(*places.tolist(), lines=[f"RR >= {limit}"]))
    assert result.verdict == verdict
    # Towards 1, or towards 0 where it passes; the interval of what was moved ends at the limit.
    end = 1.0 if verdict == "fail" else 0.0
    share = (result.needed - result.mean) / (end - result.mean)
    moved = 1 / places + share * (end - 1 / places)
    weights = np.random.default_rng(0).dirichlet(np.ones(101), 40_000)
    assert np.quantile(weights[:, 1:] @ moved, 0.025) == pytest.approx(limit, abs=0.006)


def test_a_needed_mean_beyond_the_ceiling_is_none():
    result = only(ranks(*[1, None] * 10, lines=["RR >= 0.95"]))
    assert result.verdict == "fail"
    assert result.needed is None
    assert result.because.endswith("no mean would pass")


@settings(max_examples=40, deadline=None)
@given(
    places=st.lists(st.sampled_from([1, 2, 3, None]), min_size=2, max_size=40),
    limit=st.floats(0.01, 0.99),
    strict=st.booleans(),
)
def test_a_gate_passes_exactly_when_the_mean_reaches_what_is_needed(places, limit, strict):
    lines = [f"{name} {sign} {limit!r}" for name in ("RR", "Hit@2", "P@5") for sign in (">=", "<=")]
    if strict:
        lines = [line.replace("=", "") for line in lines]
    for result in ranks(*places, lines=lines).results:
        if result.verdict == "pass":
            over = result.mean - result.needed
            assert (over if result.min is not None else -over) >= -1e-9
        elif result.needed is not None:
            short = result.needed - result.mean
            assert (short if result.min is not None else -short) >= -1e-9


# What cannot be told


def test_too_few_queries_are_said_with_how_many_would_do():
    result = hits(10, 10, "Hit@5 >= 0.85")
    assert result.verdict == "unmeasurable"
    assert result.needed is None
    assert result.value == pytest.approx(0.025 ** (1 / 10), abs=0.001)
    assert result.because == (
        "Hit@5 needs a lower bound of at least 0.85; measured 1.00 (95 % interval 0.69 to 1.00)."
        " With 10 queries, even a perfect result would give 0.69; 23 queries are needed"
    )
    assert hits(23, 23, "Hit@5 >= 0.85").verdict == "pass"
    assert 0.025 ** (1 / 22) < 0.85 <= 0.025 ** (1 / 23)


def test_too_few_queries_under_a_maximum():
    result = hits(10, 10, "FPR@1 <= 0.05")
    enough = math.ceil(math.log(0.025) / math.log(0.95))  # 0.025^(1/n) ≥ 0.95
    assert result.verdict == "unmeasurable"
    assert f"{enough} queries are needed" in result.because
    assert hits(enough, enough, "FPR@1 <= 0.05").verdict == "pass"


def test_too_few_queries_below_a_low_ceiling():
    result = hits(10, 10, "P@5 >= 0.17")  # 0.85 of the ceiling
    assert result.verdict == "unmeasurable"
    assert "23 queries are needed" in result.because


def test_a_mean_that_misses_the_limit_fails_however_few_queries_there_are():
    assert hits(8, 10, "Hit@5 >= 0.85").verdict == "fail"


def test_one_query_has_no_interval_and_no_verdict():
    result = hits(1, 1, "Hit@5 >= 0.5")
    assert (result.verdict, result.value, result.mean) == ("unmeasurable", None, 1.0)
    assert result.because.endswith("(1 query): an interval needs at least 2 queries")
    assert hits(1, 1, "mean Hit@5 >= 0.5").verdict == "pass"


def test_one_group_of_queries_has_no_interval():
    queries = karat.Queries.from_dict({f"q{i}": {"text": "t", "group": "one"} for i in range(9)})
    result = hits(9, 9, "Hit@5 >= 0.1", queries=queries)
    assert result.verdict == "unmeasurable"
    assert result.because.endswith("an interval needs at least 2 groups of queries")


def test_a_share_of_one_item_has_no_interval():
    gold = karat.Gold.from_dict({f"q{i}": ["the one"] for i in range(9)})
    run = karat.Run.from_dict({f"q{i}": ["the one"] for i in range(9)})
    gates = gates_of("Coverage@5 >= 0.5")
    result = only(judge(gates, karat.evaluate(run, gold, "Coverage@5"), None, system="s"))
    assert result.verdict == "unmeasurable"
    assert result.because.endswith("an interval needs at least 2 gold items")


def test_a_share_of_items_rests_on_no_more_than_its_queries():
    # 2 queries with 30 gold items each, 50 of the 60 found: what 2 queries can show.
    gold = karat.Gold.from_dict({q: [f"{q}{i}" for i in range(30)] for q in "ab"})
    run = karat.Run.from_dict({q: [f"{q}{i}" for i in range(25)] for q in "ab"})
    gates = gates_of("Coverage@30 >= 0.7")
    result = only(judge(gates, karat.evaluate(run, gold, "Coverage@30"), None, system="s"))
    assert result.value == pytest.approx(lower_end(1, 2))
    assert result.needed is None


def test_without_intervals_only_means_can_be_judged():
    result = hits(9, 9, "Hit@5 >= 0.1", settings={"interval": "none"})
    assert result.verdict == "unmeasurable"
    assert "on: mean" in result.because
    assert hits(9, 9, "mean Hit@5 >= 0.1", settings={"interval": "none"}).verdict == "pass"


def test_a_segment_without_gold_cannot_be_judged():
    queries = karat.Queries.from_dict(
        {"q1": {"text": "t", "language": "en"}, "q2": {"text": "t", "language": "pt-BR"}}
    )
    gold = karat.Gold.from_dict({"q1": ["a"], "q2": []})
    run = karat.Run.from_dict({"q1": ["a"], "q2": ["a"]})
    gates = gates_of("mean RR [language] >= 0.5")
    gating = judge(gates, karat.evaluate(run, gold, "RR", queries=queries), queries, system="s")
    english, portuguese = gating.results
    assert (english.verdict, portuguese.verdict) == ("pass", "unmeasurable")
    assert (portuguese.n, portuguese.mean) == (0, None)
    assert portuguese.because == (
        "RR in language pt-BR cannot be measured: no query here has a value for it"
    )
    assert gating.verdict == "unmeasurable"


def test_a_failed_gate_outranks_one_that_cannot_be_judged():
    gating = ranks(*[1] * 5, lines=["Hit@5 >= 0.85", "mean Hit@5 < 0.5"])
    assert [one.verdict for one in gating.results] == ["unmeasurable", "fail"]
    assert gating.verdict == "fail"


# Latencies


def test_a_latency_is_held_against_the_upper_end_of_its_order_statistic_interval():
    values = [float(ms) for ms in range(1, 121)]
    # The smallest rank r with P(Binomial(120, 1/2) ≥ r) ≤ 2.5 %: the r-th value is the end.
    end = next(r for r in range(121) if binom.sf(r - 1, 120, 0.5) <= 0.025)
    result = timed(values, "latency.retrieve.p50 <= 72")
    assert (result.value, result.mean, result.on) == (float(end), 60.5, "ci_high")
    assert result.verdict == "pass"
    # All times shorter by the same share: the end of the interval moves with the median.
    assert result.needed == pytest.approx(60.5 * 72 / end)
    assert timed(values, "latency.retrieve.p50 <= 71").verdict == ("pass" if end <= 71 else "fail")
    assert timed(values, "latency.retrieve.p50 <= 65").verdict == "fail"
    assert "a value of" in timed(values, "latency.retrieve.p50 <= 65").because


@pytest.mark.parametrize(("part", "n"), [("p50", 6), ("p90", 36), ("p95", 72), ("p99", 368)])
def test_a_percentile_of_too_few_calls_says_how_many_it_needs(part, n):
    result = timed([5.0] * (n - 1), f"latency.retrieve.{part} <= 60")
    assert result.verdict == "unmeasurable"
    assert result.because.endswith(f"an interval needs at least {n} queries")
    assert timed([5.0] * n, f"latency.retrieve.{part} <= 60").verdict == "pass"


def test_a_latency_that_was_not_logged_cannot_be_judged():
    result = timed([5.0] * 10, "latency.rerank.p50 <= 60")
    assert result.verdict == "unmeasurable"
    assert result.n == 0
    assert "latency.rerank is not in the run" in result.because


def test_no_latency_is_below_zero():
    result = timed([5.0] * 10, "latency.retrieve.p50 < 0")
    assert result.unreachable
    assert "can get below 0.00" in result.because


# What no one can reach


def test_what_is_out_of_reach_comes_first():
    gating = ranks(*[1] * 50, lines=["mean RR >= 0.5", "P@5 > 0.70", "mean Hit@1 >= 0.5"])
    assert [one.measure for one in gating.results] == ["P@5", "RR", "Hit@1"]
    assert [one.unreachable for one in gating.results] == [True, False, False]


@pytest.mark.parametrize(
    ("line", "unreachable"),
    [
        ("mean P@5 >= 0.2", False),
        ("mean P@5 > 0.2", True),
        ("mean P@5 >= 0.21", True),
        ("P@5 >= 0.2", True),
        ("mean Hit@5 > 1", True),
        ("mean FPR@1 <= 0", False),
        ("mean FPR@1 < 0", True),
        ("FPR@1 <= 0", True),
        ("mean DCG@1 >= 1", False),
        ("DCG@1 >= 1", True),
        ("Coverage@5 >= 1", True),
        ("NumRet >= 1000", False),
    ],
)
def test_the_ceiling_decides_what_is_reachable(line, unreachable):
    assert hits(40, 40, line).unreachable is unreachable


def test_a_bound_that_can_never_be_reached_is_told_with_the_way_out():
    result = hits(40, 40, "Hit@5 >= 1.0")
    assert result.verdict == "fail"
    assert result.unreachable
    assert result.because.endswith(
        "the lower bound of an interval never reaches 1.00; use on: mean"
    )
