"""Failure classes: planted ones found, random ones against a slow reading of the same rules."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from failing import LINES, failures_of, fillers, staged_of
from planted_failures import COUNTS, HUBS, world
from slow_failures import SmallWorld

from karat.analysis.failures import CLASSES, FIVE, NOT_COUNTED, classify
from karat.errors import UsageError
from karat.evaluation.stages import Thresholds

PLANTED = world()


@pytest.fixture(scope="module")
def found():
    return classify(PLANTED.staged(), PLANTED.queries, thresholds=LINES)


def test_every_planted_failure_is_found_query_by_query(found):
    assert {one.query_id: one.kind for one in found.queries} == PLANTED.classes


def test_counts_name_all_classes_and_add_up(found):
    assert dict(found.counts) == COUNTS
    assert found.misses == sum(COUNTS.values()) == 119
    assert found.assessed == PLANTED.n == 164
    assert classify(PLANTED.staged(), PLANTED.queries, thresholds=LINES).unchecked == {}


def test_the_five_categories_hold_every_miss_that_came_back(found):
    told = found.to_dict()
    assert told["failures_by_category"] == {
        "complete_miss": 10 + 4 + 5 + 6,
        "low_rank": 14 + 12 + 15,
        "false_positive_dominance": 13,
        "threshold_exclusion": 9 + 7 + 8,
        "embedding_mismatch": 11,
    }
    assert told["not_counted"] == {"failed_call": 2, "not_in_run": 3}
    mapped = [kind for kinds in FIVE.values() for kind in kinds]
    assert sorted([*mapped, *NOT_COUNTED]) == sorted(CLASSES)


def test_dominant_items_are_the_planted_hubs(found):
    # Every other of 13 queries has all six hubs, the others have the first five.
    assert found.dominant == tuple((hub, 13 if hub != HUBS[5] else 6) for hub in HUBS)


def test_the_document_is_plain_and_can_leave_the_queries_out(found):
    told = found.to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert [one["query_id"] for one in told["queries"]] == list(PLANTED.classes)
    assert set(told["queries"][0]) == {"query_id", "class", "because", "evidence"}
    assert told["miss_at"] == 10
    assert told["lines"]["deep"] == 100
    assert set(told) - set(found.to_dict(queries=False)) == {"queries"}


def evidence(found, kind, at=0):
    one = [one for one in found.queries if one.kind == kind][at]
    return one.because, dict(one.evidence)


@pytest.mark.parametrize(
    ("kind", "at", "because", "facts"),
    [
        ("failed_call", 1, "the call failed: timeout 1", {"error": "timeout 1"}),
        ("not_in_run", 0, "the run has no answer for it", {}),
        ("not_in_index", 0, "its gold is not in the corpus", {"raw_rank": None}),
        (
            *("routed_away", 0, "sent to docs+wiki, while its gold is in tickets"),
            {"chosen": "docs+wiki", "right": ["tickets"]},
        ),
        (
            *("routed_away", 1, "sent to docs, while its gold is in tickets and mails"),
            {"chosen": "docs", "right": ["tickets", "mails"]},
        ),
        (
            "rewritten_away",
            2,
            "the original query finds gold at rank 3, the rewritten one does not within 10",
            {"original_rank": 3, "rewritten": "something else"},
        ),
        (
            "freshness_filtered",
            0,
            "its gold (2026-01-01) is newer than its as_of (2025-06-30), and nothing returned is",
            {"version": "2026-01-01", "as_of": "2025-06-30"},
        ),
        (
            *("freshness_filtered", 3, "at rank 5 of raw, taken out by as_of"),
            {"stage": "as_of", "before": "raw", "before_rank": 5, "version": "2026-01-01"},
        ),
        (
            *(
                "filtered_out",
                0,
                "at rank 2 of raw, above items that were returned, and not returned",
            ),
            {"before": "raw", "before_rank": 2, "final_rank": None, "returned": 20},
        ),
        ("filtered_out", 3, "at rank 5 of raw, taken out by filter", {"stage": "filter"}),
        ("threshold_exclusion", 0, "at rank 2 of raw, taken out by threshold", {"score": 0.5}),
        (
            *("complete_miss", 0, "not in the top 100"),
            {"looked_at": 100, "depth_from": "log", "deeper_rank": None, "retrieved": 50},
        ),
        (
            *("embedding_mismatch", 0, "at rank 11 with a similarity of 0.2, below 0.3"),
            {"similarity": 0.2, "threshold": 0.3, "raw_rank": 11},
        ),
        (
            *("embedding_mismatch", 1, "at rank 14 with a similarity of 0.5, below 0.6"),
            {"similarity": 0.5, "threshold": 0.6},
        ),
        (
            *("rerank_demotion", 0, "at rank 1 of raw, at rank 14 of the final list"),
            {"stage": None, "raw_rank": 1, "final_rank": 14, "after_rank": 14},
        ),
        (
            *("rerank_demotion", 3, "at rank 4 of raw, not in the final list"),
            {"stage": None, "before_rank": 4, "after_rank": None},
        ),
        (
            *("rerank_demotion", 1, "at rank 2 of raw, at rank 25 of rerank"),
            {"stage": "rerank", "ranks": {"rerank": 25}, "final_rank": None},
        ),
        (
            "false_positive_dominance",
            1,
            "at rank 13 of raw, and 6 of the top 10 rank above the gold of many queries",
            {"dominant": HUBS, "share": 0.6},
        ),
        ("low_rank", 2, "returned at rank 13, below the top 10", {"final_rank": 13}),
        (
            *("cut_by_k", 4, "at rank 25 of raw, not in the 20 that were returned"),
            {"raw_rank": 25, "final_rank": None, "before_rank": 25},
        ),
    ],
)
def test_a_miss_says_what_puts_it_into_its_class(found, kind, at, because, facts):
    told, own = evidence(found, kind, at)
    assert told == because
    assert {key: own[key] for key in facts} == facts
    assert own["gold"].startswith(kind)


@pytest.mark.parametrize("start", range(0, 96, 12))
def test_random_worlds_agree_with_a_slow_reading_of_the_rules(start):
    seen = Counter()
    for seed in range(start, start + 12):
        small = SmallWorld(seed)
        found = classify(small.staged(), small.queries(), thresholds=small.lines)
        assert [one.query_id for one in found.queries] == small.misses()
        slow = {name: small.slow_class(name) for name in small.misses()}
        assert {one.query_id: one.kind for one in found.queries} == slow, seed
        assert sum(found.counts.values()) == found.misses
        assert {item for item, _ in found.dominant} == small.dominant
        seen.update(slow.values())
    assert len(seen) >= 13, "worlds that hold hardly any class show nothing"


def test_the_classes_stand_in_the_order_of_a_query_s_path():
    assert tuple(name for name in CLASSES if name != "beyond_depth") == tuple(COUNTS)


def test_what_cannot_be_told_names_the_field_that_would_tell_it():
    records = [{"query_id": "q", "topk": fillers(5)}]
    found = failures_of(records, {"q": ["g"]}, keep=0)
    assert found.queries[0].kind == "complete_miss"
    assert found.unchecked == {
        "not_in_index": "needs a corpus: --corpus",
        "routed_away": "needs the source of each call in the log, and the right source: a column"
        " source in --queries or --corpus",
        "rewritten_away": "needs the original query's list: stages.original",
        "freshness_filtered": "needs an as_of for each query: --queries, and a version for each"
        " item: --corpus, and the top items of each list, which were not kept",
        "filtered_out": "needs the list before the filter in the log: raw",
        "threshold_exclusion": "needs the threshold's list in the log: stages.threshold, or"
        " --line score=S",
        "embedding_mismatch": 'needs a similarity for each hit in the log, or "score_kind":'
        ' "cosine"',
        "rerank_demotion": "needs the list before the reranker in the log: raw",
        "false_positive_dominance": "needs the top items of each list, which were not kept",
        "cut_by_k": "needs the list before the cut in the log: raw",
    }
    found = failures_of(records, {"q": ["g"]}, lines=Thresholds(score=0.2))
    assert found.unchecked["threshold_exclusion"] == "needs a score for every hit in the log"


def test_lists_kept_too_short_are_refused():
    records = [{"query_id": "q", "topk": fillers(30)}]
    with pytest.raises(UsageError, match="keep=20"):
        failures_of(records, {"q": ["g"]}, lines=Thresholds(miss=20))


def test_scores_without_a_trace_are_refused():
    staged = staged_of([{"query_id": "q", "topk": ["x"]}], {"q": ["g"]})
    stored = replace(staged, final=replace(staged.final, blocks=None))
    with pytest.raises(UsageError, match="score the run itself"):
        classify(stored, None, thresholds=LINES)
