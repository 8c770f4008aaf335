"""Every command that writes files, killed before each change that it makes: whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from karat.cli.main import main

from .killing import FULL, changes, contents, killed_before
from .worlds import lay_pool, lay_runs

INPUTS = ("--gold", "qrels.txt", "--queries", "queries.jsonl", "--corpus", "corpus.jsonl")
EVAL = ("eval", "old.trec", "new.trec", *INPUTS, "--by", "kind", "--quiet")
# A page takes long to make.
PAGES = ("-o", "report.html") if FULL else ()
CONFIG = """\
queries: queries.jsonl
gold: qrels.txt
corpus: corpus.jsonl
systems: {bm25: {retriever: bm25, k: 5}, bow: {retriever: bow, k: 5}}
measures: [R@5]
outputs: [out/report.json, out/report.md]
"""
COMMANDS = {
    "eval": (*EVAL, "-o", "report.json", "-o", "per-query.csv", *PAGES),
    "compare": ("compare", *EVAL[1:], "-o", "c.md", "-o", "junit:units.xml", "-o", "c.parquet"),
    "search": ("search", "--no-latency", "--resume", "-o", "new/{system}.jsonl", "--quiet"),
    "run": ("run", "--quiet"),
    "convert": ("convert", "old.trec", "old.parquet"),
    "pool": ("pool", "old.trec", "new.trec", *INPUTS, "-o", "pool.jsonl", "--quiet"),
    "next": ("next", "old.trec", "new.trec", *INPUTS, "-o", "next.jsonl", "-o", "n.md", "--quiet"),
    "judge": ("judge", "made.jsonl", "--judge", "overlap", "--resume", "-o", "l.jsonl", "--quiet"),
    "labels export": ("labels", "export", "--resolve", "every", "-o", "said.jsonl", "--quiet"),
    "labels export, a folder": ("labels", "export", "--resolve", "majority", "-o", "beir:gold"),
    "init": ("init", "first", "laid"),
    "schema": ("schema", "run-log", "-o", "schema.json"),
}
# What karat keeps for the next time is no output, and a store is looked at elsewhere.
KEPT = ".karat/"


def lay(folder: Path) -> Path:
    lay_runs(folder, queries=12)
    lay_pool(folder / "made", pairs=20)
    (folder / "made" / "pool.jsonl").rename(folder / "made.jsonl")
    (folder / "karat.yaml").write_text(CONFIG)
    return folder


def outputs(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(folder).items() if not name.startswith(KEPT)}


@pytest.fixture(scope="module")
def laid(tmp_path_factory):
    """The files, logs that karat run uses again, and a store with judgments."""
    folder = lay(tmp_path_factory.mktemp("laid") / "files")
    made = ("judge", "made.jsonl", "--judge", "overlap", "-o", "judged.jsonl", "--quiet")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["search", "--no-latency", "--quiet"]) == 0
        assert main(made) == 0
        assert main(["labels", "import", "judged.jsonl", "--name", "all", "--quiet"]) == 0
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_killed_command_has_written_is_whole(
    start, run, laid, tmp_path, monkeypatch, name, told
):
    command, before = COMMANDS[name], outputs(laid)

    def finish(folder: Path) -> dict[str, bytes]:
        monkeypatch.chdir(folder)
        done = run(*command)
        assert done.code in (0, 1), done.err
        return outputs(folder)

    shutil.copytree(laid, tmp_path / "whole")
    wanted = finish(tmp_path / "whole")
    assert set(wanted) > set(before), "it writes nothing"
    fatal = ["rename"]
    if FULL:
        shutil.copytree(laid, tmp_path / "counted")
        number = changes(start, *command, cwd=tmp_path / "counted")
        fatal = [str(change) for change in range(1, number + 1)]
    for change in fatal:
        shutil.copytree(laid, folder := tmp_path / f"before-{change}")
        killed_before(start, change, *command, cwd=folder)
        left = outputs(folder)
        assert left.items() >= before.items(), "an input was touched"
        assert left.items() <= wanted.items(), "something is half written"
        assert finish(folder) == wanted
        shutil.rmtree(folder)
    outcome = "each output whole or absent; again: the same bytes"
    told("kill -9 before each change to files", f"karat {name}", len(fatal), outcome)
