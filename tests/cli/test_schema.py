"""``karat schema``, what the logs of ``karat search`` say, and what reports carry of it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[2]
WORDS = ["apple", "bread", "cider", "dates", "endive", "figs"]
SYSTEMS = """\
systems:
  bm25: {retriever: bm25, k: 3}
  fused: {retriever: fuse, of: [bm25, {retriever: bow}], k: 3}
  reranked:
    retriever: bm25
    k: 2
    k_raw: 5
    as_of: strict
    rerank: {call: "mine.py:scores"}
    rewrite: "mine.py:louder"
  live: {retriever: python, call: "mine.py:search", index_version: "7", chunker: {algo: by hand}}
"""
FACTS = {"dataset_version": "v7", "code_version": "c1", "as_of_range": ["2026-01-01", "2026-01-06"]}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A query for each of six items, each with a date; `live` fails at one of them."""
    monkeypatch.chdir(tmp_path)
    items = [
        {"id": f"d{n}", "text": f"{word} cake", "version": f"2026-01-0{n}"}
        for n, word in enumerate(WORDS, 1)
    ]
    asked = [
        {"id": f"q{n}", "query": word, "relevant_chunk_ids": [f"d{n}"], "as_of": f"2026-01-0{n}"}
        for n, word in enumerate(WORDS, 1)
    ]
    write("corpus.jsonl", *items)
    write("eval.jsonl", *asked)
    (tmp_path / "mine.py").write_text(
        "def scores(query, texts):\n"
        "    return [float(len(text)) for text in texts]\n"
        "def louder(text):\n"
        "    return text + ' cake'\n"
        "def search(text, k):\n"
        "    if text == 'dates':\n"
        "        raise RuntimeError('no connection')\n"
        "    return [{'id': 'd1', 'score': 0.5, 'version': '2026-01-01'}, 'd2']\n"
    )
    configure()
    return tmp_path


def configure(systems: str = SYSTEMS, versions: str = "dataset_version: v7\ncode_version: c1\n"):
    head = "queries: eval.jsonl\ncorpus: corpus.jsonl\nmeasures: [RR, R@1]\n"
    Path("karat.yaml").write_text(head + versions + systems)


def write(name: str, *records: object) -> None:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text("".join(json.dumps(one) + "\n" for one in records))


def read(name: str) -> list[dict]:
    return [json.loads(line) for line in Path(name).read_text().splitlines()]


def call(query_id: str = "q1", **more: object) -> dict[str, object]:
    return {"query_id": query_id, "topk": [{"chunk_id": "d1"}], **more}


def inputs(run, *arguments: str) -> dict:
    """What a report says of its inputs, and what went to standard error."""
    done = run(*arguments, "--json")
    assert done.code in (0, 1, 3), done.err
    return json.loads(done.out)["inputs"]


def test_the_schema_is_printed_and_written_alike(run, place):
    printed = run("schema", "run-log")
    assert printed.code == 0
    Draft202012Validator.check_schema(json.loads(printed.out))
    assert run("schema", "run-log", "-o", "out/log.schema.json").code == 0
    assert (place / "out" / "log.schema.json").read_text() == printed.out
    assert run("schema", "run-log", "-o", "-").out == printed.out


def test_examples_print_what_the_page_says():
    spec = importlib.util.spec_from_file_location("examples", ROOT / "docs" / "examples.py")
    examples = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(examples)
    page = (ROOT / "docs" / "log-a-run.md").read_text(encoding="utf-8")
    assert page == examples.refreshed(page), "run: python docs/examples.py docs/log-a-run.md"


def test_the_line_on_the_page_keeps_to_the_contract(run, place):
    page = (ROOT / "docs" / "log-a-run.md").read_text(encoding="utf-8")
    line = json.loads(page.partition("```json\n")[2].partition("```")[0])
    Draft202012Validator(json.loads(run("schema", "run-log").out)).validate(line)
    write("a.jsonl", line)
    done = run("schema", "run-log", "--check", "--json", "a.jsonl")
    has = json.loads(done.out)["logs"][0]["has"]
    assert {one["in"] for one in has.values()} == {"all"}, "the page lacks nothing it asks for"


def test_without_a_name_the_schemas_are_listed(run):
    assert "run-log  version 1:" in run("schema").out
    (only,) = json.loads(run("schema", "--json").out)
    assert (only["name"], only["version"]) == ("run-log", 1)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["runlog"], "unknown schema 'runlog'; did you mean run-log?"),
        (["run-log", "--check"], "--check needs the logs"),
        (["run-log", "a.jsonl"], "add --check to check 'a.jsonl'"),
        (["run-log", "--check", "a.jsonl", "-o", "b"], "-o writes a schema"),
        (["-o", "b"], "-o writes one schema; name it"),
        (["run-log", "--quiet"], "--quiet is for --check"),
        (["run-log", "--check", "-", "-"], "only one input can be standard input"),
        (["run-log", "--check", "gone.jsonl"], "gone.jsonl: no such file"),
        (["run-log", "-o", ""], "an empty file name"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(run, place, arguments, told):
    done = run("schema", *arguments)
    assert done.code == 2
    assert told in done.err
    assert len(done.err.splitlines()) == 1
    assert done.out == ""


def test_every_line_of_every_system_keeps_to_the_schema(run, place):
    assert run("search", "--retries", "0").code == 3, "one of six calls of live fails"
    validator = Draft202012Validator(json.loads(run("schema", "run-log").out))
    logs = {path.stem: read(path) for path in sorted((place / "runs").iterdir())}
    assert sorted(logs) == ["bm25", "fused", "live", "reranked"]
    for lines in logs.values():
        assert len(lines) == len(WORDS)
        for line in lines:
            validator.validate(line)
            assert line["schema_version"] == 1
            assert {key: line[key] for key in FACTS} == FACTS
    assert [line["query_id"] for line in logs["live"] if "error" in line] == ["q4"]
    assert {"bm25", "bow"} <= set(logs["fused"][0]["stages"])
    assert {"raw", "rewritten"} <= set(logs["reranked"][0])
    assert "rerank" in logs["reranked"][0]["stages"]
    done = run("schema", "run-log", "--check", *(f"runs/{name}.jsonl" for name in logs))
    assert done.code == 0, done.err
    assert "runs/live.jsonl: sound, 6 calls, 1 failed" in done.out


def test_a_converted_run_keeps_to_the_schema(run, place):
    Path("run.trec").write_text("q1 Q0 d1 1 0.5 mine\nq1 Q0 d2 2 0.25 mine\n")
    run("convert", "run.trec", "run.jsonl")
    (line,) = read("run.jsonl")
    assert line["schema_version"] == 1
    assert run("schema", "run-log", "--check", "run.jsonl").code == 0


def test_only_the_dates_of_the_queries_asked_are_logged(run, place):
    run("search", "--system", "bm25", "--limit", "2")
    assert read("runs/bm25.sample.jsonl")[0]["as_of_range"] == ["2026-01-01", "2026-01-02"]
    queries = read("eval.jsonl")
    write("eval.jsonl", *({k: v for k, v in one.items() if k != "as_of"} for one in queries))
    run("search", "--system", "bm25")
    assert "as_of_range" not in read("runs/bm25.jsonl")[0]


def test_an_as_of_that_is_a_version_makes_no_range_of_dates(run, place):
    queries = read("eval.jsonl")
    named = [{**one, "as_of": f"v{at}"} for at, one in enumerate(queries, 1)]
    write("eval.jsonl", *named)
    assert run("search", "--system", "bm25").code == 0
    assert "as_of_range" not in read("runs/bm25.jsonl")[0]
    assert run("schema", "run-log", "--check", "runs/bm25.jsonl").code == 0


def test_an_object_cannot_make_a_log_that_nobody_can_read(run, place):
    Path("mine.py").write_text(
        "class Mine:\n"
        "    meta = {'schema_version': 5, 'k_raw': 'deep'}\n"
        "    def search(self, text: str, k):\n"
        "        return ['d1']\n"
    )
    configure('systems:\n  mine: {retriever: python, call: "mine.py:Mine"}\n')
    done = run("search")
    assert done.code == 2
    assert 'mine: k_raw is "deep"; a whole number from 0 is expected' in done.err
    Path("mine.py").write_text(Path("mine.py").read_text().replace("'deep'", "9"))
    assert run("search").code == 0
    assert {line["schema_version"] for line in read("runs/mine.jsonl")} == {1}


def test_logs_from_before_there_were_versions_are_used_again(run, place):
    configure("systems:\n  bm25: {retriever: bm25, k: 3}\n")
    run("run")
    older = [
        {key: value for key, value in line.items() if key not in ("schema_version", *FACTS)}
        for line in read("runs/bm25.jsonl")
    ]
    write("runs/bm25.jsonl", *older)
    done = run("run")
    assert "log reused" in done.err
    assert read("runs/bm25.jsonl") == older


def test_going_on_with_a_log_from_before_gives_the_rest_a_version(run, place):
    configure("systems:\n  bm25: {retriever: bm25, k: 3}\n")
    run("search", "--no-latency")
    whole = Path("runs/bm25.jsonl").read_text()
    lines = read("runs/bm25.jsonl")
    older = [{k: v for k, v in line.items() if k != "schema_version"} for line in lines[:2]]
    write("runs/bm25.jsonl.part", *older)
    Path("runs/bm25.jsonl").unlink()
    assert run("search", "--no-latency", "--resume").code == 0
    again = read("runs/bm25.jsonl")
    assert [line.get("schema_version") for line in again] == [None, None, 1, 1, 1, 1]
    assert run("schema", "run-log", "--check", "runs/bm25.jsonl").code == 0
    # One that has versions goes on to the very log of an uninterrupted search.
    write("runs/bm25.jsonl.part", *lines[:2])
    Path("runs/bm25.jsonl").unlink()
    run("search", "--no-latency", "--resume")
    assert Path("runs/bm25.jsonl").read_text() == whole


def test_a_check_tells_all_bad_lines_and_their_number(run, place):
    write("a.jsonl", call(), call("q2", schema_version=2), call("q3"), {"query_id": "q4"})
    done = run("schema", "run-log", "--check", "a.jsonl")
    assert done.code == 2
    assert done.out == ""
    first, second, last = done.err.splitlines()
    assert first.startswith("a.jsonl:2: schema_version is 2; this karat reads version 1: update")
    assert second.startswith("a.jsonl:4: has neither topk nor error")
    assert last == "karat: a.jsonl: 2 of 4 lines cannot be read as a call of a run log"
    write("b.jsonl", *({"query_id": f"q{n}"} for n in range(1500)))
    told = run("schema", "run-log", "--check", "b.jsonl").err.splitlines()
    assert len(told) == 22
    assert told[19].startswith("b.jsonl:20: ")
    assert told[20] == "and 1,480 more"
    assert "1,500 of 1,500 lines" in told[21]


def test_one_bad_log_among_sound_ones_is_enough(run, place):
    write("a.jsonl", call(k_raw=5), call("q2"))
    write("b.jsonl", {"query_id": "q1"})
    done = run("schema", "run-log", "--check", "a.jsonl", "b.jsonl")
    assert done.code == 2
    assert "a.jsonl: sound, 2 calls" in done.out
    assert "b.jsonl:1: " in done.err
    quiet = run("schema", "run-log", "--check", "--quiet", "a.jsonl", "b.jsonl")
    assert (quiet.code, quiet.out, quiet.err) == (2, "", "")
    document = json.loads(run("schema", "run-log", "--check", "--json", "a.jsonl", "b.jsonl").out)
    assert document["sound"] is False
    sound, bad = document["logs"]
    assert sound["has"]["k_raw"] == {"in": "1 of 2", "lines": 1, "of": 2}
    assert sound["has"]["raw"] == {"in": "none", "lines": 0, "of": 2}
    assert (bad["bad_lines"], bad["errors"][0]["line"], bad["has"]) == (1, 1, None)


def test_a_log_can_be_checked_from_a_pipe(spawn):
    text = (json.dumps(call()) + "\n").encode()
    done = spawn("schema", "run-log", "--check", "-", stdin=text)
    assert done.code == 0, done.err
    assert "1 call" in done.out


def test_a_run_carries_its_versions_and_dates_into_the_report(run, place):
    configure("systems:\n  bm25: {retriever: bm25, k: 3}\n  other: {retriever: bow, k: 3}\n")
    told = inputs(run, "run")
    assert {key: told[key] for key in FACTS} == FACTS


def test_logs_alone_carry_their_versions_and_dates_into_every_report(run, place):
    configure("systems:\n  bm25: {retriever: bm25, k: 3}\n  other: {retriever: bow, k: 3}\n")
    run("search")
    Path("karat.yaml").unlink()
    Path("qrels.txt").write_text("".join(f"q{n} 0 d{n} 1\n" for n in range(1, 7)))
    logs = ("runs/bm25.jsonl", "runs/other.jsonl")
    for command in ("eval", "compare", "stages", "sweep", "triage", "diagnose"):
        names = logs[:1] if command in ("triage", "diagnose") else logs
        told = inputs(run, command, *names, "--gold", "qrels.txt")
        assert {key: told[key] for key in FACTS} == FACTS, command
    report = json.loads(run("eval", *logs, "--gold", "qrels.txt", "--json").out)
    for system in report["systems"]:
        assert "schema_version" not in system["meta"]
        assert {key: system["meta"][key] for key in FACTS} == FACTS


def test_the_dates_of_the_queries_win_over_those_of_a_log(run, place):
    write("a.jsonl", call(as_of_range=["2020-01-01", "2020-02-02"]))
    Path("qrels.txt").write_text("q1 0 d1 1\n")
    assert inputs(run, "eval", "a.jsonl", "--gold", "qrels.txt")["as_of_range"] == [
        "2020-01-01",
        "2020-02-02",
    ]
    told = inputs(run, "eval", "a.jsonl", "--gold", "eval.jsonl")
    assert told["as_of_range"] == ["2026-01-01", "2026-01-06"]


def test_logs_that_disagree_are_compared_with_a_note(run, place):
    Path("qrels.txt").write_text("q1 0 d1 1\nq2 0 d2 1\n")
    dates = {"as_of_range": ["2026-01-01", "2026-01-02"]}
    for name, version, code in (("a", "v1", "c1"), ("b", "v2", "c2")):
        facts = {"dataset_version": version, "code_version": code, **dates}
        write(f"{name}.jsonl", call(**facts), call("q2", **facts))
    arguments = ("compare", "a.jsonl", "b.jsonl", "--gold", "qrels.txt", "-m", "RR")
    shown = run(*arguments)
    line = "dataset_version differs between the runs: a v1, b v2; their queries may differ"
    assert line in shown.out
    assert "code_version differs between the runs: a c1, b c2\n" in shown.out
    assert "as_of_range differs" not in shown.out
    report = json.loads(run(*arguments, "--json").out)
    assert report["inputs"]["as_of_range"] == dates["as_of_range"]
    assert not {"dataset_version", "code_version"} & set(report["inputs"])
    assert [one["meta"]["dataset_version"] for one in report["systems"]] == ["v1", "v2"]
    run(*arguments, "-o", "out.md")
    assert line in Path("out.md").read_text().replace("\\", "")


def test_a_run_that_says_nothing_leaves_the_report_without_a_version(run, place):
    Path("qrels.txt").write_text("q1 0 d1 1\nq2 0 d2 1\n")
    write("a.jsonl", call(dataset_version=3), call("q2"))
    write("b.jsonl", call(), call("q2"))
    arguments = ("--gold", "qrels.txt", "-m", "RR")
    assert inputs(run, "eval", "a.jsonl", *arguments)["dataset_version"] == "3"
    both = run("eval", "a.jsonl", "b.jsonl", *arguments)
    assert "differs" not in both.out
    assert "dataset_version" not in inputs(run, "eval", "a.jsonl", "b.jsonl", *arguments)
