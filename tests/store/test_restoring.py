"""Scores come back to the bit, from every database."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from sqlalchemy import text

from karat.data.tables import Gold, Queries, Run
from karat.errors import InputError
from karat.evaluation.api import evaluate
from karat.formats.readers import read_gold, read_queries, read_run
from karat.measure.conventions import PROFILES
from karat.measure.scores import Scores
from karat.reports.document import Report
from karat.store import Store
from karat.store.rows import pack, unpack

from .conftest import FIRST, made, small

SET_LEVEL = [
    "GMAP",
    "Coverage@5",
    "Coverage(of='corpus')@5",
    "latency.retrieve.p50",
    "latency.retrieve.p99",
    "Fresh@5",
    "AUC@10",
    "FalseEvidence",
    "NumRel",
    "IPrec@0.1",
    "R@k",
    "nDCG(gain={1: 0.5, 2: 3})@5",
    "RBP(p=0.95)",
]


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def check_equal(a: Scores, b: Scores) -> None:
    """Everything but the lists, which are not kept, and where on disk the run was."""
    assert (a.system, a.measures, a.counts, a.conventions) == (
        b.system,
        b.measures,
        b.counts,
        b.conventions,
    )
    assert a.table.schema == b.table.schema
    assert a.table.equals(b.table)
    for measure in a.measures:
        assert same(a.values(str(measure)), b.values(str(measure)))
    assert a.status.tolist() == b.status.tolist()
    assert (a.lacks, a.fingerprint) == (b.lacks, b.fingerprint)
    assert (a.groups is None) == (b.groups is None)
    assert a.groups is None or same(a.groups, b.groups)
    assert list(a.ceilings) == list(b.ceilings)
    assert list(a.evidence) == list(b.evidence)
    for name, (values, _) in a.ceilings.items():
        assert same(values, b.ceilings[name][0])
    assert a.tied.keys() == b.tied.keys()
    for name, ends in a.tied.items():
        assert all(map(same, ends, b.tied[name]))
    check_summaries(a, b)


def check_summaries(a: Scores, b: Scores) -> None:
    assert a.means() == b.means()
    chance = np.random.default_rng(0)
    for share in (1.0, 0.7, 0.3, 0.0):
        mask = chance.random(len(a.query_ids)) < share
        assert a.summarise(mask) == b.summarise(mask)


@pytest.mark.parametrize("profile", PROFILES)
def test_scores_of_every_profile_come_back_to_the_bit(store, demo, profile):
    scores, report = demo(profile=profile)
    ids = store.save(scores, report)
    for id, own in zip(ids, scores, strict=True):
        check_equal(own, store.baseline(str(id)).scores)


def test_set_level_measures_come_back_with_their_evidence(store):
    gold, queries = read_gold(FIRST / "qrels.txt"), read_queries(FIRST / "queries.jsonl")
    from karat.formats.readers import read_corpus

    corpus = read_corpus(FIRST / "corpus.jsonl")
    run = read_run(FIRST / "dense.jsonl")
    scores = evaluate(run, gold, SET_LEVEL, queries=queries, corpus=corpus)
    assert scores.evidence
    store.save([scores], Report.of([scores], gold=gold).to_dict())
    restored = store.baseline("1").scores
    check_equal(scores, restored)
    for name, evidence in scores.evidence.items():
        other = restored.evidence[name]
        assert evidence.total == other.total
        for part in ("query", "key", "value"):
            assert same(getattr(evidence, part), getattr(other, part))
    assert store.evaluations()[0].summaries == scores.summaries


def test_conversations_come_back(store):
    gold = Gold.from_dict({f"q{i}": {"a": 1} for i in range(6)})
    queries = Queries.from_dict(
        {f"q{i}": {"text": "?", "group": f"talk {i // 2}"} for i in range(6)}
    )
    run = Run.from_dict({f"q{i}": ["a", "b"][:: 1 if i % 2 else -1] for i in range(6)})
    scores, report = made(gold, run, queries=queries)
    assert scores[0].groups is not None
    store.save(scores, report)
    check_equal(scores[0], store.baseline("1").scores)


@pytest.mark.parametrize("value", [np.inf, -0.0, 5e-324, 1 / 3, np.nan])
def test_odd_numbers_come_back(store, value):
    scores, report = small()
    odd = replace(scores[0], columns={"RR": np.array([value, 0.1 + 0.2, np.nan, 1.0])})
    summaries = [scores[0].summaries]
    store.save([odd], report, summaries=summaries)
    assert same(odd.values("RR"), store.baseline("1").scores.values("RR"))


def test_a_set_without_queries_comes_back(store):
    scores, report = small()
    nothing = replace(
        scores[0],
        query_ids=(),
        columns={name: values[:0] for name, values in scores[0].columns.items()},
        status=scores[0].status[:0],
        ceilings={},
        tied={},
    )
    store.save([nothing], report)
    check_equal(nothing, store.baseline("1").scores)


def test_every_part_of_scores_is_stored_or_known_not_to_be():
    """A new field must be added to rows.py, or to the last of these with a reason."""
    by_packing = {
        "measures",
        "query_ids",
        "columns",
        "status",
        "counts",
        "conventions",
        "meta",
        "ceilings",
    }
    by_packing |= {"tied", "evidence", "lacks", "cut", "fingerprint", "groups"}
    by_the_row = {"system", "source"}
    # The items of every query would make a store a hundred times larger.
    left_out = {"lists", "blocks", "calls", "run"}
    # A note for whoever scores a run: the stored means of 0 say the same.
    left_out |= {"nothing_found"}
    assert {one.name for one in fields(Scores)} == by_packing | by_the_row | left_out


def test_what_a_newer_karat_added_is_refused_by_name():
    scores = small()[0][0]
    packed = pack(scores)
    where = {"system": "x", "source": scores.source, "where": "history.db: evaluation 3"}
    for old, new, told in (
        ('"cover":', '"colour":', "was saved by a newer karat, which knows 'colour'"),
        ('["RR",', '["Rr",', "has the measure 'Rr', which this karat does not know"),
    ):
        changed = {**packed, "about": packed["about"].replace(old, new)}
        with pytest.raises(InputError, match=f"history.db: evaluation 3: {told}"):
            unpack(changed, **where)
    with pytest.raises(InputError, match="evaluation 3: is damaged: its values cannot be read"):
        unpack({**packed, "queries": packed["queries"][:-20]}, **where)


def test_damage_to_one_evaluation_leaves_the_others(store):
    store.save(*small())
    store.save(*small())
    with store._database.writers.begin() as connection:
        change = "UPDATE karat_scores SET queries = :junk WHERE evaluation_id = 1"
        connection.execute(text(change), {"junk": b"junk"})
    with pytest.raises(InputError, match="evaluation 1: is damaged"):
        store.baseline("1")
    assert store.baseline("2").scores.means() == small()[0][0].means()
    assert len(store.evaluations()) == 2


def test_a_store_of_many_queries_stays_small(tmp_path):
    n = 2000
    gold = Gold.from_dict({f"q{i}": {"a": 1} for i in range(n)})
    run = Run.from_dict({f"q{i}": ["x", "a"] if i % 3 else ["a"] for i in range(n)})
    with Store.open(tmp_path / "s.db") as store:
        store.save(*made(gold, run, measures="nDCG@10, RR, P@5, R@5, AP"))
    assert (tmp_path / "s.db").stat().st_size < 200_000
