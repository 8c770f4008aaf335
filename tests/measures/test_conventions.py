"""What is decided once: order, ties, duplicates, gaps, levels, and what each measure asks for."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

import karat

Gold, Run, Queries, Corpus = (
    karat.Gold.from_dict,
    karat.Run.from_dict,
    karat.Queries.from_dict,
    karat.Corpus.from_dict,
)


def means(run, gold, measures, **options):
    return karat.evaluate(run, gold, measures, **options).means()


def table(*hits, columns=("query_id", "item_id", "score"), **options):
    return karat.Run.from_frame(pl.DataFrame(hits, schema=list(columns), orient="row"), **options)


def calls(*rows, columns):
    return pl.DataFrame(rows, schema=list(columns), orient="row")


# Order


def test_scores_rank_a_table_and_ranks_a_list():
    gold = Gold({"q": ["b"]})
    assert means(Run({"q": {"a": 1.0, "b": 2.0}}), gold, "RR") == {"RR": 1.0}
    assert means(Run({"q": ["a", "b"]}), gold, "RR") == {"RR": 0.5}


def test_order_can_be_set_and_disagreement_is_counted_by_query():
    columns = ("query_id", "item_id", "score", "rank")
    run = table(("q", "a", 1.0, 1), ("q", "b", 2.0, 2), ("r", "a", 2.0, 1), columns=columns)
    gold = Gold({"q": ["b"], "r": ["a"]})
    for order, expected in (("score", 1.0), ("rank", 0.75)):
        scores = karat.evaluate(run, gold, "RR", settings={"order": order})
        assert scores.means() == {"RR": expected}
        assert scores.counts.order_conflicts == 1


def test_ranks_that_agree_with_tied_scores_are_no_conflict():
    columns = ("query_id", "item_id", "score", "rank")
    run = table(("q", "b", 1.0, 1), ("q", "a", 1.0, 2), ("q", "c", 0.5, 3), columns=columns)
    assert karat.evaluate(run, Gold({"q": ["a"]}), "RR").counts.order_conflicts == 0


def test_a_run_of_ranks_cannot_be_ordered_by_score():
    with pytest.raises(karat.InputError, match=r"ranks only .* --set order=rank"):
        means(Run({"q": ["a"]}), Gold({"q": ["a"]}), "RR", settings={"order": "score"})


# Ties


@pytest.mark.parametrize(
    ("rule", "first"), [("id-asc", "B"), ("id-desc", "é"), ("given", "a"), (None, "B")]
)
def test_ties_break_by_item_id_in_code_point_order(rule, first):
    # code points: "B" 66 < "a" 97 < "é" 233, where a dictionary would say a, B, é
    run = Run({"q": {"a": 1.0, "é": 1.0, "B": 1.0}})
    settings = {} if rule is None else {"ties": rule}
    assert means(run, Gold({"q": [first]}), "RR", settings=settings) == {"RR": 1.0}


def test_the_range_of_the_mean_over_all_tie_orders_is_given():
    # a at rank 1, 2 or 3 in the first query, at rank 1 in the second: RR mean from 2/3 to 1
    run = Run({"q": {"a": 1.0, "b": 1.0, "c": 1.0}, "r": {"a": 1.0}})
    summary = karat.evaluate(run, Gold({"q": ["a"], "r": ["a"]}), "RR").summaries["RR"]
    assert summary.ties == ((1 / 3 + 1) / 2, 1.0)


def test_ties_that_change_nothing_have_no_range():
    run = Run({"q": {"a": 2.0, "b": 1.0, "c": 1.0}})
    assert karat.evaluate(run, Gold({"q": ["a"]}), "RR").summaries["RR"].ties is None


# The same item twice


def test_a_repeated_item_keeps_its_best_rank_and_the_rest_close_up():
    # a, b, a, c closes up to a, b, c: P@3 = 2/3, RR of c alone = 1/3
    run = table(("q", "a", 9.0), ("q", "b", 8.0), ("q", "a", 7.0), ("q", "c", 6.0))
    scores = karat.evaluate(run, Gold({"q": {"c": 1, "a": 2}}), "P@3, RR(rel=2), CG@3, NumRet")
    assert scores.means() == {"P@3": 2 / 3, "RR(rel=2)": 1.0, "CG@3": 3.0, "NumRet": 3.0}
    assert scores.counts.duplicates_dropped == 1


def test_the_same_item_for_two_queries_is_no_duplicate():
    run = table(("q", "a", 1.0), ("r", "a", 1.0))
    assert karat.evaluate(run, Gold({"q": ["a"], "r": ["a"]}), "RR").counts.duplicates_dropped == 0


# Missing queries and failed calls


def test_a_missing_query_counts_as_worst_and_is_counted():
    scores = karat.evaluate(Run({"q": {"a": 1.0}}), Gold({"q": ["a"], "r": ["a"]}), "RR, FPR@1")
    assert scores.means() == {"RR": 0.5, "FPR@1": 0.5}
    assert scores.status.to_list() == ["scored", "missing"]
    assert scores.counts.missing == 1


def test_a_failed_call_counts_as_worst_and_is_not_taken_for_an_empty_answer():
    run = table(
        ("ok", "a", 1.0),
        calls=calls(
            ("ok", None), ("empty", None), ("bad", "timeout"), columns=("query_id", "error")
        ),
    )
    gold = Gold({"ok": ["a"], "empty": ["a"], "bad": ["a"], "gone": ["a"]})
    scores = karat.evaluate(run, gold, "RR, Hole@5")
    assert scores.status.to_list() == ["scored", "scored", "failed", "missing"]
    assert scores.table["RR"].to_list() == [1.0, 0.0, 0.0, 0.0]
    # nothing was returned, so nothing is unjudged; no answer at all is the worst
    assert scores.table["Hole@5"].to_list() == [0.0, None, 1.0, 1.0]
    assert (scores.counts.failed_calls, scores.counts.missing) == (1, 1)


def test_hits_of_a_failed_call_do_not_count():
    run = table(("q", "a", 1.0), calls=calls(("q", "cut off"), columns=("query_id", "error")))
    assert means(run, Gold({"q": ["a"]}), "RR") == {"RR": 0.0}


def test_failed_calls_are_not_mistaken_for_foreign_queries():
    run = table(("x", "a", 1.0), calls=calls(("q", "timeout"), columns=("query_id", "error")))
    scores = karat.evaluate(run, Gold({"q": ["a"]}), "RR")
    assert (scores.counts.failed_calls, scores.counts.not_in_gold) == (1, 1)


def test_missing_queries_can_be_skipped():
    gold = Gold({"q": ["a"], "r": ["a"]})
    scores = karat.evaluate(Run({"q": {"a": 1.0}}), gold, "RR", settings={"missing": "skip"})
    assert scores.means() == {"RR": 1.0}
    assert scores.counts.missing == 1


def test_a_query_without_gold_is_not_scored_and_is_counted():
    scores = karat.evaluate(Run({"q": {"a": 1.0}, "x": {"a": 1.0}}), Gold({"q": ["a"]}), "RR")
    assert scores.table["query_id"].to_list() == ["q"]
    assert scores.counts.not_in_gold == 1


def test_the_queries_file_decides_which_queries_there_are():
    gold = Gold({"a": ["x"], "b": ["x"]})
    scores = karat.evaluate(
        Run({"a": {"x": 1.0}, "c": {"x": 1.0}}), gold, "RR", queries=Queries({"c": "?", "a": "?"})
    )
    assert scores.table.rows() == [("c", None), ("a", 1.0)]
    assert scores.status.to_list() == ["empty_gold", "scored"]


def test_run_and_gold_that_share_no_query_are_refused_with_ids_of_both():
    run = Run({"x1": {"a": 1.0}, "x2": {"a": 1.0}})
    with pytest.raises(
        karat.InputError,
        match="share no query id: the run has 'x1' and 'x2', the gold has 'q1' and 'q2'",
    ):
        means(run, Gold({"q1": ["a"], "q2": ["a"], "q3": ["a"]}), "RR")


# Empty gold


@pytest.mark.parametrize("judgments", [{}, {"a": 0}, {"a": -1}, {"a": 0.5}])
def test_a_query_with_empty_gold_is_never_in_the_mean(judgments):
    run, gold = Run({"q": {"a": 1.0}, "void": {"a": 1.0}}), Gold({"q": ["a"], "void": judgments})
    scores = karat.evaluate(run, gold, "RR, P@1, Hole@1")
    assert [summary.n for summary in scores.summaries.values()] == [1, 1, 1]
    assert scores.counts.empty_gold == 1


def test_empty_gold_can_count_zero():
    run, gold = Run({"q": {"a": 1.0}, "void": {"a": 1.0}}), Gold({"q": ["a"], "void": {}})
    assert means(run, gold, "RR", settings={"empty_gold": "zero"}) == {"RR": 0.5}


def test_no_answer_queries_have_a_status_of_their_own():
    queries = Queries(
        {"q": {"text": "?", "no_answer": True}, "r": {"text": "?", "no_answer": False}}
    )
    scores = karat.evaluate(
        Run({"q": {"a": 1.0}, "r": {"a": 1.0}}), Gold({"r": ["a"]}), "RR", queries=queries
    )
    assert scores.status.to_list() == ["no_answer", "scored"]
    assert (scores.counts.no_answer, scores.counts.empty_gold) == (1, 0)


def test_a_threshold_that_no_gold_reaches_gives_null_for_that_measure_alone():
    run, gold = Run({"q": {"a": 1.0}, "r": {"a": 1.0}}), Gold({"q": {"a": 2}, "r": {"a": 1}})
    summaries = karat.evaluate(run, gold, "RR, RR(rel=2)").summaries
    assert (summaries["RR"].n, summaries["RR(rel=2)"].n) == (2, 1)


# Unjudged is not grade 0


def test_unjudged_and_grade_0_are_told_apart():
    gold = Gold({"q": {"a": 1, "b": 0, "c": -1}})
    run = Run({"q": ["a", "b", "c", "x"]})
    # a and b were judged; c was pooled only, x never seen. Bpref: nothing judged above a.
    expected = {"P@4": 1 / 4, "Judged@4": 2 / 4, "Hole@4": 2 / 4}
    assert means(run, gold, list(expected)) == expected


def test_judged_is_over_what_was_returned_not_over_k():
    run, gold = Run({"q": ["a", "x"]}), Gold({"q": ["a"]})
    assert means(run, gold, "Judged@10, Hole@10") == {"Judged@10": 0.5, "Hole@10": 0.5}


def test_shares_of_what_was_returned_are_null_when_nothing_was():
    run, gold = Run({"q": ["a#1"], "r": []}), Gold({"q": ["a#1"], "r": ["a#1"]})
    scores = karat.evaluate(
        run, gold, "Judged@5, Hole@5, Redundancy@5, Novelty@5", corpus=Corpus({"a#1": "text"})
    )
    for name, summary in scores.summaries.items():
        assert scores.table[name].to_list()[1] is None
        assert summary.n == 1


# Duplicate judgments


def judgments(*rows, **options):
    frame = pl.DataFrame(rows, schema=["query_id", "item_id", "grade"], orient="row")
    return karat.Gold.from_frame(frame, **options)


def test_equal_judgments_are_one():
    assert judgments(("q", "a", 1), ("q", "a", 1)).frame.height == 1


def test_judgments_that_disagree_are_refused_with_both_lines():
    with pytest.raises(karat.InputError, match=r":3: .*'a' is judged 2 here and 1 in line 1"):
        judgments(("q", "a", 1), ("q", "b", 1), ("q", "a", 2))


def test_the_last_judgment_wins_for_trec():
    gold = judgments(("q", "a", 1), ("q", "a", 0), duplicates="last")
    assert gold.frame["grade"].to_list() == [0.0]


def test_trec_10_takes_no_judgment_twice():
    with pytest.raises(karat.InputError, match="every judgment may occur once"):
        judgments(("q", "a", 1), ("q", "a", 1), duplicates="refuse")


# Documents and chunks


def test_a_chunk_of_a_gold_document_is_correct_once_and_counts_for_precision_each_time():
    # ranks: faq#1 hit, faq#2 repeat, x#1 miss, faq#3 repeat, man#1 hit; gold docs faq, man, tos
    run = Run({"q": ["faq#1", "faq#2", "x#1", "faq#3", "man#1"]})
    expected = {
        "P@5": 4 / 5,  # every correct chunk
        "R@5": 2 / 3,  # documents
        "RR": 1.0,
        "AP": (1 / 1 + 2 / 5) / 3,  # man#1 keeps rank 5
        "nDCG@5": (1 + 1 / math.log2(6)) / (1 + 1 / math.log2(3) + 1 / 2),
        "NumRelRet": 2.0,
        "Hit@1": 1.0,
    }
    gold = Gold({"q": ["faq", "man", "tos"]})
    scores = karat.evaluate(run, gold, list(expected), settings={"level": "doc"})
    assert scores.means() == {
        name: pytest.approx(value, abs=1e-15) for name, value in expected.items()
    }
    assert scores.summaries["P@5"].ceiling == 1.0


def test_the_document_of_a_chunk_is_the_runs_word_then_the_corpuss_then_the_ids():
    gold = Gold({"q": ["D"]})
    settings = {"level": "doc"}
    assert means(Run({"q": ["a#b#1"]}), Gold({"q": ["a#b#7"]}), "R@1", settings=settings) == {
        "R@1": 1.0
    }
    corpus = Corpus({"c1": {"text": "", "doc_id": "D"}})
    assert means(Run({"q": ["c1"]}), gold, "R@1", settings=settings, corpus=corpus) == {"R@1": 1.0}
    said = table(("q", "c1", 1.0, "E"), columns=("query_id", "item_id", "score", "doc_id"))
    assert means(said, gold, "R@1", settings=settings, corpus=corpus) == {"R@1": 0.0}


# Spans


def spans(*rows):
    frame = pl.DataFrame(
        rows, schema=["query_id", "item_id", "grade", "start", "end"], orient="row"
    )
    return karat.Gold.from_frame(frame)


def test_a_span_is_found_when_the_chunks_so_far_cover_half_of_it():
    # span 100-200: chunk 0-130 covers 30, chunk 120-140 ten more, chunk 140-160 makes 60 of 100
    gold = spans(("q", "doc", 1, 100, 200))
    run = Run({"q": ["doc:0-130", "doc:120-140", "doc:140-160", "doc:160-300"]})
    expected = {"R@1": 0.0, "R@2": 0.0, "R@3": 1.0, "P@1": 1.0, "P@4": 1.0, "RR": 1.0}
    assert means(run, gold, list(expected), settings={"level": "span"}) == expected


def test_how_much_of_a_span_must_be_covered_can_be_set():
    gold, run = spans(("q", "doc", 1, 100, 200)), Run({"q": ["doc:100-130"]})
    for cover, found in ((0.3, 1.0), (0.31, 0.0)):
        settings = {"level": "span", "cover": cover}
        assert means(run, gold, "R@1", settings=settings) == {"R@1": found}


def test_a_chunk_that_only_touches_the_end_of_a_span_is_not_relevant():
    gold, run = (
        spans(("q", "doc", 1, 100, 200)),
        Run({"q": ["doc:0-100", "doc:200-300", "other:100-200"]}),
    )
    assert means(run, gold, "P@3, R@3", settings={"level": "span"}) == {"P@3": 0.0, "R@3": 0.0}


def test_recall_of_spans_counts_spans():
    gold = spans(("q", "doc", 1, 0, 10), ("q", "doc", 1, 50, 60), ("q", "man", 1, 0, 10))
    run = Run({"q": ["doc:0-60", "man:9-20"]})
    assert means(run, gold, "R@2", settings={"level": "span"}) == {"R@2": 2 / 3}


def test_spans_survive_a_change_of_chunking():
    gold = spans(("q", "doc", 1, 40, 60))
    settings = {"level": "span"}
    coarse, fine = Run({"q": ["doc:0-100"]}), Run({"q": ["doc:40-50", "doc:50-60"]})
    assert means(coarse, gold, "R@2", settings=settings) == means(
        fine, gold, "R@2", settings=settings
    )


def test_span_gold_is_not_scored_as_if_it_were_items():
    with pytest.raises(karat.InputError, match="--set level=span"):
        means(Run({"q": ["doc:0-10"]}), spans(("q", "doc", 1, 0, 10)), "R@1")
    with pytest.raises(karat.InputError, match="level=span needs gold with character spans"):
        means(Run({"q": ["a"]}), Gold({"q": ["a"]}), "R@1", settings={"level": "span"})


# Budgets and k of a query


def test_a_token_budget_keeps_the_items_that_fit_in_rank_order():
    corpus = Corpus(
        {
            "a": {"text": "one two three", "tokens": None},  # no count: three words
            "b": {"text": "x", "tokens": 4},
            "c": {"text": "y", "tokens": 1},
        }
    )
    run, gold = Run({"q": ["a", "b", "c"]}), Gold({"q": ["b", "c"]})
    expected = {
        "R@2tok": 0.0,  # not even a fits
        "P@2tok": 0.0,
        "R@6tok": 0.0,  # a fits, b does not, and c is not taken in its place
        "P@6tok": 0.0,
        "R@7tok": 1 / 2,
        "P@7tok": 1 / 2,
        "R@8tok": 1.0,
        "P@8tok": 2 / 3,
        # b at rank 2, c at rank 3, over the whole ideal
        "nDCG@8tok": (1 / math.log2(3) + 1 / 2) / (1 + 1 / math.log2(3)),
    }
    found = means(run, gold, list(expected), corpus=corpus)
    assert found == {name: pytest.approx(value, abs=1e-15) for name, value in expected.items()}


def test_a_token_budget_says_what_it_needs():
    with pytest.raises(karat.MissingInputError, match="--corpus"):
        means(Run({"q": ["a"]}), Gold({"q": ["a"]}), "R@100tok")


def test_the_letter_k_is_the_querys_own_else_the_conventions():
    queries = Queries({"a": {"text": "?", "k": 1}, "b": {"text": "?", "k": None}})
    run, gold = (
        Run({q: ["x", "hit", "y", "hot"] for q in "ab"}),
        Gold({q: ["hit", "hot"] for q in "ab"}),
    )
    scores = karat.evaluate(run, gold, "R@k, P@k", settings={"k": 3}, queries=queries)
    assert scores.table.rows() == [("a", 0.0, 0.0), ("b", 0.5, 1 / 3)]


def test_a_k_below_1_is_refused():
    queries = Queries({"q": {"text": "?", "k": 0}})
    with pytest.raises(karat.InputError, match="k is 0; a whole number above 0"):
        means(Run({"q": ["a"]}), Gold({"q": ["a"]}), "R@k", queries=queries)


# Definitions worked by hand

GRADED = {"a": 3, "b": 2, "c": 1, "d": 0}
LISTED = ["x", "b", "d", "a"]


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("F@4", 2 * (1 / 2) * (2 / 3) / (1 / 2 + 2 / 3)),
        ("F(beta=2)@4", 5 * (1 / 2) * (2 / 3) / (4 * (1 / 2) + 2 / 3)),
        ("AP(norm='k')@2", (1 / 2) / 2),
        ("AP@2", (1 / 2) / 3),
        ("Rprec", 1 / 3),
        ("CG@4", 5.0),
        ("DCG@4", 2 / math.log2(3) + 3 / math.log2(5)),
        ("nDCG@2", (2 / math.log2(3)) / (3 + 2 / math.log2(3))),
        ("nDCG(gain={2: 10})@2", (10 / math.log2(3)) / (10 + 3 / math.log2(3))),
        # satisfied with 3/16 at rank 2, else 7/16 at rank 4
        ("ERR", (3 / 16) / 2 + (13 / 16) * (7 / 16) / 4),
        ("ERR(max=3)@2", (3 / 8) / 2),
        ("RBP(p=0.5)", 0.5 * (0.5 + 0.125)),
        ("RBP(p=0.5, gain='linear', max=3)", 0.5 * (0.5 * 2 / 3 + 0.125)),
        # ranks 2, 3 and 4 are judged: the rest of the weight is 1 - .5*(.5 + .25 + .125)
        ("RBPres(p=0.5)", 1 - 0.5 * (0.5 + 0.25 + 0.125)),
        # b: none judged non-relevant above it; a: d above it, min(1, 3)/min(1, 3) = 1
        ("Bpref", (1 + 0) / 3),
        ("IPrec@0.5", 1 / 2),
        ("SetP", 2 / 4),
        ("SetR", 2 / 3),
        ("WR@2", 2 / 6),
        ("AUC@3", (2 * (0 + 1 / 3) / 2) / 2),
    ],
)
def test_definition_worked_by_hand(measure, expected):
    found = means(Run({"q": LISTED}), Gold({"q": GRADED}), measure)
    assert list(found.values()) == [pytest.approx(expected, abs=1e-15)]


def test_gmap_floors_each_query_at_1e_5():
    run, gold = Run({"q": ["a"], "r": ["x"]}), Gold({"q": ["a"], "r": ["a"], "s": ["a"]})
    # exp((ln 1 + ln 1e-5 + ln 1e-5) / 3)
    assert means(run, gold, "GMAP")["GMAP"] == pytest.approx(1e-5 ** (2 / 3), rel=1e-12)


def test_err_refuses_a_grade_above_its_maximum():
    with pytest.raises(karat.InputError, match=r"ERR\(max=4\) meets grade 5"):
        means(Run({"q": ["a"]}), Gold({"q": {"a": 5}}), "ERR@10")


def test_fractional_grades_are_gains():
    # 0.5 at rank 1, 1.5 at rank 2, over 1.5 + 0.5/log2(3)
    expected = (0.5 + 1.5 / math.log2(3)) / (1.5 + 0.5 / math.log2(3))
    found = means(Run({"q": ["a", "b"]}), Gold({"q": {"a": 0.5, "b": 1.5}}), "nDCG@10")
    assert found["nDCG@10"] == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    ("measure", "ceiling"),
    [
        ("P@5", 2 / 5), ("R@1", 1 / 2), ("Hit@1", 1.0), ("RR", 1.0), ("nDCG@10", 1.0),
        ("Rprec", 1.0), ("Bpref", 1.0), ("IPrec@0.5", 1.0), ("SetP", 1.0), ("SetR", 1.0),
        ("SetF", 1.0), ("AP@1", 1 / 2), ("WR@1", 2 / 3), ("F@1", 2 * 1 * 0.5 / 1.5),
        ("DCG@10", 2 + 1 / math.log2(3)), ("ERR", 3 / 16 + (13 / 16) * (1 / 16) / 2),
        ("RBP(p=0.5)", 0.75), ("AUC@3", 3 / 4), ("Coverage@1", 1 / 2), ("FPR@1", 0.0),
        ("Hole@5", 0.0), ("NumRel", None), ("NumRet", None),
    ],
)  # fmt: skip
def test_ceiling_is_what_the_ideal_list_gets(measure, ceiling):
    # two relevant items of grades 2 and 1; the run itself finds neither
    scores = karat.evaluate(Run({"q": ["x"]}), Gold({"q": {"a": 2, "b": 1}}), measure)
    (summary,) = scores.summaries.values()
    assert summary.ceiling == (None if ceiling is None else pytest.approx(ceiling, abs=1e-15))


# Diversity, freshness, similarity, coverage


def test_distinct_documents_and_redundancy():
    run, gold = Run({"q": ["a#1", "a#2", "b#1"]}), Gold({"q": ["a#1"]})
    found = means(run, gold, "DistinctDocs@2, DistinctDocs@5, Redundancy@2, Redundancy@5")
    assert found == {
        "DistinctDocs@2": 1.0,
        "DistinctDocs@5": 2.0,
        "Redundancy@2": 0.5,
        "Redundancy@5": 1 - 2 / 5,
    }


def test_novelty_compares_word_sets_with_every_higher_text():
    corpus = Corpus(
        {
            "a": "The storm at sea",
            "b": "the STORM, at sea!",  # the same words: not new
            "c": "the storm in town",  # with a: 2 of 6 words
            "d": "a storm in town",  # with c: 3 of 5 words, .6
        }
    )
    run, gold = Run({"q": ["a", "b", "c", "d"]}), Gold({"q": ["a"]})
    found = means(
        run, gold, "Novelty@4, Novelty(overlap=0.3)@4, Novelty(overlap=0.7)@4", corpus=corpus
    )
    assert list(found.values()) == [2 / 4, 1 / 4, 3 / 4]


def test_an_overlap_at_the_limit_is_not_new():
    # one of two words is shared: Jaccard 1/2
    corpus, run = Corpus({"a": "storm", "b": "storm sea"}), Run({"q": ["a", "b"]})
    found = means(run, Gold({"q": ["a"]}), "Novelty@2, Novelty(overlap=0.51)@2", corpus=corpus)
    assert list(found.values()) == [1 / 2, 1.0]


def fresh(dates, as_of, **settings):
    rows = [("q", f"d{n}", -float(n), version) for n, version in enumerate(dates)]
    run = table(*rows, columns=("query_id", "item_id", "score", "version"))
    queries = Queries({"q": {"text": "?", "as_of": as_of}})
    return karat.evaluate(run, Gold({"q": ["d0"]}), "Fresh@5", queries=queries, settings=settings)


def test_as_of_covers_its_whole_day():
    versions = ["2024-05-01", "2024-05-02", "2024-05-02T23:59:59", "2024-05-03"]
    assert fresh(versions, "2024-05-02").means() == {"Fresh@5": 3 / 4}


def test_as_of_with_a_time_is_that_moment():
    versions = ["2024-05-02T09:00:00", "2024-05-02T10:00:01"]
    assert fresh(versions, "2024-05-02T10:00:00").means() == {"Fresh@5": 1 / 2}


def test_versions_that_are_no_dates_need_a_declared_order():
    undeclared = fresh(["v2", "v10"], "v2")
    assert undeclared.means() == {"Fresh@5": None}
    assert undeclared.counts.versions_unknown == 2
    assert fresh(["v2", "v10"], "v2", versions="v1<v2<v10").means() == {"Fresh@5": 1 / 2}


def test_unknown_versions_are_left_out_and_counted():
    scores = fresh(["2024-01-01", None, "soon", "2025-01-01"], "2024-05-02")
    assert scores.means() == {"Fresh@5": 1 / 2}
    assert scores.counts.versions_unknown == 2


def test_a_missing_query_without_as_of_is_not_stale():
    run = table(("q", "a", 1.0, "2024-01-01"), columns=("query_id", "item_id", "score", "version"))
    queries = Queries(
        {"q": {"text": "?", "as_of": "2024-05-02"}, "r": {"text": "?", "as_of": None}}
    )
    scores = karat.evaluate(run, Gold({"q": ["a"], "r": ["a"]}), "Fresh@5", queries=queries)
    assert scores.table["Fresh@5"].to_list() == [1.0, None]


def test_similarity_is_the_runs_own_or_a_declared_cosine():
    gold = Gold({"q": ["a", "b"]})
    logged = table(
        ("q", "a", 9.0, 0.8), ("q", "x", 8.0, 0.1), ("q", "b", 7.0, 0.6), ("q", "y", 6.0, None),
        columns=("query_id", "item_id", "score", "similarity"),
    )  # fmt: skip
    found = means(logged, gold, "Sim@5, Sim(of='all')@5, Sim@1")
    assert list(found.values()) == [pytest.approx(0.7), pytest.approx(0.5), 0.8]
    cosine = table(("q", "a", 0.9), ("q", "x", 0.5), meta={"score_kind": "cosine"})
    assert means(cosine, gold, "Sim@5, Sim(of='all')@5") == {"Sim@5": 0.9, "Sim(of='all')@5": 0.7}


def test_a_score_is_not_taken_for_a_similarity():
    with pytest.raises(karat.MissingInputError, match="similarity"):
        means(Run({"q": {"a": 18.4}}), Gold({"q": ["a"]}), "Sim@5")


def test_a_cosine_cannot_be_declared_of_ranks():
    run = table(
        ("q", "a", 1), columns=("query_id", "item_id", "rank"), meta={"score_kind": "cosine"}
    )
    with pytest.raises(karat.MissingInputError, match="similarity"):
        means(run, Gold({"q": ["a"]}), "Sim@5")


def test_coverage_of_gold_and_of_the_corpus():
    gold = Gold({"q": ["a", "b"], "r": ["a", "c"]})
    run = Run({"q": ["b", "c", "z"], "r": ["x", "a"]})
    corpus = Corpus(dict.fromkeys(["a", "b", "c", "x", "y"], ""))
    # of gold {a, b, c}: b for q, a for r; c only for q, whose gold it is not
    found = means(run, gold, "Coverage@10, Coverage@1, Coverage(of='corpus')@10", corpus=corpus)
    # of the corpus: a, b, c, x are returned; z is not in it
    assert list(found.values()) == [2 / 3, 1 / 3, 4 / 5]


def test_coverage_of_the_corpus_is_0_when_nothing_is_returned():
    found = means(
        Run({"q": []}), Gold({"q": ["a"]}), "Coverage(of='corpus')@5", corpus=Corpus({"a": ""})
    )
    assert list(found.values()) == [0.0]


# False evidence

ASKED = Queries(
    {
        "a": {"text": "?", "no_answer": False},
        "b": {"text": "?", "no_answer": False},
        "none1": {"text": "?", "no_answer": True},
        "none2": {"text": "?", "no_answer": True},
    }
)


def test_false_evidence_above_a_threshold():
    run = Run(
        {"a": {"x": 0.9}, "b": {"x": 0.1}, "none1": {"x": 0.5, "y": 0.2}, "none2": {"x": 0.49}}
    )
    scores = karat.evaluate(
        run, Gold({"a": ["x"], "b": ["x"]}), "FalseEvidence(threshold=0.5)@5", queries=ASKED
    )
    (name,) = scores.means()
    assert scores.table[name].to_list() == [None, None, 1.0, 0.0]
    assert scores.summaries[name].n == 2


def test_keep_chooses_the_highest_threshold_that_keeps_its_share_of_the_gold():
    # gold scores .1 to 1.0: keeping 9 of 10 allows a threshold of .2, keeping all needs .1
    gold_scores = {f"g{n}": n / 10 for n in range(1, 11)}
    run = Run({"a": gold_scores, "b": {"x": 5.0}, "none1": {"x": 0.15}, "none2": {"x": 0.2}})
    gold = Gold({"a": list(gold_scores), "b": ["other"]})
    for keep, expected in (
        (0.9, [0.0, 1.0]),
        (1.0, [1.0, 1.0]),
        (0.85, [0.0, 1.0]),
        (0.5, [0.0, 0.0]),
    ):
        name = f"FalseEvidence(keep={keep})"
        values = karat.evaluate(run, gold, name, queries=ASKED).table[2:, 1].to_list()
        assert values == expected, keep


def test_keep_looks_at_answerable_queries_only():
    # none1 is flagged as without an answer and yet has gold, at .1: it lowers no threshold
    run = Run({"a": {"x": 0.9}, "none1": {"x": 0.1}, "none2": {"x": 0.5}})
    gold = Gold({"a": ["x"], "none1": ["x"]})
    scores = karat.evaluate(run, gold, "FalseEvidence(keep=1)", queries=ASKED)
    assert scores.table[2:, 1].to_list() == [0.0, 0.0]


def test_keep_heeds_the_threshold_of_relevance():
    # of grade 2 there is only g1 at .9, so .5 for the no-answer query is no evidence
    run = Run({"a": {"g1": 0.9, "g2": 0.3}, "none1": {"x": 0.5}, "none2": {"x": 0.95}})
    gold = Gold({"a": {"g1": 2, "g2": 1}})
    for rel, expected in ((2, [0.0, 1.0]), (1, [1.0, 1.0])):
        scores = karat.evaluate(
            run, gold, "FalseEvidence(keep=1)", queries=ASKED, settings={"rel": rel}
        )
        assert scores.table[2:, 1].to_list() == expected


def test_false_evidence_needs_scores():
    with pytest.raises(karat.MissingInputError, match="ranks only"):
        means(Run({"none1": ["x"]}), Gold({"a": ["x"]}), "FalseEvidence@5", queries=ASKED)


# Calls


def test_latency_percentiles_interpolate_linearly_as_numpy_does():
    times = [12.0, 7.0, 3.5, 100.0, 41.0, 8.0, 9.0]
    logged = [(f"q{n}", time, 1.0) for n, time in enumerate(times)]
    run = table(
        *[(f"q{n}", "a", 1.0) for n in range(7)],
        calls=calls(*logged, columns=("query_id", "latency.retrieve", "latency.rerank")),
    )
    gold = Gold({f"q{n}": ["a"] for n in range(7)})
    names = [f"latency.retrieve.p{p}" for p in (50, 90, 95, 99)]
    found = means(run, gold, [*names, "latency.retrieve.mean", "latency.total.p50"])
    expected = [float(np.percentile(times, p)) for p in (50, 90, 95, 99)]
    # by hand: sorted 3.5 7 8 9 12 41 100; p90 lies at 5.4: 41 + .4 * 59
    assert expected[:2] == [9.0, pytest.approx(64.6)]
    assert list(found.values()) == [*expected, pytest.approx(180.5 / 7), 10.0]


def test_costs_are_summed_and_averaged_over_the_queries_that_log_them():
    logged = calls(("q", 100), ("r", 50), ("s", None), columns=("query_id", "cost.tokens"))
    run = table(("q", "a", 1.0), ("r", "a", 1.0), ("s", "a", 1.0), calls=logged)
    gold = Gold({q: ["a"] for q in "qrs"})
    found = means(run, gold, "cost.tokens, cost.tokens.mean, cost.tokens.sum")
    assert list(found.values()) == [75.0, 75.0, 150.0]


def test_a_latency_that_is_not_logged_is_named_with_what_is():
    run = table(("q", "a", 1.0), calls=calls(("q", 1.0), columns=("query_id", "latency.search")))
    with pytest.raises(
        karat.MissingInputError, match=r"latency.rerank is not in the run; it logs latency.search"
    ):
        means(run, Gold({"q": ["a"]}), "latency.rerank.p50")


def test_entity_links_are_scored_by_f1():
    queries = Queries(
        {
            "q": {"text": "?", "entities": ["E1", "E2", "E3"]},
            "r": {"text": "?", "entities": []},
            "s": {"text": "?", "entities": None},
            "t": {"text": "?", "entities": ["E1"]},
            "u": {"text": "?", "entities": []},
        }
    )
    logged = calls(
        ("q", ["E1", "E2", "X", "Y"]), ("r", []), ("s", ["E1"]), ("t", None),
        columns=("query_id", "entities"),
    )  # fmt: skip
    run = table(("q", "a", 1.0), calls=logged)
    scores = karat.evaluate(run, Gold({q: ["a"] for q in "qrstu"}), "EL_F1", queries=queries)
    # 2 right of 4 linked and 3 gold: 2*2/(4+3); nothing to link and nothing linked is right;
    # no gold entities is no value; u was never asked, so it is worst
    assert scores.table["EL_F1"].to_list() == [4 / 7, 1.0, None, 0.0, 0.0]


def test_measures_say_what_they_lack():
    run, gold = Run({"q": {"a": 1.0}}), Gold({"q": ["a"]})
    for measure, lack in (
        ("Novelty@5", "texts"),
        ("Fresh@5", "version"),
        ("EL_F1", "entities"),
        ("latency.total.p50", "latency.total is not in the run"),
        ("Coverage(of='corpus')@5", "--corpus"),
    ):
        with pytest.raises(karat.MissingInputError, match=lack):
            means(run, gold, measure)


def test_a_profile_leaves_out_what_cannot_be_measured_and_says_so():
    scores = karat.evaluate(Run({"q": ["a"]}), Gold({"q": ["a"]}), profile="rag")
    lacking = {name for name, summary in scores.summaries.items() if summary.lacks}
    assert lacking == {
        "Novelty@5", "Fresh@5", "latency.retrieve.p50", "latency.retrieve.p90",
        "latency.rerank.p50", "latency.rerank.p90",
    }  # fmt: skip
    assert all(scores.means()[name] is None for name in lacking)


def test_means_are_exact_sums():
    # 0.1 added ten times is not 1.0 in floats; the exact mean of ten P@10 = .1 is .1
    run = Run({f"q{n}": ["a"] for n in range(10)})
    assert means(run, Gold({f"q{n}": ["a"] for n in range(10)}), "P@10") == {"P@10": 0.1}
    assert sum([0.1] * 10) / 10 != 0.1
