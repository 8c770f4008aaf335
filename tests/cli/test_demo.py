from __future__ import annotations

import json
from pathlib import Path

import karat
from karat.measures.registry import MEASURES


def test_the_demo_scores_and_leaves_nothing_behind(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("demo")
    assert (done.code, done.err) == (0, "")
    for words in ("nDCG@5", "bm25", "dense", "es", "3 missing from the run", "Try next"):
        assert words in done.out
    assert not list(tmp_path.iterdir())


def test_the_demo_writes_what_is_asked_for(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("demo", "-o", "report.json").code == 0
    assert len(json.loads(Path("report.json").read_text())["systems"]) == 2
    assert list(json.loads(run("demo", "-o", "json:-").out)) == sorted(
        json.loads(Path("report.json").read_text())
    )


def test_what_the_demo_says_to_try_next_works(run, files):
    lines = [line.strip() for line in run("demo").out.splitlines()]
    commands = [line for line in lines if line.startswith("karat ")]
    assert len(commands) >= 3
    for command in commands:
        assert run(*command.split()[1:]).code == 0


def test_the_demo_s_files_belong_together():
    folder = Path(karat.__file__).parent / "recipes" / "first"
    items = set(karat.read_corpus(folder / "corpus.jsonl").frame["item_id"])
    gold = karat.read_gold(folder / "qrels.txt")
    asked = set(karat.read_queries(folder / "queries.jsonl").frame["query_id"])
    assert set(gold.frame["item_id"]) <= items
    assert set(gold.query_ids) <= asked
    for name in ("bm25.trec", "dense.jsonl"):
        hits = karat.read_run(folder / name).hits
        assert set(hits["item_id"]) <= items
        assert set(hits["query_id"]) <= asked


def test_measures_are_listed(run):
    done = run("measures")
    assert done.code == 0
    for name in MEASURES:
        assert f"\n{name}" in f"\n{done.out}"


def test_a_measure_is_described_under_any_of_its_names(run):
    for name in ("nDCG", "ndcg", "ndcg@10", "nDCG(gain='exp')@5"):
        assert run("measures", name).out.startswith("nDCG[@k]  (higher is better)")
    assert "retrieve.p50" in run("measures", "latency").out


def test_measures_as_json(run):
    entries = json.loads(run("measures", "--json").out)
    assert [entry["name"] for entry in entries] == sorted(MEASURES, key=str.casefold)
    assert all(entry["about"] and entry["better"] for entry in entries)
