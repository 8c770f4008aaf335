from __future__ import annotations

from pathlib import Path

import pytest

from karat.data.tables import Gold, Run
from karat.errors import UsageError
from karat.evaluation.api import evaluate
from karat.formats.readers import read_gold, scan_run
from karat.reports.document import Report
from karat.reports.trec import to_trec, trec_name

NIST = Path(__file__).parents[3] / "shared" / "data" / "trec_eval-test" / "v9"


@pytest.mark.parametrize(
    ("measure", "name"),
    [
        ("AP", "map"),
        ("AP@10", "map_cut_10"),
        ("Bpref", "bpref"),
        ("GMAP", "gm_map"),
        ("Hit@5", "success_5"),
        ("IPrec@0", "iprec_at_recall_0.00"),
        ("IPrec@0.1", "iprec_at_recall_0.10"),
        ("IPrec@1", "iprec_at_recall_1.00"),
        ("NumRelRet", "num_rel_ret"),
        ("P@5", "P_5"),
        ("R@1000", "recall_1000"),
        ("RR", "recip_rank"),
        ("Rprec", "Rprec"),
        ("SetF", "set_F"),
        ("SetP", "set_P"),
        ("SetR", "set_recall"),
        ("infAP", "infAP"),
        ("nDCG", "ndcg"),
        ("nDCG@10", "ndcg_cut_10"),
        ("RR@10", "RR@10"),
        ("P(rel=2)@5", "P(rel=2)@5"),
        ("nDCG(gain='exp')@10", "nDCG(gain='exp')@10"),
        ("R@2000tok", "R@2000tok"),
        ("R@k", "R@k"),
        ("latency.retrieve.p50", "latency.retrieve.p50"),
    ],
)
def test_measures_go_by_trec_eval_s_names_where_it_has_them(measure, name):
    assert trec_name(measure) == name


def test_queries_come_in_the_order_of_their_text_then_all(report):
    lines = to_trec(report).decode().splitlines()
    queries = [line.split("\t")[1] for line in lines]
    assert list(dict.fromkeys(queries)) == ["q1", "q10", "q2", "all"]
    assert lines.count("runid                 \tall\tgood") == 1
    assert "num_q                 \tall\t3" in lines


@pytest.mark.skipif(not NIST.is_dir(), reason="NIST's test files are not here")
@pytest.mark.parametrize("golden", ["out.test", "out.test.aq"])
def test_the_layout_is_trec_eval_s(golden):
    gold = read_gold(NIST / "qrels.test", duplicates="last")
    more = [f"R@{k}" for k in (5, 10, 100, 1000)] + ["infAP", "nDCG"]
    more += [f"nDCG@{k}" for k in (5, 10, 100)] + ["AP@10", "Hit@1", "Hit@5", "SetP", "SetR"]
    ours = []
    for measures in (None, more):
        run = scan_run(NIST / "results.test")
        scores = evaluate(run, gold, measures, profile="trec")
        ours += to_trec(Report.of([scores], gold=gold)).decode().splitlines()
    theirs = (NIST / golden).read_text().splitlines()
    asked = set(ours)
    if golden == "out.test":
        assert [line for line in ours if "\tall\t" in line][: len(theirs)] == theirs
    else:
        assert asked <= set(theirs) | {"gm_map                \tall\t0.1051"}
        assert len(asked) > 150


@pytest.mark.parametrize("query", ["q0\nRR\tall\t1.0000", "q 0", "q\t0", "q\r0", "q\u20280", "all"])
def test_an_id_that_would_forge_a_line_is_refused(query):
    gold = Gold.from_dict({query: {"a": 1}, "q1": {"a": 1}})
    run = Run.from_dict({query: {"b": 1.0}, "q1": {"b": 1.0}}, name="r")
    report = Report.of([evaluate(run, gold, ["RR"])], gold=gold)
    with pytest.raises(UsageError, match="output trec: query_id"):
        to_trec(report)


def test_a_run_s_name_is_one_word():
    gold = Gold.from_dict({"q1": {"a": 1}})
    run = Run.from_dict({"q1": {"a": 1.0}}, name="r\nRR\tall\t0.0000")
    told = to_trec(Report.of([evaluate(run, gold, ["RR"])], gold=gold)).decode().splitlines()
    assert told[1] == "runid                 \tall\tr_RR_all_0.0000"
    assert len(told) == 4
