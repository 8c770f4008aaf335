"""Scores are the same whatever the order of the lines that they were made from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from karat.data.tables import Gold, Queries, Run
from karat.evaluation.api import evaluate
from karat.formats.readers import read_corpus, read_gold, read_queries, read_run
from karat.measure.conventions import conventions_of
from karat.measure.prepare import prepare
from karat.measure.scores import Scores
from karat.store.differences import reorder_like
from karat.store.rows import pack, unpack

from .conftest import FIRST, small
from .test_restoring import SET_LEVEL, check_equal, same


def restored(scores: Scores) -> Scores:
    return unpack(pack(scores), system=scores.system, source=scores.source, where="here")


def backwards(table: Gold | Queries) -> Gold | Queries:
    return type(table).from_frame(table.frame.reverse(), source=table.source)


@pytest.mark.parametrize("name", ["bm25.trec", "dense.jsonl"])
def test_scores_moved_are_those_that_the_moved_files_give(name):
    gold, queries = read_gold(FIRST / "qrels.txt"), read_queries(FIRST / "queries.jsonl")
    corpus, run = read_corpus(FIRST / "corpus.jsonl"), read_run(FIRST / name)
    measures = ["nDCG@5", "RR", *(SET_LEVEL if name == "dense.jsonl" else [])]
    scores = evaluate(run, gold, measures, queries=queries, corpus=corpus)
    turned = evaluate(run, gold, measures, queries=backwards(queries), corpus=corpus)
    moved = reorder_like(restored(scores), turned)
    check_equal(turned, moved)
    for measure, evidence in turned.evidence.items():
        for part in ("query", "key", "value"):
            assert same(getattr(evidence, part), getattr(moved.evidence[measure], part))


def test_conversations_move_with_their_queries():
    ids = [f"q{i}" for i in range(6)]
    gold = Gold.from_dict({one: {"a": 1} for one in ids})
    talks = {one: {"text": "?", "group": f"talk {at // 2}"} for at, one in enumerate(ids)}
    run = Run.from_dict({one: ["a", "b"][:: 1 if one < "q3" else -1] for one in ids})
    scores = evaluate(run, gold, "RR", queries=Queries.from_dict(talks))
    other = Queries.from_dict({one: talks[one] for one in ("q5", "q0", "q3", "q1", "q4", "q2")})
    turned = evaluate(run, gold, "RR", queries=other)
    check_equal(turned, reorder_like(restored(scores), turned))


def test_what_has_other_queries_stays_as_it_is():
    scores = small()[0][0]
    fewer = replace(scores, query_ids=scores.query_ids[:2])
    assert reorder_like(scores, fewer) is scores
    assert reorder_like(scores, scores) is scores


def fingerprint(gold: Gold, **options: str) -> str:
    return prepare(gold, conventions_of("karat", options)).fingerprint


def test_the_order_of_lines_does_not_change_a_fingerprint():
    judged = {"q2": {"a": 1, "b": 2}, "q1": {"b": 2}, "q3": {"a": 0}}
    gold = Gold.from_dict(judged)
    assert fingerprint(backwards(gold)) == fingerprint(gold)
    for other in (
        {"q2": {"a": 1, "b": 2}, "q1": {"b": 2}},
        {"q2": {"a": 1, "b": 2}, "q1": {"b": 1}, "q3": {"a": 0}},
        {"q2": {"b": 2}, "q1": {"a": 1, "b": 2}, "q3": {"a": 0}},
        {"q2": {"a": 1, "b": 2}, "q1": {"c": 2}, "q3": {"a": 0}},
    ):
        assert fingerprint(Gold.from_dict(other)) != fingerprint(gold)


def test_spans_are_part_of_a_fingerprint():
    frame = pl.DataFrame(
        {
            "query_id": ["q1", "q1", "q2"],
            "item_id": ["d", "d", "d"],
            "grade": [1.0, 1.0, 1.0],
            "start": [0, 20, 5],
            "end": [10, 30, 9],
        }
    )
    gold = Gold.from_frame(frame)
    whole = fingerprint(gold, level="span")
    assert fingerprint(backwards(gold), level="span") == whole
    moved = Gold.from_frame(frame.with_columns(end=pl.Series(np.array([11, 30, 9]))))
    assert fingerprint(moved, level="span") != whole
