"""A run stage by stage: which lists there are, what stands in for those that were not logged."""

from __future__ import annotations

import pytest
from failing import fillers, staged_of, with_gold

import karat
from karat.data.tables import Gold, Run
from karat.errors import InputError
from karat.evaluation.stages import LINE, Depth, score_stages, stage_names
from karat.formats.runlog import run_of_records
from karat.measure.names import parse_measures

GOLD = {"p": ["g"], "q": ["g"]}
RAW, SIEVED, RERANKED = with_gold(8), with_gold(6), with_gold(2)


def log(*records):
    return [{"system": "s", "latency_ms": {"retrieve": 3.0}, **record} for record in records]


def whole(name):
    stages = {"rerank": RERANKED, "dense": fillers(9), "filter": SIEVED, "original": with_gold(4)}
    return {"query_id": name, "raw": RAW, "stages": stages, "topk": RERANKED[:5]}


def rr(scores):
    return scores.values("RR").tolist()


def staged(*records, measures="RR", **options):
    return staged_of(log(*records), GOLD, measures=measures, **options)


def test_stages_stand_in_the_order_in_which_they_run_whatever_the_log_s_order_is():
    found = staged(whole("p"), whole("q"))
    assert list(found.line) == ["raw", "filter", "rerank"]
    assert list(found.beside) == ["dense", "original"]
    assert found.raw is found.line["raw"]
    assert {name: rr(scores) for name, scores in found.line.items()} == {
        "raw": [1 / 8] * 2,
        "filter": [1 / 6] * 2,
        "rerank": [1 / 2] * 2,
    }
    assert rr(found.beside["original"]) == [1 / 4] * 2
    assert rr(found.beside["dense"]) == [0.0] * 2
    assert set(found.line) < set(LINE)


def test_every_stage_is_scored_as_if_it_were_a_run_of_its_own():
    found = staged(whole("p"), whole("q"), measures="nDCG@10, R@5, AP")
    for items, scores in ((RAW, found.raw), (RERANKED[:5], found.final)):
        alone = karat.evaluate(
            Run.from_dict({"p": items, "q": items}), Gold.from_dict(GOLD), "nDCG@10, R@5, AP"
        )
        assert scores.means() == alone.means()


def test_a_stage_that_logged_nothing_for_a_query_passes_on_what_the_next_one_shows():
    found = staged(whole("p"), {"query_id": "q", "stages": {"rerank": RERANKED}, "topk": RAW[:5]})
    assert rr(found.line["raw"]) == [1 / 8, 1 / 2]
    assert rr(found.line["filter"]) == [1 / 6, 1 / 2]
    assert rr(found.line["rerank"]) == [1 / 2, 1 / 2]
    assert rr(found.final) == [1 / 2, 0.0]
    assert found.logged["raw"] == {"p"}
    assert found.logged["rerank"] == {"p", "q"}


def test_a_list_beside_the_line_stands_in_for_nothing():
    found = staged(whole("p"), {"query_id": "q", "topk": RAW})
    assert rr(found.beside["original"]) == [1 / 4, 0.0]


def test_a_stage_that_let_nothing_pass_leaves_nothing_to_later_ones():
    record = {"query_id": "q", "raw": RAW, "stages": {"filter": []}, "topk": []}
    found = staged(whole("p"), record)
    assert rr(found.line["filter"]) == [1 / 6, 0.0]
    assert rr(found.raw) == [1 / 8, 1 / 8]


def test_a_failed_call_failed_at_every_stage():
    found = staged(whole("p"), {"query_id": "q", "error": "timeout", "topk": []})
    for scores in (found.final, *found.line.values(), *found.beside.values()):
        assert scores.status.tolist() == ["scored", "failed"]
    assert found.calls["error"].to_list() == [None, "timeout"]


def test_a_log_of_final_lists_has_no_stage_and_keeps_its_calls():
    found = staged({"query_id": "p", "topk": RAW}, {"query_id": "q", "topk": RAW})
    assert (found.line, found.beside) == ({}, {})
    assert found.raw is found.final
    assert found.calls["latency.retrieve"].to_list() == [3.0, 3.0]
    assert found.run is None


def test_the_run_itself_is_kept_where_it_has_stages():
    run = run_of_records(log(whole("p"), whole("q")), name="s")
    gold = staged(whole("p"), whole("q")).gold
    assert score_stages(run, gold, parse_measures("RR")).run is run
    assert stage_names(run) == ["raw", "rerank", "dense", "filter", "original"]
    assert stage_names(Run.from_dict({"p": ["g"]})) == []


def test_lists_are_kept_as_deep_as_asked_for_at_every_stage():
    found = staged(whole("p"), whole("q"), keep=3)
    for scores in (found.final, *found.line.values()):
        assert scores.lists["rank"].max() == 3


@pytest.mark.parametrize(
    ("depth", "known", "reaches"),
    [
        (Depth(longest=20, cut_at=20), 20, {20: True, 21: False}),
        (Depth(longest=20, asked=50, cut_at=50), 50, {50: True, 51: False}),
        (Depth(longest=60, asked=50), 60, {60: True, 61: True}),
        (Depth(longest=20, everything=True), 20, {21: True}),
    ],
)
def test_how_far_down_a_list_can_be_judged(depth, known, reaches):
    assert depth.known == known
    assert {k: depth.reaches(k) for k in reaches} == reaches


def test_the_log_says_how_deep_a_stage_was_asked_for():
    base = {"k": 5, "k_raw": 50}
    found = staged({**whole("p"), **base}, whole("q"))
    assert found.depth(found.final) == Depth(5, 5, cut_at=5)
    assert found.depth(found.raw) == Depth(20, 50, cut_at=50)
    found = staged(whole("p"), whole("q"))
    assert found.depth(found.raw) == Depth(20, None)
    with pytest.raises(InputError, match="k_raw is true; a whole number from 0 is expected"):
        staged({**whole("p"), "k_raw": True}, whole("q"))


def test_lists_as_long_as_the_corpus_leave_nothing_below():
    corpus = {item: item for item in RAW}
    found = staged(whole("p"), whole("q"), corpus=corpus)
    assert found.depth(found.raw) == Depth(20, None, everything=True)
    assert not found.depth(found.final).everything
