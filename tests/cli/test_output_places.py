"""Where a report must not go: over what was read, over a log, over another report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

QRELS = "q1 0 a 1\nq2 0 b 1\n"
RUN = "q1 Q0 a 1 2.0 x\nq1 Q0 b 2 1.0 x\nq2 Q0 a 1 2.0 x\nq2 Q0 b 2 1.0 x\n"
CONFIG = """\
queries: queries.jsonl
corpus: corpus.jsonl
profile: story
compare: false
"""


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("qrels.txt").write_text(QRELS)
    for name in ("a.trec", "b.trec"):
        Path(name).write_text(RUN)
    return tmp_path


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    items = [{"id": word, "text": word} for word in ("apple", "bread")]
    Path("corpus.jsonl").write_text("".join(json.dumps(one) + "\n" for one in items))
    asked = [{"id": i, "query": i, "relevant_chunk_ids": [i]} for i in ("apple", "bread")]
    Path("queries.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))
    Path("aliases.yaml").write_text("fruit: apple\n")
    Path("same_text.py").write_text("def same(text):\n    return text\n")
    return tmp_path


def write(systems: str, *outputs: str) -> None:
    Path("karat.yaml").write_text(f"{CONFIG}outputs: {json.dumps(outputs)}\n{systems}")


SERVICE = (
    "retriever: http, url: 'http://127.0.0.1:{port}/', body: {query: '{query}'}, "
    "start: ['{python}', same_text.py, '{port}']"
)
ONE = "systems:\n  bm25: {retriever: bm25, k: 2}\n"


def refused(run, folder: Path, *words: str) -> str:
    """What karat says; nothing was written anywhere."""
    before = contents(folder)
    done = run(*words)
    assert (done.code, done.out) == (2, ""), done
    assert contents(folder) == before
    return done.err


@pytest.mark.parametrize("command", ["eval", "compare"])
def test_a_file_for_each_system_does_not_replace_the_runs(run, runs, command):
    words = (command, "a.trec", "b.trec", "--gold", "qrels.txt", "--profile", "minimal")
    told = refused(run, runs, *words, "-o", "minimal:{system}.trec")
    assert told == "karat: output 'a.trec' is also an input; choose another name\n"
    assert run(*words, "-o", "minimal:{system}.json").code in (0, 1)
    assert {"a.json", "b.json"} <= set(contents(runs))


def test_a_name_that_is_known_late_is_looked_at_before_anything_is_written(run, runs):
    Path("a_main.txt").write_text(QRELS)
    common = ("--gold", "a_main.txt", "--profile", "minimal", "--store", "s.db", "--save")
    assert run("eval", "a.trec", *common, "--tag", "main").code == 0
    words = ("compare", "b.trec", *common, "--baseline", "main", "-o", "minimal:{system}.txt")
    told = refused(run, runs, *words)
    assert "karat: output 'a_main.txt' is also an input; choose another name\n" in told


@pytest.mark.parametrize(
    ("system", "outputs", "told"),
    [
        ("queries", ["story:{system}.jsonl"], "queries.jsonl' is also an input"),
        ("report", ["story:out/{system}.json", "out/report.json"], "report.json' is named twice"),
        ("bm25", ["story:runs/{system}.jsonl"], "bm25.jsonl' is also an input"),
        ("bm25", ["json:runs"], "both a file and a folder"),
        ("bm25", ["json:runs/bm25.jsonl/a.json"], "both a file and a folder"),
        ("bm25", ["json:runs/bm25.jsonl.part"], "bm25.jsonl.part' is also an input"),
        ("out", ["story:{system}", "out/a.json"], "both a file and a folder"),
    ],
)
def test_a_place_that_something_else_has_is_refused_before_any_system_is_asked(
    run, place, system, outputs, told
):
    write(f"systems:\n  {system}: {{retriever: bm25, k: 2}}\n", *outputs)
    assert told in refused(run, place, "run")


@pytest.mark.parametrize(
    ("output", "spec"),
    [
        ("karat.yaml", "retriever: bm25"),
        ("aliases.yaml", "retriever: bm25, aliases: aliases.yaml"),
        ("same_text.py", "retriever: bm25, rewrite: 'same_text.py:same'"),
        ("same_text.py", "retriever: fuse, of: [{retriever: bm25, rewrite: 'same_text.py:same'}]"),
        ("same_text.py", SERVICE),
        ("quality.yaml", "retriever: quality, config: quality.yaml"),
        ("aliases.yaml", "retriever: quality, config: quality.yaml"),
    ],
)
def test_what_a_system_is_made_from_is_an_input_too(run, place, output, spec):
    Path("quality.yaml").write_text(
        "t2:\n  quality:\n    enabled: true\n    aliasing: {map_path: aliases.yaml}\n"
    )
    write(f"systems:\n  x: {{{spec}}}\n")
    told = refused(run, place, "run", "-o", f"json:{output}")
    assert told == f"karat: output '{output}' is also an input; choose another name\n"


def test_reports_beside_a_folder_that_is_read_are_fine(run, place):
    Path("bm25").mkdir()
    write(ONE, "bm25/report.json", "story:bm25/{system}.json")
    assert run("run").code == 0
    assert {"bm25/report.json", "bm25/bm25.json"} <= set(contents(place))


def test_the_profile_is_told_before_the_number_of_systems(run, runs):
    words = ("eval", "a.trec", "b.trec", "--gold", "qrels.txt", "-o", "minimal:out.json")
    assert "give --profile minimal" in refused(run, runs, *words)
    advice = refused(run, runs, *words, "--profile", "minimal")
    assert "write minimal:out.{system}.json" in advice
    followed = (*words[:-1], "minimal:out.{system}.json", "--profile", "minimal")
    assert run(*followed).code == 0


def test_a_stored_baseline_is_one_of_the_systems(run, runs):
    gold = ("--gold", "qrels.txt", "--store", "s.db")
    for profile in ("ab", "minimal"):
        words = ("eval", "a.trec", *gold, "--profile", profile, "--save", "--tag", profile)
        assert run(*words).code == 0
    of_ab = ("compare", "b.trec", *gold, "--profile", "ab", "--baseline", "ab")
    assert "ab: needs every list" in refused(run, runs, *of_ab, "-o", "ab:out.json")
    of_minimal = ("compare", "b.trec", *gold, "--profile", "minimal", "--baseline", "minimal")
    told = refused(run, runs, *of_minimal, "-o", "minimal:out.json")
    assert "holds one system, not 2; write minimal:out.{system}.json" in told
    assert "misses: needs every list" in refused(
        run, runs, *of_minimal, "-o", "misses:out.{system}.json"
    )
    assert run(*of_minimal, "-o", "minimal:out.{system}.json").code in (0, 1)
    both = sorted(Path().glob("out.*.json"))
    assert len(both) == 2
    one, other = (json.loads(path.read_text()) for path in both)
    assert one.keys() == other.keys()
