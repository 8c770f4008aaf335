"""Newer items found, counted and taken out: planted worlds, and lists filtered by hand."""

from __future__ import annotations

import json

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from returned import Corpus, Gold, Queries, Run, logged, staged_of

import karat
from karat.analysis.diagnose.freshness import freshness, freshness_measures
from karat.errors import MissingInputError, UsageError
from karat.evaluation.top_lists import MOST
from karat.formats.runlog import run_of_records

OLD, NEW = "2025-01-01", "2025-09-01"


def asking(*queries, as_of="2025-06-01"):
    return Queries({query: {"text": query, "as_of": as_of} for query in queries})


def hit(item, version):
    return {"chunk_id": item, "doc_version": version}


def planted():
    """Two queries whose gold is newer, beside others; q3 never loses, q4 has no as_of."""
    lists = {
        "q1": [hit("news#1", NEW), hit("a#1", OLD), hit("news#2", NEW), hit("b#1", None)],
        "q2": [hit("news#1", NEW), hit("a#1", OLD)],
        "q3": [hit("a#1", OLD), hit("b#1", OLD)],
        "q4": [hit("news#1", NEW), hit("b#1", OLD)],
    }
    asked = {query: {"text": query, "as_of": "2025-06-01"} for query in ("q1", "q2", "q3")}
    queries = Queries(asked | {"q4": {"text": "q4", "as_of": None}})
    gold = Gold({"q1": ["news#1", "a#1"], "q2": ["news#1"], "q3": ["a#1"], "q4": ["b#1"]})
    return logged(lists), gold, queries


def found_in(run, gold, queries, k=2, more=(), corpus=None, strict=False, **settings):
    measures = [*freshness_measures(k), *more]
    staged = staged_of(run, gold, measures, queries=queries, corpus=corpus, **settings)
    return freshness(staged, run, k=k, strict=strict), staged


def test_newer_items_are_counted_and_named():
    found, staged = found_in(*planted())
    # in the top 2: half of q1, half of q2, all of q3
    assert found["fresh"]["mean"] == pytest.approx((0.5 + 0.5 + 1) / 3)
    assert found["fresh"] == {
        "measure": "Fresh@2",
        "mean": staged.final.means()["Fresh@2"],
        "ci": list(staged.final.summaries["Fresh@2"].ci),
        "n": 3,
        "ceiling": 1.0,
    }
    assert found["places"] == {"all": 6, "newer": 2, "unknown": 0}
    assert found["queries"] == {"all": 3, "newer": 2}
    assert found["documents"] == [
        {"doc_id": "news", "version": NEW, "items": 1, "hits": 2, "queries": 2}
    ]
    assert found["worst"][0] == {
        "query_id": "q1",
        "as_of": "2025-06-01",
        "newer": 1,
        "items": ["news#1"],
    }
    assert found["gold"]["newer"] == 2
    assert [one["query_id"] for one in found["gold"]["examples"]] == ["q1", "q2"]


def test_documents_of_the_most_queries_come_first():
    lists = {
        "q1": [hit("many#1", NEW), hit("many#2", NEW), hit("many#3", NEW)],
        "q2": [hit("often#1", NEW)],
        "q3": [hit("often#1", NEW), hit("also#1", "2026-01-01")],
    }
    gold = Gold({query: ["x"] for query in lists})
    found, _ = found_in(logged(lists), gold, asking(*lists), k=3)
    rows = [
        (one["doc_id"], one["queries"], one["hits"], one["items"]) for one in found["documents"]
    ]
    assert rows == [("often", 2, 2, 1), ("many", 1, 3, 3), ("also", 1, 1, 1)]
    assert [one["query_id"] for one in found["worst"]] == ["q1", "q3", "q2"]


def test_enforcing_as_of_closes_the_ranks_up():
    """R@2: q1 1 to 1/2 (a#1 and b#1 are left), q2 1 to 0, q3 and q4 stay at 1."""
    found, _ = found_in(*planted())
    recall = next(row for row in found["rescored"] if row["measure"] == "R@2")
    assert recall["as_it_is"] == 1.0
    assert recall["enforced"] == pytest.approx((0.5 + 0 + 1 + 1) / 4)
    assert recall["delta"] == pytest.approx(-0.375)
    assert (recall["wins"], recall["ties"], recall["losses"]) == (0, 2, 2)
    # two signs can fall in four ways, two of them as far from 0
    assert recall["p"] == 0.5
    assert found["taken_out"] == 3
    # q2 has one item left and nothing below it; q1 fills up with b#1
    assert found["shortened"] == 1


def test_strict_takes_out_unknown_versions_too():
    found, _ = found_in(*planted(), strict=True)
    assert found["taken_out"] == 4
    # of q1 only a#1 is left now
    assert found["shortened"] == 2


def test_the_difference_is_that_of_a_comparison():
    run, gold, queries = planted()
    found, _ = found_in(run, gold, queries)
    late = {("q1", "news#1"), ("q1", "news#2"), ("q2", "news#1")}
    kept = run.hits.filter(
        ~pl.struct("query_id", "item_id").map_elements(
            lambda row: tuple(row.values()) in late, return_dtype=pl.Boolean
        )
    )
    without = karat.Run.from_frame(kept.select("query_id", "item_id", "rank"), name="without")
    compared = karat.compare([run, without], gold, ["R@2", "nDCG@2"], queries=queries)
    for row in found["rescored"]:
        expected = compared.of("without", row["measure"])
        assert row["delta"] == pytest.approx(expected.delta)
        assert row["ci"] == pytest.approx(list(expected.ci))
        assert row["p_adjusted"] == pytest.approx(expected.p_adjusted)


days = st.sampled_from([None, "2025-01-01", "2025-06-01", "2025-06-02", "soon"])


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, "2025-06-01", "2025-06-01T12:00:00"]),
            st.lists(st.tuples(st.integers(0, 9), days), max_size=8, unique_by=lambda h: h[0]),
            st.sets(st.integers(0, 9), min_size=1, max_size=4),
        ),
        min_size=2,
        max_size=6,
    ),
    st.booleans(),
)
def test_lists_filtered_by_hand_have_the_same_recall(cases, strict):
    """All versions are whole days, so comparing days as texts is enough."""
    lists, gold, asked = {}, {}, {}
    for n, (as_of, hits, right) in enumerate(cases):
        lists[f"q{n}"] = [hit(f"i{item}", version) for item, version in hits]
        gold[f"q{n}"] = [f"i{item}" for item in right]
        asked[f"q{n}"] = {"text": "", "as_of": as_of}
    if not any(version for _, hits, _ in cases for _, version in hits) or not any(
        one["as_of"] for one in asked.values()
    ):
        return
    found, staged = found_in(
        logged(lists), gold, Queries(asked), k=3, strict=strict, boot=100, permutations=100
    )
    recalls, newer, unknown, gone = [], 0, 0, 0
    for query, hits in lists.items():
        as_of, left = asked[query]["as_of"], []
        for rank, one in enumerate(hits, 1):
            version = one["doc_version"]
            known = version not in (None, "soon")
            late = bool(as_of) and known and version[:10] > as_of[:10]
            lost = bool(as_of) and not known
            newer += late and rank <= 3
            unknown += lost and rank <= 3
            if late or (strict and lost):
                gone += 1
            else:
                left.append(one["chunk_id"])
        recalls.append(len(set(left[:3]) & set(gold[query])) / len(gold[query]))
    assert (found["places"]["newer"], found["places"]["unknown"]) == (newer, unknown)
    assert found["places"]["unknown"] == staged.final.counts.versions_unknown
    assert found["taken_out"] == gone
    enforced = {row["measure"]: row["enforced"] for row in found["rescored"]}
    if gone:
        assert enforced["R@3"] == pytest.approx(sum(recalls) / len(recalls))
    else:
        assert enforced == {}


def test_a_query_that_loses_every_hit_was_answered_with_nothing():
    """Under missing=skip a missing query would make the two runs incomparable."""
    lists = {"q1": [hit("g", NEW)], "q2": [hit("g", OLD)]}
    gold = {"q1": ["g"], "q2": ["g"]}
    for run in (logged(lists), karat.Run(logged(lists).hits, order="rank")):
        found, _ = found_in(run, gold, asking("q1", "q2"), missing="skip")
        row = found["rescored"][0]
        assert (row["n"], row["as_it_is"], row["enforced"]) == (2, 1.0, 0.5)


def test_a_run_of_newer_items_only_is_worth_nothing():
    lists = {"q1": [hit("g", NEW)], "q2": [hit("g", NEW)]}
    found, _ = found_in(logged(lists), {"q1": ["g"], "q2": ["g"]}, asking("q1", "q2"))
    assert [row["enforced"] for row in found["rescored"]] == [0.0, 0.0]
    assert found["taken_out"] == found["shortened"] == 2


def test_what_lies_deeper_fills_the_top_up():
    lists = {"q1": [hit("new", NEW), hit("x", OLD), hit("g", OLD)], "q2": [hit("g", OLD)]}
    found, _ = found_in(logged(lists), {"q1": ["g"], "q2": ["g"]}, asking("q1", "q2"))
    recall = found["rescored"][0]
    assert (recall["as_it_is"], recall["enforced"]) == (0.5, 1.0)
    assert found["shortened"] == 0


def test_versions_come_from_the_corpus_where_the_run_tells_none():
    corpus = Corpus({"g": {"text": "g", "version": NEW}, "x": {"text": "x", "version": OLD}})
    run = Run({"q1": {"g": 2.0, "x": 1.0}, "q2": {"x": 2.0}})
    found, _ = found_in(run, {"q1": ["g"], "q2": ["x"]}, asking("q1", "q2"), corpus=corpus)
    assert found["places"] == {"all": 3, "newer": 1, "unknown": 0}
    assert found["gold"]["newer"] == 1
    assert found["taken_out"] == 1


def test_versions_that_are_no_dates_follow_their_declared_order():
    lists = {"q1": [hit("g", "v3"), hit("x", "v1")], "q2": [hit("x", "v2")]}
    gold, queries = {"q1": ["g"], "q2": ["x"]}, asking("q1", "q2", as_of="v2")
    found, _ = found_in(logged(lists), gold, queries, versions="v1<v2<v3")
    assert found["places"] == {"all": 3, "newer": 1, "unknown": 0}
    found, _ = found_in(logged(lists), gold, queries)
    assert found["places"] == {"all": 3, "newer": 0, "unknown": 3}


def test_where_nothing_is_newer_nothing_is_scored_again():
    lists = {"q1": [hit("g", OLD)], "q2": [hit("x", OLD)]}
    found, _ = found_in(logged(lists), {"q1": ["g"], "q2": ["g"]}, asking("q1", "q2"))
    assert (found["rescored"], found["documents"], found["taken_out"], found["shortened"]) == (
        [],
        [],
        0,
        0,
    )


def test_only_the_final_lists_are_filtered():
    records = [
        {"query_id": query, "topk": [hit("g", OLD)], "raw": [hit("new", NEW), hit("g", OLD)]}
        for query in ("q1", "q2")
    ]
    run = run_of_records(records, name="log")
    found, _ = found_in(run, {"q1": ["g"], "q2": ["g"]}, asking("q1", "q2"))
    assert (found["places"]["all"], found["taken_out"]) == (2, 0)


def test_every_measure_of_relevance_is_scored_again_and_no_other():
    more = ["RR", "P@2", "Coverage@2", "DistinctDocs@2", "latency.retrieve.p50", "NumRet"]
    found, _ = found_in(*planted(), more=more)
    assert [row["measure"] for row in found["rescored"]] == ["R@2", "nDCG@2", "RR", "P@2"]


def test_queries_that_nobody_asks_for_are_left_alone():
    lists = {"q1": [hit("g", NEW)], "q2": [hit("g", OLD)], "stranger": [hit("g", NEW)]}
    found, _ = found_in(logged(lists), {"q1": ["g"], "q2": ["g"]}, asking("q1", "q2"))
    assert found["taken_out"] == 1


def test_gold_of_documents_has_no_version_of_its_own():
    lists = {"q1": [hit("g#1", NEW)], "q2": [hit("g#2", OLD)]}
    gold, queries = {"q1": ["g"], "q2": ["g"]}, asking("q1", "q2")
    found, _ = found_in(logged(lists), gold, queries, level="doc")
    assert found["gold"]["newer"] is None
    assert found["rescored"][0]["enforced"] == 0.5


def test_no_more_documents_are_named_than_can_be_read():
    lists = {"q1": [hit(f"d{n:02}#1", NEW) for n in range(MOST + 3)], "q2": [hit("g", OLD)]}
    found, _ = found_in(
        logged(lists), {"q1": ["g"], "q2": ["g"]}, asking("q1", "q2"), k=50, keep=50
    )
    assert (len(found["documents"]), found["more_documents"]) == (MOST, 3)
    assert len(json.dumps(found.to_dict(), allow_nan=False)) > 0


def test_what_is_missing_is_named():
    lists, gold = {"q1": [hit("g", NEW)]}, {"q1": ["g"]}
    with pytest.raises(MissingInputError, match="as_of for each query: give --queries"):
        found_in(logged(lists), gold, Queries({"q1": "text"}))
    with pytest.raises(MissingInputError, match="Fresh needs each item's version"):
        found_in(logged({"q1": ["g"]}), gold, asking("q1"))
    with pytest.raises(UsageError, match="keep=3"):
        found_in(logged({"q1": [hit(i, OLD) for i in "abc"]}), gold, asking("q1"), k=3, keep=2)
