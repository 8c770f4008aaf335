from __future__ import annotations

import csv
import importlib.util
import io
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import karat
from karat.pages import charts

PAGE = Path(__file__).parents[2] / "docs" / "choose-a-cut-off.md"
GOLD = ("--gold", "qrels.txt")


def log(name: str, *calls: dict) -> None:
    Path(name).write_text("".join(f"{json.dumps(call)}\n" for call in calls), encoding="utf-8")


def document_of(done) -> dict:
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_the_page_shows_the_curve_the_knee_and_how_deep_the_lists_go(run, files):
    done = run("sweep", "bm25.trec", *GOLD, "-m", "R")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "R flattens at k = 5"
    assert "knee at k = 5" in done.out
    # Some lists are shorter than ten, so that all of them are complete.
    (last,) = (line for line in lines if line.startswith("20 "))
    assert last.split()[:2] == ["20", "0.5909"]
    assert done.err == ""


def test_every_value_is_the_one_of_an_evaluation(run, files):
    own = document_of(run("sweep", "bm25.trec", "dense.jsonl", *GOLD, "--json"))
    for system, file in zip(own["systems"], ("bm25.trec", "dense.jsonl"), strict=True):
        for name, line in system["measures"].items():
            measured = {p["k"]: p for p in line["points"] if not p["beyond_log"]}
            wanted = [f"{name}@{k}" for k in measured]
            scores = karat.evaluate(karat.read_run(file), karat.read_gold("qrels.txt"), wanted)
            for k, point in measured.items():
                one = scores.summaries[f"{name}@{k}"]
                told = (point["mean"], tuple(point["ci"]), point["n"], point["ceiling"])
                assert told == (one.mean, one.ci, one.n, one.ceiling)


def test_json_has_its_promised_shape_and_is_the_same_every_time(run, files):
    arguments = ("sweep", "dense.jsonl", *GOLD, "--queries", "queries.jsonl", "--by", "language")
    first, second = (run(*arguments, "--corpus", "corpus.jsonl", "--json") for _ in range(2))
    assert first.out == second.out
    document = document_of(first)
    assert first.out == json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False) + "\n"
    assert document["ks"] == [1, 3, 5, 10, 20]
    assert document["flat"] == 0.02
    assert document["inputs"]["gold"]["name"] == "qrels.txt"
    (system,) = document["systems"]
    line = system["measures"]["R"]
    assert set(line) == {"points", "area", "knee", "knee_because"}
    assert line["area"]["to"] == 20
    # One list is shorter than the others, so that all of them are complete.
    assert not any(point["beyond_log"] for point in line["points"])
    assert list(system["segments"]["language"]) == ["en", "es"]
    assert system["segments"]["language"]["es"]["R"]["small"] is True
    assert system["budget"]["kind"] == "tokens"
    assert system["depth"] == {
        "final": {"longest": 5, "asked": None, "everything": False, "cut_at": None},
        "raw": None,
    }
    assert "tmp" not in first.out


def test_the_rag_profile_sweeps_exponential_gains(run, files):
    done = run("sweep", "dense.jsonl", *GOLD, "--profile", "rag", "--json")
    assert list(document_of(done)["systems"][0]["measures"]) == ["R", "nDCG"]


def test_deep_lists_are_followed_deeper_unless_told_how_far(run, files):
    rows = [f"q01 Q0 x{n} {n} {200 - n} deep\n" for n in range(1, 121)]
    rows += ["q02 Q0 accidents#1 1 1 deep\n"]
    Path("deep.trec").write_text("".join(rows))
    assert document_of(run("sweep", "deep.trec", *GOLD, "--json"))["ks"][-2:] == [50, 100]
    told = document_of(run("sweep", "deep.trec", *GOLD, "--k", "7 2", "--json"))
    assert told["ks"] == [2, 7]


def test_several_runs_stand_side_by_side_and_each_says_what_ranks_it(run, files):
    done = run("sweep", "bm25.trec", "dense.jsonl", *GOLD)
    assert "R: bm25 flattens at k = 5; dense has no knee: it has not flattened yet" in done.out
    assert "headroom bm25  headroom dense" in done.out
    assert "order rank or score" in done.out
    both = document_of(run("sweep", "bm25.trec", "dense.jsonl", *GOLD, "--json"))
    assert both["conventions"]["order"] is None
    assert [one["conventions"]["order"] for one in both["systems"]] == ["score", "rank"]


def test_csv_is_a_long_table_of_every_point(run, files):
    more = ("--queries", "queries.jsonl", "--by", "language", "--corpus", "corpus.jsonl")
    lines = [json.loads(line) | {"k": 5} for line in Path("dense.jsonl").read_text().splitlines()]
    log("dense.jsonl", *lines)
    done = run("sweep", "dense.jsonl", *GOLD, *more, "-m", "R", "--k", "1,5,9", "-o", "csv:-")
    assert done.code == 0
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert list(rows[0]) == [
        *("system", "segment", "value", "measure", "k", "mean", "ci_low", "ci_high", "n"),
        *("ceiling", "headroom", "beyond_log"),
    ]
    where = [(row["segment"], row["value"], row["measure"]) for row in rows]
    assert where == [
        *[("", "", "R")] * 3,
        *[("language", "en", "R")] * 3,
        *[("language", "es", "R")] * 3,
        *[("", "", "tokens")] * 3,
    ]
    assert [row["beyond_log"] for row in rows[:3]] == ["false", "false", "true"]
    assert (rows[2]["mean"], rows[2]["k"]) == ("", "9")
    document = document_of(run("sweep", "dense.jsonl", *GOLD, *more, "--k", "1,5,9", "--json"))
    points = document["systems"][0]["measures"]["R"]["points"]
    assert [float(row["mean"]) for row in rows[:2]] == [point["mean"] for point in points[:2]]


def test_pictures_markdown_and_json_are_written_beside_each_other(run, files):
    names = ("out/c.json", "out/c.csv", "out/c.md", "out/c.png", "out/c.svg")
    outputs = [word for name in names for word in ("-o", name)]
    assert run("sweep", "bm25.trec", *GOLD, "--quiet", *outputs).code == 0
    assert Path("out/c.png").read_bytes().startswith(b"\x89PNG")
    assert Path("out/c.svg").read_bytes().startswith(b"<svg")
    assert Path("out/c.md").read_text(encoding="utf-8").startswith("# Curves over k: bm25\n")
    again = run("sweep", "bm25.trec", *GOLD, "--quiet", "-o", "svg:-")
    assert again.out.encode() == Path("out/c.svg").read_bytes()


def test_a_picture_without_its_library_is_refused_before_any_work(run, files, monkeypatch):
    monkeypatch.setattr(charts, "find_spec", lambda name: None)
    done = run("sweep", "nowhere.trec", *GOLD, "-o", "c.png")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "karat: a chart needs vl-convert-python; install it with: pip install 'karat[charts]'\n"
    )


def test_nothing_is_loaded_to_draw_where_nothing_is_drawn(files):
    code = (
        "import sys; from karat.cli.main import main;"
        "main(['sweep', 'bm25.trec', '--gold', 'qrels.txt', '--quiet']);"
        "sys.exit('vl_convert' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--k", "0"], "k is '0'; give a whole number above 0, or a budget such as 500tok"),
        (["--k=-1"], "k is '-1'; give a whole number above 0"),
        (["--k", "1.5"], "k is '1.5'; give a whole number above 0"),
        (["--k", "5,500tok"], "k mixes ranks and budgets of tokens"),
        (["--k", ""], "k has 0 cut-offs; name 1 to 200"),
        (["-m", "R@5"], "'R@5' has a cut-off; write R, and --k 5"),
        (["-m", "latency.total.p50"], "shows a latency beside a curve"),
        (["-m", "Sim"], "Sim needs each hit's similarity"),
        (["-m", "Novelty"], "Novelty needs the items' texts: give --corpus"),
        (["-m", "ndgc"], "did you mean nDCG?"),
        (["--k", "100tok"], "a cut-off of 100 tokens needs item token counts or texts"),
        (["--budget", "tokens"], "--budget tokens needs item token counts or texts"),
        (["--budget", "latency.total"], "latency.total is not in the run; it logs no latency"),
        (["--budget", "money"], "--budget is 'money'; give tokens, or the latency of a stage"),
        (["--budget", "tokens", "--k", "9tok"], "the cut-offs are budgets of tokens already"),
        (["--flat", "2"], "--flat is '2'; a number from 0 to 0.99 is expected"),
        (["--flat", "nan"], "--flat is 'nan'"),
        (["--by", "language"], "needs the queries' attributes"),
        (["-o", "c.docx"], "use .json, .md, .csv, .png, .svg"),
        (["--profile", "ragg"], "did you mean rag?"),
        (["--set", "ci=2"], "ci is '2'"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(run, files, arguments, message):
    done = run("sweep", "bm25.trec", *GOLD, *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_a_run_without_any_of_the_queries_is_refused(run, files):
    Path("other.trec").write_text("zz Q0 refunds#1 1 5.0 other\n")
    done = run("sweep", "other.trec", *GOLD)
    assert done.code == 2
    assert "share no query id" in done.err


def test_a_run_of_depth_three_is_not_measured_beyond_it(run, files):
    log("short.jsonl", {"query_id": "q01", "k": 3, "topk": ["refunds#1", "x", "refunds#2"]})
    done = run("sweep", "short.jsonl", *GOLD, "-m", "R", "--k", "1,3,20")
    assert done.code == 0
    assert "R has no knee: 2 cut-offs were measured, and it takes 3" in done.out
    assert "short: lists end at 3; not measured (-): k = 20" in done.out
    assert "from k = 1 to 3" in done.out


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ({"query_id": "q01", "topk": []}, "no list is deep enough for any of the cut-offs"),
        ({"query_id": "q01", "error": "timeout"}, "no query could be scored"),
    ],
)
def test_a_run_that_returned_nothing_cannot_be_told_about(run, files, call, why):
    log("empty.jsonl", call)
    assert run("sweep", "empty.jsonl", *GOLD, "-m", "R").code == 2
    allowed = (*GOLD, "--set", "missing_ids=allow")
    done = run("sweep", "empty.jsonl", *allowed, "-m", "R")
    assert done.code == 3
    assert done.err == f"karat: cannot tell: {why}\n"
    (row,) = (line for line in done.out.splitlines() if line.startswith("5 "))
    assert "0.0" not in row
    assert run("sweep", "empty.jsonl", *allowed, "-o", "c.png", "--quiet").code == 3


def test_an_empty_file_is_refused(run, files):
    Path("nothing.jsonl").write_text("")
    assert run("sweep", "nothing.jsonl", *GOLD).code == 2


def test_budgets_of_tokens_are_cut_offs_too(run, files):
    ks = "20tok,60tok,500tok"
    done = run("sweep", "dense.jsonl", *GOLD, "--corpus", "corpus.jsonl", "-m", "R", "--k", ks)
    assert done.code == 0
    assert "dense: lists end at 5" in done.out
    run_, gold = karat.read_run("dense.jsonl"), karat.read_gold("qrels.txt")
    scores = karat.evaluate(run_, gold, ["R@60tok"], corpus=karat.read_corpus("corpus.jsonl"))
    mean = scores.means()["R@60tok"]
    (row,) = (line for line in done.out.splitlines() if line.startswith("60tok"))
    assert f"{mean:.4f}" in row


def test_a_latency_is_told_once_for_each_run_and_its_field_where_it_lacks(run, files):
    done = run("sweep", "bm25.trec", "dense.jsonl", *GOLD, "--budget", "latency.rerank")
    assert done.code == 0
    assert "bm25: latency.rerank is not in the run; it logs no latency" in done.out
    assert "at k = 5" in done.out
    p90 = run("sweep", "dense.jsonl", *GOLD, "--budget", "latency.rerank.p90", "--json")
    assert document_of(p90)["systems"][0]["budget"]["kind"] == "latency.rerank.p90"


def test_items_that_the_corpus_lacks_are_counted_not_taken_for_nothing(run, files):
    lines = Path("corpus.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    Path("part.jsonl").write_text("".join(lines[1:]), encoding="utf-8")
    done = run("sweep", "dense.jsonl", *GOLD, "--corpus", "part.jsonl", "-m", "R")
    assert "1 item of unknown length" in done.out


def test_a_wider_rule_finds_the_knee_earlier(run, files):
    def knee(*more: str):
        done = run("sweep", "bm25.trec", *GOLD, "-m", "R", "--json", *more)
        return document_of(done)["systems"][0]["measures"]["R"]["knee"]

    assert (knee(), knee("--flat", "0.2")) == (5, 3)


def test_a_run_from_standard_input_is_swept(spawn, files):
    done = spawn("sweep", "-", *GOLD, "-m", "R", stdin=Path("bm25.trec").read_bytes())
    assert done.code == 0
    assert "R flattens at k = 5" in done.out


def test_the_pages_examples_print_what_it_says():
    page = PAGE.read_text(encoding="utf-8")
    examples = PAGE.parent / "examples.py"
    spec = importlib.util.spec_from_file_location("examples", examples)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert page == module.refreshed(page), f"run: python docs/examples.py {PAGE.name}"


def test_no_example_of_the_page_is_refused(run, files):
    commands = [line[2:] for line in PAGE.read_text().splitlines() if line.startswith("$ karat")]
    assert len(commands) >= 5
    for command in commands:
        assert run(*shlex.split(command)[1:]).code == 0, command
