"""No output takes the place of the store, or of what belongs to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from karat.store import Store

SCORED = ["--gold", "qrels.txt", "-m", "RR", "--quiet"]
COMMANDS = {
    "eval": ["eval", "bm25.trec", *SCORED, "--save"],
    "compare": ["compare", "bm25.trec", "dense.jsonl", *SCORED, "--save"],
    "baseline": ["compare", "bm25.trec", *SCORED, "--baseline", "main"],
}


@pytest.fixture(autouse=True)
def place(files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KARAT_STORE", raising=False)


@pytest.mark.parametrize("beside", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_report_onto_the_store_to_be_is_refused_and_makes_nothing(run, command, beside):
    """A store that is not there yet would be made, and written over at once."""
    done = run(*COMMANDS[command], "--store", "new/h.db", "-o", f"md:new/h.db{beside}")
    told = f"karat: output 'new/h.db{beside}' is also an input; choose another name\n"
    assert (done.code, done.err) == (2, told)
    assert not Path("new").exists()


@pytest.mark.parametrize("given", ["default", "variable"])
def test_the_store_that_is_meant_without_being_named_is_safe_too(run, monkeypatch, given):
    store = ".karat/history.db"
    if given == "variable":
        store = "mine.db"
        monkeypatch.setenv("KARAT_STORE", store)
    done = run(*COMMANDS["eval"], "-o", f"json:{store}")
    assert done.code == 2
    assert "is also an input" in done.err
    assert not Path(store).exists()


@pytest.mark.parametrize("save", [[], ["--save"]])
@pytest.mark.parametrize("name", ["h.db", "h.db-wal", "link.db"])
def test_a_store_is_not_written_over_by_who_does_not_use_it(run, name, save):
    assert run(*COMMANDS["eval"], "--store", "h.db", "--tag", "main").code == 0
    Path("link.db").symlink_to("h.db")
    before = Path("h.db").read_bytes()
    words = ["eval", "bm25.trec", *SCORED, *save, "-o", f"md:{name}", "-o", "first.md"]
    done = run(*words)
    assert done.code == 2
    assert "is a SQLite database, as a store of karat's is; choose another name" in done.err
    assert Path("h.db").read_bytes() == before
    assert not Path("first.md").exists()
    assert not Path(".karat/history.db").exists()
    with Store.open("h.db") as store:
        assert store.baseline("main").evaluation.id == 1


def test_neither_is_it_by_commands_that_write_no_report(run):
    assert run(*COMMANDS["eval"], "--store", "h.db").code == 0
    before = Path("h.db").read_bytes()
    done = run("convert", "qrels.txt", "h.db", "--to", "csv")
    assert done.code == 2
    assert "is a SQLite database" in done.err
    assert Path("h.db").read_bytes() == before


def test_a_run_saves_beside_its_reports_and_not_under_them(run):
    systems = "systems:\n  bm25: {retriever: bm25}\n"
    texts = "queries: queries.jsonl\ngold: qrels.txt\ncorpus: corpus.jsonl\nmeasures: [RR]\n"
    Path("karat.yaml").write_text(texts + systems)
    done = run("run", "--save", "--store", "h.db", "-o", "md:h.db", "--quiet")
    assert (done.code, "is also an input" in done.err) == (2, True), done.err
    assert not Path("h.db").exists()
    done = run("run", "--save", "--store", "h.db", "-o", "md:h.md", "--quiet")
    assert done.code == 0, done.err


def test_an_empty_name_of_a_store_is_refused(run):
    for words in (["history"], COMMANDS["eval"], ["serve"]):
        done = run(*words, "--store", "")
        assert done.code == 2
        assert "the store has an empty name" in done.err
    assert not Path(".karat/history.db").exists()
