"""What is never returned, against sets made by hand."""

from __future__ import annotations

import json

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from returned import Corpus, Gold, Queries, Run, staged_of
from scipy.stats import binomtest

import karat
from karat.analysis.diagnose.reach import reach, reach_measures
from karat.formats.runlog import run_of_records

LISTS = {"q1": ["a#1", "b#1", "c#1"], "q2": ["b#1", "d#1"]}
GOLD = {"q1": {"c#1": 1, "x#1": 2, "b#1": 0}, "q2": {"d#1": 1, "c#1": 1}, "q3": {"e#1": 1}}
TEXTS = {f"{doc}#{n}": f"text of {doc} {n}" for doc in "abcdef" for n in (1, 2)}


def looked_at(lists=LISTS, gold=GOLD, *, k=2, corpus=TEXTS, whole=True, queries=None, **settings):
    run = lists if isinstance(lists, karat.Run) else Run(lists)
    given = None if corpus is None else Corpus(corpus)
    staged = staged_of(run, gold, reach_measures(k), queries=queries, corpus=given, **settings)
    return reach(staged, run if whole else None, k=k), staged


def test_gold_is_told_by_how_far_down_it_was_found():
    """Gold is c, x, d, e; c stands third for q1, and d second for q2."""
    gold = looked_at()[0]["gold"]
    assert gold["units"] == 4
    assert (gold["top"]["found"], gold["final"]["found"], gold["any"]["found"]) == (1, 2, 2)
    assert gold["final"]["never"] == 2
    assert gold["depth"] == {"final": 3, "any": 3}
    # Half of the gold of 3 queries is between 1 and 2 of them.
    low, high = (binomtest(k, 3).proportion_ci(method="exact") for k in (1, 2))
    assert gold["final"]["ci"] == pytest.approx([low.low, high.high])


def test_gold_in_no_list_is_named_with_its_queries():
    gold = looked_at(LISTS | {"q3": []})[0]["gold"]
    assert gold["lost"] == [
        {
            "item_id": "x#1",
            "grade": 2.0,
            "queries": 1,
            "in_corpus": False,
            "query_ids": ["q1"],
            "text": None,
        },
        {
            "item_id": "e#1",
            "grade": 1.0,
            "queries": 1,
            "in_corpus": True,
            "query_ids": ["q3"],
            "text": "text of e 1",
        },
    ]
    assert (gold["not_asked"], gold["not_in_corpus"]) == (0, 1)


@pytest.mark.parametrize("fate", ["missing", "failed"])
def test_gold_that_was_not_looked_for_is_counted_apart(fate):
    """x is gold of q1, which got a list, and of q3, which got none; e and the stray of q3 only."""
    gold = GOLD | {"q3": {"e#1": 1, "stray": 1, "x#1": 1}}
    records = [{"query_id": query, "topk": items} for query, items in LISTS.items()]
    if fate == "failed":
        records.append({"query_id": "q3", "topk": [], "error": "timeout"})
    found, staged = looked_at(run_of_records(records, name="log"), gold)
    assert staged.final.status.tolist()[-1] == fate
    assert [(one["item_id"], one["query_ids"]) for one in found["gold"]["lost"]] == [
        ("x#1", ["q1"])
    ]
    assert found["gold"]["not_asked"] == 2
    # what was not looked for still counts as not found, as in the measure
    assert (found["gold"]["units"], found["gold"]["any"]["never"]) == (5, 3)
    assert found["gold"]["top"]["share"] == staged.final.means()["Coverage@2"] == 1 / 5
    # x and the stray
    assert found["gold"]["not_in_corpus"] == 2


def test_gold_that_is_returned_for_another_query_only_is_not_found():
    found = looked_at({"q1": ["e#1"], "q2": ["d#1"], "q3": ["a#1"]})[0]
    assert "e#1" in [one["item_id"] for one in found["gold"]["lost"]]


def test_the_coverage_is_that_of_the_measure():
    found, staged = looked_at()
    told = staged.final.summaries["Coverage@2"]
    assert found["gold"]["coverage"]["mean"] == found["gold"]["top"]["share"] == told.mean == 1 / 4
    assert found["gold"]["top"]["ci"] == found["gold"]["coverage"]["ci"] == list(told.ci)
    told = staged.final.summaries["Coverage(of='corpus')@2"]
    # a, b, d of twelve items
    assert (
        found["corpus"]["coverage"]["mean"]
        == found["corpus"]["top"]["share"]
        == told.mean
        == 3 / 12
    )
    assert found["corpus"]["top"]["ci"] == list(told.ci)


def test_items_that_are_never_returned_and_their_documents():
    corpus = looked_at()[0]["corpus"]
    assert (corpus["items"], corpus["top"]["found"], corpus["ever"]["found"]) == (12, 3, 4)
    # c and x, d, e are gold; of these the corpus has c, d, e, and e is in no list
    assert corpus["never_gold"] == 1
    assert corpus["never"][0] == {
        "item_id": "e#1",
        "doc_id": "e",
        "gold": True,
        "text": "text of e 1",
    }
    assert [one["item_id"] for one in corpus["never"][1:3]] == ["a#2", "b#2"]
    docs = corpus["docs"]
    assert (docs["all"], docs["reached"]["found"], docs["unreachable_gold"]) == (6, 4, 1)
    assert docs["unreachable"] == [
        {"doc_id": "e", "items": 2, "gold": 1},
        {"doc_id": "f", "items": 2, "gold": 0},
    ]
    assert docs["partly"][0] == {"doc_id": "a", "items": 2, "never": 1, "gold": 0}
    assert len(docs["partly"]) == 4
    # four places for twelve items
    assert corpus["most"] == 4 / 12


def test_without_the_run_only_the_top_is_known():
    corpus = looked_at(whole=False)[0]["corpus"]
    assert (corpus["looked"], corpus["ever"]["found"]) == ("top", 3)
    assert looked_at()[0]["corpus"]["looked"] == "lists"


def test_items_that_the_corpus_lacks_are_counted():
    corpus = looked_at({"q1": ["a#1", "stray"], "other": ["foreign"]})[0]["corpus"]
    assert (corpus["unknown"], corpus["ever"]["found"]) == (1, 1)


def test_every_stage_can_find_gold():
    records = [
        {"query_id": "q1", "topk": ["a#1"], "raw": ["a#1", "b#1", "c#1"]},
        {"query_id": "q2", "topk": ["b#1"], "raw": ["b#1"], "stages": {"bm25": ["d#1"]}},
    ]
    found = looked_at(run_of_records(records, name="log"))[0]
    assert found["gold"]["stages"] == ["final", "raw", "bm25"]
    assert (found["gold"]["final"]["found"], found["gold"]["any"]["found"]) == (0, 2)
    assert found["gold"]["depth"] == {"final": 1, "any": 3}
    assert [one["item_id"] for one in found["gold"]["lost"]] == ["x#1"]
    assert found["gold"]["not_asked"] == 1
    assert found["corpus"]["ever"]["found"] == 4


def test_gold_of_documents_is_found_by_any_of_their_chunks():
    gold = {"q1": ["b"], "q2": ["e"]}
    found = looked_at(gold=gold, level="doc")[0]
    assert (found["gold"]["units"], found["gold"]["top"]["found"]) == (2, 1)
    assert found["gold"]["lost"][0]["item_id"] == "e"
    assert found["gold"]["lost"][0]["in_corpus"] is True
    assert found["corpus"]["docs"]["unreachable"][0]["doc_id"] == "e"
    assert found["corpus"]["docs"]["unreachable_gold"] == 1


def test_spans_are_named_by_where_they_lie():
    frame = pl.DataFrame(
        {
            "query_id": ["q1", "q1"],
            "item_id": ["d", "d"],
            "grade": [1.0, 1.0],
            "start": [0, 50],
            "end": [10, 60],
        }
    )
    found = looked_at(
        Run({"q1": ["d:0-20"]}), karat.Gold.from_frame(frame), corpus=None, level="span"
    )[0]
    assert (found["gold"]["units"], found["gold"]["top"]["found"]) == (2, 1)
    lost = found["gold"]["lost"][0]
    assert (lost["item_id"], lost["start"], lost["end"]) == ("d", 50, 60)


def test_queries_that_are_skipped_bring_no_gold():
    """q3 is not in the run: with missing=skip its gold is nobody's."""
    found, staged = looked_at(missing="skip")
    assert found["gold"]["units"] == 3
    assert (
        found["gold"]["top"]["share"] == staged.final.means()["Coverage@2"] == pytest.approx(1 / 3)
    )


def test_without_a_corpus_the_gold_is_still_told():
    found = looked_at(corpus=None)[0]
    assert found["corpus"] is None
    assert "--corpus" in found["lacks"][0]
    assert found["gold"]["not_in_corpus"] is None
    assert found["gold"]["lost"][0]["in_corpus"] is None


def test_without_gold_there_is_no_share():
    asked = Queries({"q1": {"text": "", "no_answer": True}})
    found = looked_at({"q1": ["a#1"]}, Gold({}), queries=asked)[0]
    assert found["gold"]["units"] == 0
    assert found["gold"]["top"] == {"found": 0, "never": 0, "share": None, "ci": None}
    assert json.dumps(found.to_dict(), allow_nan=False)


ITEMS = [f"{doc}#{n}" for doc in "abcd" for n in range(3)]
lists = st.lists(st.sampled_from(ITEMS), max_size=6, unique=True)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(lists, st.sets(st.sampled_from(ITEMS), min_size=1, max_size=4)), min_size=2),
    st.integers(1, 6),
)
def test_sets_made_by_hand_agree(cases, k):
    asked = {f"q{n}": items for n, (items, _) in enumerate(cases)}
    gold = {f"q{n}": sorted(right) for n, (_, right) in enumerate(cases)}
    found = looked_at(asked, gold, k=k, corpus=dict.fromkeys(ITEMS, "x"))[0]
    everything = set().union(*gold.values())
    top = set().union(*(set(asked[q][:k]) & set(gold[q]) for q in gold))
    whole = set().union(*(set(asked[q]) & set(gold[q]) for q in gold))
    assert found["gold"]["units"] == len(everything)
    assert (found["gold"]["top"]["found"], found["gold"]["any"]["found"]) == (len(top), len(whole))
    assert {one["item_id"] for one in found["gold"]["lost"]} == everything - whole
    returned = set().union(*asked.values())
    assert found["corpus"]["ever"]["never"] == len(set(ITEMS) - returned)
    untouched = {item[0] for item in ITEMS} - {item[0] for item in returned}
    assert {one["doc_id"] for one in found["corpus"]["docs"]["unreachable"]} == untouched
