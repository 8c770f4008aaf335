"""Bugs that libraries in the field have, each by its symptom: karat does not."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import polars as pl
import pytest

import karat
import peers

Gold, Run, Corpus = karat.Gold.from_dict, karat.Run.from_dict, karat.Corpus.from_dict


def means(run, gold, measures, **options):
    return karat.evaluate(run, gold, measures, **options).means()


def test_ndcg_is_not_1_when_half_of_the_gold_was_never_retrieved():
    # an ideal made of the retrieved list would be perfect here; log2(3) = 1.58496
    found = means(Run({"q": ["a"]}), Gold({"q": ["a", "b"]}), "nDCG@5")
    assert found["nDCG@5"] == pytest.approx(1 / (1 + 1 / math.log2(3)), abs=1e-15)


def test_ndcg_at_k_does_not_take_its_ideal_from_the_top_k():
    found = means(Run({"q": ["b", "a"]}), Gold({"q": {"a": 3, "b": 1}}), "nDCG@1")
    assert found["nDCG@1"] == pytest.approx(1 / 3, abs=1e-15)


def test_recall_and_ndcg_do_not_exceed_1_on_duplicate_ids():
    found = means(Run({"q": ["a", "a", "a"]}), Gold({"q": ["a"]}), "R@3, nDCG@3, P@3, AP@3, WR@3")
    assert found == {"R@3": 1.0, "nDCG@3": 1.0, "P@3": 1 / 3, "AP@3": 1.0, "WR@3": 1.0}


def test_precision_of_a_short_list_is_not_divided_by_what_was_returned():
    assert means(Run({"q": ["a"]}), Gold({"q": ["a"]}), "P@5") == {"P@5": 0.2}


def test_queries_with_no_results_do_not_vanish_from_the_mean():
    run, gold = Run({"q": ["a"], "r": []}), Gold({"q": ["a"], "r": ["a"], "s": ["a"]})
    scores = karat.evaluate(run, gold, "nDCG@10, RR, R@5")
    assert scores.means() == {"nDCG@10": 1 / 3, "RR": 1 / 3, "R@5": 1 / 3}


def test_ndcg_and_mrr_have_the_same_denominator():
    run = Run({"q": {"a": 1.0}, "extra": {"a": 1.0}})
    summaries = karat.evaluate(
        run, Gold({"q": ["a"], "r": ["a"], "s": ["a"]}), "nDCG@10, RR"
    ).summaries
    assert {summary.n for summary in summaries.values()} == {3}


@pytest.mark.parametrize("nothing", [{"q": []}, {"q": {}}, {}], ids=["list", "dict", "no query"])
def test_nothing_retrieved_is_0_where_that_is_allowed(nothing):
    measures = "nDCG@10, RR, R@5, AP, P@5, Rprec, Bpref, infAP, ERR"
    allowed = {"missing_ids": "allow"}
    found = means(Run(nothing), Gold({"q": ["a"]}), measures, settings=allowed)
    assert set(found.values()) == {0.0}


def test_a_query_without_results_beside_answered_ones_is_no_exception():
    run = Run({"q": {"a": 1.0}, "r": []})
    assert means(run, Gold({"q": ["a"], "r": ["a"]}), "RR") == {"RR": 0.5}


def test_none_does_not_match_none():
    with pytest.raises(karat.InputError, match="item_id is empty"):
        Gold({"q": {None: 1}})
    with pytest.raises(karat.InputError, match="item_id is None; ids must be text"):
        Run({"q": [None, 3]})
    with pytest.raises(karat.InputError, match="item_id is nan; ids must be text"):
        Run({"q": {float("nan"): 1.0}})


def test_a_text_is_not_taken_for_a_list_of_letters():
    with pytest.raises(karat.UsageError, match="give a dict or a list of its items"):
        Gold({"q": "abc"})
    with pytest.raises(karat.UsageError, match="give a dict or a list of its items"):
        Run({"q": "abc"})


def test_a_set_is_not_taken_for_a_ranking():
    with pytest.raises(karat.UsageError, match="a set, which has no order"):
        Run({"q": {"a", "b"}})


def test_a_failed_call_is_not_shown_as_zero_results():
    calls = pl.DataFrame({"query_id": ["q", "r"], "error": ["HTTP 500", None]})
    hits = pl.DataFrame(schema={"query_id": pl.String, "item_id": pl.String, "score": pl.Float64})
    scores = karat.evaluate(
        karat.Run.from_frame(hits, calls=calls),
        Gold({"q": ["a"], "r": ["a"]}),
        "RR",
        settings={"missing_ids": "allow"},
    )
    assert scores.status.tolist() == ["failed", "scored"]
    assert scores.counts.failed_calls == 1


def test_recall_is_a_fraction_and_not_a_hit():
    found = means(Run({"q": ["a"]}), Gold({"q": ["a", "b", "c", "d"]}), "R@5, Hit@5")
    assert found == {"R@5": 0.25, "Hit@5": 1.0}


def test_the_threshold_of_relevance_is_not_fixed_at_above_0():
    run, gold = Run({"q": ["a", "b"]}), Gold({"q": {"a": 1, "b": 2}})
    assert means(run, gold, "RR, RR(rel=2)") == {"RR": 1.0, "RR(rel=2)": 0.5}
    assert means(run, gold, "RR, P@2", settings={"rel": 2}) == {"RR": 0.5, "P@2": 0.5}


def test_one_library_has_one_rule_for_ties():
    # ir_measures says RR 1/3 and RR@10 1.0 of this one list, in one call
    gold, run = {"q": {"a": 1}}, {"q": {"a": 1.0, "b": 1.0, "c": 1.0}}
    theirs = peers.by_ir_measures(gold, run, ["RR", "RR@10"])
    assert theirs["RR", "q"] != theirs["RR@10", "q"]
    for settings, expected in (({"ties": "id-asc"}, 1.0), ({"ties": "id-desc"}, 1 / 3)):
        found = means(
            Run(run), Gold(gold), "RR, RR@10, AP, nDCG(gain={1: 1}), Judged@1", settings=settings
        )
        assert found["RR"] == found["RR@10"] == found["AP"] == expected


def test_ties_are_resolved_the_same_whatever_the_order_of_input():
    gold = Gold({"q": {"a": 1, "c": 2}})
    names = "RR, AP, nDCG, P@1, R@2, ERR, RBP, Bpref, Hit@1, Rprec"
    one, other = {"a": 1.0, "b": 1.0, "c": 1.0}, {"c": 1.0, "b": 1.0, "a": 1.0}
    assert means(Run({"q": one}), gold, names) == means(Run({"q": other}), gold, names)


@pytest.mark.parametrize("measure", ["nDCG@0", "P@0", "R@-5", "Hit@0tok"])
def test_a_cut_off_of_0_is_refused_and_the_interpreter_lives(measure):
    with pytest.raises(karat.UsageError, match="cut-off"):
        means(Run({"q": ["a"]}), Gold({"q": ["a"]}), measure)


@pytest.mark.parametrize("profile", ["trec", "trec10"])
def test_a_judged_query_that_is_missing_does_not_abort(profile):
    gold = Gold({"q": ["a"], "gone": ["a"]})
    scores = karat.evaluate(Run({"q": {"a": 1.0}}), gold, profile=profile)
    assert scores.means()["AP"] == 1.0
    assert scores.counts.missing == 1


def test_rbp_on_graded_gold_is_the_same_every_time():
    # binary at the threshold whatever the grade: .2 * (1 + .8); repeated, for stray memory
    run, gold = Run({"q": {"a": 2.0, "b": 1.0}}), Gold({"q": {"a": 3, "b": 1}})
    values = {means(run, gold, "RBP", profile="trec10")["RBP"] for _ in range(5)}
    assert len(values) == 1
    assert values.pop() == pytest.approx(0.2 * 1.8, abs=1e-15)


def test_rbp_on_graded_gold_does_not_exceed_1():
    gold = {"q": {f"d{n}": 3 for n in range(20)}}
    run = {"q": {f"d{n}": float(-n) for n in range(20)}}
    assert peers.by_ranx(gold, [run], ["rbp.80"])[0]["rbp.80", "q"] > 1
    assert 0 < means(Run(run), Gold(gold), "RBP")["RBP"] < 1


def test_custom_gains_below_1_do_not_give_ndcg_0():
    # 0.5 at rank 2 over 0.5 at rank 1
    found = means(Run({"q": ["x", "a"]}), Gold({"q": {"a": 1}}), "nDCG(gain={1: 0.5})@5")
    assert list(found.values()) == [pytest.approx(1 / math.log2(3), abs=1e-15)]


def test_a_cut_off_of_reciprocal_rank_is_not_ignored():
    run = {"q": {f"x{n:02}": 2.0 for n in range(20)} | {"a": 1.0}}
    gold = {"q": {"a": 1}}
    # pytrec_eval takes recip_rank.10 and answers with the whole list
    assert peers.by_pytrec_eval(gold, run, ["recip_rank.10"])["recip_rank", "q"] == 1 / 21
    assert means(Run(run), Gold(gold), "recip_rank.10") == {"RR@10": 0.0}


@pytest.mark.parametrize("profile", ["karat", "trec", "trec10"])
def test_only_negative_judgments_do_not_loop_for_ever(profile):
    program = (
        "import karat; print(karat.evaluate(karat.Run.from_dict({'q': {'a': 1.0}}),"
        f" karat.Gold.from_dict({{'q': {{'a': -1, 'b': -2}}}}), 'nDCG, AP, Bpref, infAP',"
        f" profile={profile!r}).means())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    value = None if profile == "karat" else 0.0
    assert done.stdout.strip() == str(dict.fromkeys(["nDCG", "AP", "Bpref", "infAP"], value))


def test_twenty_seven_runs_are_no_index_error():
    gold = Gold({"q": ["a"]})
    found = [means(Run({"q": {"a": 1.0, "b": float(n)}}), gold, "RR")["RR"] for n in range(27)]
    # n = 0 and 1 (tied, a before b) put a first
    assert found == [1.0, 1.0] + [0.5] * 25


def test_float_grades_are_not_cut_to_integers():
    gold = Gold({"q": {"a": 0.9, "b": 0.4}})
    found = means(Run({"q": ["b", "a"]}), gold, "CG@2, nDCG@2, R@2", settings={"rel": 0.5})
    expected = (0.4 + 0.9 / math.log2(3)) / (0.9 + 0.4 / math.log2(3))
    assert found == {"CG@2": pytest.approx(1.3), "nDCG@2": pytest.approx(expected), "R@2": 1.0}


def test_pandas_frames_are_read():
    import pandas as pd

    hits = pd.DataFrame({"qid": ["q", "q"], "docno": ["b", "a"], "score": [2.0, 1.0]})
    gold = pd.DataFrame({"qid": ["q"], "docno": ["a"], "label": [1]})
    assert means(karat.Run.from_frame(hits), karat.Gold.from_frame(gold), "RR") == {"RR": 0.5}


QRELS = "q1 0 a 1\nq2 0 b 1\n"


def files(folder, run: bytes, qrels: bytes = QRELS.encode()):
    (folder / "run.trec").write_bytes(run)
    (folder / "gold.qrels").write_bytes(qrels)
    return karat.read_run(folder / "run.trec"), karat.read_gold(folder / "gold.qrels")


def test_a_run_of_seven_columns_does_not_crash(tmp_path):
    run, gold = files(
        tmp_path, b"q1 Q0 a 1 2.0 tag more\nq1 Q0 b 2 1.0 tag more\nq2 Q0 b 1 1.0 tag more\n"
    )
    assert means(run, gold, "RR") == {"RR": 1.0}


def test_a_bom_does_not_zero_the_first_query(tmp_path):
    bom = b"\xef\xbb\xbf"
    run, gold = files(
        tmp_path, bom + b"q1 Q0 a 1 2.0 tag\nq2 Q0 b 1 1.0 tag\n", bom + QRELS.encode()
    )
    scores = karat.evaluate(run, gold, "RR")
    assert scores.table.rows() == [("q1", 1.0), ("q2", 1.0)]


@pytest.mark.parametrize("bad", ["nan", "NaN", "inf", "-inf", "1e999"])
def test_a_score_that_is_no_finite_number_does_not_pass(tmp_path, bad):
    with pytest.raises(karat.InputError, match=r"run.trec:2: .*finite"):
        files(tmp_path, f"q1 Q0 a 1 2.0 tag\nq1 Q0 b 2 {bad} tag\n".encode())


def test_integer_ids_match_the_same_ids_as_text():
    run = karat.Run.from_frame(pl.DataFrame({"query_id": [1], "item_id": [7], "score": [1.0]}))
    assert means(run, Gold({"1": {"7": 1}}), "RR") == {"RR": 1.0}
    assert means(Run({1: {7: 1.0}}), Gold({"1": ["7"]}), "RR") == {"RR": 1.0}
    assert means(Run({"1": ["7"]}), Gold({1: {7: 1}}), "RR") == {"RR": 1.0}


def test_ids_that_became_decimals_are_refused():
    frame = pl.DataFrame({"query_id": [1.0], "item_id": ["a"], "score": [1.0]})
    with pytest.raises(
        karat.InputError, match="decimal numbers; ids must be text or whole numbers"
    ):
        karat.Run.from_frame(frame)


def test_a_score_beyond_float32_is_no_warning():
    # in float32 both are infinite, a tie that the greater id wins, as in pytrec_eval
    run, gold = {"q": {"a": 1e308, "b": 1e300}}, {"q": {"a": 1}}
    theirs = peers.by_pytrec_eval(gold, run, ["recip_rank"])["recip_rank", "q"]
    assert means(Run(run), Gold(gold), "RR", profile="trec") == {"RR": theirs}


def test_importing_does_not_take_seconds_of_compiling():
    program = (
        "import sys, karat; karat.evaluate;"
        " print(sorted({'numba', 'scipy', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "[]"
