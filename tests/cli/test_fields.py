"""``--field`` and ``fields:``: gold and ids under names of the user's own, in every command."""

from __future__ import annotations

import json
import sys
from io import BytesIO, TextIOWrapper

import pytest

from karat.formats.field_mapping import Fields
from karat.retrieve.corpus_index import open_index

WORDS = ["apple", "bread", "cider", "dates", "endive", "figs", "grape", "honey"]
PAIRS = [(a, b) for a in WORDS for b in WORDS if a < b]
LOG = ["--field", "query_id=qid", "--field", "hits=results", "--field", "run.item_id=pid"]
CORPUS = ["--field", "corpus.item_id=uid", "--field", "text=body"]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A corpus, an eval set and a run, none of which uses a name that karat knows."""
    monkeypatch.chdir(tmp_path)
    items = [{"uid": f"{a}-{b}", "body": f"{a} {b}", "doc_id": f"d-{a}"} for a, b in PAIRS]
    (tmp_path / "corpus.jsonl").write_text(lines(items))
    asked = [
        {"id": f"q{i}", "query": f"{a} {b}", "gold_ids": [f"{a}-{b}"], "tags": ["x"]}
        for i, (a, b) in enumerate(PAIRS)
    ]
    (tmp_path / "eval.jsonl").write_text(lines(asked))
    found = [
        {"qid": f"q{i}", "results": [{"pid": f"{a}-{b}"}, {"pid": "apple-bread"}]}
        for i, (a, b) in enumerate(PAIRS)
    ]
    (tmp_path / "run.jsonl").write_text(lines(found))
    (tmp_path / "karat.yaml").write_text(
        "queries: eval.jsonl\ncorpus: corpus.jsonl\nmeasures: [R@1]\n"
        "fields: {gold: gold_ids, item_id: uid, text: body}\n"
        "systems:\n  a: {retriever: bm25, k: 5}\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        ["eval", "run.jsonl", "--gold", "eval.jsonl"],
        ["compare", "run.jsonl", "run.jsonl", "--gold", "eval.jsonl"],
        ["check", "--gold", "eval.jsonl"],
        ["check", "--queries", "eval.jsonl"],
        ["sweep", "run.jsonl", "--gold", "eval.jsonl"],
    ],
)
def test_gold_under_an_unknown_name_is_an_error_that_names_it(place, run, command):
    (place / "karat.yaml").unlink()
    done = run(*command)
    assert done.code == 2
    assert done.out == ""
    assert "--field gold=gold_ids" in done.err
    assert "tags" not in done.err


def test_run_names_the_gold_too(place, run):
    config = (place / "karat.yaml").read_text()
    (place / "karat.yaml").write_text(config.replace("gold: gold_ids, ", ""))
    done = run("run")
    assert done.code == 2
    assert "fields: {gold: gold_ids}" in done.err
    assert not (place / "runs").exists()
    assert run("run", "--field", "gold=gold_ids").code == 0


def test_mapped_files_are_scored_and_the_report_says_so(place, run):
    done = run(
        "eval", "run.jsonl", "--gold", "eval.jsonl", "--corpus", "corpus.jsonl", "-m", "R@1",
        "--field", "gold=gold_ids", *LOG, "--field", "corpus.item_id=uid",
        "--field", "text=body", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["systems"][0]["measures"]["R@1"]["mean"] == 1.0
    assert report["inputs"]["fields"] == {
        "gold": "gold_ids",
        "query_id": "qid",
        "hits": "results",
        "run.item_id": "pid",
        "corpus.item_id": "uid",
        "text": "body",
    }


def test_a_report_without_mappings_does_not_speak_of_them(place, run):
    (place / "gold.trec").write_text("q0 0 apple-bread 1\n")
    (place / "run.trec").write_text("q0 Q0 apple-bread 1 1.0 a\n")
    done = run("eval", "run.trec", "--gold", "gold.trec", "--json")
    assert "fields" not in json.loads(done.out)["inputs"]


def test_compare_and_check_take_mappings(place, run):
    gold = ["--gold", "eval.jsonl", "--field", "gold=gold_ids"]
    done = run("compare", "run.jsonl", "run.jsonl", *gold, "-m", "R@1", *LOG, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["verdict"] == "same"
    done = run("check", *gold, "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["verdict"] == "sound"
    assert document["inputs"]["fields"] == {"gold": "gold_ids"}


@pytest.mark.parametrize(
    "command",
    [
        ["sweep", "run.jsonl"],
        ["triage", "run.jsonl", "--query", "q3", "--corpus", "corpus.jsonl", *CORPUS],
        ["triage", "run.jsonl", "--corpus", "corpus.jsonl", *CORPUS],
        ["diagnose", "run.jsonl", "--baseline", "run.jsonl"],
        ["stages", "run.jsonl"],
    ],
)
def test_analyses_take_mappings(place, run, command):
    found = [
        {
            "qid": f"q{i}",
            "results": [{"pid": f"{a}-{b}"}],
            "raw": [{"pid": f"{b}-{a}"}, {"pid": f"{a}-{b}"}],
        }
        for i, (a, b) in enumerate(PAIRS)
    ]
    (place / "run.jsonl").write_text(lines(found))
    done = run(*command, "--gold", "eval.jsonl", "--field", "gold=gold_ids", *LOG, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["inputs"]["fields"]["gold"] == "gold_ids"


def test_the_command_that_triage_shows_repeats_the_mappings(place, run):
    done = run(
        "triage", "run.jsonl", "--query", "q3", "--gold", "eval.jsonl",
        "--field", "gold=gold_ids", *LOG, "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "--field gold=gold_ids" in done.out


def test_a_config_maps_what_is_searched_and_scored(place, run):
    done = run("run", "--json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["systems"][0]["measures"]["R@1"]["mean"] == 1.0
    assert report["inputs"]["fields"] == {"gold": "gold_ids", "item_id": "uid", "text": "body"}
    assert run("check").code == 0


def test_another_mapping_asks_the_systems_again(place, run):
    rows = [json.loads(one) for one in (place / "corpus.jsonl").read_text().splitlines()]
    (place / "corpus.jsonl").write_text(lines({**row, "nr": f"n{i}"} for i, row in enumerate(rows)))
    assert run("run").code == 0
    before = (place / "runs" / "a.jsonl").read_text()
    assert run("run").code == 0
    assert (place / "runs" / "a.jsonl").read_text() == before
    run("run", "--field", "item_id=nr", "--set", "missing_ids=allow")
    assert '"n0"' in (place / "runs" / "a.jsonl").read_text()


def test_an_index_of_one_mapping_is_not_used_for_another(place):
    rows = [{"id": "c1", "body": "first", "other": "second", "text": "usual"}]
    (place / "corpus.jsonl").write_text(lines(rows))
    texts = []
    for names in ([], ["text=body"], ["text=other"], []):
        index = open_index("corpus.jsonl", place / "cache", fields=Fields.parse(names))
        texts.append(index.corpus().frame["text"].to_list())
    assert texts == [["usual"], ["first"], ["second"], ["usual"]]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--field", "golds=gold_ids"], "did you mean gold?"),
        (["--field", "gold=gold_idz"], "did you mean 'gold_ids'?"),
        (
            ["--field", "gold=gold_ids", *LOG, "--field", "k=cutoff"],
            "no input has a column 'cutoff'",
        ),
        (
            ["--field", "gold=gold_ids", *LOG, "--field", "run.score=gold_ids"],
            "no input of kind run has a column 'gold_ids'",
        ),
        (
            ["--field", "gold=gold_ids", *LOG, "--field", "corpus.item_id=pid"],
            "no input of kind corpus has a column 'pid'",
        ),
        (["--field", "gold"], "FIELD=COLUMN"),
        (["--field", "gold=gold_ids", "--engine", "spark"], "--engine local"),
    ],
)
def test_a_mapping_that_fits_nothing_is_refused(place, run, more, told):
    done = run("eval", "run.jsonl", "--gold", "eval.jsonl", *more)
    assert done.code == 2
    assert told in done.err
    assert done.out == ""


def test_an_unknown_field_of_a_config_is_refused_with_its_line(place, run):
    config = (place / "karat.yaml").read_text()
    (place / "karat.yaml").write_text(config.replace("gold: gold_ids", "golds: gold_ids"))
    done = run("run")
    assert done.code == 2
    assert "karat.yaml:4: fields: unknown field 'golds'; did you mean gold?" in done.err


def test_a_run_through_standard_input_is_mapped(place, run, monkeypatch):
    data = BytesIO((place / "run.jsonl").read_bytes())
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(data))
    done = run(
        "eval", "-", "--gold", "eval.jsonl", "-m", "R@1", "--field", "gold=gold_ids", *LOG, "--json"
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["systems"][0]["measures"]["R@1"]["mean"] == 1.0


def test_a_set_whose_gold_is_empty_is_unsound(place, run):
    rows = [{"id": f"q{i}", "query": word, "relevant_ids": []} for i, word in enumerate(WORDS)]
    (place / "empty.jsonl").write_text(lines(rows))
    done = run("check", "--gold", "empty.jsonl", "--json")
    assert done.code == 1
    document = json.loads(done.out)
    assert document["verdict"] == "unsound"
    assert [one["kind"] for one in document["findings"] if one["level"] == "error"] == ["no_gold"]


def test_queries_that_have_no_answer_are_a_sound_set(place, run):
    rows = [{"id": f"q{i}", "query": word, "no_answer": True} for i, word in enumerate(WORDS)]
    (place / "none.jsonl").write_text(lines(rows))
    assert run("check", "--gold", "none.jsonl").code == 0


def test_python_takes_files_frames_and_mappings(place):
    import polars as pl

    import karat

    fields = {
        "gold": "gold_ids", "query_id": "qid", "hits": "results", "run.item_id": "pid",
    }  # fmt: skip
    scores = karat.evaluate("run.jsonl", "eval.jsonl", ["R@1"], fields=fields)
    assert scores.means() == {"R@1": 1.0}
    found = karat.compare(["run.jsonl", "run.jsonl"], "eval.jsonl", ["R@1"], fields=fields)
    assert found.verdict == "same"
    evaluation = karat.Evaluation("eval.jsonl", fields={"gold": "gold_ids"})
    assert karat.check(evaluation).verdict() == "sound"
    with pytest.raises(karat.InputError, match="gold=gold_ids"):
        karat.evaluate("run.jsonl", "eval.jsonl", ["R@1"])
    with pytest.raises(karat.UsageError, match="no input has a column 'nope'"):
        karat.evaluate("run.jsonl", "eval.jsonl", ["R@1"], fields={**fields, "grade": "nope"})
    run = pl.DataFrame({"q": ["a"], "d": ["x"], "s": [1.0]})
    gold = pl.DataFrame({"q": ["a"], "d": ["x"]})
    mapped = {"query_id": "q", "item_id": "d", "score": "s"}
    assert karat.evaluate(run, gold, ["R@1"], fields=mapped).means() == {"R@1": 1.0}
