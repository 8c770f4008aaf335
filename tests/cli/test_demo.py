from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import karat
from karat.measure.registry import MEASURES


@pytest.fixture(scope="module")
def toured(tmp_path_factory):
    """A folder in which the tour was taken, and what it said."""
    place = tmp_path_factory.mktemp("tour")
    words = [sys.executable, "-m", "karat", "demo"]
    return place, subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=120)


@pytest.fixture
def shown(toured, tmp_path, monkeypatch):
    """The tour, and its folder to do with as one likes."""
    place, said = toured
    monkeypatch.chdir(shutil.copytree(place, tmp_path / "tour"))
    return Said(said.returncode, said.stdout)


class Said(NamedTuple):
    code: int
    out: str


def test_the_demo_goes_from_search_to_findings(shown):
    assert shown.code == 0
    report = json.loads(Path("karat-demo/out/report.json").read_text())
    assert [system["name"] for system in report["systems"]] == ["bm25", "reranked"]
    assert "The report: karat-demo/out/report.html" in shown.out
    assert "<!doctype html>" in Path("karat-demo/out/report.html").read_text()
    assert Path("karat-demo/out/report.md").is_file()
    for words in ("FAIL  5 of 8 gates fail", "BETTER  reranked improves nDCG@5", "Try next:"):
        assert words in shown.out


def test_the_demo_says_the_three_things_that_are_planted(shown):
    told = shown.out.partition("What to fix next:\n")[2].splitlines()[:3]
    assert "hurts language pt-BR" in told[0]
    assert "newer than as_of" in told[1]
    assert "another chunk of its document" in told[2]


def test_what_the_demo_says_to_try_next_works(run, shown, monkeypatch):
    lines = [line.strip() for line in shown.out.partition("Try next:")[2].splitlines()]
    assert "cd karat-demo" in lines
    monkeypatch.chdir("karat-demo")
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("karat ")]
    assert len(commands) >= 4
    for command in commands:
        assert run(*command[1:]).code == 0, command


def test_the_demo_can_be_shown_again_and_writes_what_is_asked_for(run, shown):
    again = run("demo", "-o", "more.json")
    assert again.code == 0
    assert "log reused" in again.err
    assert len(json.loads(Path("more.json").read_text())["systems"]) == 2


def test_a_demo_that_someone_changed_is_left_alone(run, shown):
    Path("karat-demo/karat.yaml").write_text("gold: mine\n")
    refused = run("demo")
    assert refused.code == 2
    assert "would be replaced; name another folder: karat demo DIR\n" in refused.err


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("report.docx", "output 'report.docx': use .json"),
        ("minimal:x.json", "unknown output form 'minimal'"),
        ("json:-", "only one report can go to standard output"),
        ("json:karat-demo/corpus.jsonl", "is also an input"),
        ("json:karat-demo/runs/bm25.jsonl", "is also an input"),
        ("karat-demo/out/report.json", "is named twice"),
        ("json:karat-demo", "cannot be both a file and a folder"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_any_search(
    run, tmp_path, monkeypatch, output, told
):
    monkeypatch.chdir(tmp_path)
    refused = run("demo", "-o", output)
    assert (refused.code, refused.out) == (2, "")
    assert told in refused.err
    assert not list(tmp_path.rglob("runs"))
    assert not list(tmp_path.rglob("report.json"))


def test_the_small_set_s_files_belong_together():
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
