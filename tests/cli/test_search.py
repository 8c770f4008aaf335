"""``karat search``: logs, resuming after any stop, limits, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import karat

WORDS = ["apple", "bread", "cider", "dates", "endive", "figs", "grape", "honey"]
N = 40


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A corpus of two-word items, forty queries in two languages, and two systems."""
    monkeypatch.chdir(tmp_path)
    pairs = [(a, b) for a in WORDS for b in WORDS if a != b]
    items = [{"id": f"{a}-{b}", "text": f"{a} {b}"} for a, b in pairs]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(one) + "\n" for one in items))
    asked = [
        {
            "id": f"q{i:02}",
            "query": f"{a} {b}",
            "relevant_chunk_ids": [f"{a}-{b}"],
            "language": "pt" if i % 4 == 0 else "en",
        }
        for i, (a, b) in enumerate(pairs[:N])
    ]
    (tmp_path / "eval.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))
    write(tmp_path, "bm25: {retriever: bm25, k: 5}\n  more: {retriever: bm25, k: 7, b: 0.3}")
    return tmp_path


def write(folder, systems, more=""):
    text = f"queries: eval.jsonl\ncorpus: corpus.jsonl\n{more}systems:\n  {systems}\n"
    (folder / "karat.yaml").write_text(text)


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_query_has_a_line_in_order_with_hits_latencies_and_provenance(place, run):
    done = run("search", "--system", "bm25")
    assert done.code == 0
    log = records(place / "runs" / "bm25.jsonl")
    assert [one["query_id"] for one in log] == [f"q{i:02}" for i in range(N)]
    first = log[0]
    assert first["system"] == "bm25"
    assert (first["k"], first["k_raw"]) == (5, 5)
    assert [hit["rank"] for hit in first["topk"]] == [1, 2, 3, 4, 5]
    # Two items hold both words, in either order; the corpus has "apple bread" first.
    assert [hit["chunk_id"] for hit in first["topk"][:2]] == ["apple-bread", "bread-apple"]
    assert set(first["latency_ms"]) == {"retrieve", "total"}
    assert first["latency_ms"]["total"] >= first["latency_ms"]["retrieve"] > 0
    assert first["cost"] == {"tokens": 10.0}
    for key in ("config_digest", "run_digest", "index_bytes", "karat_version", "retriever"):
        assert first[key]
    assert not list((place / "runs").glob("*.part"))


def test_a_log_is_a_run_that_evaluates(place, run):
    run("search", "--system", "bm25", "-o", "one.jsonl")
    scores = karat.evaluate(karat.read_run("one.jsonl"), karat.read_gold("eval.jsonl"), ["Hit@2"])
    assert scores.means()["Hit@2"] == 1.0
    assert scores.meta["config_digest"]


def test_all_systems_are_asked_into_files_of_their_own(place, run):
    assert run("search").code == 0
    assert sorted(path.name for path in (place / "runs").iterdir()) == ["bm25.jsonl", "more.jsonl"]
    refused = run("search", "-o", "one.jsonl")
    assert refused.code == 2
    assert "{system}" in refused.err
    assert run("search", "-o", "logs/{system}-x.jsonl").code == 0
    assert (place / "logs" / "more-x.jsonl").is_file()


def test_the_same_search_gives_the_same_bytes_without_latencies(place, run):
    run("search", "--system", "bm25", "-o", "a.jsonl", "--no-latency")
    run("search", "--system", "bm25", "-o", "b.jsonl", "--no-latency", "--concurrency", "8")
    assert (place / "a.jsonl").read_bytes() == (place / "b.jsonl").read_bytes()


def test_limit_and_filter_choose_queries(place, run):
    run("search", "--system", "bm25", "-o", "a.jsonl", "--limit", "3", "--filter", "language=pt")
    assert [one["query_id"] for one in records(place / "a.jsonl")] == ["q00", "q04", "q08"]
    assert "leaves no query" in run("search", "--filter", "language=fr").err
    assert "did you mean language" in run("search", "--filter", "langage=fr").err
    assert run("search", "--limit", "0").code == 2


def test_one_query_can_be_asked_by_its_id(place, run):
    run("search", "--system", "bm25", "-o", "a.jsonl", "--filter", "query_id=q04")
    assert [one["query_id"] for one in records(place / "a.jsonl")] == ["q04"]
    assert "leaves no query" in run("search", "--filter", "query_id=q4").err


@pytest.mark.parametrize("times", [1, 3])
def test_after_kill_9_resume_gives_the_log_of_an_uninterrupted_run(place, run, times):
    whole = ["search", "--system", "bm25", "--no-latency"]
    run(*whole, "-o", "whole.jsonl")
    for _ in range(times):
        command = [sys.executable, "-m", "karat", *whole, "-o", "cut.jsonl"]
        part = place / "cut.jsonl.part"
        before = part.stat().st_size if part.exists() else 0
        going = subprocess.Popen([*command, "--rate", "40", "--resume"])
        end = time.monotonic() + 30
        while time.monotonic() < end and (not part.exists() or part.stat().st_size <= before):
            time.sleep(0.01)
        going.send_signal(signal.SIGKILL)
        going.wait()
    assert 0 < part.stat().st_size < (place / "whole.jsonl").stat().st_size
    assert not (place / "cut.jsonl").exists()
    done = run(*whole, "-o", "cut.jsonl", "--resume")
    assert done.code == 0
    assert "from an earlier search" in done.out
    assert (place / "cut.jsonl").read_bytes() == (place / "whole.jsonl").read_bytes()
    assert not part.exists()


def test_a_torn_last_line_is_asked_again(place, run):
    run("search", "--system", "bm25", "-o", "whole.jsonl", "--no-latency")
    data = (place / "whole.jsonl").read_bytes()
    (place / "cut.jsonl.part").write_bytes(data[: len(data) // 2])
    run("search", "--system", "bm25", "-o", "cut.jsonl", "--no-latency", "--resume")
    assert (place / "cut.jsonl").read_bytes() == data


def test_an_interrupted_log_is_neither_lost_nor_mixed(place, run):
    run("search", "--system", "bm25", "-o", "whole.jsonl")
    half = (place / "whole.jsonl").read_bytes()[:9000]
    (place / "cut.jsonl.part").write_bytes(half)
    silent = run("search", "--system", "bm25", "-o", "cut.jsonl")
    assert silent.code == 2
    assert "--resume" in silent.err
    other = run("search", "--system", "more", "-o", "cut.jsonl", "--resume")
    assert other.code == 2
    assert "another run" in other.err
    assert (place / "cut.jsonl.part").read_bytes() == half
    assert run("search", "--system", "more", "-o", "cut.jsonl", "--restart").code == 0


def test_ctrl_c_keeps_what_was_done_and_says_how_to_go_on(place):
    command = [sys.executable, "-m", "karat", "search", "--system", "bm25", "--rate", "20"]
    going = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    part = place / "runs" / "bm25.jsonl.part"
    end = time.monotonic() + 30
    while time.monotonic() < end and (not part.exists() or not part.stat().st_size):
        time.sleep(0.02)
    going.send_signal(signal.SIGINT)
    _, told = going.communicate(timeout=30)
    assert going.returncode == 130
    assert "--resume" in told
    assert part.stat().st_size


@pytest.mark.parametrize(
    ("systems", "told"),
    [
        ("x: {retriever: bm52}", "karat.yaml:4: unknown retriever 'bm52'; did you mean bm25?"),
        ("x: {retriever: bm25, k_1: 2}", "karat.yaml:4: unknown key 'k_1'"),
        ("x: {retriever: bm25, k: 0}", "k is 0; it must be how many hits"),
        ("x: {retriever: bm25, k: many}", "k is 'many'"),
        ("x: {k: 3}", "x has no retriever; name one of bm25"),
        ("x: bm25", "a mapping is expected"),
        ("x: {retriever: bm25, stemmer: klingon}", "unknown stemmer 'klingon'"),
        ("x: {retriever: bm25, stopwords: klingon}", "stopwords: no list for 'klingon'"),
        ("x: {retriever: fuse, of: [x]}", "contains itself"),
        ("x: {retriever: fuse, of: [nothing]}", "unknown retriever 'nothing'"),
        ("x: {retriever: bm25, aliases: nowhere.yaml}", "nowhere.yaml: no such file"),
    ],
)
def test_what_a_system_cannot_mean_is_refused_with_its_line(place, run, systems, told):
    write(place, systems)
    done = run("search")
    assert done.code == 2
    assert told in done.err
    assert not (place / "runs").exists()


def test_bad_options_and_configs_are_refused(place, run):
    assert "did you mean bm25" in run("search", "--system", "bm24").err
    assert "whole number" in run("search", "--concurrency", "x").err
    assert run("search", "--resume", "--restart").code == 2
    assert ".jsonl" in run("search", "--system", "bm25", "-o", "run.trec").err
    (place / "folder.jsonl").mkdir()
    assert "is a folder" in run("search", "--system", "bm25", "-o", "folder.jsonl").err
    (place / "corpus.jsonl").unlink()
    assert "corpus.jsonl: no such file" in run("search").err
    (place / "karat.yaml").write_text("systems: {a: {retriever: bm25}}\n")
    assert "no queries" in run("search").err
    (place / "karat.yaml").unlink()
    assert "no karat.yaml" in run("search").err


def test_a_retriever_over_the_corpus_needs_one(place, run):
    (place / "karat.yaml").write_text("queries: eval.jsonl\nsystems: {a: {retriever: bm25}}\n")
    done = run("search")
    assert done.code == 2
    assert "corpus" in done.err


def test_json_tells_what_came_of_the_calls(place, run):
    done = run("search", "--system", "bm25", "--json")
    [told] = json.loads(done.out)
    assert (told["calls"], told["asked"], told["failed"], told["partial"]) == (N, N, 0, False)


def test_a_log_that_cannot_be_written_is_told(place, run):
    if os.geteuid() == 0:
        (place / "file").write_text("")
        done = run("search", "--system", "bm25", "-o", "file/x.jsonl")
    else:
        (place / "shut").mkdir(mode=0o500)
        done = run("search", "--system", "bm25", "-o", "shut/x.jsonl")
    assert done.code == 2
    assert "x.jsonl" in done.err or "file" in done.err


def test_a_log_does_not_replace_what_it_is_made_from(place, run):
    before = (place / "eval.jsonl").read_bytes()
    for name in ("eval.jsonl", "./corpus.jsonl"):
        refused = run("search", "--system", "bm25", "-o", name)
        assert refused.code == 2
        assert "is also an input" in refused.err
    assert (place / "eval.jsonl").read_bytes() == before


def test_a_sample_does_not_replace_the_whole_log(place, run):
    run("search", "--system", "bm25")
    whole = (place / "runs" / "bm25.jsonl").read_bytes()
    assert run("search", "--system", "bm25", "--limit", "3").code == 0
    assert (place / "runs" / "bm25.jsonl").read_bytes() == whole
    assert len(records(place / "runs" / "bm25.sample.jsonl")) == 3


def test_code_of_others_that_prints_exits_or_walks_away_does_no_harm(place, run):
    (place / "odd.py").write_text(
        "import os, sys\n"
        "def noisy(text):\n    print('NOISE')\n    return text\n"
        "def leaving(text):\n    sys.exit(0)\n"
        "def walking(text):\n    os.chdir('/')\n    return text\n"
        "class Mute(Exception):\n    def __str__(self):\n        raise ValueError\n"
        "def mute(text):\n    raise Mute\n"
    )
    for call in ("noisy", "leaving", "walking", "mute"):
        write(place, f'odd: {{retriever: bm25, rewrite: "odd.py:{call}"}}')
        done = run("search", "--json")
        [told] = json.loads(done.out)
        failing = call in ("leaving", "mute")
        assert (done.code, told["failed"]) == ((2, N) if failing else (0, 0))
        assert len(records(place / told["log"])) == N
        assert not any("error" in one for one in records(place / "runs" / "odd.jsonl"))


def test_queries_without_text_are_told(place, run):
    (place / "eval.jsonl").write_text(
        '{"query_id": "q1", "text": "apple bread", "gold_evidence": ["apple-bread"]}\n'
        '{"query_id": "q2", "question": " ", "gold_evidence": ["apple-bread"]}\n'
    )
    done = run("search", "--system", "bm25")
    assert "1 of queries without text" in done.out
    assert records(place / "runs" / "bm25.jsonl")[0]["topk"]


def test_as_many_hits_are_returned_as_a_measure_looks_at(place, run):
    write(place, "plain: {retriever: bow}", "measures: [R@55]\n")
    run("search")
    assert records(place / "runs" / "plain.jsonl")[0]["k"] == 55
    write(place, "plain: {retriever: bow}", "measures: [R@5]\n")
    run("search")
    assert records(place / "runs" / "plain.jsonl")[0]["k"] == 50


def test_the_log_says_what_it_was_made_with(place, run):
    run("search", "--system", "more")
    first = records(place / "runs" / "more.jsonl")[0]
    assert first["config"] == {"retriever": "bm25", "k": 7, "b": 0.3}
    for name in ("corpus", "queries"):
        assert len(first[name]["sha256"]) == 64
    assert first["corpus"]["name"] == "corpus.jsonl"


def test_a_log_with_stages_is_converted_by_its_final_list(place, run):
    write(place, "both: {retriever: fuse, of: [bm25, bow], k: 2}")
    run("search")
    told = run("convert", "runs/both.jsonl", "both.trec").err
    assert f"{2 * N} hits written as trec" in told
    assert len((place / "both.trec").read_text().splitlines()) == 2 * N


def test_searching_needs_no_library_of_another_part(place):
    write(place, "plain: {retriever: bow}")
    absent = ("sqlalchemy", "bm25s", "fastembed", "httpcore", "jmespath", "psycopg", "chromadb")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({absent}));"
        "from karat.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "search"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    write(place, "words: {retriever: bm25}")
    done = subprocess.run(
        [sys.executable, "-c", code, "search"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "pip install 'karat[bm25]'" in done.stderr
