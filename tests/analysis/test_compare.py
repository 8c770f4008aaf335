"""Did the change help: differences, tests, families and verdicts, against scipy and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import karat
from karat.analysis.compare import Rule, compare
from karat.errors import UsageError
from karat.tables import Gold, Queries, Run

N = 60


def gold_of(n=N):
    return Gold.from_dict({f"q{i:03}": ["a"] for i in range(n)})


def run_of(ranks, name):
    """A run that finds the one gold item of query i at the rank given (0: not at all)."""
    lists = {}
    for i, rank in enumerate(ranks):
        items = [f"x{j}" for j in range(12)]
        if rank:
            items.insert(int(rank) - 1, "a")
        lists[f"q{i:03}"] = items
    return Run.from_dict(lists, name=name)


def two_runs(seed=0, n=N):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 6, n), rng.integers(0, 5, n)


def rr(ranks):
    return np.array([1 / rank if rank else 0.0 for rank in ranks])


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
    quantiles = stats.t.ppf(0.975, N - 1) + stats.t.ppf(0.8, N - 1)
    assert row.detectable == pytest.approx(quantiles * delta.std(ddof=1) / math.sqrt(N))
    permuted = stats.permutation_test(
        (rr(new), rr(old)),
        lambda a, b, axis: (a - b).mean(axis=axis),
        permutation_type="samples",
        n_resamples=20_000,
        vectorized=True,
        rng=np.random.default_rng(1),
    )
    assert row.p == pytest.approx(permuted.pvalue, abs=0.02)
    boot = stats.bootstrap((delta,), np.mean, n_resamples=20_000, rng=np.random.default_rng(1))
    assert row.ci == pytest.approx(tuple(boot.confidence_interval), abs=0.012)


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
    assert found.decisions[0].because.startswith("RR rose by 0.583 [")
    assert "p < 0.001 over 60 queries" in found.decisions[0].because


def test_a_clear_loss_is_worse_and_a_regression():
    found = compare([run_of([1] * 60, "old"), run_of([2] * 55 + [3] * 5, "new")], gold_of(), ["RR"])
    assert (found.verdict, found.regression) == ("worse", True)


def test_identical_runs_are_the_same_with_p_one():
    ranks, _ = two_runs()
    found = compare([run_of(ranks, "old"), run_of(ranks, "new")], gold_of(), ["RR", "R@5"])
    for row in found.rows:
        assert (row.verdict, row.p, row.delta, row.ci) == ("same", 1.0, 0.0, (0.0, 0.0))
    assert found.overlaps[0].identical
    assert found.moved == ()


def test_equal_scores_of_different_lists_are_not_the_same_on_few_queries():
    """Five queries without a difference do not show that there is none."""
    old, new = run_of([1] * 5, "old"), run_of([1] * 5, "new")
    other = Run.from_dict(
        {q: ["a", *reversed(items)] for q, items in _lists(new).items()}, name="new"
    )
    found = compare([old, other], gold_of(5), ["RR"])
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
    sd = (rr(new) - rr(old)).std(ddof=1)
    n = row.needed
    reach = [
        (stats.t.ppf(0.975, m - 1) + stats.t.ppf(0.8, m - 1)) * sd / math.sqrt(m)
        for m in (n - 1, n)
    ]
    assert reach[0] > 0.01 >= reach[1]
    assert f"{n:,} would be needed for 0.01" in row.because


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
    with pytest.raises(UsageError, match="no measure here is better high or low"):
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


def test_another_measure_far_below_its_margin_is_a_regression_too():
    """RR is untouched (the first item stays first); R@5 of a second gold item collapses."""
    gold = Gold.from_dict({f"q{i:03}": ["a", "b"] for i in range(N)})
    old = Run.from_dict({f"q{i:03}": ["a", "b", "x"] for i in range(N)}, name="old")
    new = Run.from_dict(
        {f"q{i:03}": ["a", "x", "y"] if i % 4 else ["a", "b", "z"] for i in range(N)}, name="new"
    )
    found = compare([old, new], gold, ["RR", "R@3"], primary="RR")
    assert found.of("new").verdict != "worse"
    assert found.regression
    assert found.verdict == "worse"
    assert "but R@3 fell by 0.375" in found.decisions[0].because


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
    with pytest.raises(UsageError, match=r"1 query was answered by one of them only.*'q002'"):
        compare([old, new], gold, ["RR"], settings={"missing": "skip"})
    compare([old, new], gold, ["RR"])


def test_queries_of_one_conversation_are_drawn_together():
    """Ten conversations of six equal queries are ten observations, not sixty."""
    groups = [f"c{i // 6}" for i in range(N)]
    queries = Queries.from_dict(
        {f"q{i:03}": {"text": "t", "group": group} for i, group in enumerate(groups)}
    )
    rng = np.random.default_rng(0)
    old = np.repeat(rng.integers(1, 5, 10), 6)
    new = np.repeat(rng.integers(1, 5, 10), 6)
    runs = [run_of(old, "old"), run_of(new, "new")]
    alone = compare(runs, gold_of(), ["RR"]).of("new")
    together = compare(runs, gold_of(), ["RR"], queries=queries).of("new")
    assert together.delta == alone.delta
    wide, narrow = (row.ci[1] - row.ci[0] for row in (together, alone))
    assert wide > 1.8 * narrow
    ten = (rr(new) - rr(old))[::6]
    assert together.t == pytest.approx(stats.ttest_1samp(ten, 0).pvalue)
    exact = stats.permutation_test(
        (ten, np.zeros(10)), lambda a, b: (a - b).mean(), permutation_type="samples"
    )
    assert together.p == pytest.approx(exact.pvalue)


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
    told = [(m.query_id, m.text, m.baseline_value, m.system_value, m.change) for m in found.moved]
    assert told == [
        ("q000", "text 0", 0.5, 1.0, "better"),
        ("q001", "text 1", 0.5, 0.2, "worse"),
    ]


def test_repeated_runs_add_the_spread_between_runs():
    """A system whose runs differ as a whole: more queries cannot make up for few runs."""
    rng = np.random.default_rng(0)
    base = rng.integers(2, 4, N)
    old = run_of(base, "old")
    shifts = ([0] * N, [2] * N, [-1] * N)
    new = [run_of(base + np.array(s), f"new-{i}") for i, s in enumerate(shifts)]
    found = compare([old, *new], gold_of(), ["RR"], replicates=True)
    assert found.replicates == {"new": 3}
    row = found.of("new")
    values = np.stack([rr(base + np.array(s)) for s in shifts], axis=1)
    assert row.delta == pytest.approx(values.mean() - rr(base).mean())
    assert row.between_runs > 0.05
    single = compare([old, new[2]], gold_of(), ["RR"]).of("new-2")
    assert single.verdict == "better"
    assert row.verdict == "unclear"
    assert row.ci[1] - row.ci[0] > 2 * (single.ci[1] - single.ci[0])


def test_replicates_that_are_none_are_refused():
    old, new = two_runs()
    with pytest.raises(UsageError, match="no system has repeated runs"):
        compare([run_of(old, "old"), run_of(new, "new")], gold_of(), ["RR"], replicates=True)


def test_percentiles_of_latency_are_compared_by_swapping_sides():
    rng = np.random.default_rng(0)
    ids = [f"q{i:03}" for i in range(N)]
    runs = []
    for name, extra in (("old", 0), ("new", 15)):
        run = run_of([1] * N, name)
        calls = {"query_id": ids, "latency.total": (rng.normal(50, 5, N) + extra).tolist()}
        runs.append(karat.Run.from_frame(run.hits, calls=_frame(calls), name=name))
    row = compare(runs, gold_of(), ["RR", "latency.total.p50"]).of("new", "latency.total.p50")
    assert 10 < row.delta < 20
    assert row.ci[0] > 5
    assert row.p < 0.01
    assert row.verdict == "worse"


def _frame(columns):
    import polars as pl

    return pl.DataFrame(columns)


def test_a_measure_of_the_set_without_a_test_is_unclear():
    old, new = two_runs()
    runs = [run_of(old, "old"), run_of(new, "new")]
    row = compare(runs, gold_of(), ["RR", "Coverage@10"]).of("new", "Coverage@10")
    assert (row.p, row.ci, row.verdict) == (None, None, "unclear")


def test_the_same_seed_gives_the_same_figures_and_another_seed_others():
    old, new = two_runs(seed=8)
    runs = [run_of(old, "old"), run_of(new, "new")]
    first, again = (compare(runs, gold_of(), ["RR"]).of("new") for _ in range(2))
    other = compare(runs, gold_of(), ["RR"], settings={"seed": 1}).of("new")
    assert first == again
    assert first.ci != other.ci
    assert first.delta == other.delta


def test_a_primary_measure_that_is_not_scored_is_refused():
    old, new = two_runs()
    with pytest.raises(UsageError, match=r"unknown primary measure 'nDCG@10'.*known: RR"):
        compare([run_of(old, "old"), run_of(new, "new")], gold_of(), ["RR"], primary="nDCG@10")


def test_a_single_run_cannot_be_compared():
    with pytest.raises(UsageError, match="at least two runs"):
        compare([run_of([1], "old")], gold_of(1), ["RR"])


def test_runs_of_the_same_name_stay_apart():
    runs = [run_of([2] * N, "run"), run_of([1] * N, "run"), run_of([2] * N, "run")]
    found = compare(runs, gold_of(), ["RR"])
    told = {decision.system: decision.verdict for decision in found.decisions}
    assert told == {"run-2": "better", "run-3": "same"}


def test_equal_gains_everywhere_have_an_interval_on_their_side_of_zero():
    """The share of queries that gain is at least 60/63.84 by Wilson; the rest may gain up to 1."""
    row = compare([run_of([5] * N, "old"), run_of([4] * N, "new")], gold_of(), ["RR"]).of("new")
    z2 = stats.norm.ppf(0.975) ** 2
    seen = 0.05 * N / (N + z2)
    assert row.ci == pytest.approx((seen, seen + z2 / (N + z2)))
    assert (row.verdict, row.detectable, row.effect, row.needed) == ("better", None, None, None)


def test_a_regression_outranks_gates_that_pass_in_the_report():
    from dataclasses import replace

    from karat.analysis.gate_files import parse_gates
    from karat.analysis.gates import judge
    from karat.reports.document import build_report

    gold = gold_of()
    runs = run_of([1] * N, "a"), run_of([2] * N, "b")
    scores = [karat.evaluate(run, gold, ["RR"]) for run in runs]
    gates, _ = parse_gates(["RR >= 0.3"], "gates")
    report = replace(
        build_report(scores, gold=gold),
        comparisons=compare(scores),
        gatings=(judge(gates, scores[1], None, system="b"),),
    )
    assert report.gatings[0].verdict == "pass"
    assert report.verdict == "worse"


def with_costs(run, costs):
    ids = [f"q{i:03}" for i in range(len(costs))]
    calls = _frame({"query_id": ids, "cost.tokens": list(map(float, costs))})
    return karat.Run.from_frame(run.hits, calls=calls, name=run.name)


def test_a_sum_is_so_many_times_the_mean_also_with_repeated_runs():
    rng = np.random.default_rng(0)
    base = rng.normal(100, 5, N)
    runs = [with_costs(run_of([1] * N, "old"), base)]
    for at, shift in enumerate((3, 5, 7)):
        costs = base + shift + rng.normal(0, 1, N)
        runs.append(with_costs(run_of([1] * N, f"new-{at}"), costs))
    measures = ["RR", "cost.tokens", "cost.tokens.sum"]
    found = compare(runs, gold_of(), measures, replicates=True)
    mean, total = (found.of("new", measure) for measure in measures[1:])
    assert mean.ci[0] < mean.delta < mean.ci[1]
    for name in ("delta", "detectable", "between_runs", "margin"):
        assert getattr(total, name) == pytest.approx(N * getattr(mean, name))
    assert total.ci == pytest.approx(tuple(N * end for end in mean.ci))
    assert (total.verdict, total.needed) == (mean.verdict, mean.needed)


def test_repeated_runs_never_make_an_interval_of_conversations_narrower():
    rng = np.random.default_rng(1)
    queries = Queries.from_dict(
        {f"q{i:03}": {"text": "t", "group": f"c{i // 10}"} for i in range(N)}
    )
    old = np.repeat(rng.integers(1, 5, 6), 10)
    new = np.repeat(rng.integers(1, 5, 6), 10)
    runs = [run_of(old, "old"), run_of(new, "new-1"), run_of(np.maximum(new - 1, 1), "new-2")]
    single = compare(runs[:2], gold_of(), ["RR"], queries=queries).of("new-1")
    repeated = compare(runs, gold_of(), ["RR"], queries=queries, replicates=True).of("new")
    assert repeated.ci[1] - repeated.ci[0] > single.ci[1] - single.ci[0]


def test_numbers_of_the_set_count_conversations_too():
    """Six conversations of ten equal queries are no more than six queries."""
    queries = Queries.from_dict(
        {f"q{i:03}": {"text": "t", "group": f"c{i // 10}"} for i in range(N)}
    )
    old, new = (np.repeat(ranks, 10) for ranks in ([2, 3, 1, 2, 4, 3], [1, 2, 2, 1, 3, 2]))
    runs = []
    for name, ranks in (("old", old), ("new", new)):
        run = run_of(ranks, name)
        ids = [f"q{i:03}" for i in range(N)]
        calls = _frame({"query_id": ids, "latency.total": (10.0 * ranks).tolist()})
        runs.append(karat.Run.from_frame(run.hits, calls=calls, name=name, order="rank"))
    measures = ["RR", "GMAP", "latency.total.p50"]
    alone = compare(runs, gold_of(), measures)
    together = compare(runs, gold_of(), measures, queries=queries)
    for measure in measures:
        assert alone.of("new", measure).p < 0.01
        # Five of six got better: 14 of the 64 ways to swap them are as extreme.
        assert together.of("new", measure).p > 0.05


def test_two_queries_confirm_no_regression():
    found = compare([run_of([1, 1], "old"), run_of([2, 2], "new")], gold_of(2), ["RR"])
    row = found.of("new")
    assert (row.p, row.verdict, row.regression) == (0.5, "unclear", False)
    assert found.verdict == "unclear"


def test_few_differences_reach_as_far_as_students_t():
    old, new = [1, 1, 2, 3], [2, 1, 3, 5]
    row = compare([run_of(old, "old"), run_of(new, "new")], gold_of(4), ["RR"]).of("new")
    theirs = stats.ttest_1samp(rr(new) - rr(old), 0).confidence_interval(0.95)
    assert row.ci[0] <= theirs.low + 1e-12
    assert row.ci[1] >= theirs.high - 1e-12


def test_lists_that_differ_below_the_depth_looked_at_are_not_called_the_same():
    gold = Gold.from_dict({f"q{i:03}": ["a"] for i in range(30)})
    filler = [f"x{j}" for j in range(120)]

    def deep(name, parity):
        lists = {f"q{i:03}": [*filler[:110], "a"] if i % 2 == parity else filler for i in range(30)}
        return Run.from_dict(lists, name=name)

    found = compare([deep("old", 0), deep("new", 1)], gold, ["R@1000", "R@10"])
    assert found.of("new", "R@1000").verdict == "unclear"
    assert found.of("new", "R@10").verdict == "same"


def test_all_pairs_of_repeated_runs_are_corrected_for_the_runs_as_well():
    """Between single runs of systems that are alike, runs differ; that is no difference."""
    rng = np.random.default_rng(3)
    runs = []
    for system in "abcd":
        for at, shift in enumerate(rng.integers(0, 4, 2)):
            runs.append(run_of(1 + shift + rng.integers(0, 2, N), f"{system}-{at}"))
    found = compare(runs, gold_of(), ["RR"], pairs="all", replicates=True)
    assert len(found.rows) == 6
    small = min(found.rows, key=lambda row: row.p)
    assert small.p_adjusted >= min(1.0, 6 * small.p) - 1e-12


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
    found = compare([old, new], gold, measures, queries=queries, by=["part"])
    parts = [row for row in found.rows if row.segment]
    assert len(parts) == 640
    assert {row.verdict for row in parts} == {"better"}
