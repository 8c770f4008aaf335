"""What each measure means, worked by hand, and what it asks for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from short import Corpus, Gold, Queries, Run, calls, means, table

import karat
from karat.measure.registry import MEASURES
from karat.measure.registry import measure as register

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
        Run({"q": []}),
        Gold({"q": ["a"]}),
        "Coverage(of='corpus')@5",
        corpus=Corpus({"a": ""}),
        settings={"missing_ids": "allow"},
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
    run = Run({f"q{n}": ["a", *"bcdefghij"] for n in range(10)})
    assert means(run, Gold({f"q{n}": ["a"] for n in range(10)}), "P@10") == {"P@10": 0.1}
    assert sum([0.1] * 10) / 10 != 0.1


def test_a_threshold_of_its_own_is_not_called_rel():
    def strong(r, k, *, rel: float = 2):
        """1 if any of the top k has grade 2."""

    with pytest.raises(TypeError, match="Strong: rel comes from the profile"):
        register("Strong", cutoff="must")(strong)
    assert "Strong" not in MEASURES


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"unjudged": "risin"}, "Odd: unjudged is 'risin'; it can be rising, sum, gold"),
        ({"better": "low"}, "Odd: better is 'low'; it can be higher, lower, none"),
        ({"cutoff": "maybe"}, "Odd: cutoff is 'maybe'; it can be must, may"),
        ({"gold": "some"}, "Odd: gold is 'some'; it can be relevant, graded"),
        ({"needs": ("list",), "unjudged": "sum"}, "Odd: a range is computed from judged hits"),
        ({"needs": ("corpus",)}, "Odd: needs is .'corpus'.; it can be list, docs"),
    ],
)
def test_a_measure_with_a_word_that_nobody_reads_is_refused(declared, message):
    def odd(r, k):
        """Nothing."""

    with pytest.raises(TypeError, match=message):
        register("Odd", **declared)(odd)
    assert "Odd" not in MEASURES
