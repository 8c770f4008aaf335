"""What is decided once: order, ties, duplicates, gaps, levels, cut-offs."""

from __future__ import annotations

import math

import polars as pl
import pytest
from short import Corpus, Gold, Queries, Run, calls, means, table

import karat

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


def test_a_repeat_that_is_dropped_lets_the_rest_close_up():
    # a, b, a, c closes up to a, b, c: P@3 = 2/3, RR of c alone = 1/3
    run = table(("q", "a", 9.0), ("q", "b", 8.0), ("q", "a", 7.0), ("q", "c", 6.0))
    names, dropped = "P@3, RR(rel=2), CG@3, NumRet", {"repeats": "drop"}
    scores = karat.evaluate(run, Gold({"q": {"c": 1, "a": 2}}), names, settings=dropped)
    assert scores.means() == {"P@3": 2 / 3, "RR(rel=2)": 1.0, "CG@3": 3.0, "NumRet": 3.0}
    assert scores.counts.repeats == 1


def test_the_same_item_for_two_queries_is_no_duplicate():
    run = table(("q", "a", 1.0), ("r", "a", 1.0))
    assert karat.evaluate(run, Gold({"q": ["a"], "r": ["a"]}), "RR").counts.repeats == 0


# Missing queries and failed calls


def test_a_missing_query_counts_as_worst_and_is_counted():
    scores = karat.evaluate(Run({"q": {"a": 1.0}}), Gold({"q": ["a"], "r": ["a"]}), "RR, FPR@1")
    assert scores.means() == {"RR": 0.5, "FPR@1": 0.5}
    assert scores.status.tolist() == ["scored", "missing"]
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
    assert scores.status.tolist() == ["scored", "scored", "failed", "missing"]
    assert scores.table["RR"].to_list() == [1.0, 0.0, 0.0, 0.0]
    # nothing was returned, so nothing is unjudged; no answer at all is the worst
    assert scores.table["Hole@5"].to_list() == [0.0, None, 1.0, 1.0]
    assert (scores.counts.failed_calls, scores.counts.missing) == (1, 1)


def test_hits_of_a_failed_call_do_not_count():
    run = table(("q", "a", 1.0), calls=calls(("q", "cut off"), columns=("query_id", "error")))
    allowed = {"missing_ids": "allow"}
    assert means(run, Gold({"q": ["a"]}), "RR", settings=allowed) == {"RR": 0.0}


def test_failed_calls_are_not_mistaken_for_foreign_queries():
    run = table(("x", "a", 1.0), calls=calls(("q", "timeout"), columns=("query_id", "error")))
    scores = karat.evaluate(run, Gold({"q": ["a"]}), "RR", settings={"missing_ids": "allow"})
    assert (scores.counts.failed_calls, scores.counts.not_in_gold) == (1, 1)


def test_missing_queries_can_be_skipped():
    gold = Gold({"q": ["a"], "r": ["a"]})
    scores = karat.evaluate(Run({"q": {"a": 1.0}}), gold, "RR", settings={"missing": "skip"})
    assert scores.means() == {"RR": 1.0}
    assert scores.counts.missing == 1


def test_a_query_without_gold_is_not_scored_and_is_counted():
    scores = karat.evaluate(Run({"q": {"a": 1.0}, "x": {"a": 1.0}}), Gold({"q": ["a"]}), "RR")
    assert scores.query_ids == ("q",)
    assert scores.counts.not_in_gold == 1


def test_the_queries_file_decides_which_queries_there_are():
    gold = Gold({"a": ["x"], "b": ["x"]})
    scores = karat.evaluate(
        Run({"a": {"x": 1.0}, "c": {"x": 1.0}}), gold, "RR", queries=Queries({"c": "?", "a": "?"})
    )
    assert scores.table.rows() == [("c", None), ("a", 1.0)]
    assert scores.status.tolist() == ["empty_gold", "scored"]


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
    assert scores.status.tolist() == ["no_answer", "scored"]
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
    with pytest.raises(karat.InputError, match="give each judgment once"):
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


def test_coverage_of_items_counts_what_no_query_asks_for():
    # a and b are found for their queries, c is asked for and not found, d nobody asks for
    corpus = Corpus({item: {"text": item} for item in "abcd"})
    run = Run({"q1": ["a", "d"], "q2": ["b"], "q3": ["a"]})
    gold = Gold({"q1": ["a"], "q2": ["b"], "q3": ["c"]})
    names = "Coverage@2, Coverage(of='items')@2, Coverage(of='corpus')@2"
    scores = karat.evaluate(run, gold, names, corpus=corpus)
    assert scores.means() == {
        "Coverage@2": 2 / 3,
        "Coverage(of='items')@2": 2 / 4,
        "Coverage(of='corpus')@2": 3 / 4,
    }
    assert scores.summaries["Coverage(of='items')@2"].ceiling == 3 / 4


def test_coverage_of_items_needs_a_corpus():
    with pytest.raises(karat.MissingInputError, match="give --corpus"):
        means(Run({"q": ["a"]}), Gold({"q": ["a"]}), "Coverage(of='items')@2")


def test_coverage_of_items_counts_documents_by_document():
    corpus = Corpus({f"{doc}#{n}": {"text": doc} for doc in "ab" for n in (1, 2)})
    found = means(
        Run({"q": ["a#2"]}),
        Gold({"q": ["a"]}),
        "Coverage(of='items')@2",
        corpus=corpus,
        settings={"level": "doc"},
    )
    assert found == {"Coverage(of='items')@2": 0.5}
