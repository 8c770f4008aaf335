"""The measure language: aliases of other tools, canonical printing, refusals that help."""

from __future__ import annotations

import pytest

import karat
from karat.measure.names import parse_measures

SAME = {
    # as in papers and other libraries
    "ndcg@10": "nDCG@10",
    "NDCG@10": "nDCG@10",
    "mrr": "RR",
    "MRR@10": "RR@10",
    "recall@5": "R@5",
    "hit_rate@5": "Hit@5",
    "Success@5": "Hit@5",
    "map": "AP",
    "MAP@100": "AP@100",
    "precision@5": "P@5",
    # ranx: without a cut-off the measures of whole lists
    "precision": "SetP",
    "recall": "SetR",
    "f1": "SetF",
    "Recall(rel=2)": "SetR(rel=2)",
    "f1@5": "F@5",
    "all@3": "All@3",
    # trec_eval
    "P_5": "P@5",
    "recall_100": "R@100",
    "ndcg_cut_10": "nDCG@10",
    "map_cut_10": "AP@10",
    "map_cut.10": "AP@10",
    "recip_rank": "RR",
    "success_1": "Hit@1",
    "iprec_at_recall_0.10": "IPrec@0.1",
    "iprec_at_recall_1.00": "IPrec@1",
    "gm_map": "GMAP",
    "set_P": "SetP",
    "set_recall": "SetR",
    "set_F": "SetF",
    "num_ret": "NumRet",
    "num_rel": "NumRel",
    "num_rel_ret": "NumRelRet",
    "bpref": "Bpref",
    "Rprec": "Rprec",
    "infAP": "infAP",
    # ir_measures
    "nDCG(dcg='exp-log2')@10": "nDCG(gain='exp')@10",
    "nDCG(dcg='log2')@10": "nDCG(gain='linear')@10",
    "nDCG(gains={1: 2})@10": "nDCG(gain={1: 2})@10",
    "P(rel=2)@5": "P(rel=2)@5",
    "RPrec": "Rprec",
    "BPref": "Bpref",
    "NumRet(rel=1)": "NumRelRet",
    "NumRet(rel=2)": "NumRelRet(rel=2)",
    "SetF(beta=2.0)": "SetF(beta=2)",
    "IPrec@0.1": "IPrec@0.1",
    # parameters at their default are left out, blanks do not count
    "P(rel=1)@5": "P@5",
    "RBP(p=0.80)": "RBP",
    "RBP( gain = 'binary' ) @ 10": "RBP@10",
    "P@05": "P@5",
    "F(rel=2, beta=2)@5": "F(beta=2, rel=2)@5",
    "nDCG(gain={2: 5, 1: 0.125})": "nDCG(gain={1: 0.125, 2: 5})",
    "R@K": "R@k",
    "R@2000TOK": "R@2000tok",
    "LATENCY.retrieve.p50": "latency.retrieve.p50",
}  # fmt: skip


@pytest.mark.parametrize("text", SAME)
def test_a_name_that_another_tool_uses_is_understood(text):
    assert str(karat.parse_measure(text)) == SAME[text]


@pytest.mark.parametrize(
    "text",
    [
        "nDCG(gain={1: 0.1234567890123})@10",
        "IPrec@0.3333333333333333",
        "RBP(p=0.1234567890123)",
        "FalseEvidence(threshold=-0.25)@3",
        "FalseEvidence(threshold=1e-20)",
        "AP(rel=0.5)",
    ],
)
def test_no_digit_is_lost_in_printing(text):
    assert karat.parse_measure(str(karat.parse_measure(text))) == karat.parse_measure(text)


def test_equal_measures_are_one_key():
    spelled = ["P(rel=2)@5", "p(rel=2.0)@5", "precision(rel=2)@5", "P(rel=2, cutoff=5)"]
    assert len({karat.parse_measure(text) for text in spelled}) == 1


def test_several_measures_are_read_from_one_text_and_kept_once():
    read = parse_measures("nDCG@10, R@{1, 3} P(rel=2)@5 nDCG(gain={1: 1, 2: 5})@3 ndcg@10")
    expected = ["nDCG@10", "R@1", "R@3", "P(rel=2)@5", "nDCG(gain={1: 1, 2: 5})@3"]
    assert [str(measure) for measure in read] == expected


REFUSED = {
    "ndgc@10": "unknown measure 'ndgc' in 'ndgc@10'; did you mean nDCG?",
    "recal@5": r"did you mean recall\?",
    "Recal@5": r"did you mean Recall\?",
    "P(rell=2)@5": r"P has no parameter 'rell' in 'P\(rell=2\)@5'; did you mean rel\?",
    "P(grade=2)@5": r"P has no parameter 'grade' in 'P\(grade=2\)@5'; it takes rel$",
    "Judged(rel=2)@5": "Judged has no parameter 'rel' in .*; it takes none$",
    "P(rel=0)@5": "rel is 0 .* above 0",
    "P(rel='x')@5": "rel is 'x' .* a number",
    "AP(norm=3)": "norm is 3 .* text",
    "P(rel=2, rel=3)@5": "cannot read the parameters",
    "P(5)": "cannot read the parameters",
    "P(rel=2": "cannot read the measure",
    "nDCG(gain={})": "gain .* must map grades to gains",
    "nDCG(gain={1: 'a'})": "gain .* must map grades to gains",
    "nDCG(gain={1: -1})": "gain .* none below 0",
    "FalseEvidence(threshold=1e999)": "threshold is inf .* finite",
    "nDCG@0": "cut-off '0' in 'nDCG@0' is not known; use a whole number above 0",
    "nDCG@-1": "cut-off '-1'",
    "nDCG@1.5": "cut-off '1.5'",
    "nDCG@ten": "cut-off 'ten'",
    "P": "P needs a cut-off; write P@5",
    "R": "R needs a cut-off; write R@5",
    "ndcg_cut": "'ndcg_cut' needs a cut-off; write nDCG@10, or nDCG for whole lists",
    "IPrec": "IPrec needs a cut-off; write IPrec@0.5",
    "IPrec@2": "'2' in 'IPrec@2' is not a point of recall",
    "Rprec@5": "Rprec takes no cut-off; write Rprec",
    "latency.retrieve.p80": r"latency.retrieve.p80 is not known; write latency.<stage>.<p50\|",
    "latency.p50": "latency.p50 is not known",
    "": "cannot read the measure",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_known_is_refused_with_a_way_on(text):
    with pytest.raises(karat.UsageError, match=REFUSED[text]):
        karat.parse_measure(text)


# Values that only a measure itself can judge are refused before a number is printed.
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("AP(norm='foo')@3", "norm is 'foo'"),
        ("nDCG(gain='foo')@3", "gain is 'foo'"),
        ("RBP(p=1)", "p is 1"),
        ("RBP(gain='exp')", "gain is 'exp'"),
        ("FPR@5", "FPR@1"),
        ("AUC@1", "at least 2"),
        ("AUC(of='Hole')@5", "AUC"),
        ("AUC(of='Redundancy')@5", "AUC"),
        ("AUC(of='AUC')@5", "AUC"),
        ("Sim(of='none')@5", "of can be 'relevant' or 'all'"),
        ("Coverage(of='none')@5", "of can be 'gold', 'items' or 'corpus'"),
        ("Novelty(overlap=0)@5", "overlap is 0"),
        ("FalseEvidence(keep=0)@5", "keep is 0"),
    ],
)
def test_a_parameter_out_of_its_range_is_refused(text, why):
    gold = karat.Gold.from_dict({"q": {"a": 1}})
    with pytest.raises(karat.UsageError, match=why):
        karat.evaluate(karat.Run.from_dict({"q": {"a": 1.0}}), gold, text)


def test_no_measure_at_all_is_refused():
    with pytest.raises(karat.UsageError, match="no measure named"):
        parse_measures("  ")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"tie": "given"}, "unknown setting 'tie'; did you mean ties?"),
        ({"ties": "random"}, "ties is 'random'; it can be id-asc, id-desc, given"),
        ({"rel": 0}, "rel is 0; it must be a number above 0"),
        ({"depth": "x"}, "depth is 'x'; it must be a whole number above 0"),
        ({"cover": 1.5}, "cover is 1.5; it must be a share"),
        ({"score_type": "float32"}, "unknown setting 'score_type'"),
    ],
)
def test_a_setting_that_is_not_known_is_refused(settings, why):
    gold = karat.Gold.from_dict({"q": {"a": 1}})
    with pytest.raises(karat.UsageError, match=why):
        karat.evaluate(karat.Run.from_dict({"q": {"a": 1.0}}), gold, "RR", settings=settings)


def test_an_unknown_profile_is_refused_with_the_nearest():
    gold = karat.Gold.from_dict({"q": {"a": 1}})
    with pytest.raises(karat.UsageError, match="unknown profile 'trek'; did you mean trec"):
        karat.evaluate(karat.Run.from_dict({"q": {"a": 1.0}}), gold, profile="trek")
