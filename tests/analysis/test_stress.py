"""Drops after damage: against pytrec_eval on lists edited here, and worked by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import pytrec_eval

import karat
from karat.analysis.stress import correct_p, measure_edit, top_of, touched_by
from karat.analysis.stress.edits import (
    Drop,
    EditedList,
    Insert,
    ListToEdit,
    Truncate,
)
from karat.analysis.stress.lists import (
    FinalLists,
    edited_run,
    grades_in,
    own_negatives,
    ranked_lists,
    sample,
    with_gold,
)
from karat.data.tables import Corpus, Gold, Queries, Run
from karat.evaluation.evaluation import Evaluation
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare
from karat.measure.ranked import UNLIMITED
from karat.measure.score_builder import score

NAMES = {"nDCG@5": "ndcg_cut_5", "R@5": "recall_5", "RR": "recip_rank"}


def evaluation_of(gold, measures=("nDCG@5", "R@5", "RR"), **more):
    return Evaluation(gold, measures=list(measures), **more)


def lists_of(entries):
    """Lists that nobody reranks: what they are is what becomes of them."""
    final = {name: [item for item, _ in own] for name, own in entries.items()}
    run = Run.from_dict({name: list(own) for name, own in final.items()})
    return FinalLists(edited_run(run, entries, None), final)


def plain(lists):
    return {name: [(item, None) for item in own] for name, own in lists.items()}


def stressed(edit, lists, evaluation, *, negatives=None, gold=None):
    entries = plain(lists)
    edited = {
        name: edit.apply(
            ListToEdit(name, own, (gold or {}).get(name, {}), (negatives or {}).get(name, ()))
        )
        for name, own in entries.items()
    }
    touched = touched_by(edit, edited)
    after = lists_of({name: own.entries for name, own in touched.items()})
    return measure_edit(edit, edited, lists_of(entries), after, evaluation)


def world(n=40, seed=3):
    """Random lists over 30 items, graded gold, and negatives that may stand in the lists."""
    rng = random.Random(seed)
    items = [f"d{number:02}" for number in range(30)]
    lists, gold, negatives = {}, {}, {}
    for at in range(n):
        name = f"q{at:02}"
        lists[name] = rng.sample(items, rng.randint(4, 15))
        gold[name] = {item: rng.randint(1, 3) for item in rng.sample(items[:15], 4)}
        negatives[name] = rng.sample(items[15:], 3)
    return lists, gold, negatives


def trec(lists, gold):
    """Each query's values by pytrec_eval."""
    run = {name: {item: -float(at) for at, item in enumerate(own)} for name, own in lists.items()}
    measures = {"ndcg_cut.5", "recall.5", "recip_rank"}
    return pytrec_eval.RelevanceEvaluator(gold, measures).evaluate(run)


def three_on_top(lists, negatives):
    return {
        name: [*negatives[name], *(item for item in own if item not in negatives[name])]
        for name, own in lists.items()
    }


def test_the_drop_is_what_pytrec_eval_measures_on_the_edited_lists():
    lists, gold, negatives = world()
    found = stressed(Insert((1, 2, 3)), lists, evaluation_of(gold), negatives=negatives)
    before, after = trec(lists, gold), trec(three_on_top(lists, negatives), gold)
    for name, theirs in NAMES.items():
        fall = found["measures"][name]
        old, new = (np.array([one[query][theirs] for query in lists]) for one in (before, after))
        assert fall["before"] == pytest.approx(old.mean(), abs=1e-12)
        assert fall["after"] == pytest.approx(new.mean(), abs=1e-12)
        assert fall["drop"] == pytest.approx((old - new).mean(), abs=1e-12)
        assert fall["n"] == 40
        counts = [(old - new > 1e-12).sum(), (abs(old - new) <= 1e-12).sum()]
        assert [fall["worse"], fall["same"]] == counts
        assert fall["better"] == 40 - sum(counts)
        assert fall["ci"][0] <= fall["drop"] <= fall["ci"][1]


def test_the_interval_is_that_of_paired_differences():
    """Resamples of the queries' differences, drawn here, give about the same ends."""
    lists, gold, negatives = world(n=120)
    found = stressed(Insert((1, 2, 3)), lists, evaluation_of(gold), negatives=negatives)
    before, after = trec(lists, gold), trec(three_on_top(lists, negatives), gold)
    delta = np.array([before[q]["ndcg_cut_5"] - after[q]["ndcg_cut_5"] for q in lists])
    draws = np.random.default_rng(1).choice(delta, (20_000, len(delta))).mean(axis=1)
    assert found["measures"]["nDCG@5"]["ci"] == pytest.approx(
        np.quantile(draws, [0.025, 0.975]).tolist(), abs=0.1 * draws.std() + 0.01
    )


@pytest.mark.parametrize(
    ("edit", "by_hand"),
    [
        (Drop(2), lambda own, gold: own[2:]),
        (Truncate(3), lambda own, gold: own[:3]),
        (
            Drop("gold"),
            lambda own, gold: [
                item
                for item in own
                if item != max((one for one in own if one in gold), key=gold.get, default=None)
            ],
        ),
    ],
)
def test_other_damage_agrees_as_well(edit, by_hand):
    lists, gold, _ = world(seed=5)
    found = stressed(edit, lists, evaluation_of(gold), gold=gold)
    edited = {name: by_hand(own, gold[name]) for name, own in lists.items()}
    before, after = trec(lists, gold), trec(edited, gold)
    for name, theirs in NAMES.items():
        expected = np.mean([before[q][theirs] - after.get(q, {}).get(theirs, 0.0) for q in lists])
        assert found["measures"][name]["drop"] == pytest.approx(expected, abs=1e-12)
    assert found["edited"] == sum(edited[name] != lists[name] for name in lists)


def test_a_drop_by_hand():
    lists = {"q1": ["g", "a", "b"], "q2": ["a", "g", "b"]}
    evaluation = evaluation_of({"q1": ["g"], "q2": ["g"]}, ["RR", "P@2"])
    found = stressed(Insert((1,)), lists, evaluation, negatives={"q1": ["x"], "q2": ["x"]})
    rr, p = found["measures"]["RR"], found["measures"]["P@2"]
    # RR: 1 → 1/2 and 1/2 → 1/3; P@2: 1/2 → 1/2 and 1/2 → 0.
    assert (rr["before"], rr["after"]) == pytest.approx((3 / 4, 5 / 12))
    assert rr["drop"] == pytest.approx(1 / 3)
    assert (rr["worse"], rr["same"], rr["better"]) == (2, 0, 0)
    assert p["drop"] == pytest.approx(1 / 4)
    assert (p["worse"], p["same"], p["better"]) == (1, 1, 0)


def test_a_measure_that_should_be_low_drops_by_rising():
    lists = {f"q{at}": ["faq#1", "blog#1"] for at in range(6)}
    evaluation = evaluation_of({name: ["faq#1"] for name in lists}, ["Redundancy@2"])
    found = stressed(Insert((2,)), lists, evaluation, negatives={name: ["faq#2"] for name in lists})
    fall = found["measures"]["Redundancy@2"]
    assert (fall["before"], fall["after"], fall["drop"]) == (0.0, 0.5, 0.5)
    assert (fall["worse"], fall["better"]) == (6, 0)
    assert 0 < fall["ci"][0] <= fall["drop"] <= fall["ci"][1]


def test_nothing_dropped_is_zero_and_not_minus_zero():
    lists = {"q1": ["g", "a"], "q2": ["g", "b"]}
    found = stressed(Truncate(5), lists, evaluation_of({"q1": ["g"], "q2": ["g"]}))
    assert str(found["measures"]["R@5"]["drop"]) == "0.0"
    assert (found["edited"], found["short"]) == (0, 2)


def test_queries_without_negatives_are_left_out_and_counted():
    lists, gold, negatives = world()
    few = {name: own for name, own in negatives.items() if name < "q10"}
    few["q03"] = few["q03"][:1]
    told = stressed(Insert((1, 2, 3)), lists, evaluation_of(gold), negatives=few)
    assert (told["edited"], told["without_negatives"], told["short"]) == (10, 30, 1)
    assert told["inserted"] == 28
    assert {fall["n"] for fall in told["measures"].values()} == {10}


def test_a_failed_call_leaves_its_query_out_on_both_sides():
    lists, gold, negatives = world()
    evaluation = evaluation_of(gold)
    edit = Insert((1, 2, 3))
    entries = plain(lists)
    edited = {q: edit.apply(ListToEdit(q, own, {}, negatives[q])) for q, own in entries.items()}
    failed = {"q00": "gone", "q07": "gone"}
    good = {q: one.entries for q, one in edited.items() if q not in failed}
    after = replace(lists_of(good), failed=failed)
    found = measure_edit(edit, edited, lists_of(entries), after, evaluation)
    assert found["failed"] == 2
    before, later = trec(lists, gold), trec(three_on_top(lists, negatives), gold)
    kept = [q for q in lists if q not in failed]
    assert found["measures"]["nDCG@5"]["n"] == 38
    assert found["measures"]["nDCG@5"]["before"] == pytest.approx(
        np.mean([before[q]["ndcg_cut_5"] for q in kept])
    )
    assert found["measures"]["nDCG@5"]["after"] == pytest.approx(
        np.mean([later[q]["ndcg_cut_5"] for q in kept])
    )


def test_where_nothing_is_left_there_is_no_figure():
    found = stressed(Insert((1,)), {"q1": ["g"]}, evaluation_of({"q1": ["g"]}))
    fall = found["measures"]["nDCG@5"]
    assert fall["n"] == 0
    assert fall["before"] is fall["drop"] is fall["ci"] is fall["p"] is None
    assert found["negatives"]["in_top"] is None


def test_where_the_negatives_ended():
    """Three lists after some reranker, worked by hand."""
    edited = {
        "q1": EditedList((), placed=("x", "y")),
        "q2": EditedList((), placed=("x",)),
        "q3": EditedList((), placed=("z", "y")),
    }
    after = {"q1": ["a", "x", "b", "y"], "q2": ["a", "b"], "q3": ["z", "y", "a"]}
    before = {"q1": ["x", "a", "b"], "q2": ["a", "b"], "q3": ["a", "b", "y"]}
    evaluation = evaluation_of({name: ["a"] for name in edited}, ["nDCG@2"])
    found = measure_edit(
        Insert((1, 2)),
        edited,
        lists_of(plain(before)),
        lists_of(plain(after)),
        evaluation,
    )["negatives"]
    assert found["top"] == 2
    assert found["in_top"] == pytest.approx((1 / 2 + 0 + 1) / 3)
    assert found["before"] == pytest.approx((1 / 2 + 0 + 0) / 3)
    assert found["returned"] == pytest.approx((1 + 0 + 1) / 3)
    assert found["mean_rank"] == pytest.approx((2 + 4 + 1 + 2) / 4)
    assert 0 <= found["ci"][0] <= found["in_top"] <= found["ci"][1] <= 1


def test_p_is_corrected_over_the_scenarios():
    lists, gold, negatives = world()
    evaluation = evaluation_of(gold, ["nDCG@5", "RR"])
    found = [
        stressed(Insert((1,)), lists, evaluation, negatives=negatives),
        stressed(Drop(1), lists, evaluation),
        stressed(Truncate(4), lists, evaluation),
    ]
    correct_p(found)
    for name in ("nDCG@5", "RR"):
        ps = [one["measures"][name]["p"] for one in found]
        # Holm by hand: the smallest times 3, the next times 2, never falling.
        order = np.argsort(ps)
        steps = np.maximum.accumulate([ps[at] * (3 - place) for place, at in enumerate(order)])
        adjusted = dict(zip(order.tolist(), np.minimum(steps, 1).tolist(), strict=True))
        assert [one["measures"][name]["p_adjusted"] for one in found] == pytest.approx(
            [adjusted[at] for at in range(3)]
        )


def test_drops_are_told_by_segment():
    lists, gold, negatives = world()
    queries = Queries.from_dict(
        {name: {"text": "?", "language": "pt" if name < "q15" else "es"} for name in lists}
    )
    evaluation = evaluation_of(gold, queries=queries, by=["language"])
    told = stressed(Insert((1, 2, 3)), lists, evaluation, negatives=negatives)
    before, after = trec(lists, gold), trec(three_on_top(lists, negatives), gold)
    segments = told["segments"]["language"]
    assert {value: falls["RR"]["n"] for value, falls in segments.items()} == {"es": 25, "pt": 15}
    expected = np.mean(
        [before[q]["recip_rank"] - after[q]["recip_rank"] for q in lists if q < "q15"]
    )
    assert segments["pt"]["RR"]["drop"] == pytest.approx(expected)


def test_a_run_is_taken_in_the_order_of_its_conventions():
    run = Run.from_dict({"q1": {"a": 1.0, "b": 1.0, "c": 2.0}, "q2": {"a": 1.0}})
    gold = Gold.from_dict({"q1": ["a"], "q2": ["a"], "q3": ["a"]})
    orders = {}
    for ties in ("id-asc", "id-desc"):
        scores = score(
            run, prepare(gold, conventions_of("karat", {"ties": ties})), [], keep=UNLIMITED
        )
        orders[ties] = ranked_lists(scores)
    assert [item for item, _ in orders["id-asc"]["q1"]] == ["c", "a", "b"]
    assert [item for item, _ in orders["id-desc"]["q1"]] == ["c", "b", "a"]
    assert orders["id-asc"]["q1"][0] == ("c", 2.0)
    # The run does not have q3, so there is no list to damage.
    assert list(orders["id-asc"]) == ["q1", "q2"]


def test_an_edited_run_still_says_what_the_run_said_and_the_corpus_tells_of_new_items():
    hits = pl.DataFrame(
        {
            "query_id": ["q1", "q1"],
            "item_id": ["a", "b"],
            "rank": [1, 2],
            "doc_id": ["A", "B"],
            "version": ["1", None],
            "similarity": [0.5, 0.4],
        }
    )
    calls = pl.DataFrame({"query_id": ["q1", "q2"], "latency.rerank": [7.0, 8.0]})
    run = Run.from_frame(hits, calls=calls, order="rank")
    corpus = Corpus.from_dict(
        {
            "x": {"text": "", "doc_id": "X", "version": 3},
            "b": {"text": "", "doc_id": "other", "version": 4},
        }
    )
    entries = {"q1": [("b", 0.5), ("x", 0.4), ("y", 0.3), ("a", 0.2)], "q2": []}
    made = edited_run(run, entries, corpus)
    assert made.hits.select("item_id", "rank", "doc_id", "version", "similarity").rows() == [
        ("b", 1, "B", "4", 0.4),
        ("x", 2, "X", "3", None),
        ("y", 3, None, None, None),
        ("a", 4, "A", "1", 0.5),
    ]
    assert made.order == "rank"
    assert made.calls.rows() == [("q1", 7.0), ("q2", 8.0)]


def test_the_eval_sets_own_negatives_come_hardest_first():
    frame = pl.DataFrame(
        {
            "query_id": ["q1", "q1", "q1", "q2", "q3"],
            "item_id": ["g", "zero", "hard", "below", "g"],
            "grade": [2.0, 0.0, 0.0, -1.0, 1.0],
            "negative": [False, False, True, None, False],
        }
    )
    assert own_negatives(Gold.from_frame(frame)) == {"q1": ["hard", "zero"], "q2": ["below"]}


def test_spans_of_grade_0_are_no_items_to_put_in():
    frame = pl.DataFrame(
        {
            "query_id": ["q1", "q1"],
            "item_id": ["doc", "chunk#2"],
            "grade": [0.0, 0.0],
            "start": [0, None],
            "end": [9, None],
        }
    )
    assert own_negatives(Gold.from_frame(frame)) == {"q1": ["chunk#2"]}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"doc#1": 2.0}),
        # Both chunks of a gold document are gold where documents count.
        ({"level": "doc"}, {"doc#1": 2.0, "doc#2": 2.0}),
        ({"depth": "1"}, {"doc#1": 2.0}),
    ],
)
def test_what_is_gold_is_told_at_the_level_in_force_and_however_deep(settings, expected):
    evaluation = evaluation_of({"q1": {"doc#1": 2, "zero": 0}}, settings=settings)
    run = lists_of(plain({"q1": ["other", "doc#1", "doc#2", "zero"]})).run
    assert grades_in(run, evaluation, ["q1"]) == {"q1": expected}


def test_spans_make_every_chunk_gold_that_touches_them():
    frame = pl.DataFrame(
        {"query_id": ["q1"], "item_id": ["doc"], "grade": [1.0], "start": [50], "end": [150]}
    )
    evaluation = evaluation_of(Gold.from_frame(frame), ["R@5"], settings={"level": "span"})
    run = lists_of(plain({"q1": ["doc:0-40", "doc:40-60", "doc:60-200", "other:40-60"]})).run
    assert grades_in(run, evaluation, ["q1"]) == {"q1": {"doc:40-60": 1.0, "doc:60-200": 1.0}}


def test_a_sample_depends_on_the_seed_and_not_on_the_order_of_the_queries():
    names = [f"q{number}" for number in range(50)]
    drawn = sample(names, 10, 0)
    assert len(drawn) == 10
    assert drawn == [name for name in names if name in drawn]
    assert set(sample(names[::-1], 10, 0)) == set(drawn)
    assert set(sample(names, 10, 1)) != set(drawn)
    assert set(sample(names, 11, 0)) > set(drawn)
    assert sample(names, None, 0) == sample(names, 50, 3) == names


def test_only_queries_with_something_to_find_take_part():
    gold = Gold.from_dict({"q1": {"a": 1}, "q2": {"a": 0}, "q3": {}, "q4": {"a": 2, "b": 1}})
    assert with_gold(prepare(gold, conventions_of("karat"))) == ["q1", "q4"]
    assert with_gold(prepare(gold, conventions_of("karat", {"rel": "2"}))) == ["q4"]


def test_the_top_is_as_long_as_the_measure_that_decides_looks():
    assert top_of(parse_measures(["nDCG@3", "R@10"])) == 3
    assert top_of(parse_measures(["RR"])) == 5
    assert top_of(parse_measures(["RR", "R@7"])) == 7


def test_conversations_are_resampled_whole():
    """Copies of a query in one conversation add nothing: the interval stays as wide."""
    lists, gold, negatives = world(n=20)

    def copied(by_query):
        return {f"{name}.{copy}": own for name, own in by_query.items() for copy in range(5)}

    queries = Queries.from_dict(
        {name: {"text": "?", "group": name.partition(".")[0]} for name in copied(lists)}
    )
    apart = stressed(
        Insert((1, 2, 3)), copied(lists), evaluation_of(copied(gold)), negatives=copied(negatives)
    )
    whole = stressed(
        Insert((1, 2, 3)),
        copied(lists),
        evaluation_of(copied(gold), queries=queries),
        negatives=copied(negatives),
    )
    wide, narrow = (np.ptp(one["measures"]["nDCG@5"]["ci"]) for one in (whole, apart))
    assert wide > 1.8 * narrow


def test_a_comparison_reads_as_a_drop_with_its_ends_in_order():
    lists, gold, negatives = world()
    # Taking negatives out again is a gain, so the drop is negative.
    edited = three_on_top(lists, negatives)
    found = stressed(Drop(3), edited, evaluation_of(gold))
    fall = found["measures"]["nDCG@5"]
    assert fall["drop"] < 0
    assert fall["ci"][0] < fall["drop"] < fall["ci"][1] < 0
    assert fall["better"] > fall["worse"]


def test_a_measure_of_the_profile_that_the_run_cannot_have_falls_by_nothing():
    """The profile rag asks for the latency of a reranker, which a plain ranking does not log."""
    gold = {f"q{at}": {"a": 1} for at in range(6)}
    evaluation = karat.Evaluation(gold, profile="rag")
    run = {query: ["a", "b", *(f"x{n}{query}" for n in range(20))] for query in gold}
    document = karat.stress(evaluation, run, drop=["gold"]).to_dict()
    (scenario,) = document["systems"][0]["scenarios"]
    assert scenario["measures"]["Hit@1"]["drop"] == 1.0
    assert scenario["measures"]["latency.rerank.p90"]["drop"] is None
    assert scenario["measures"]["latency.rerank.p90"]["n"] == 0
    named = karat.Evaluation(gold, measures=["Hit@1", "latency.rerank.p90"])
    with pytest.raises(karat.MissingInputError):
        karat.stress(named, run, drop=["gold"])
