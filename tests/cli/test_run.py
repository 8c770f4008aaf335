"""``karat run``: one command from a karat.yaml to logs, report, verdict and exit code."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

WORDS = ["apple", "bread", "cider", "dates", "endive", "figs", "grape", "honey"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Items of two words, and a query for each; `sloppy` searches for the wrong word."""
    monkeypatch.chdir(tmp_path)
    pairs = [(a, b) for a in WORDS for b in WORDS if a < b]
    items = [{"id": f"{a}-{b}", "text": f"{a} {b}"} for a, b in pairs]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(one) + "\n" for one in items))
    asked = [
        {"id": f"q{i:02}", "query": f"{a} {b}", "relevant_chunk_ids": [f"{a}-{b}"]}
        for i, (a, b) in enumerate(pairs)
    ]
    (tmp_path / "eval.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))
    (tmp_path / "mine.py").write_text(
        "import pathlib\n"
        "def sloppy(text):\n"
        "    return text.split()[0] + ' ' + text.split()[0]\n"
        "def search(text, k):\n"
        "    with open('asked.txt', 'a') as file:\n"
        "        file.write(text + chr(10))\n"
        "    if pathlib.Path('down').exists():\n"
        "        raise RuntimeError('no connection')\n"
        "    return [text.replace(' ', '-')]\n"
    )
    write(tmp_path)
    return tmp_path


SYSTEMS = """\
systems:
  good: {retriever: bm25, k: 5}
  worse: {retriever: bm25, k: 5, rewrite: "mine.py:sloppy"}
"""


def write(folder, systems=SYSTEMS, more=""):
    head = "queries: eval.jsonl\ncorpus: corpus.jsonl\nmeasures: [RR, R@1]\n"
    (folder / "karat.yaml").write_text(head + more + systems)


def stamps(place):
    return {path.name: path.stat().st_mtime_ns for path in (place / "runs").iterdir()}


def test_systems_are_searched_compared_and_reported(place, run):
    more = "outputs: [out/report.json, out/report.md]\ndataset_version: v7\ncode_version: c1\n"
    write(place, more=more)
    done = run("run")
    assert done.code == 1, "the second system is a confirmed regression"
    assert done.out.startswith("WORSE")
    report = json.loads((place / "out" / "report.json").read_text())
    assert [system["name"] for system in report["systems"]] == ["good", "worse"]
    assert report["systems"][0]["measures"]["R@1"]["mean"] == 1.0
    assert report["comparisons"][0]["baseline"] == "good"
    inputs = report["inputs"]
    assert (inputs["dataset_version"], inputs["code_version"]) == ("v7", "c1")
    assert len(inputs["config_digest"]) == 64
    assert [one["name"] for one in inputs["runs"]] == ["good.jsonl", "worse.jsonl"]
    assert (place / "out" / "report.md").is_file()


def test_gates_of_the_config_decide_the_exit_code(place, run):
    gates = 'gates: ["R@1 >= 0.5"]\n'
    one = "systems:\n  good: {retriever: bm25, k: 5}\n"
    write(place, one, gates)
    assert run("run").code == 0
    write(place, 'systems:\n  x: {retriever: bm25, rewrite: "mine.py:sloppy"}\n', gates)
    assert run("run").code == 1


def test_logs_are_used_again_until_something_they_depend_on_changes(place, run):
    run("run")
    before = stamps(place)
    again = run("run")
    assert "log reused" in again.err
    assert stamps(place) == before
    run("run", "--fresh")
    assert stamps(place).keys() == before.keys()
    assert all(stamps(place)[name] != before[name] for name in before)

    before = stamps(place)
    # Another order of keys and a comment mean the same.
    write(place, SYSTEMS.replace("{retriever: bm25, k: 5}", "{k: 5, retriever: bm25}  # same"))
    run("run")
    assert stamps(place) == before
    write(place, SYSTEMS.replace("retriever: bm25, k: 5}", "retriever: bm25, k: 6}"))
    run("run")
    assert stamps(place)["good.jsonl"] != before["good.jsonl"]
    assert stamps(place)["worse.jsonl"] == before["worse.jsonl"]


def git(*arguments: str) -> str:
    identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    done = subprocess.run(
        ["git", *identity, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def committed(text: str) -> str:
    """The code's version after a change that no log depends on, as a log spells it."""
    Path("readme.txt").write_text(text)
    git("add", "readme.txt", "mine.py")
    git("commit", "-q", "-m", text)
    return git("rev-parse", "HEAD")


def versions_told(place, run, *more) -> dict[str, str]:
    run("run", "--quiet", "-o", "out.json", *more)
    inputs = json.loads((place / "out.json").read_text())["inputs"]
    return {key: told for key, told in inputs.items() if key.endswith("_version")}


def test_the_code_that_a_report_names_is_the_one_that_made_the_logs(place, run, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(place.parent))
    monkeypatch.delenv("GIT_DIR", raising=False)
    git("init", "-q")
    first = committed("first")
    assert first.startswith(versions_told(place, run)["code_version"])
    committed("second")
    again = versions_told(place, run)["code_version"]
    assert first.startswith(again), "the logs are used again, and so is what they say"

    # One system is asked again by the newer code: no version is that of both.
    write(place, SYSTEMS.replace("good: {retriever: bm25, k: 5}", "good: {retriever: bm25, k: 6}"))
    assert versions_told(place, run) == {}
    # What the config itself says is the word of its author.
    write(place, more="code_version: c1\ndataset_version: v7\n")
    assert versions_told(place, run) == {"code_version": "c1", "dataset_version": "v7"}


def test_the_dataset_that_logs_were_made_with_is_told_where_the_config_names_none(place, run):
    more = "dataset_version: v7\ncode_version: c1\n"
    write(place, more=more)
    versions_told(place, run)
    write(place)
    told = versions_told(place, run)
    assert told == {"dataset_version": "v7", "code_version": "c1"}


@pytest.mark.parametrize("changed", ["corpus.jsonl", "eval.jsonl", "mine.py"])
def test_a_changed_file_has_its_systems_asked_again(place, run, changed):
    run("run")
    before = stamps(place)
    text = (place / changed).read_text()
    (place / changed).write_text(text.replace("honey", "honeycomb") + ("\n" * (changed[-1] == "y")))
    run("run")
    after = stamps(place)
    assert after["worse.jsonl"] != before["worse.jsonl"]
    if changed == "mine.py":
        assert after["good.jsonl"] == before["good.jsonl"], "it does not use the file"


def test_a_live_system_is_asked_again_unless_its_version_is_told(place, run):
    live = 'systems:\n  live: {retriever: python, call: "mine.py:search"}\n'
    write(place, live)
    run("run")
    asked = len((place / "asked.txt").read_text().splitlines())
    run("run")
    assert len((place / "asked.txt").read_text().splitlines()) == 2 * asked
    write(place, live.replace('search"}', 'search", index_version: "2026-11"}'))
    run("run")
    run("run")
    assert len((place / "asked.txt").read_text().splitlines()) == 3 * asked


def test_a_module_that_rewrites_is_asked_again_when_it_changes(place, run):
    systems = 'systems:\n  x: {retriever: bm25, rewrite: "mine:sloppy"}\n'
    write(place, systems)
    run("run")
    before = stamps(place)
    run("run")
    assert stamps(place) == before
    (place / "mine.py").write_text((place / "mine.py").read_text() + "\n# changed\n")
    run("run")
    assert stamps(place) != before


def test_of_a_log_with_few_failures_only_those_are_asked_again(place, run):
    live = 'systems:\n  live: {retriever: python, call: "mine.py:search", index_version: "1"}\n'
    write(place, live)
    run("run")
    log = place / "runs" / "live.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines[3] |= {"topk": [], "error": "busy"}
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (place / "asked.txt").unlink()
    run("run")
    assert len((place / "asked.txt").read_text().splitlines()) == 1


def test_too_many_failed_calls_make_the_run_partial_and_exit_with_3(place, run):
    write(place, 'systems:\n  live: {retriever: python, call: "mine.py:search"}\n')
    (place / "down").write_text("")
    (place / "mine.py").write_text(
        "asked = []\n"
        "def search(text, k):\n"
        "    asked.append(text)\n"
        "    if len(asked) % 2:\n"
        "        raise RuntimeError('no connection')\n"
        "    return [text.replace(' ', '-')]\n"
    )
    done = run("run", "-o", "report.json")
    assert done.code == 3
    assert "no connection" in done.err
    report = json.loads((place / "report.json").read_text())
    assert report["systems"][0]["partial"] is True
    assert report["verdict"] == "unmeasurable"
    assert report["counts"]["failed_calls"] == 14


def test_a_run_in_which_no_call_succeeded_replaces_nothing(place, run):
    write(place, 'systems:\n  live: {retriever: python, call: "mine.py:search"}\n')
    outputs = ("-o", "report.json", "-o", "report.md")
    assert run("run", *outputs).code == 0
    names = ("runs/live.jsonl", "report.json", "report.md")
    before = {name: (place / name).read_bytes() for name in names}
    (place / "down").write_text("")
    for quiet in ((), ("--quiet",)):
        done = run("run", *outputs, *quiet)
        assert (done.code, done.out) == (2, "")
        assert "no connection" in done.err
        assert str(Path("runs", "live.failed.jsonl")) in done.err
        assert {name: (place / name).read_bytes() for name in names} == before
        lines = (place / "runs" / "live.failed.jsonl").read_text().splitlines()
        assert {json.loads(line)["error"] for line in lines} == {
            "mine.py:search raised RuntimeError: no connection"
        }
    refused = run("run", "-o", "runs/live.failed.jsonl")
    assert refused.code == 2
    (place / "down").unlink()
    assert run("run", *outputs).code == 0


def test_eval_of_a_partial_log_exits_with_3_and_a_few_failures_do_not(place, run):
    run("run", "--system", "good")
    lines = (place / "runs" / "good.jsonl").read_text().splitlines()
    bad = [json.loads(line) for line in lines]
    for at in range(2):
        bad[at] |= {"topk": [], "error": "busy"}
    (place / "two.jsonl").write_text("".join(json.dumps(one) + "\n" for one in bad))
    # 2 of 28 is more than 5 %, 1 of 28 is less.
    assert run("eval", "two.jsonl", "--gold", "eval.jsonl").code == 3
    bad[0] = json.loads(lines[0])
    (place / "one.jsonl").write_text("".join(json.dumps(one) + "\n" for one in bad))
    assert run("eval", "one.jsonl", "--gold", "eval.jsonl").code == 0


def test_the_config_must_name_gold_and_systems(place, run):
    write(place, "")
    assert "has no systems" in run("run").err
    (place / "queries.tsv").write_text("q1\tapple\n")
    text = (place / "karat.yaml").read_text().replace("eval.jsonl", "queries.tsv")
    (place / "karat.yaml").write_text(text + SYSTEMS)
    done = run("run")
    assert done.code == 2
    assert "query_id, item_id, grade" in done.err


def test_json_and_saving_work_as_elsewhere(place, run):
    done = run("run", "--json", "--save", "--tag", "main", "--store", "h.db")
    assert json.loads(done.out)["systems"][0]["name"] == "good"
    assert "good" in run("history", "--store", "h.db").out


def test_an_interrupted_log_of_a_built_in_retriever_is_gone_on_with(place, run):
    run("run", "--system", "good")
    log = place / "runs" / "good.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    part = place / "runs" / "good.jsonl.part"
    part.write_bytes(b"".join(lines[:10]))
    log.unlink()
    done = run("run", "--system", "good")
    assert "10 from an earlier search" in done.err
    assert log.read_bytes().splitlines(keepends=True)[:10] == lines[:10]
    assert not part.exists()


def test_a_part_of_another_run_is_started_over_by_itself(place, run):
    run("run", "--system", "good")
    log = place / "runs" / "good.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    (place / "runs" / "good.jsonl.part").write_bytes(b"".join(lines[:10]))
    write(place, SYSTEMS.replace("retriever: bm25, k: 5}", "retriever: bm25, k: 6}"))
    done = run("run", "--system", "good")
    assert done.code == 0
    assert "from an earlier search" not in done.err
    assert all(json.loads(line)["k"] == 6 for line in log.read_text().splitlines())


def test_what_is_wrong_with_gold_or_gates_is_told_before_any_system_is_asked(place, run):
    live = 'systems:\n  live: {retriever: python, call: "mine.py:search"}\n'
    write(place, live, "by: [langage]\n")
    assert run("run").code == 2
    write(place, live, "gates: [{measure: R@1, by: tone, values: [x], min: 0.5}]\n")
    assert run("run").code == 2
    assert not (place / "asked.txt").exists()


def test_measures_that_look_deeper_than_the_log_are_named(place, run):
    run("run", "--system", "good")
    deeper = run(
        "eval", "runs/good.jsonl", "--gold", "eval.jsonl", "-m", "R@5,R@20", "-o", "r.json"
    )
    assert "not measured: R@20" in deeper.out
    [system] = json.loads((place / "r.json").read_text())["systems"]
    assert (system["cut_at"], system["beyond_log"]) == (5, ["R@20"])
    assert system["measures"]["R@20"]["mean"] is None
    assert "cut at 5" in system["measures"]["R@20"]["lacks"]
    assert system["measures"]["R@5"]["mean"] == 1


def test_what_a_live_system_says_of_its_chunks_is_logged_as_it_is(place, run):
    chunker = "{algo: hdgsent, target_tokens: 600, overlap: 80}"
    call = f'live: {{retriever: python, call: "mine.py:search", chunker: {chunker}}}'
    write(place, f"systems:\n  {call}\n")
    assert run("run").code == 0
    [first, *_] = (place / "runs" / "live.jsonl").read_text().splitlines()
    told = {"algo": "hdgsent", "target_tokens": 600, "overlap": 80}
    assert json.loads(first)["chunker"] == told
    write(place, f"systems:\n  own: {{retriever: bm25, chunker: {chunker}}}\n")
    assert run("run").code == 2


def test_how_a_corpus_was_cut_before_is_logged_and_cuts_nothing(run, place):
    cut = "{algo: paragraph, target_words: 80}"
    write(place, f"systems:\n  own: {{retriever: bm25, chunked: {cut}}}\n")
    assert run("run", "--quiet").code == 0
    first, *_ = (place / "runs" / "own.jsonl").read_text().splitlines()
    assert json.loads(first)["chunker"] == {"algo": "paragraph", "target_words": 80}
    both = f"{{retriever: bm25, chunked: {cut}, chunker: {{algo: fixed}}}}"
    write(place, f"systems:\n  own: {both}\n")
    refused = run("run")
    assert refused.code == 2
    assert (
        "chunked says how the corpus was cut before, and chunker cuts it; keep one" in refused.err
    )


def test_a_chunk_is_known_by_its_own_id_and_not_by_its_document(place, run):
    rows = [json.loads(line) for line in (place / "corpus.jsonl").read_text().splitlines()]
    (place / "corpus.jsonl").write_text(
        "".join(json.dumps({**row, "doc_id": f"doc-{row['id']}"}) + "\n" for row in rows)
    )
    done = run("run", "--system", "good", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["systems"][0]["measures"]["R@1"]["mean"] == 1.0


def test_settings_of_the_command_line_go_before_those_of_the_file(place, run):
    write(place, more="settings: {ties: given, ci: 0.9}\nseed: 3\n")
    assert run("run", "--set", "ci=0.8", "--set", "seed=7", "-o", "r.json").code in (0, 1)
    conventions = json.loads((place / "r.json").read_text())["conventions"]
    assert (conventions["ci"], conventions["seed"], conventions["ties"]) == (0.8, 7, "given")
    wrong = run("run", "--set", "tie=given")
    assert (wrong.code, "did you mean ties" in wrong.err) == (2, True)
