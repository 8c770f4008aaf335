from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

GOLD = ("--gold", "qrels.txt")


def test_a_run_is_scored(run, files):
    done = run("eval", "bm25.trec", *GOLD, "-m", "nDCG@10")
    assert done.code == 0
    assert "nDCG@10" in done.out
    assert "bm25" in done.out
    assert done.err == ""


@pytest.mark.parametrize("command", [("eval", "a.json"), ("compare", "a.json", "b.json")])
def test_measures_of_grades_that_no_gold_has_say_so(run, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    Path("gold.txt").write_text("q1 0 d1 1\nq2 0 d2 1\n")
    for name in "ab":
        Path(f"{name}.json").write_text('{"q1": ["d1", "x"], "q2": ["y", "d2", "z"]}')
    done = run(*command, "--gold", "gold.txt", "-m", "R(rel=2)@1")
    assert done.code == 3
    told = "karat: cannot tell: no query has gold of grade 2 or more for R(rel=2)@1\n"
    assert done.err == told
    assert run(*command, "--gold", "gold.txt", "-m", "R@1, R(rel=2)@1").code == 0


def test_several_runs_stand_side_by_side(run, files):
    done = run("eval", "bm25.trec", "dense.jsonl", *GOLD, "-m", "R@5")
    header = done.out.splitlines()[0]
    assert header.split()[:3] == ["measure", "bm25", "dense"]


def test_more_than_four_runs_stand_below_each_other(run, files):
    for name in "abcde":
        Path(f"{name}.trec").write_bytes(Path("bm25.trec").read_bytes())
    done = run("eval", *(f"{name}.trec" for name in "abcde"), *GOLD, "-m", "R@5,RR")
    assert done.out.splitlines()[0].split() == ["system", "R@5", "RR"]
    assert [line.split()[0] for line in done.out.splitlines()[2:7]] == list("abcde")


def test_counts_and_conventions_are_printed(run, files):
    done = run("eval", "bm25.trec", *GOLD, "--queries", "queries.jsonl")
    assert "3 missing from the run" in done.out
    assert "1 without an answer" in done.out
    assert "profile karat · order score · ties id-asc" in done.out


def test_json_is_the_report(run, files):
    done = run("eval", "bm25.trec", *GOLD, "--json")
    document = json.loads(done.out)
    assert document["schema_version"] == 2
    assert document["systems"][0]["name"] == "bm25"
    assert document["inputs"]["gold"]["name"] == "qrels.txt"
    assert len(document["inputs"]["runs"][0]["sha256"]) == 64


def test_the_same_inputs_give_the_same_bytes_anywhere(run, files, tmp_path, monkeypatch):
    arguments = ("eval", "bm25.trec", "dense.jsonl", *GOLD, "--queries", "queries.jsonl")
    names = ("a.json", "a.csv", "a.parquet", "a.md", "trec:a.txt", "b.json.gz")
    outputs = [argument for name in names for argument in ("-o", name)]
    written = []
    for place in (files, tmp_path / "elsewhere"):
        if not place.exists():
            place.mkdir()
            for file in ("bm25.trec", "dense.jsonl", "qrels.txt", "queries.jsonl"):
                (place / file).write_bytes((files / file).read_bytes())
        monkeypatch.chdir(place)
        assert run(*arguments, "--by", "language", *outputs).code == 0
        written.append({name: (place / name.split(":")[-1]).read_bytes() for name in names})
    assert written[0] == written[1]
    assert written[0]["a.json"] == gzip.decompress(written[0]["b.json.gz"])
    assert str(tmp_path).encode() not in b"".join(written[0].values())


def test_segments_are_printed_and_reported(run, files):
    arguments = ("eval", "dense.jsonl", *GOLD, "--queries", "queries.jsonl", "-m", "R@5")
    done = run(*arguments, "--by", "language", "--by", "difficulty")
    assert "language" in done.out
    assert "difficulty" in done.out
    document = json.loads(run(*arguments, "--by", "language", "--json").out)
    segments = document["systems"][0]["segments"]["language"]
    assert sorted(segments) == ["en", "es"]
    assert segments["es"]["R@5"]["n"] == 2


def test_per_query_tables_hold_every_query_of_every_system(run, files):
    run("eval", "bm25.trec", "dense.jsonl", *GOLD, "-m", "R@5", "-o", "t.csv", "-o", "t.parquet")
    csv, parquet = pl.read_csv("t.csv"), pl.read_parquet("t.parquet")
    assert csv.columns == ["system", "query_id", "status", "R@5"] == parquet.columns
    assert csv.height == parquet.height == 2 * 11
    assert dict(csv.group_by("system").agg(pl.len()).iter_rows()) == {"bm25": 11, "dense": 11}


def test_equal_file_names_are_told_apart(run, files):
    Path("other").mkdir()
    Path("other/bm25.trec").write_bytes(Path("bm25.trec").read_bytes())
    done = run("eval", "bm25.trec", "other/bm25.trec", *GOLD, "--json")
    assert [one["name"] for one in json.loads(done.out)["systems"]] == ["bm25", "bm25-2"]


def test_quiet_prints_nothing(run, files):
    done = run("eval", "bm25.trec", *GOLD, "--quiet", "-o", "out/deep/report.json")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert Path("out/deep/report.json").is_file()


def test_an_output_to_stdout_replaces_the_tables(run, files):
    done = run("eval", "bm25.trec", *GOLD, "--profile", "trec", "-o", "trec:-")
    assert done.out.startswith("num_ret               \tq01\t")
    assert "runid                 \tall\tbm25\n" in done.out


def test_settings_change_a_convention(run, files):
    document = json.loads(run("eval", "bm25.trec", *GOLD, "--set", "missing=skip", "--json").out)
    assert document["conventions"]["missing"] == "skip"
    assert document["systems"][0]["measures"]["RR@10"]["n"] == 8


def test_a_run_can_come_through_stdin(spawn, files):
    text = (files / "bm25.trec").read_bytes()
    piped = spawn("eval", "-", "--gold", "qrels.txt", "-m", "RR", stdin=text)
    assert piped.code == 0
    assert "RR" in piped.out


def test_nothing_to_score_exits_with_3(run, files):
    Path("zero.txt").write_text("q01 0 refunds#1 0\n")
    done = run("eval", "bm25.trec", "--gold", "zero.txt", "-m", "RR")
    assert done.code == 3
    assert done.err.startswith("karat: cannot tell")
    assert done.err.count("\n") == 1


def test_strict_refuses_an_item_returned_twice(run, files):
    with Path("bm25.trec").open("a") as file:
        file.write("q12 Q0 passes#4 9 0.1 bm25\n")
    lenient = run("eval", "bm25.trec", *GOLD, "--queries", "queries.jsonl", "-m", "RR")
    assert lenient.code == 0
    assert "1 repeated hit" in lenient.out
    strict = run("eval", "bm25.trec", *GOLD, "-m", "RR", "--strict")
    assert strict.code == 2
    assert "bm25.trec:59" in strict.err


@pytest.mark.parametrize("width", ["20", "40", "80", "200"])
def test_numbers_are_whole_on_any_width(run, files, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    done = run("eval", "bm25.trec", "dense.jsonl", *GOLD, "-m", "nDCG(gain='exp')@3,R@5")
    document = json.loads(
        run("eval", "bm25.trec", "dense.jsonl", *GOLD, "-m", "nDCG(gain='exp')@3,R@5", "--json").out
    )
    for system in document["systems"]:
        for measure in system["measures"].values():
            assert f"{measure['mean']:.4f}" in done.out
    assert "…" not in done.out


def test_no_color_is_respected(spawn, files):
    arguments = ("eval", "bm25.trec", "--gold", "qrels.txt", "-m", "RR")
    coloured = spawn(*arguments, FORCE_COLOR="1", TERM="xterm-256color", NO_COLOR="")
    plain = spawn(*arguments, FORCE_COLOR="1", TERM="xterm-256color", NO_COLOR="1")
    assert "\x1b[" in coloured.out
    assert "\x1b[3" not in plain.out
    assert "\x1b[" not in spawn(*arguments).out


def test_an_id_that_would_forge_a_line_is_refused_by_trec_and_harmless_in_csv(run, files):
    query = "=q0\nRR\tall\t1.0000"
    Path("gold.json").write_text(json.dumps({query: {"a": 1}}))
    Path("run.json").write_text(json.dumps({query: {"a": 1.0}}))
    words = ("eval", "run.json", "--gold", "gold.json", "-m", "RR", "--quiet")
    done = run(*words, "-o", "trec:out.txt", "-o", "out.csv")
    assert (done.code, done.out) == (2, "")
    assert "query_id" in done.err
    assert not list(Path().glob("out*"))
    done = run(*words, "-o", "csv:-")
    assert done.code == 0
    assert 'run,"\'=q0\nRR\tall\t1.0000",scored,1.0\n' in done.out
