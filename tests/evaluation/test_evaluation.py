"""An Evaluation: inputs read once, then scores, comparisons and gates from the same way in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import karat
from karat.evaluation.evaluation import Evaluation

GOLD = {f"q{n}": ["a", "b"] for n in range(12)}
OLD = {f"q{n}": ["x", "a", "y"] for n in range(12)}
NEW = {f"q{n}": ["a", "b", "y"] for n in range(12)}


def files(folder: Path) -> tuple[Path, Path]:
    gold = folder / "gold.txt"
    gold.write_text("".join(f"{q} 0 {item} 1\n" for q, items in GOLD.items() for item in items))
    run = folder / "old.trec"
    lines = [
        f"{q} Q0 {item} {rank} {9 - rank} old\n"
        for q, items in OLD.items()
        for rank, item in enumerate(items, 1)
    ]
    run.write_text("".join(lines))
    return gold, run


def test_every_kind_of_input_gives_the_same_scores(tmp_path):
    gold, run = files(tmp_path)
    rows = [(q, item, 1) for q, items in GOLD.items() for item in items]
    frame = pl.DataFrame(rows, schema=["query_id", "item_id", "grade"], orient="row")
    hits = [(q, item, r) for q, items in OLD.items() for r, item in enumerate(items, 1)]
    ranked = pl.DataFrame(hits, schema=["query_id", "item_id", "rank"], orient="row")
    for given in (gold, str(gold), GOLD, frame, frame.to_pandas(), karat.Gold.from_dict(GOLD)):
        evaluation = Evaluation(given, measures=["R@3", "RR"])
        for system in (run, OLD, ranked, karat.Run.from_dict(OLD)):
            assert evaluation.score(system).means() == {"R@3": 0.5, "RR": 0.5}


def test_a_function_is_asked_every_query():
    queries = {query_id: f"text {query_id}" for query_id in GOLD}
    evaluation = Evaluation(GOLD, queries=queries, measures="RR")

    def mine(text: str, k: int) -> list[str]:
        return NEW[text.removeprefix("text ")]

    scores = evaluation.score(mine)
    assert (scores.system, scores.means()) == ("mine", {"RR": 1.0})
    with pytest.raises(karat.UsageError, match="give queries="):
        Evaluation(GOLD).score(mine)


def test_scores_and_runs_have_the_same_verdict():
    evaluation = Evaluation(GOLD, measures=["R@3", "RR"])
    old, new = evaluation.score(OLD, name="old"), evaluation.score(NEW, name="new")
    by_scores = evaluation.compare(old, new, primary="RR")
    by_runs = karat.compare({"old": OLD, "new": NEW}, GOLD, ["R@3", "RR"], primary="RR")
    assert by_scores.verdict == by_runs.verdict == "better"
    assert [row.to_dict() for row in by_scores.rows] == [row.to_dict() for row in by_runs.rows]


def test_gates_are_those_of_the_evaluation_or_of_the_call():
    evaluation = Evaluation(GOLD, measures="RR", gates="RR >= 0.6")
    old, new = evaluation.score(OLD), evaluation.score(NEW)
    assert (evaluation.gate(old).verdict, evaluation.gate(new).verdict) == ("fail", "pass")
    assert evaluation.gate(old, "mean RR >= 0.5").verdict == "pass"
    assert karat.gate(NEW, "RR >= 0.6", gold=GOLD).verdict == "pass"


def test_what_is_misspelled_is_refused_before_a_file_is_read(tmp_path):
    missing = tmp_path / "no.txt"
    for wrong in ({"measures": ["ndgc@10"]}, {"profile": "no"}, {"settings": {"tie": "given"}}):
        with pytest.raises(karat.UsageError):
            Evaluation(missing, **wrong)
    with pytest.raises(karat.UsageError, match="contradict"):
        Evaluation(missing, settings={"seed": 1}, seed=2)
    with pytest.raises(karat.UsageError, match="is expected, not int"):
        Evaluation(5)


def test_systems_are_searched_and_reported_without_a_karat_yaml(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    queries = {query_id: query_id for query_id in GOLD}
    systems = {"old": lambda text, k: OLD[text], "new": lambda text, k: NEW[text]}
    report = karat.run(systems, queries, GOLD, measures=["RR"], logs="runs/{system}.jsonl")
    assert [system.name for system in report.systems] == ["old", "new"]
    assert report.verdict == "better"
    lines = Path("runs/new.jsonl").read_text().splitlines()
    assert len([line for line in lines if "topk" in json.loads(line)]) == len(GOLD)


def test_a_function_of_a_text_is_a_system():
    def search(text):
        return [("a", 2.0), ("b", 1.0)]

    report = karat.run(
        search, {"q1": "one?", "q2": "two?"}, {"q1": ["a"], "q2": ["b"]}, measures=["RR"]
    )
    assert report.systems[0].name == "search"
    assert report.systems[0].scores.means() == {"RR": 0.75}


def test_lists_of_pairs_and_of_mappings_are_runs_in_their_order():
    gold = {"q1": ["a"], "q2": ["b"]}
    pairs = {"q1": [("x", 2.0), ("a", 3.0)], "q2": [("b", 1)]}
    mappings = {"q1": [{"item_id": "x"}, {"item_id": "a"}], "q2": [{"item_id": "b"}]}
    empty = {"q1": [("a", 1.0)], "q2": []}
    means = [karat.evaluate(run, gold, ["RR"]).means()["RR"] for run in (pairs, mappings, empty)]
    assert means == [0.75, 0.75, 0.5]


def test_pairs_and_ids_do_not_mix():
    with pytest.raises(karat.UsageError, match="give all hits as"):
        karat.Run.from_dict({"q1": [("a", 1.0)], "q2": ["b"]})


def test_analyses_and_reports_take_scores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gold = {"q1": {"a": 2}, "q2": {"b": 1}}
    evaluation = karat.Evaluation(gold, queries={"q1": "one?", "q2": "two?"}, measures=["RR"])
    Path("run.trec").write_text("q1 Q0 x 1 2 t\nq1 Q0 a 2 1 t\nq2 Q0 b 1 1 t\n")
    of_file = evaluation.score("run.trec", name="mine")
    of_function = evaluation.score(lambda text: ["b"], name="function")
    for scores, mean in ((of_file, 0.75), (of_function, 0.5)):
        assert scores.means() == {"RR": mean}
        for analysis in (karat.sweep, karat.failures, karat.diagnose):
            assert analysis(evaluation, scores).to_dict()["systems"][0]["name"] == scores.system
        report = karat.report(evaluation, scores)
        assert report.findings is not None
        assert report.systems[0].name == scores.system
    both = karat.report(evaluation, of_file, of_function)
    assert [system.name for system in both.systems] == ["mine", "function"]
    assert both.comparisons.of("function", "RR").delta == -0.25


def test_scores_without_a_run_are_refused_by_analyses():
    evaluation = karat.Evaluation({"q1": ["a"]}, measures=["RR"])
    scores = replace(evaluation.score({"q1": ["a"]}), run=None)
    with pytest.raises(karat.UsageError, match="give the run"):
        karat.sweep(evaluation, scores)
