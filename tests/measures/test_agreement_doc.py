"""docs/agreement.md says what the peers say: its numbers are computed again from all of them."""

from __future__ import annotations

import math
import shutil
from functools import cache
from pathlib import Path

import pytest
import test_trec_golden

import karat
import peers

DOC = Path(__file__).parents[2] / "docs" / "agreement.md"

GOLD = {
    "1": {"a": 3, "b": 1, "c": 0, "d": 2, "y": -1},
    "2": {"a": 1, "e": 1},
    "3": {"b": 2},
    "4": {"x": 0},
}
RUN = {
    "1": {"b": 5.0, "x": 4.0, "c": 3.0, "a": 3.0, "y": 1.0},
    "2": {"a": 2.0, "z": 2.0, "e": 2.0},
    "4": {"x": 1.0},
    "5": {"a": 1.0},
}
# karat's name, then what pytrec_eval, ir_measures, gdeval and ranx call it ("" = not offered)
ROWS = [
    ("AP", "map", "AP", "", "map"),
    ("AP@3", "map_cut_3", "AP@3", "", "map@3"),
    ("GMAP", "gm_map", "", "", ""),
    ("RR", "recip_rank", "RR", "", "mrr"),
    ("RR@3", "", "RR@3", "", "mrr@3"),
    ("nDCG", "ndcg", "nDCG", "", "ndcg"),
    ("nDCG@3", "ndcg_cut_3", "nDCG@3", "", "ndcg@3"),
    ("nDCG(gain='exp')@3", "", "", "nDCG(dcg='exp-log2')@3", "ndcg_burges@3"),
    ("DCG@3", "", "", "", "dcg@3"),
    ("DCG(gain='exp')@3", "", "", "", "dcg_burges@3"),
    ("ERR@3", "", "", "ERR@3", ""),
    ("RBP", "", "", "", "rbp.80"),
    ("P@3", "P_3", "P@3", "", "precision@3"),
    ("R@3", "recall_3", "R@3", "", "recall@3"),
    ("F@3", "", "", "", "f1@3"),
    ("Hit@3", "success_3", "Success@3", "", "hit_rate@3"),
    ("NumRelRet@3", "", "", "", "hits@3"),
    ("Rprec", "Rprec", "Rprec", "", "r-precision"),
    ("Bpref", "bpref", "Bpref", "", ""),
    ("infAP", "infAP", "infAP", "", ""),
    ("IPrec@0.5", "iprec_at_recall_0.50", "IPrec@0.5", "", ""),
    ("SetP", "set_P", "SetP", "", ""),
    ("SetR", "set_recall", "SetR", "", ""),
    ("SetF", "set_F", "SetF", "", ""),
    ("Judged@2", "", "Judged@2", "", ""),
    ("Judged@5", "", "Judged@5", "", ""),
]
NAMES = [row[0] for row in ROWS]
HEAD = (
    "measure",
    "pytrec_eval",
    "karat trec",
    "ir_measures",
    "gdeval",
    "ranx",
    "karat trec, missing=zero",
    "karat",
)


def named(column: int) -> dict[str, str]:
    """A peer's names of the measures it offers, by karat's."""
    return {row[0]: row[column] for row in ROWS if row[column]}


def averages(values: peers.Values) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for (name, query), value in values.items():
        if query in GOLD:
            found.setdefault(name, []).append(value)
    return {name: math.fsum(many) / len(many) for name, many in found.items()}


def of_karat(**options: object) -> dict[str, float | None]:
    run, gold = karat.Run.from_dict(RUN), karat.Gold.from_dict(GOLD)
    return karat.evaluate(run, gold, NAMES, **options).means()


@cache
def columns() -> list[dict[str, float | None]]:
    """Each column of the table, from whoever computes it, by karat's names."""
    pytrec = averages(peers.by_pytrec_eval(GOLD, RUN, list(named(1).values())))
    pytrec["gm_map"] = math.exp(pytrec["gm_map"])
    ir = averages(peers.by_ir_measures(GOLD, RUN, [*named(2).values()]))
    gdeval = averages(peers.by_ir_measures(GOLD, RUN, [*named(3).values()]))
    ranx = averages(peers.by_ranx(GOLD, [RUN], list(named(4).values()))[0])
    return [
        {name: pytrec[theirs] for name, theirs in named(1).items()},
        of_karat(profile="trec"),
        {name: ir[theirs] for name, theirs in named(2).items()},
        {name: gdeval[theirs] for name, theirs in named(3).items()},
        {name: ranx[theirs] for name, theirs in named(4).items()},
        of_karat(profile="trec", settings={"missing": "zero"}),
        of_karat(),
    ]


def cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.5f}"


def table() -> str:
    lines = [" | ".join(HEAD), " | ".join(["---"] * len(HEAD))]
    lines += [
        " | ".join([f"`{name}`", *(cell(column.get(name)) for column in columns())])
        for name in NAMES
    ]
    return "\n".join(f"| {line} |" for line in lines)


def golden_table() -> str:
    rows = ["| file | trec_eval 9.0.8 | trec_eval 10.0 |", "| --- | --- | --- |"]
    counts = test_trec_golden.COMPARED
    for out in test_trec_golden.CASES:
        each = [counts.get((version, out), "–") for version in ("v9", "v10")]
        rows.append(f"| `{out}` | {each[0]} | {each[1]} |")
    return "\n".join(rows)


@pytest.mark.skipif(shutil.which("perl") is None, reason="gdeval is a Perl script")
def test_the_table_shows_what_the_peers_and_karat_compute():
    assert table() in DOC.read_text()


def test_the_golden_files_are_listed_with_the_values_compared():
    assert golden_table() in DOC.read_text()


def differing(one: int, other: int) -> set[str]:
    """The measures of which two columns say different things."""
    ours, theirs = columns()[one], columns()[other]
    both = [name for name in NAMES if ours.get(name) is not None and theirs.get(name) is not None]
    assert both
    return {name for name in both if not math.isclose(ours[name], theirs[name], abs_tol=1e-9)}


def test_pytrec_eval_and_profile_trec_differ_nowhere():
    assert differing(0, 1) == set()


def test_ir_measures_differs_only_where_it_has_rules_of_its_own():
    assert differing(2, 5) == {"RR@3", "Judged@2", "Judged@5"}


def test_judged_of_ir_measures_is_karats_with_ids_ascending_and_negative_grades_as_judged():
    gold = {query: {item: max(0, g) for item, g in row.items()} for query, row in GOLD.items()}
    scores = karat.evaluate(
        karat.Run.from_dict(RUN),
        karat.Gold.from_dict(gold),
        "RR@3, Judged@2, Judged@5",
        settings={"empty_gold": "zero"},
    )
    theirs = columns()[2]
    assert scores.means() == {name: pytest.approx(theirs[name]) for name in scores.means()}


def test_ranx_is_karat_with_ties_as_given_except_for_rbp_and_counts():
    settings = {"missing": "zero", "ties": "given"}
    ours, theirs = of_karat(profile="trec", settings=settings), columns()[4]
    agree = {name for name in theirs if math.isclose(ours[name], theirs[name], abs_tol=1e-9)}
    assert theirs.keys() - agree == {"RBP", "NumRelRet@3"}
    # ranx averages the hits that karat, as trec_eval does, sums over the queries.
    assert ours["NumRelRet@3"] == pytest.approx(theirs["NumRelRet@3"] * len(GOLD))


@pytest.mark.skipif(shutil.which("perl") is None, reason="gdeval is a Perl script")
def test_gdeval_differs_in_its_sixth_decimal_only():
    ours, theirs = columns()[5], columns()[3]
    assert {name: pytest.approx(ours[name], abs=1e-5) for name in theirs} == theirs


def test_every_shared_measure_stands_in_the_table():
    text = DOC.read_text()
    assert all(f"`{name}`" in text for name in NAMES)
    offered = {name.partition("@")[0].partition("(")[0] for name in NAMES}
    tried = {karat.parse_measure(name).name for name in peers.PYTREC.values()}
    counts = {"NumRet", "NumRel", "NumRelRet"}
    assert tried - counts <= offered
