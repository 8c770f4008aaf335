"""What a comparison draws from: few queries, conversations, repeated runs, numbers of the set."""

from __future__ import annotations

import numpy as np
import pytest
from compared import N, gold_of, rr, run_of, two_runs
from scipy import stats

import karat
from karat.data.tables import Queries
from karat.errors import UsageError
from karat.evaluation.api import compare


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
    # No permutation comes near; as many are tried as for every other p, which the report tells.
    assert row.p == pytest.approx(1 / (1 + 10_000))
    assert row.verdict == "worse"


def _frame(columns):
    import polars as pl

    return pl.DataFrame(columns)


def test_a_measure_of_the_set_without_a_test_is_unclear():
    old, new = two_runs()
    runs = [run_of(old, "old"), run_of(new, "new")]
    row = compare(runs, gold_of(), ["RR", "Coverage@10"]).of("new", "Coverage@10")
    assert (row.p, row.ci, row.verdict) == (None, None, "unclear")


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
        {f"q{i:03}": {"text": "t", "group": f"c{i // 3}"} for i in range(N)}
    )
    old = np.repeat(rng.integers(1, 5, 20), 3)
    new = np.repeat(rng.integers(1, 5, 20), 3)
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
