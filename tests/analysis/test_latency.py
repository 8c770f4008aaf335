"""Latencies: the measures' own figures by stage and segment, shares, the slowest, costs."""

from __future__ import annotations

import json
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import karat
from karat.analysis.diagnose.latency import latencies, latency_sections
from karat.data.tables import Gold, Queries
from karat.errors import MissingInputError, UsageError
from karat.evaluation.stages import score_stages
from karat.formats.runlog import run_of_records
from karat.measure.conventions import conventions_of
from karat.measure.prepare import prepare

ENDINGS = ("mean", "p50", "p90", "p95", "p99")


def log(times, **more):
    """Records of one call each, with the times given; a number is the total."""
    return [
        {"query_id": f"q{at:03}", "topk": ["a"], "latency_ms": own, **_of(more, at)}
        for at, own in enumerate(times)
    ]


def _of(more, at):
    return {key: value[at] for key, value in more.items() if value[at] is not None}


def queries_of(n, **columns):
    rows = {
        f"q{at:03}": {"text": f"text {at}"} | {name: own[at] for name, own in columns.items()}
        for at in range(n)
    }
    return Queries.from_dict(rows)


def staged_of(records, queries=None, n=None, **settings):
    gold = Gold.from_dict({f"q{at:03}": ["a"] for at in range(n or len(records))})
    settings = {"missing_ids": "allow"} | settings
    ready = prepare(gold, conventions_of("karat", settings), queries=queries)
    return score_stages(run_of_records(records, name="system"), ready, [])


def found_in(records, queries=None, *, by=(), n=None, **settings):
    return latencies(staged_of(records, queries, n, **settings), queries, by=by).to_dict()


def drawn(n, seed=0):
    rng = np.random.default_rng(seed)
    return [
        {"retrieve": float(a), "rerank": float(b)}
        for a, b in zip(rng.lognormal(3, 0.5, n), rng.lognormal(2, 1, n), strict=True)
    ]


def test_percentiles_are_numpys_and_the_mean_is_exact():
    times = drawn(50)
    stages = found_in(log(times))["stages"]
    for stage in ("retrieve", "rerank"):
        own = [one[stage] for one in times]
        assert stages[stage]["n"] == 50
        assert stages[stage]["mean"]["value"] == math.fsum(own) / 50
        for ending in ("p50", "p90", "p95", "p99"):
            assert stages[stage][ending]["value"] == np.percentile(own, float(ending[1:]))


def test_the_total_is_the_sum_of_the_stages_unless_it_is_logged():
    sums = found_in(log([{"retrieve": 3, "rerank": 4}, {"retrieve": 10}]))["stages"]
    assert list(sums) == ["retrieve", "rerank", "total"]
    assert sums["total"]["mean"]["value"] == (7 + 10) / 2
    logged = found_in(log([{"total": 9, "retrieve": 3, "rerank": 4}, {"total": 20}]))["stages"]
    assert logged["total"]["mean"]["value"] == (9 + 20) / 2
    mixed = found_in(log([{"retrieve": 3, "rerank": 4}, 20]))["stages"]
    assert (mixed["total"]["n"], mixed["total"]["mean"]["value"]) == (2, (7 + 20) / 2)
    assert list(found_in(log([5, 7]))["stages"]) == ["total"]


@pytest.mark.parametrize(("ending", "share"), [("p50", 0.5), ("p90", 0.9)])
def test_intervals_are_order_statistics_of_a_binomial(ending, share):
    own = sorted(one["retrieve"] for one in drawn(60))
    low, high = found_in(log(drawn(60)))["stages"]["retrieve"][ending]["ci"]
    # How many lie below the percentile is binomial: each end leaves at most 2.5 % outside.
    below = stats.binom(60, share)
    first = max(rank for rank in range(1, 61) if below.cdf(rank - 1) <= 0.025)
    last = min(rank for rank in range(1, 61) if below.sf(rank - 1) <= 0.025)
    assert (low, high) == (own[first - 1], own[last - 1])


@pytest.mark.parametrize(("ending", "enough"), [("p50", 6), ("p90", 36), ("p95", 72), ("p99", 368)])
def test_too_few_calls_have_no_interval(ending, enough):
    short, long = (found_in(log(drawn(n)))["stages"]["total"] for n in (enough - 1, enough))
    assert short[ending]["ci"] is None
    assert short[ending]["value"] is not None
    assert long[ending]["ci"] is not None


def test_figures_are_those_of_the_measures_to_the_last_bit():
    n = 40
    records = log(drawn(n, 3), cost=[{"tokens": 100 + at} for at in range(n)])
    records[5] = {"query_id": "q005", "error": "timeout", "latency_ms": 9000}
    queries = queries_of(n, language=["pt" if at % 3 else "en" for at in range(n)])
    found = found_in(records, queries, by=["language"])
    gold = Gold.from_dict({f"q{at:03}": ["a"] for at in range(n)})
    names = [f"latency.{stage}.{end}" for stage in found["stages"] for end in ENDINGS]
    run = run_of_records(records, name="system")
    scores = karat.evaluate(run, gold, [*names, "cost.tokens", "cost.tokens.sum"], queries=queries)
    mask = np.array([bool(at % 3) for at in range(n)])
    for own, told in ((found, scores.summaries), (_segment(found, "pt"), scores.summarise(mask))):
        for stage in own["stages"]:
            for end in ENDINGS:
                assert _same(own["stages"][stage][end], told[f"latency.{stage}.{end}"])
        assert _same(own["cost"]["tokens"]["mean"], told["cost.tokens"])
        assert _same(own["cost"]["tokens"]["sum"], told["cost.tokens.sum"])


def _segment(found, value):
    return found["segments"]["language"][value]


def _same(cell, summary):
    return cell["value"] == summary.mean and tuple(cell["ci"] or ()) == (summary.ci or ())


def test_conversations_are_resampled_together():
    n = 60
    queries = queries_of(n, group=[f"c{at // 6}" for at in range(n)])
    # Every conversation has its own pace, so 60 calls say as much as 10 do.
    times = [float(10 * (at // 6) + at % 6) for at in range(n)]
    together = found_in(log(times), queries)["stages"]["total"]["p50"]
    alone = found_in(log(times), queries, unit="query")["stages"]["total"]["p50"]
    assert together["value"] == alone["value"]
    width = [cell["ci"][1] - cell["ci"][0] for cell in (together, alone)]
    assert width[0] > 1.5 * width[1]


def test_segments_hold_their_own_calls_and_small_ones_say_so():
    n = 45
    queries = queries_of(n, language=["pt"] * 25 + ["en"] * 19 + [None])
    found = found_in(log([float(at) for at in range(n)]), queries, by=["language"])
    segments = found["segments"]["language"]
    assert list(segments) == ["en", "pt", "(none)"]
    assert [one["n"] for one in segments.values()] == [19, 25, 1]
    assert [one["small"] for one in segments.values()] == [True, False, True]
    assert segments["pt"]["stages"]["total"]["p50"]["value"] == 12.0
    assert segments["en"]["stages"]["total"]["p50"]["value"] == 34.0


def test_a_column_that_queries_lack_is_refused():
    with pytest.raises(UsageError, match="language"):
        found_in(log([1.0, 2.0]), queries_of(2, topic=["a", "b"]), by=["language"])


def test_shares_are_medians_of_the_calls_own_shares():
    stages = found_in(
        log([{"a": 1, "b": 9}, {"a": 5, "b": 5}, {"a": 9, "b": 1}, {"a": 0, "b": 0}, {"b": 4}])
    )["stages"]
    # A call that took no time has no shares, and one without a stage has none of that stage.
    assert stages["a"]["share"] == 0.5
    assert stages["b"]["share"] == np.median([0.9, 0.5, 0.1, 1.0])
    assert "share" not in stages["total"]
    halves = log([{"a": 1, "b": 3}, {"a": 1, "b": 3}, {"a": 3, "b": 1}])
    found = found_in(halves, queries_of(3, language=["pt", "pt", "en"]), by=["language"])
    assert _segment(found, "pt")["stages"]["a"]["share"] == 0.25
    assert _segment(found, "en")["stages"]["a"]["share"] == 0.75


def test_the_slowest_queries_come_first_and_equal_ones_by_id():
    times = [{"retrieve": float(at % 8), "rerank": 1.0} for at in range(24)]
    queries = queries_of(24)
    slowest = found_in(log(times), queries)["slowest"]
    expected = sorted(range(24), key=lambda at: (-(at % 8), at))[:10]
    assert [one["query_id"] for one in slowest] == [f"q{at:03}" for at in expected]
    assert slowest[0] == {
        "query_id": "q007",
        "text": "text 7",
        "total": 8.0,
        "stages": {"retrieve": 7.0, "rerank": 1.0},
    }


def test_the_text_that_was_searched_for_is_the_logs_own():
    records = log([3.0, 2.0, 1.0], query=["asked", None, None])
    texts = [one["text"] for one in found_in(records, queries_of(3))["slowest"]]
    assert texts == ["asked", "text 1", "text 2"]
    assert found_in(log([1.0]))["slowest"][0]["text"] is None


def test_failed_calls_stand_apart():
    records = log([{"retrieve": 10, "rerank": 5}, {"retrieve": 20, "rerank": 5}])
    for at, times in enumerate(({"retrieve": 3000}, {"retrieve": 900, "rerank": 100}, None), 2):
        records.append({"query_id": f"q{at:03}", "error": "timeout", "latency_ms": times})
    records.append({"query_id": "stranger", "error": "timeout", "latency_ms": 1})
    found = found_in(records, n=5)
    assert found["failed"] == {"calls": 3, "timed": 2, "p50": 2000.0, "longest": 3000.0}
    assert found["stages"]["total"]["n"] == 2
    assert found["stages"]["total"]["p50"]["value"] == 20.0
    assert [one["query_id"] for one in found["slowest"]] == ["q001", "q000"]


def test_costs_are_averaged_and_added_up():
    n = 4
    costs = [{"tokens": 100, "usd": 0.25}, {"tokens": 200}, {"tokens": 0, "usd": 0.5}, None]
    queries = queries_of(n, language=["pt", "en", "pt", "en"])
    found = found_in(log([1.0] * n, cost=costs), queries, by=["language"])
    assert found["cost"]["tokens"]["n"] == 3
    assert found["cost"]["tokens"]["mean"]["value"] == 100.0
    assert found["cost"]["tokens"]["sum"]["value"] == 300.0
    assert found["cost"]["usd"]["sum"]["value"] == 0.75
    assert _segment(found, "pt")["cost"]["tokens"]["sum"]["value"] == 100.0
    assert _segment(found, "en")["cost"]["usd"]["mean"] == {"value": None, "ci": None}


def test_what_the_log_says_of_the_index_is_kept():
    found = found_in(log([1.0, 2.0], index_bytes=[4096, 4096], embedding_updates=[7, 7]))
    assert (found["index_bytes"], found["embedding_updates"]) == (4096, 7)
    plain = found_in(log([1.0], index_bytes=["much"]))
    assert (plain["index_bytes"], plain["embedding_updates"]) == (None, None)


@pytest.mark.parametrize("cost", [None, {"tokens": 3}])
def test_a_log_without_latencies_is_refused_with_the_field_that_it_lacks(cost):
    with pytest.raises(MissingInputError, match="latency_ms"):
        found_in(log([None, None], cost=[cost, cost]))


def test_stages_may_be_called_anything():
    found = found_in(log([{"fetch + parse": 3, "a.p50": 4}, {"fetch + parse": 5, "a.p50": 6}]))
    assert found["stages"]["fetch + parse"]["p50"]["value"] == 4.0
    assert found["stages"]["a.p50"]["p50"]["value"] == 5.0


def test_the_order_of_hits_does_not_matter_to_calls():
    hits = [[{"chunk_id": "a", "score": 0.5}]] * 2
    staged = staged_of(log([1.0, 3.0], topk=hits), order="score")
    assert latencies(staged).to_dict()["stages"]["total"]["p50"]["value"] == 2.0


def test_calls_are_timed_where_gold_is_spans():
    spans = {"query_id": ["q000", "q001"], "item_id": ["a", "a"], "grade": [1, 1]}
    gold = Gold.from_frame(pl.DataFrame({**spans, "start": [0, 5], "end": [9, 9]}))
    ready = prepare(gold, conventions_of("karat", {"level": "span"}))
    records = log([1.0, 3.0], topk=[["a:0-9"], ["a:0-9"]])
    staged = score_stages(run_of_records(records, name="system"), ready, [])
    assert latencies(staged).to_dict()["stages"]["total"]["p50"]["value"] == 2.0


times = st.one_of(
    st.none(),
    st.floats(0, 1e6),
    st.dictionaries(st.sampled_from(["a", "b", "total"]), st.floats(0, 1e6), max_size=3),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(times, st.booleans()), min_size=1, max_size=30))
def test_whatever_is_logged_gives_plain_data_in_the_right_order(drawn_times):
    records = []
    for at, (own, fails) in enumerate(drawn_times):
        more = {"error": "timeout"} if fails else {"topk": ["a"]}
        records.append({"query_id": f"q{at:03}", "latency_ms": own, **more})
    try:
        found = found_in(records)
    except MissingInputError:
        assert all(own is None or own == {} for own, _ in drawn_times)
        return
    json.dumps(found, allow_nan=False)
    for own in found["stages"].values():
        known = [own[end]["value"] for end in ("p50", "p90", "p95", "p99")]
        assert (own["n"] == 0) == (known[0] is None)
        assert own["n"] == 0 or known == sorted(known)
        assert own.get("share") is None or own["share"] >= 0
    totals = [one["total"] for one in found["slowest"]]
    assert totals == sorted(totals, reverse=True)
    assert found["failed"]["calls"] == sum(fails for _, fails in drawn_times)


def test_the_page_shows_stages_segments_slowest_and_cost():
    n = 8
    queries = queries_of(n, language=["pt", "en"] * 4)
    records = log(
        [{"retrieve": 10.0 + at, "rerank": 30.0} for at in range(n)],
        cost=[{"tokens": 100 * at} for at in range(n)],
        index_bytes=[4096] * n,
    )
    records[7] = {"query_id": "q007", "error": "timeout", "latency_ms": 9000}
    sections = latency_sections(found_in(records, queries, by=["language"]))
    assert [one.title for one in sections] == [
        "Latency in ms",
        "Total latency in ms by language",
        "The slowest queries",
        "Cost",
        "Mean cost by language",
    ]
    stages = sections[0].grid
    assert stages[0] == ["stage", "n", "mean", "p50", "p90", "p95", "p99", "share"]
    assert [row[0] for row in stages[1:]] == ["retrieve", "rerank", "total"]
    assert stages[1][3] == "13.0\t[10.0, 16.0]"
    assert stages[2][-1] == "70 %"
    failed = "1 call failed and is not in these; the median of those timed is 9,000 ms"
    notes = [f"{failed}, the longest 9,000 ms.", "The index takes 4,096 bytes."]
    assert sections[0].lines == notes
    assert sections[1].grid[1][1] == "3 small"
    assert sections[2].grid[1] == ["q006", "46.0", "16.0", "30.0", "text 6"]
    assert sections[3].grid[1][0] == "tokens"
