"""The loss waterfall: planted losses, the sum of its parts, and each part worked out slowly."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from failing import fillers, staged_of, with_gold
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_failures import world
from scipy.stats import binomtest
from slow_failures import SmallWorld
from slow_waterfall import Losses

from karat.analysis.failures.waterfall import PARTS, query_losses, waterfall
from karat.data.tables import Corpus, Gold, Run
from karat.errors import UsageError
from karat.evaluation.stages import score_stages
from karat.measure.names import parse_measures

PLANTED = world()
MEASURES = "R@3, nDCG@4, RR, AP@5"


@pytest.fixture(scope="module")
def staged():
    return PLANTED.staged("R@10, nDCG@10, latency.retrieve.p50, P@5")


def lost_in(found):
    return {part["part"]: part["lost"] for part in found["parts"]}


def fall(records, gold, measure="R@10", **options):
    staged = staged_of(records, gold, measures=measure, **options)
    return waterfall(staged, measure)


def check_sum(found):
    assert found["ceiling"] - math.fsum(lost_in(found).values()) == pytest.approx(
        found["value"], rel=0, abs=1e-12
    )


def test_the_parts_are_the_planted_losses(staged):
    found = waterfall(staged, "R@10")
    expected = {part: float(PLANTED.losses[part] / PLANTED.n) for part in PARTS}
    assert lost_in(found) == pytest.approx(expected, rel=0, abs=1e-12)
    assert found["n"] == PLANTED.n
    assert found["ceiling"] == pytest.approx(float(PLANTED.ceiling / PLANTED.n), abs=1e-15)
    check_sum(found)


def test_value_and_ceiling_are_those_of_the_scores(staged):
    for name in ("R@10", "nDCG@10"):
        found, own = waterfall(staged, name), staged.final.summaries[name]
        assert (found["value"], found["ceiling"]) == (own.mean, own.ceiling)
        check_sum(found)


def test_parts_count_the_queries_that_they_touch(staged):
    found = {part["part"]: part for part in waterfall(staged, "R@10")["parts"]}
    # Halves are queries too, and so are those that the reranker lifted.
    assert found["calls"]["queries"] == 2 + 3
    assert found["index"]["queries"] == 4 + 2
    assert found["reranker"]["queries"] == 12 + 2 + 4
    assert found["index"]["share"] == 6 / PLANTED.n


def test_a_share_of_failed_calls_has_the_interval_of_a_share(staged):
    part = waterfall(staged, "R@10")["parts"][0]
    # Every ceiling but one is 1, so that these losses are 0 or 1: 5 of 164.
    expected = binomtest(5, PLANTED.n).proportion_ci(method="exact")
    assert list(part["ci"]) == pytest.approx([expected.low, expected.high], abs=0.004)


def test_intervals_of_the_other_parts_lie_around_their_means(staged):
    for part in waterfall(staged, "nDCG@10")["parts"]:
        assert part["ci"][0] < part["lost"] < part["ci"][1]


def test_the_document_is_plain(staged):
    told = waterfall(staged, "R@10").to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert set(told) == {"measure", "ceiling", "value", "n", "parts", "unknown", "ends_at"}
    assert [part["part"] for part in told["parts"]] == list(PARTS)
    assert set(told["parts"][0]) == {"part", "lost", "ci", "queries", "share"}


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    missing=st.sampled_from(["zero", "skip"]),
    depth=st.sampled_from([None, None, 5]),
)
def test_ceiling_less_the_parts_is_the_value(seed, missing, depth):
    more = {} if depth is None else {"depth": depth}
    staged = SmallWorld(seed).staged(MEASURES, missing=missing, boot=100, **more)
    for measure in staged.final.measures:
        found = waterfall(staged, measure)
        own = staged.final.summaries[str(measure)]
        assert (found["value"], found["ceiling"], found["n"]) == (own.mean, own.ceiling, own.n)
        check_sum(found)
        for name in ("calls", "index", "retriever"):
            assert np.nanmin(query_losses(staged, measure)[0][name]) >= 0
        if missing == "skip":
            assert lost_in(found)["calls"] == 0


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_every_part_of_every_query_agrees_with_a_slow_reading(seed):
    small = SmallWorld(seed)
    staged = small.staged(MEASURES, boot=100)
    for measure in staged.final.measures:
        (losses, _), slow = query_losses(staged, measure), Losses(small, str(measure))
        for row, name in enumerate(staged.gold.query_ids):
            if not small.right(name):
                continue
            expected = slow.parts(name)
            mine = {part: float(losses[part][row]) for part in PARTS}
            theirs = {part: expected.get(part, 0.0) for part in PARTS}
            assert mine == pytest.approx(theirs, rel=0, abs=1e-12), (measure, name)


def test_queries_that_are_skipped_take_no_part():
    gold = {"q1": ["g"], "q2": ["g"], "q3": ["g"]}
    records = [{"query_id": "q1", "topk": ["g"]}, {"query_id": "q2", "error": "503", "topk": []}]
    found = fall(records, gold)
    assert (found["n"], found["value"], lost_in(found)["calls"]) == (3, 1 / 3, pytest.approx(2 / 3))
    found = fall(records, gold, missing="skip")
    assert (found["n"], found["value"], lost_in(found)["calls"]) == (1, 1.0, 0.0)
    assert [part["ci"] for part in found["parts"]] == [None] * 6


def test_a_filter_that_goes_deeper_than_raw_wins_gold_back():
    stages = {"filter": [*fillers(10, "y"), "g"]}
    records = [{"query_id": "q", "raw": fillers(20), "stages": stages, "topk": stages["filter"]}]
    assert lost_in(fall(records, {"q": ["g"]}, "R@20")) == {
        **dict.fromkeys(PARTS, 0.0),
        "retriever": 1.0,
        "filters": -1.0,
    }


@pytest.mark.parametrize(
    ("final", "part"),
    [
        (fillers(10), "cut_off"),
        ([*fillers(5), *fillers(20)[6:11]], "cut_off"),
        (fillers(19)[9:], "filters"),
        (fillers(10)[::-1], "reranker"),
        ([], "filters"),
    ],
)
def test_a_bare_log_tells_what_lost_the_gold_by_its_order(final, part):
    # Gold stands at rank 12 of raw; R@15 of raw is 1.
    records = [{"query_id": "q", "raw": with_gold(12), "topk": final}]
    found = fall(records, {"q": ["g"]}, "R@15")
    assert lost_in(found) == {**dict.fromkeys(PARTS, 0.0), part: 1.0}


def test_a_chunk_below_the_cut_keeps_its_document_from_counting_as_filtered():
    raw = ["a#1", "g#1", "b#1", "c#1", "g#2"]
    records = [{"query_id": "q", "raw": raw, "topk": ["a#1", "b#1"]}]
    assert lost_in(fall(records, {"q": ["g"]}, level="doc"))["cut_off"] == 1.0
    records[0]["raw"] = raw[:4]
    assert lost_in(fall(records, {"q": ["g"]}, level="doc"))["filters"] == 1.0


def test_grades_decide_what_a_lost_item_is_worth():
    # Ideal 3/1 + 1/log2(3); the item of grade 3 is not in the corpus.
    corpus = {"low": "text", **{name: name for name in fillers(3)}}
    records = [{"query_id": "q", "topk": ["low", *fillers(3)]}]
    found = fall(records, {"q": {"top": 3, "low": 1}}, "nDCG@10", corpus=corpus)
    ideal = 3 + 1 / math.log2(3)
    assert found["value"] == pytest.approx(1 / ideal)
    assert lost_in(found)["index"] == pytest.approx(1 - 1 / ideal)
    assert found["unknown"].keys() == {"filters", "reranker"}


def test_a_map_of_gains_may_value_a_lower_grade_more():
    gain = "nDCG(gain={1: 5, 2: 1})@10"
    records = [{"query_id": "q", "raw": ["a", "b"], "topk": ["a", "b"]}]
    found = fall(records, {"q": {"a": 1, "b": 2}}, gain)
    assert found["value"] == pytest.approx(1.0)
    assert list(lost_in(found).values()) == pytest.approx([0.0] * 6)


def test_spans_lose_no_more_than_there_is():
    gold, corpus = one_span_each((0, 40), (600, 700), (190, 520))
    chunks = ["doc:0-40", "doc:600-700", "doc:190-520"]
    records = [{"query_id": "q", "raw": chunks, "topk": chunks[:2]}]
    options = {"corpus": corpus, "level": "span"}
    # Two of three spans are covered by the third chunk; of the first span only 40 % are there.
    found = fall(records, gold, "R@10", **options)
    assert (found["ceiling"], found["value"]) == (1.0, 0.0)
    expected = dict.fromkeys(PARTS, 0.0) | {"retriever": 1 / 3, "cut_off": 2 / 3}
    assert lost_in(found) == pytest.approx(expected)
    found = fall(records, gold, "nDCG@10", **options)
    check_sum(found)
    assert all(part["lost"] >= 0 for part in found["parts"])


def one_span_each(*places):
    """A corpus of chunks of one document, and gold of three spans in it."""
    columns = {"query_id": "q", "item_id": "doc", "start": [0, 200, 400], "end": [100, 300, 500]}
    chunks = [
        {"item_id": f"doc:{start}-{end}", "doc_id": "doc", "text": "", "start": start, "end": end}
        for start, end in places
    ]
    return Gold.from_frame(pl.DataFrame(columns)), Corpus.from_frame(pl.DataFrame(chunks))


def test_one_chunk_may_hold_all_spans():
    gold, corpus = one_span_each((0, 600))
    records = [{"query_id": "q", "raw": ["doc:0-600"], "topk": ["doc:0-600"]}]
    found = fall(records, gold, "R@1", corpus=corpus, level="span")
    assert (found["ceiling"], found["value"]) == (1.0, 1.0)
    assert set(lost_in(found).values()) == {0.0}


def test_a_chunk_that_touches_a_span_is_worth_what_the_measure_gives_it():
    # 40 % of a span do not find it, but are a hit to nDCG: 1 over 1 + 1/log2(3) + 1/log2(4).
    gold, corpus = one_span_each((0, 40))
    records = [{"query_id": "q", "raw": ["doc:0-40"], "topk": ["doc:0-40"]}]
    found = fall(records, gold, "nDCG@10", corpus=corpus, level="span")
    assert found["value"] == pytest.approx(1 / (1.5 + 1 / math.log2(3)))
    expected = dict.fromkeys(PARTS, 0.0) | {"retriever": 1 - found["value"]}
    assert lost_in(found) == pytest.approx(expected)


def test_a_depth_bounds_what_the_index_could_give():
    # At depth 1 the best list has the item of grade 3; without it, one of the others.
    corpus = {"b": "text", "c": "text", "x": "text"}
    records = [{"query_id": "q", "topk": ["x"]}]
    gold = {"q": {"a": 3, "b": 1, "c": 1}}
    found = fall(records, gold, "WR@10", corpus=corpus, depth=1)
    assert found["ceiling"] == pytest.approx(3 / 5)
    assert lost_in(found)["index"] == pytest.approx(2 / 5)
    assert lost_in(found)["retriever"] == pytest.approx(1 / 5)


def test_what_the_inputs_do_not_tell_is_marked_unknown():
    records = [{"query_id": name, "topk": with_gold(12)} for name in ("p", "q")]
    found = fall(records, {"p": ["g"], "q": ["g"]})
    assert found["unknown"] == {
        "index": "needs a corpus: --corpus",
        "filters": "needs the raw lists in the log",
        "reranker": "needs the raw lists in the log",
    }
    parts = {part["part"]: part for part in found["parts"]}
    assert [parts[name]["ci"] for name in found["unknown"]] == [None] * 3
    assert parts["cut_off"]["lost"] == 1.0


def test_no_interval_is_made_where_none_is_wanted():
    records = [{"query_id": name, "topk": with_gold(12)} for name in ("p", "q")]
    found = fall(records, {"p": ["g"], "q": ["g"]}, interval="none")
    assert {part["ci"] for part in found["parts"]} == {None}


def test_queries_of_one_conversation_are_resampled_together():
    names = [f"q{i:02}" for i in range(40)]
    records = [{"query_id": n, "topk": with_gold(1 + 11 * (i < 20))} for i, n in enumerate(names)]
    gold = {name: ["g"] for name in names}
    queries = {name: {"text": name, "group": f"c{i // 10}"} for i, name in enumerate(names)}

    def width(**options):
        part = next(p for p in fall(records, gold, **options)["parts"] if p["part"] == "cut_off")
        return part["ci"][1] - part["ci"][0]

    assert width(queries=queries) > 1.5 * width()


def test_nothing_to_score_gives_no_numbers():
    gold = Gold.from_dict({"q": {"g": 0}})
    found = fall([{"query_id": "q", "topk": ["g"]}], gold)
    assert (found["n"], found["value"], found["ceiling"]) == (0, None, None)
    assert lost_in(found) == dict.fromkeys(PARTS)
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    "measure",
    ["latency.retrieve.p50", "GMAP", "Coverage@10", "FPR@1", "SetP", "Judged@5", "NumRet"],
)
def test_measures_that_are_not_of_ranks_are_refused(measure):
    run = Run.from_dict({"q": ["g"]})
    staged = staged_of([{"query_id": "q", "topk": ["g"]}], {"q": ["g"]})
    lenient = parse_measures(measure)
    scored = score_stages(run, staged.gold, lenient, lenient=lenient)
    with pytest.raises(UsageError, match="take a measure of the ranks of gold, such as R@10"):
        waterfall(scored, measure)


def test_precision_that_counts_every_chunk_is_refused_and_other_precision_is_not():
    records = [{"query_id": "q", "topk": ["d#1", "d#2", "e#1"]}]
    for measure in ("P@5", "F@5", "AUC(of='P')@5"):
        with pytest.raises(UsageError, match="every chunk"):
            fall(records, {"q": ["d"]}, measure, level="doc")
        check_sum(fall(records, {"q": ["d#1"]}, measure))


def test_a_measure_that_was_not_scored_is_named(staged):
    with pytest.raises(UsageError, match="R@7 is broken down; score the run by it"):
        waterfall(staged, "R@7")


def test_scores_without_a_trace_are_refused(staged):
    stored = replace(staged, final=replace(staged.final, blocks=None))
    with pytest.raises(UsageError, match="score the run itself"):
        waterfall(stored, "R@10")
