"""Every measure that a peer has too, on collections that nobody chose."""

from __future__ import annotations

import math
import random
import shutil

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import peers

ITEMS = ["9", "10", "a", "B", "é", "doc#1", "doc#2", "𝔘", "z z", "d7", "d8", "d11", "d12"]
# Some differ only beyond float32, where trec_eval 9 sees a tie.
SCORES = st.sampled_from([0.0, -1.5, 1.0, 1.0 + 1e-9, 2.0, 3.25, 1e30, -1e-30, 16777217.0])
GRADES = st.sampled_from([-2, -1, 0, 0, 1, 1, 2, 3])
QUERIES = ["1", "2", "10", "q", "ü"]


@st.composite
def judged(draw):
    """Gold with ties of grades and negative ones, at least one of each query not negative."""
    gold = {}
    for query in draw(st.lists(st.sampled_from(QUERIES), min_size=1, unique=True)):
        items = draw(st.dictionaries(st.sampled_from(ITEMS), GRADES, min_size=1, max_size=9))
        first = next(iter(items))
        gold[query] = items | {first: max(0, items[first])}
    return gold


@st.composite
def collections(draw):
    """Gold and a run that shares at least one query; both may have more."""
    gold = draw(judged())
    shared = draw(st.sampled_from(sorted(gold)))
    others = draw(st.lists(st.sampled_from(QUERIES), unique=True))
    lists = st.dictionaries(st.sampled_from(ITEMS), SCORES, min_size=1)
    return gold, {query: draw(lists) for query in {shared, *others}}


def assert_same(ours, theirs, tolerance=1e-9):
    assert ours.keys() == theirs.keys()
    differ = {
        key: (ours[key], theirs[key])
        for key in ours
        if not math.isclose(ours[key], theirs[key], rel_tol=0, abs_tol=tolerance)
    }
    assert differ == {}


@settings(deadline=None, max_examples=150)
@given(collections(), st.sampled_from([1, 2, 3]))
def test_profile_trec_agrees_with_pytrec_eval(collection, rel):
    gold, run = collection
    theirs = peers.by_pytrec_eval(gold, run, list(peers.PYTREC), rel=rel)
    names = list(peers.PYTREC.values())
    ours = peers.by_karat(gold, run, names, profile="trec", settings={"rel": rel})
    theirs = {(peers.PYTREC[name], query): value for (name, query), value in theirs.items()}
    assert_same(ours, theirs)


@settings(deadline=None, max_examples=50)
@given(collections(), st.lists(st.tuples(st.sampled_from(ITEMS), SCORES), min_size=1))
def test_duplicate_hits_score_as_their_best_does_in_pytrec_eval(collection, more):
    gold, run = collection
    query = next(iter(gold))
    rows = [(query, item, score) for item, score in [*run.get(query, {}).items(), *more]]
    best: dict[str, float] = {}
    for _, item, score in rows:
        best[item] = max(score, best.get(item, score))
    frame = pl.DataFrame(rows, schema=["query_id", "item_id", "score"], orient="row")
    names = list(peers.PYTREC)
    theirs = peers.by_pytrec_eval(gold, {query: best}, names)
    scores = peers.karat.evaluate(
        peers.karat.Run.from_frame(frame), peers.karat.Gold.from_dict(gold), names, profile="trec"
    )
    (row,) = scores.table.filter(query_id=query).iter_rows(named=True)
    ours = {(name, query): row[peers.PYTREC[name]] for name in names}
    assert_same(ours, theirs)
    assert scores.counts.repeats == len(rows) - len(best)


@settings(deadline=None, max_examples=50)
@given(collections(), st.sampled_from([0.5, 2.0, 3.0]))
def test_set_f_of_pytrec_eval_takes_the_square_of_beta(collection, beta):
    gold, run = collection
    theirs = peers.by_pytrec_eval(gold, run, [f"set_F_{beta * beta}"])
    theirs = {(f"SetF(beta={beta})", query): value for (_, query), value in theirs.items()}
    assert_same(peers.by_karat(gold, run, [f"SetF(beta={beta})"], profile="trec"), theirs)


@settings(deadline=None, max_examples=50)
@given(collections())
def test_gmap_agrees_with_pytrec_eval(collection):
    gold, run = collection
    logs = peers.by_pytrec_eval(gold, run, ["gm_map"]).values()
    theirs = math.exp(math.fsum(logs) / len(logs))
    ours = peers.karat.evaluate(
        peers.karat.Run.from_dict(run), peers.karat.Gold.from_dict(gold), "GMAP", profile="trec"
    )
    assert ours.means()["GMAP"] == pytest.approx(theirs, rel=0, abs=1e-9)


@pytest.mark.parametrize("shape", ["by query", "shuffled"])
def test_a_large_collection_agrees_with_pytrec_eval(shape):
    gold, run = peers.collection(11, queries=300, documents=250)
    names = list(peers.PYTREC)
    theirs = peers.by_pytrec_eval(gold, run, names)
    rows = [(query, item, score) for query, row in run.items() for item, score in row.items()]
    if shape == "shuffled":
        random.Random(1).shuffle(rows)
    frame = pl.DataFrame(rows, schema=["query_id", "item_id", "score"], orient="row")
    table = peers.karat.evaluate(
        peers.karat.Run.from_frame(frame), peers.karat.Gold.from_dict(gold), names, profile="trec"
    ).table.drop_nulls()
    ours = {
        (name, row["query_id"]): row[peers.PYTREC[name]]
        for row in table.iter_rows(named=True)
        for name in names
    }
    assert_same(ours, theirs)


# What ir_measures computes through pytrec_eval; NumRel of a missing query is 0 there.
IR_MEASURES = [
    "AP", "AP(rel=2)", "AP@5", "RR", "RR(rel=2)", "nDCG", "nDCG@5", "P@5", "P(rel=2)@5", "R@5",
    "R(rel=2)@5", "Success@5", "Success(rel=2)@5", "Rprec", "Rprec(rel=2)", "Bpref",
    "Bpref(rel=2)", "infAP", "infAP(rel=2)", "IPrec@0.0", "IPrec@0.5", "IPrec@1.0", "SetP",
    "SetP(rel=2)", "SetR", "SetR(rel=2)", "SetF", "SetF(rel=2)", "NumRet", "NumRelRet",
    "NumRet(rel=2)",
]  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(collections())
def test_ir_measures_agrees_where_missing_queries_count(collection):
    gold, run = collection
    theirs = peers.by_ir_measures(gold, run, IR_MEASURES)
    ours = peers.by_karat(gold, run, IR_MEASURES, profile="trec", settings={"missing": "zero"})
    assert_same(ours, {key: value for key, value in theirs.items() if key[1] in gold})


@settings(deadline=None, max_examples=40)
@given(collections())
def test_gains_by_grade_agree_with_ir_measures(collection):
    # Asked for beside plain nDCG, ir_measures may lose one of the two, as its sets fall out.
    gold, run = collection
    names = ["nDCG(gains={1: 5, 2: 3})@5", "nDCG(gains={1: 5, 2: 3})"]
    theirs = peers.by_ir_measures(gold, run, names)
    ours = peers.by_karat(gold, run, names, profile="trec", settings={"missing": "zero"})
    assert_same(ours, {key: value for key, value in theirs.items() if key[1] in gold})


@settings(deadline=None, max_examples=60)
@given(collections())
def test_judged_agrees_with_ir_measures_where_no_grade_is_negative(collection):
    gold, run = collection
    gold = {
        query: {item: max(0, grade) for item, grade in row.items()} for query, row in gold.items()
    }
    names = ["Judged@3", "Judged@10"]
    theirs = peers.by_ir_measures(gold, run, names)
    ours = peers.by_karat(gold, run, names, settings={"empty_gold": "zero"})
    assert_same(ours, {key: value for key, value in theirs.items() if key[1] in gold})


@pytest.mark.parametrize("seed", range(20))
def test_rr_at_k_agrees_with_ir_measures_on_lists_without_ties(seed):
    gold, run = peers.collection(seed, ties=False)
    names = ["RR@1", "RR@3", "RR@10", "RR(rel=2)@3"]
    theirs = peers.by_ir_measures(gold, run, names)
    ours = peers.by_karat(gold, run, names, profile="trec", settings={"missing": "zero"})
    assert_same(ours, {key: value for key, value in theirs.items() if key[1] in gold})


@pytest.mark.skipif(shutil.which("perl") is None, reason="gdeval is a Perl script")
@pytest.mark.parametrize("ties", [True, False], ids=["tied", "not tied"])
@pytest.mark.parametrize("seed", range(4))
def test_err_and_exponential_ndcg_agree_with_gdeval(seed, ties):
    gold, run = peers.collection(seed, ties=ties, queries=9)
    names = [name for k in (1, 3, 10, 20) for name in (f"ERR@{k}", f"nDCG(dcg='exp-log2')@{k}")]
    theirs = peers.by_ir_measures(gold, run, names)
    ours = peers.by_karat(gold, run, names, profile="trec", settings={"missing": "zero"})
    # gdeval prints five decimals
    assert_same(ours, {key: value for key, value in theirs.items() if key[1] in gold}, 1e-5)


# ranx's name -> the same in karat; ranx has no rule for ties that could be agreed with
RANX = {
    "hits@5": "NumRelRet@5",
    "hit_rate@3": "Hit@3",
    "precision@5": "P@5",
    "recall@5": "R@5",
    "f1@5": "F@5",
    "r-precision": "Rprec",
    "mrr": "RR",
    "mrr@2": "RR@2",
    "map": "AP",
    "map@3": "AP@3",
    "dcg@5": "DCG@5",
    "dcg_burges@5": "DCG(gain='exp')@5",
    "ndcg": "nDCG",
    "ndcg@5": "nDCG@5",
    "ndcg_burges@5": "nDCG(gain='exp')@5",
}
# ranx weighs RBP by the bare grade, so that it leaves [0, 1] on graded gold
RANX_BINARY = {"rbp.80": "RBP", "rbp.95": "RBP(p=0.95)"}


@pytest.mark.parametrize(
    ("names", "grades"), [(RANX, (0, 1, 2, 3)), (RANX_BINARY, (0, 1))], ids=["graded", "binary"]
)
def test_ranx_agrees_on_lists_without_ties(names, grades):
    gold, _ = peers.collection(1, ties=False, grades=grades)
    runs = [peers.collection(seed, ties=False)[1] for seed in range(25)]
    for run, theirs in zip(runs, peers.by_ranx(gold, runs, list(names)), strict=True):
        answered = {key: value for key, value in theirs.items() if key[1] in run}
        assert_same(peers.by_karat(gold, run, list(names), profile="trec"), answered)


def test_names_of_ranx_are_read_as_the_same_measures():
    read = {name: str(peers.karat.parse_measure(name)) for name in RANX | RANX_BINARY}
    assert read == RANX | RANX_BINARY
