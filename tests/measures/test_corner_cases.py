"""Corners where readings differ: spans, explicit thresholds, overflow, gaps in a corpus."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pytest

import karat
from karat import Corpus, Gold, Queries, Run, evaluate
from karat.errors import InputError


def spans(*rows: tuple[str, int, int, float]) -> Gold:
    names = ["query_id", "item_id", "start", "end", "grade"]
    return Gold.from_frame(pl.DataFrame([("q", *row) for row in rows], schema=names, orient="row"))


def values(run: Run, gold: Gold, measures: list[str], **more: object) -> dict[str, float | None]:
    return evaluate(run, gold, measures, **more).means()  # type: ignore[arg-type]


SPAN = {"level": "span"}


def test_every_chunk_that_overlaps_a_relevant_span_counts_for_precision():
    # The second chunk touches the grade-1 span again and a grade-0 span for the first time.
    gold = spans(("d", 0, 10, 1), ("d", 10, 20, 0))
    run = Run.from_dict({"q": ["d:0-5", "d:5-15"]})
    assert values(run, gold, ["P@2"], settings=SPAN) == {"P@2": 1.0}
    gold = spans(("d", 0, 10, 2), ("d", 10, 20, 1))
    assert values(run, gold, ["P(rel=2)@2"], settings=SPAN) == {"P(rel=2)@2": 1.0}


def test_one_chunk_may_find_several_spans_and_the_ceiling_knows():
    gold = spans(("d", 0, 10, 1), ("d", 20, 30, 1))
    run = Run.from_dict({"q": ["d:0-100"]})
    scores = evaluate(run, gold, ["R@1", "WR@1", "F@1", "AUC@2", "SetR"], settings=SPAN)
    assert scores.means() == {"R@1": 1, "WR@1": 1, "F@1": 1, "AUC@2": 1, "SetR": 1}
    assert [summary.ceiling for summary in scores.summaries.values()] == [1, 1, 1, 1, 1]


def test_set_recall_of_spans_is_recall_of_the_whole_list():
    # Two of ten characters are less than half of the span: touched, not found.
    gold = spans(("d", 0, 10, 1))
    run = Run.from_dict({"q": ["d:0-2"]})
    found = values(run, gold, ["R@1", "SetR", "Hit@1", "RR"], settings=SPAN)
    assert found == {"R@1": 0, "SetR": 0, "Hit@1": 1, "RR": 1}


def test_a_threshold_of_1_is_kept_where_the_convention_is_another():
    gold, run = Gold.from_dict({"q": {"a": 1, "b": 2}}), Run.from_dict({"q": ["a", "b"]})
    both = values(run, gold, ["P@2", "P(rel=1)@2"], settings={"rel": 2})
    assert both == {"P@2": 0.5, "P(rel=1)@2": 1.0}
    assert values(run, gold, ["P(rel=1)@2"]) == {"P@2": 1.0}


def test_weighted_recall_never_exceeds_1_by_rounding():
    gold = Gold.from_dict({"q": {"a": 0.1, "b": 0.2, "c": 0.3}})
    run = Run.from_dict({"q": ["a", "b", "c"]})
    assert values(run, gold, ["WR@3"]) == {"WR@3": 1.0}


def test_an_item_that_the_corpus_lacks_has_no_length():
    gold = Gold.from_dict({"q": {"a": 1}})
    corpus = Corpus.from_dict({"a": "one two three"})
    with pytest.raises(karat.InputError, match="the corpus lacks 'u'"):
        evaluate(Run.from_dict({"q": ["u", "a"]}), gold, ["P@100tok"], corpus=corpus)
    assert values(Run.from_dict({"q": ["a"]}), gold, ["P@3tok"], corpus=corpus) == {"P@3tok": 1.0}


def test_a_version_that_the_run_lacks_comes_from_the_corpus():
    hits = pl.DataFrame(
        {
            "query_id": ["q", "q"],
            "item_id": ["a", "b"],
            "rank": [1, 2],
            "version": ["2024-01-01", None],
        }
    )
    corpus = Corpus.from_dict(
        {"a": {"text": "", "version": "2024-01-01"}, "b": {"text": "", "version": "2030-01-01"}}
    )
    queries = Queries.from_dict({"q": {"text": "?", "as_of": "2025-01-01"}})
    gold = Gold.from_dict({"q": {"a": 1}})
    run = Run.from_frame(hits)
    fresh = values(run, gold, ["Fresh@2"], queries=queries, corpus=corpus)
    assert fresh == {"Fresh@2": 0.5}


@pytest.mark.parametrize("measure", ["nDCG(gain='exp')@5", "DCG(gain='exp')"])
def test_a_grade_beyond_what_a_float_can_hold_is_refused(measure):
    gold, run = Gold.from_dict({"q": {"a": 1100}}), Run.from_dict({"q": ["a"]})
    with pytest.raises(karat.InputError, match="grade 1100 is too high"):
        evaluate(run, gold, [measure])


def test_parameters_out_of_range_are_refused_when_they_are_read():
    for text in ("ERR(max=2000)", "nDCG(gain={0: 1, 1: 3})", "AUC(of='Sim')@5"):
        with pytest.raises(karat.UsageError):
            karat.parse_measure(text)
    assert str(karat.parse_measure("nDCG(gain={0: 0, 1: 3})")) == "nDCG(gain={1: 3})"
    assert str(karat.parse_measure("AUC(of='ndcg')@5")) == "AUC(of='nDCG')@5"


def test_of_equal_duplicates_the_first_row_stays():
    rows = [("q", f"d{i:02}", 1.0, 0.1) for i in range(40)]
    rows += [("q", "d07", 1.0, 0.9)]
    names = ["query_id", "item_id", "score", "similarity"]
    run = Run.from_frame(pl.DataFrame(rows[::-1], schema=names, orient="row"))
    gold = Gold.from_dict({"q": {"d07": 1}})
    scores = evaluate(run, gold, ["Sim@50"])
    assert scores.means() == {"Sim@50": 0.9}
    assert scores.counts.repeats == 1


def test_grades_below_1_are_enough_for_the_area_under_a_graded_measure():
    gold, run = Gold.from_dict({"q": {"a": 0.5}}), Run.from_dict({"q": ["a", "b"]})
    area = values(run, gold, ["AUC(of='nDCG')@2", "nDCG@2", "R@2"])
    assert area == {"AUC(of='nDCG')@2": 1.0, "nDCG@2": 1.0, "R@2": None}


def test_a_ceiling_knows_how_deep_lists_are_looked_at():
    gold, run = Gold.from_dict({"q": {"a": 1, "b": 1}}), Run.from_dict({"q": ["a", "b"]})
    (summary,) = evaluate(run, gold, ["R@10"], settings={"depth": 1}).summaries.values()
    assert (summary.mean, summary.ceiling) == (0.5, 0.5)


@pytest.mark.parametrize("k", ["one", 1.7, 0])
def test_a_cut_off_of_a_query_is_a_whole_number(k):
    queries = Queries.from_dict({"q": {"text": "?", "k": k}})
    with pytest.raises(karat.InputError, match="k is"):
        evaluate(
            Run.from_dict({"q": ["a"]}), Gold.from_dict({"q": {"a": 1}}), ["R@k"], queries=queries
        )


def test_what_is_no_run_or_no_gold_is_refused():
    gold, run = Gold.from_dict({"q": {"a": 1}}), Run.from_dict({"q": ["a"]})
    for wrong in [(gold, run), (None, gold), (run, None), (5, gold)]:
        with pytest.raises(karat.UsageError, match="is expected, not"):
            evaluate(*wrong, ["RR"])
    assert evaluate({"q": ["a"]}, {"q": {"a": 1}}, ["RR"]).means() == {"RR": 1.0}
    assert evaluate(run, gold, karat.parse_measure("RR")).means() == {"RR": 1.0}


@pytest.mark.parametrize("kind", [Run, Gold])
@pytest.mark.parametrize(
    ("lists", "told"),
    [
        (5, "a dict by query, not a int"),
        ({"q": None}, "query 'q' holds None"),
        ({"q": {"a": [1]}}, "holds List"),
        ({"q": {"a": {"b": 1}}}, "holds Struct"),
        ({"q": {"a": 1j}}, "holds Object"),
        ({"q": {"a": 10**400}}, "a finite number is expected"),
        ({b"q": {"a": 1}}, "ids must be text or whole numbers"),
        ({"\ud800": {"a": 1}}, "cannot be|can be written down|not text"),
    ],
)
def test_dicts_of_something_else_are_refused_in_our_own_words(kind, lists, told):
    with pytest.raises(karat.KaratError, match=told):
        kind.from_dict(lists)


def test_gold_is_no_list_of_pairs():
    with pytest.raises(karat.KaratError, match="ids must be text or whole numbers"):
        Gold.from_dict({"q": [("a", 1.0)]})


def test_gold_that_the_queries_file_leaves_out_is_counted():
    gold = Gold.from_dict({"q1": {"a": 1}, "q2": {"b": 1}})
    queries = Queries.from_dict({"q1": "?"})
    scores = evaluate(Run.from_dict({"q1": ["a"]}), gold, ["RR"], queries=queries)
    assert (scores.counts.queries, scores.counts.not_in_queries) == (1, 1)
    with pytest.raises(karat.InputError, match="the queries of in memory has 'zz'"):
        evaluate(Run.from_dict({"q1": ["a"]}), gold, ["RR"], queries=Queries.from_dict({"zz": "?"}))


@pytest.mark.parametrize(
    "more",
    [
        {"measures": 5},
        {"measures": [None]},
        {"profile": 5},
        {"settings": "ties=given"},
        {"settings": {"versions": 5}},
        {"settings": {"versions": "a<b<a"}},
        {"settings": {"depth": 2**70}},
        {"settings": {"k": True}},
        {"settings": {"rel": "1_0"}},
        {"queries": 5},
        {"corpus": 5},
    ],
)
def test_arguments_of_another_kind_are_refused(more):
    gold, run = Gold.from_dict({"q": {"a": 1}}), Run.from_dict({"q": ["a"]})
    with pytest.raises(karat.UsageError):
        evaluate(run, gold, **{"measures": ["RR"], **more})


def test_tables_with_columns_of_another_kind_are_refused():
    good = {"query_id": ["q"], "item_id": ["a"], "score": [1.0]}
    for wrong in ({"item_id": [True]}, {"item_id": [["a"]]}, {"score": [{"x": 1}]}):
        with pytest.raises(karat.InputError, match="holds"):
            Run.from_frame(pl.DataFrame(good | wrong))
    twice = pd.DataFrame([["q", "a", 1.0, 2.0]], columns=["query_id", "item_id", "score", "score"])
    with pytest.raises(karat.InputError, match="column 'score' occurs twice"):
        Run.from_frame(twice)
    with pytest.raises(karat.UsageError, match="cannot read a Series"):
        Run.from_frame(twice["query_id"])
    with pytest.raises(karat.InputError, match="beyond 1e"):
        Gold.from_dict({"q": {"a": 1e300}})


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"as_of": ["2024-01-01"]}, "as_of is ['2024-01-01']; text"),
        ({"k": [5]}, "k is [5]; a whole number"),
        ({"k": 1e19}, "k is 1e+19"),
        ({"no_answer": [True]}, "no_answer is [True]; true or false"),
    ],
)
def test_an_attribute_of_the_wrong_shape_is_refused(attributes, told):
    queries = karat.Queries.from_dict({"q": {"text": "?", **attributes}})
    gold, run = karat.Gold.from_dict({"q": ["a"]}), karat.Run.from_dict({"q": ["a"]})
    with pytest.raises(InputError) as refused:
        karat.evaluate(run, gold, ["R@k"], queries=queries)
    assert told in str(refused.value)


@pytest.mark.parametrize("profile", ["karat", "memory", "minimal", "trec"])
@pytest.mark.parametrize("nothing", [[], {}])
def test_a_run_of_empty_lists_is_ordered_by_anything(profile, nothing):
    gold = Gold.from_dict({"q1": ["a"], "q2": ["b"]})
    run = Run.from_dict({"q1": nothing, "q2": nothing})
    allowed = {"missing_ids": "allow"}
    scores = evaluate(run, gold, ["RR@5"], profile=profile, settings=allowed)
    assert scores.means() == {"RR@5": 0.0}
    assert (scores.counts.scored, scores.counts.missing) == (2, 0)


def test_empty_lists_are_ranked_lists_and_empty_dicts_are_scored_ones():
    assert Run.from_dict({"q1": [], "q2": []}).order == "rank"
    assert "rank" in Run.from_dict({"q1": []}).hits.columns
    assert Run.from_dict({"q1": {}}).order == "score"
    assert Run.from_dict({"q1": [], "q2": {"a": 1.0}}).order == "score"
