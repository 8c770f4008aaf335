"""Did the change help: differences, tests, families and verdicts, against scipy and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from compared import N, gold_of, rr, run_of, two_runs
from scipy import stats

import karat
from karat.data.tables import Gold, Queries, Run
from karat.errors import UsageError
from karat.evaluation.api import compare
from karat.evaluation.verdict import Rule


def test_the_figures_agree_with_scipy():
    old, new = two_runs()
    row = compare([run_of(old, "old"), run_of(new, "new")], gold_of(), ["RR"]).of("new")
    delta = rr(new) - rr(old)
    assert row.delta == pytest.approx(delta.mean())
    assert row.t == pytest.approx(stats.ttest_rel(rr(new), rr(old)).pvalue)
    assert row.wilcoxon == pytest.approx(stats.wilcoxon(delta, zero_method="pratt").pvalue)
    wins, losses = int((delta > 0).sum()), int((delta < 0).sum())
    assert row.sign == pytest.approx(stats.binomtest(wins, wins + losses).pvalue)
    assert (row.wins, row.ties, row.losses) == (wins, N - wins - losses, losses)
    assert row.effect == pytest.approx(delta.mean() / delta.std(ddof=1))
    # With so many differences the power is about that of a normal sum.
    assert row.detectable == pytest.approx(2.8 * delta.std() / math.sqrt(N), rel=0.12)
    permuted = stats.permutation_test(
        (rr(new), rr(old)),
        lambda a, b, axis: (a - b).mean(axis=axis),
        permutation_type="samples",
        n_resamples=20_000,
        vectorized=True,
        rng=np.random.default_rng(1),
    )
    assert row.p == pytest.approx(permuted.pvalue, abs=0.02)
    by_t = stats.ttest_rel(rr(new), rr(old)).confidence_interval()
    assert row.ci == pytest.approx((by_t.low, by_t.high), abs=0.012)


def test_a_p_of_exactly_one_in_twenty_is_unclear_like_its_interval():
    # 1 - 0.95 is more than 0.05 in floats.
    rng = np.random.default_rng(2)
    old = rng.integers(1, 6, N)
    new = np.where(rng.random(N) < 0.6, np.maximum(1, old - 1), rng.integers(1, 6, N))
    runs = [run_of(old, "old"), run_of(new, "new")]
    row = compare(runs, gold_of(), ["RR"], settings={"permutations": 119}).of("new")
    assert row.p == 6 / 120
    assert row.ci[0] <= 0
    assert row.verdict == "unclear"


def test_few_differences_are_tested_exactly():
    """4 of 60 queries change, all for the better: 2 of the 16 sign patterns are as extreme."""
    old = [2] * N
    new = [1] * 4 + [2] * (N - 4)
    row = compare([run_of(old, "old"), run_of(new, "new")], gold_of(), ["RR"]).of("new")
    assert row.p == 2 / 16


def test_a_clear_gain_is_better_and_says_why():
    old, new = [3] * 30 + [2] * 30, [1] * 60
    found = compare([run_of(old, "old"), run_of(new, "new")], gold_of(), ["RR"])
    assert (found.verdict, found.regression) == ("better", False)
    assert found.decisions[0].because.startswith("new improves RR by 0.58 (95 % interval 0.5")
    assert "p < 0.001, 60 queries" in found.decisions[0].because


def test_a_clear_loss_is_worse_and_a_regression():
    found = compare([run_of([1] * 60, "old"), run_of([2] * 55 + [3] * 5, "new")], gold_of(), ["RR"])
    assert (found.verdict, found.regression) == ("worse", True)


def test_identical_runs_are_the_same_with_p_one():
    ranks, _ = two_runs()
    found = compare([run_of(ranks, "old"), run_of(ranks, "new")], gold_of(), ["RR", "R@5"])
    for row in found.rows:
        assert (row.verdict, row.p, row.delta, row.ci) == ("same", 1.0, 0.0, (0.0, 0.0))
    assert found.overlaps[0]["identical"]
    assert found.moved == ()


def test_equal_scores_of_different_lists_are_not_the_same_on_few_queries():
    """Four queries without a difference do not show that there is none."""
    old, new = run_of([1] * 4, "old"), run_of([1] * 4, "new")
    other = Run.from_dict(
        {q: ["a", *reversed(items)] for q, items in _lists(new).items()}, name="new"
    )
    found = compare([old, other], gold_of(4), ["RR"])
    assert found.verdict == "unclear"
    assert found.of("new").p == 1.0


def _lists(run):
    lists = {}
    for query_id, item in run.hits.select("query_id", "item_id").iter_rows():
        lists.setdefault(query_id, []).append(item)
    return {query_id: [item for item in items if item != "a"] for query_id, items in lists.items()}


def test_a_difference_inside_the_margin_is_the_same():
    """Two of 400 queries drop from rank 1 to 2: Δ = −0.0025, well inside 2 % of 1."""
    n = 400
    old, new = [1] * n, [2, 2] + [1] * (n - 2)
    found = compare([run_of(old, "old"), run_of(new, "new")], gold_of(n), ["RR"])
    row = found.of("new")
    assert row.delta == pytest.approx(-0.0025)
    assert row.margin == pytest.approx(0.02)
    assert (found.verdict, found.regression) == ("same", False)
    tight = compare([run_of(old, "old"), run_of(new, "new")], gold_of(n), ["RR"], margin=0.001)
    assert tight.verdict == "unclear"


def test_a_difference_that_chance_explains_is_unclear_and_names_the_queries_needed():
    old, new = two_runs(seed=3, n=20)
    found = compare([run_of(old, "old"), run_of(new, "new")], gold_of(20), ["RR"], detect=0.01)
    row = found.of("new")
    assert found.verdict == "unclear"
    n = row.needed
    # So many queries are a normal sum: (1.96 + 0.84)² times the mean square over 0.01².
    assert n == pytest.approx(7.849 * ((rr(new) - rr(old)) ** 2).mean() / 0.01**2, rel=0.01)
    assert f"a change of 0.010 needs about {round(n, -3):,}" in row.because


def test_lower_is_better_turns_the_verdict_but_not_the_difference():
    old, new = [2] * 60, [1] * 60
    row = compare([run_of(old, "old"), run_of(new, "new")], gold_of(), ["FPR@1"]).of("new")
    assert (row.delta, row.verdict, row.wins, row.losses) == (-1.0, "better", 60, 0)


def test_a_measure_without_a_direction_gets_no_verdict_and_cannot_decide():
    old, new = two_runs()
    runs = [run_of(old, "old"), run_of(new, "new")]
    found = compare(runs, gold_of(), ["NumRet", "RR"])
    assert found.rule.primary == "RR"
    assert found.of("new", "NumRet").verdict is None
    with pytest.raises(UsageError, match="no measure here has a better direction"):
        compare(runs, gold_of(), ["NumRet"])


def test_the_primary_measure_is_a_family_of_its_own():
    """Holm: one primary test stays as it is; the two others are multiplied among themselves."""
    old, new = two_runs(seed=5)
    found = compare(
        [run_of(old, "old"), run_of(new, "new")],
        gold_of(),
        ["RR", "Hit@1", "Hit@3"],
        primary="RR",
    )
    primary, *others = found.rows
    assert primary.p_adjusted == primary.p
    small, large = sorted(others, key=lambda row: row.p)
    assert small.p_adjusted == pytest.approx(min(1, 2 * small.p))
    assert large.p_adjusted == pytest.approx(max(large.p, small.p_adjusted))


def test_three_systems_are_corrected_together():
    rng = np.random.default_rng(2)
    runs = [run_of(rng.integers(1, 6, N), name) for name in "abc"]
    rows = compare(runs, gold_of(), ["RR"]).rows
    small, large = sorted(rows, key=lambda row: row.p)
    assert [(row.baseline, row.system) for row in rows] == [("a", "b"), ("a", "c")]
    assert small.p_adjusted == pytest.approx(min(1, 2 * small.p))
    assert large.p_adjusted == pytest.approx(max(large.p, small.p_adjusted))


def test_benjamini_hochberg_on_request():
    rng = np.random.default_rng(2)
    runs = [run_of(rng.integers(1, 6, N), name) for name in "abcd"]
    rows = compare(runs, gold_of(), ["RR"], correction="bh").rows
    expected = stats.false_discovery_control([row.p for row in rows])
    assert [row.p_adjusted for row in rows] == pytest.approx(expected)


def test_all_pairs_compares_each_with_each():
    rng = np.random.default_rng(2)
    runs = [run_of(rng.integers(1, 6, N), name) for name in "abc"]
    found = compare(runs, gold_of(), ["RR"], pairs="all")
    assert [(row.baseline, row.system) for row in found.rows] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
    ]
    assert all(row.p_adjusted >= row.p for row in found.rows)
    assert len(found.decisions) == 3


def test_another_measure_far_below_its_margin_is_a_caution():
    """RR is untouched (the first item stays first); R@5 of a second gold item collapses."""
    gold = Gold.from_dict({f"q{i:03}": ["a", "b"] for i in range(N)})
    old = Run.from_dict({f"q{i:03}": ["a", "b", "x"] for i in range(N)}, name="old")
    new = Run.from_dict(
        {f"q{i:03}": ["a", "x", "y"] if i % 4 else ["a", "b", "z"] for i in range(N)}, name="new"
    )
    found = compare([old, new], gold, ["RR", "R@3"], primary="RR")
    assert (found.verdict, found.regression) == ("same", False)
    (caution,) = found.decisions[0].cautions
    assert (caution.measure, caution.delta, caution.regression) == ("R@3", -0.375, False)
    assert compare([old, new], gold, ["RR", "R@3"], primary="RR", no_regression="all").regression


def test_the_point_rule_looks_at_the_mean_alone():
    """A loss of 3 % of the mean with a wide interval: no confirmed regression, but beyond 2 %."""
    rng = np.random.default_rng(4)
    old = rng.integers(1, 4, 40)
    new = old.copy()
    new[:4] += 2
    runs = [run_of(old, "old"), run_of(new, "new")]
    drop = rr(new).mean() / rr(old).mean() - 1
    assert -0.06 < drop < -0.02
    assert not compare(runs, gold_of(40), ["RR"]).regression
    assert compare(runs, gold_of(40), ["RR"], margin_on="mean").regression
    lenient = compare(runs, gold_of(40), ["RR"], margin_on="mean", margin=0.1)
    assert not lenient.regression


def test_an_absolute_margin_is_the_same_for_every_baseline():
    old, new = two_runs()
    runs = [run_of(old, "old"), run_of(new, "new")]
    found = compare(runs, gold_of(), ["RR"], margin=0.03, margin_kind="absolute")
    assert found.of("new").margin == 0.03


@pytest.mark.parametrize("margin", [-0.01, 1.5, float("nan")])
def test_a_margin_out_of_range_is_refused(margin):
    with pytest.raises(UsageError, match="margin is"):
        Rule(margin=margin)


def test_one_query_is_too_few():
    row = compare([run_of([1], "old"), run_of([2], "new")], gold_of(1), ["RR"]).of("new")
    assert (row.ci, row.p, row.verdict, row.regression) == (None, None, "unclear", False)
    assert "1 query is too few to tell" in row.because


def test_scores_of_different_gold_are_refused_and_the_difference_is_named():
    old, new = two_runs()
    a = karat.evaluate(run_of(old, "old"), gold_of(), ["RR"])
    other = Gold.from_dict({f"q{i:03}": ["x1"] for i in range(N)})
    with pytest.raises(UsageError, match="old and new cannot be compared: their gold differs"):
        compare([a, karat.evaluate(run_of(new, "new"), other, ["RR"])])
    fewer = Gold.from_dict({f"q{i:03}": ["a"] for i in range(N - 1)})
    with pytest.raises(UsageError, match="1 query is in only one of them, such as 'q059'"):
        compare([a, karat.evaluate(run_of(new, "new"), fewer, ["RR"])])
    b = karat.evaluate(run_of(new, "new"), gold_of(), ["RR"], settings={"rel": 2})
    with pytest.raises(UsageError, match=r"rel is 1\.0 for one and 2\.0 for the other"):
        compare([a, b])


def test_runs_that_skip_different_queries_are_refused():
    gold = gold_of(3)
    old = Run.from_dict({"q000": ["a"], "q001": ["a"], "q002": ["a"]}, name="old")
    new = Run.from_dict({"q000": ["a"], "q001": ["a"]}, name="new")
    with pytest.raises(UsageError, match=r"1 query was answered by only one of them.*'q002'"):
        compare([old, new], gold, ["RR"], settings={"missing": "skip"})
    compare([old, new], gold, ["RR"])


def test_a_segment_that_falls_while_the_whole_rises_is_said_in_words():
    queries = Queries.from_dict(
        {f"q{i:03}": {"text": "t", "language": "pt" if i < 20 else "en"} for i in range(N)}
    )
    old = [1] * 20 + [3] * 40
    new = [2] * 20 + [1] * 40
    found = compare(
        [run_of(old, "old"), run_of(new, "new")],
        gold_of(),
        ["RR"],
        queries=queries,
        by=["language"],
    )
    assert found.verdict == "better"
    segments = {tuple(row.segment.values()): row for row in found.rows if row.segment}
    assert segments["pt",].delta == pytest.approx(-0.5)
    assert segments["en",].verdict == "better"
    (said,) = found.reversals
    assert "new changes RR by +0.278 overall but by -0.500" in said
    assert "where language pt (n = 20), beyond chance" in said


def test_a_reversal_that_only_its_correction_leaves_open_says_so():
    queries = Queries.from_dict(
        {f"q{i:03}": {"text": "t", "language": f"l{i // 10}"} for i in range(N)}
    )
    # Six of ten queries fall in one language: p = 2/64 by itself. By Holm it counts twice, beside
    # the language in which five queries rise.
    old = [1] * 6 + [2] * 4 + [3] * 5 + [2] * 5 + [3] * 40
    new = [2] * 10 + [1] * 5 + [2] * 5 + [1] * 40
    runs = [run_of(old, "old"), run_of(new, "new")]
    found = compare(runs, gold_of(), ["RR"], queries=queries, by=["language"])
    row = next(row for row in found.rows if row.segment == {"language": "l0"})
    assert (row.p, row.p_adjusted, row.verdict) == (2 / 64, 4 / 64, "unclear")
    assert row.ci[1] < 0
    (said,) = found.reversals
    assert said.endswith("(n = 10), though that may be chance after correction for 6 tests")


def test_segments_are_a_family_for_each_column():
    queries = Queries.from_dict(
        {f"q{i:03}": {"text": "t", "half": i % 2, "third": i % 3} for i in range(N)}
    )
    old, new = two_runs(seed=7)
    runs = [run_of(old, "old"), run_of(new, "new")]
    both = compare(runs, gold_of(), ["RR"], queries=queries, by=["half", "third"])
    alone = compare(runs, gold_of(), ["RR"], queries=queries, by=["half"])
    half = [row.p_adjusted for row in both.rows if row.segment and "half" in row.segment]
    assert half == [row.p_adjusted for row in alone.rows if row.segment]


def test_the_queries_that_moved_most_come_with_their_texts():
    queries = Queries.from_dict({f"q{i:03}": f"text {i}" for i in range(N)})
    old = [2] * N
    new = [1, 5, *[2] * (N - 2)]
    found = compare([run_of(old, "old"), run_of(new, "new")], gold_of(), ["RR"], queries=queries)
    told = [
        tuple(m[name] for name in ("query_id", "text", "baseline_value", "system_value", "change"))
        for m in found.moved
    ]
    assert told == [
        ("q000", "text 0", 0.5, 1.0, "better"),
        ("q001", "text 1", 0.5, 0.2, "worse"),
    ]


def test_the_same_seed_gives_the_same_figures_and_another_seed_others():
    old, new = two_runs(seed=8)
    runs = [run_of(old, "old"), run_of(new, "new")]
    first, again = (compare(runs, gold_of(), ["RR"]).of("new") for _ in range(2))
    other = compare(runs, gold_of(), ["RR"], settings={"seed": 1}).of("new")
    assert first == again
    assert first.ci != other.ci
    assert first.delta == other.delta


def test_a_primary_measure_that_scores_lack_is_refused():
    scores = [
        karat.evaluate(run_of(ranks, name), gold_of(), ["RR"])
        for ranks, name in zip(two_runs(), ("old", "new"), strict=True)
    ]
    with pytest.raises(UsageError, match=r"unknown primary measure 'nDCG@10'.*known: RR"):
        compare(scores, primary="nDCG@10")


def test_a_single_run_cannot_be_compared():
    with pytest.raises(UsageError, match="at least two runs"):
        compare([run_of([1], "old")], gold_of(1), ["RR"])


def test_runs_of_the_same_name_stay_apart():
    runs = [run_of([2] * N, "run"), run_of([1] * N, "run"), run_of([2] * N, "run")]
    found = compare(runs, gold_of(), ["RR"])
    told = {decision.system: decision.verdict for decision in found.decisions}
    assert told == {"run-2": "better", "run-3": "same"}


def test_equal_gains_everywhere_have_an_interval_on_their_side_of_zero():
    """With any other difference taken off, all 60 signs would still be equal."""
    row = compare([run_of([5] * N, "old"), run_of([4] * N, "new")], gold_of(), ["RR"]).of("new")
    assert row.ci == pytest.approx((0.05, 0.05))
    assert (row.verdict, row.effect) == ("better", None)


def test_a_regression_outranks_gates_that_pass_in_the_report():
    from dataclasses import replace

    from karat.evaluation.gate_files import parse_gates
    from karat.evaluation.gates import judge
    from karat.reports.document import Report

    gold = gold_of()
    runs = run_of([1] * N, "a"), run_of([2] * N, "b")
    scores = [karat.evaluate(run, gold, ["RR"]) for run in runs]
    gates, _ = parse_gates(["RR >= 0.3"], "gates")
    report = replace(
        Report.of(scores, gold=gold),
        comparisons=compare(scores),
        gatings=(judge(gates, scores[1], None, system="b"),),
    )
    assert report.gatings[0].verdict == "pass"
    assert report.verdict == "worse"


def test_lists_that_differ_below_the_depth_looked_at_are_not_called_the_same():
    gold = Gold.from_dict({f"q{i:03}": ["a"] for i in range(30)})
    filler = [f"x{j}" for j in range(120)]

    def deep(name, parity):
        lists = {f"q{i:03}": [*filler[:110], "a"] if i % 2 == parity else filler for i in range(30)}
        return Run.from_dict(lists, name=name)

    found = compare([deep("old", 0), deep("new", 1)], gold, ["R@1000", "R@10"])
    assert found.of("new", "R@1000").verdict == "unclear"
    assert found.of("new", "R@10").verdict == "same"


def test_a_correction_of_its_own_leaves_no_room_for_another():
    with pytest.raises(UsageError, match="pairs=all brings its own correction"):
        Rule(pairs="all", correction="bh")


def test_a_large_family_has_permutations_enough_to_be_significant():
    """80 segments × 8 measures, every query clearly better: none is lost to the smallest p."""
    n = 80 * 25
    gold = Gold.from_dict({f"q{i:04}": ["a"] for i in range(n)})
    rng = np.random.default_rng(0)
    queries = Queries.from_dict({f"q{i:04}": {"text": "t", "part": f"s{i % 80}"} for i in range(n)})

    def run(name, ranks):
        lists = {f"q{i:04}": [*"xyzwv"[: r - 1], "a"] for i, r in enumerate(ranks)}
        return Run.from_dict(lists, name=name)

    measures = ["RR", "nDCG@10", "RBP", "AP", "ERR@5", "DCG@5", "RR@5", "AP@5"]
    old, new = run("old", rng.integers(3, 6, n)), run("new", [1] * n)
    whole = {"short_lists": "complete"}
    found = compare([old, new], gold, measures, queries=queries, by=["part"], settings=whole)
    parts = [row for row in found.rows if row.segment]
    assert len(parts) == 640
    assert {row.verdict for row in parts} == {"better"}
