"""Evaluations started from the page: real processes, watched as they go, saved in the store."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from karat.store import Store

from .benches import Bench, bench_in_process, bench_served, ended, lay
from .test_serve import awaited

BM25 = "bm25: {retriever: bm25}"
BOW = "bow: {retriever: bow}"
SLOW = 'slow: {retriever: python, call: "calls.py:slow"}'
STUCK = 'stuck: {retriever: python, call: "calls.py:stuck", timeout: 600}'
DEAF = 'deaf: {retriever: python, call: "deaf.py:search", timeout: 600}'
ENDED = ("done", "failed", "stopped")


def started(bench: Bench, **wish) -> int:
    answer = bench.post("/api/runs", wish)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def outcome(bench: Bench, id: int, within: float = 60) -> dict:
    until = time.monotonic() + within
    while time.monotonic() < until:
        run = bench.get(f"/api/runs/{id}").json()
        if run["state"] in ENDED:
            return run
        time.sleep(0.05)
    raise AssertionError(f"still going on: {run}")


def watched(bench: Bench, id: int) -> list[dict]:
    """Return every answer to a page that asks for what is new until the run has ended."""
    answers, after = [], 0
    until = time.monotonic() + 60
    while time.monotonic() < until:
        answers.append(bench.get(f"/api/runs/{id}?after={after}").json())
        if answers[-1]["state"] in ENDED:
            return answers
        after = answers[-1]["last"]
        time.sleep(0.05)
    raise AssertionError(f"still going on: {answers[-1]}")


@pytest.fixture
def serve(tmp_path):
    """A workbench over a folder with these systems."""

    def make(*systems: str, more: str = ""):
        config = lay(tmp_path / "set", *systems, more=more)
        return bench_served(config, tmp_path / "h.db", tmp_path)

    return make


@pytest.fixture
def here(tmp_path):
    """The same in this process, which starts sooner; what it runs are processes all the same."""

    def make(*systems: str, more: str = ""):
        return bench_in_process(lay(tmp_path / "set", *systems, more=more), tmp_path / "h.db")

    return make


def test_an_evaluation_is_watched_to_its_end_and_is_in_the_store(serve, tmp_path):
    with serve(BM25, SLOW) as bench:
        id = started(bench, tags=["main", "a-b"])
        answers = watched(bench, id)
        run = outcome(bench, id)
        assert [line for answer in answers for line in answer["log"]] == run["log"]
        assert answers[-1]["state"] == "done"
        slow = [
            progress["done"]
            for answer in answers
            for progress in answer["progress"]
            if progress["system"] == "slow"
        ]
        assert slow == sorted(slow)
        assert len(set(slow)) >= 3
        assert run["exit_code"] in (0, 1)
        assert {one["system"]: one["done"] for one in run["progress"] if one["system"]} == {
            "bm25": 3,
            "slow": 3,
        }
        ids = [one["id"] for one in run["evaluations"]]
        assert any(f"saved as {', '.join(map(str, ids))} in" in line for line in run["log"])
    with Store.open(tmp_path / "h.db") as store:
        kept = {one.id: one for one in store.evaluations()}
    assert [kept[one].system for one in ids] == ["bm25", "slow"]
    assert {tag for one in ids for tag in kept[one].tags} == {"main", "a-b"}
    assert [one["verdict"] for one in run["evaluations"]] == [kept[one].verdict for one in ids]


def test_a_gate_that_fails_is_a_finished_evaluation(here):
    with here(BM25, more="gates: [mean R@1 >= 0.99]") as bench:
        run = outcome(bench, started(bench))
    assert run["state"] == "done"
    assert run["exit_code"] == 1
    assert run["meaning"].startswith("Finished: a gate failed")
    assert [one["verdict"] for one in run["evaluations"]] == ["fail"]


def test_only_the_systems_named_are_evaluated_and_fresh_asks_again(here):
    with here(BM25, BOW) as bench:
        first = outcome(bench, started(bench, systems=["bow"]))
        again = outcome(bench, started(bench, systems=["bow"]))
        fresh = outcome(bench, started(bench, systems=["bow"], fresh=True))
        listed = bench.get("/api/runs").json()["runs"]
        page = bench.get("/new").text
    assert [one["system"] for one in first["evaluations"]] == ["bow"]
    whats = [
        next(one["what"] for one in run["progress"] if one["system"] == "bow")
        for run in (first, again, fresh)
    ]
    assert whats == ["calls", "reused", "calls"]
    assert [one["id"] for one in listed] == [3, 2, 1]
    assert f"/evaluations/{fresh['evaluations'][0]['id']}" in page


def test_who_comes_later_or_comes_back_misses_nothing(here):
    with here(SLOW) as bench:
        id = started(bench)
        whole = outcome(bench, id)
        last = len(whole["log"])
        assert whole["last"] == last
        for after, rest in ((1, whole["log"][1:]), (last, []), (last + 1, whole["log"])):
            assert bench.get(f"/api/runs/{id}?after={after}").json() == {**whole, "log": rest}


def test_a_second_evaluation_is_refused_while_one_runs(here, tmp_path):
    with here(STUCK) as bench:
        id = started(bench)
        answer = bench.post("/api/runs", {})
        assert answer.status_code == 409
        assert f"evaluation {id} is still running" in answer.json()["error"]
        assert "still running" in bench.get("/new").text
        awaited((tmp_path / "set" / "stuck").exists)
        bench.post(f"/api/runs/{id}/stop")
        outcome(bench, id)
        assert bench.post("/api/runs", {"systems": ["stuck"]}).status_code == 201


def test_stopping_ends_it_and_says_so(here, tmp_path):
    with here(STUCK) as bench:
        id = started(bench)
        awaited((tmp_path / "set" / "stuck").exists)
        assert bench.post(f"/api/runs/{id}/stop").json()["state"] in ("stopping", "stopped")
        run = outcome(bench, id)
        assert run["state"] == "stopped"
        assert run["exit_code"] == 130
        assert run["saved"] == []
        assert "interrupted" in run["why"]
        again = bench.post(f"/api/runs/{id}/stop").json()
        assert again["state"] == "stopped"


def test_what_does_not_heed_ctrl_c_is_killed_after_a_while(here, tmp_path):
    with here(DEAF) as bench:
        id = started(bench)
        awaited((tmp_path / "set" / "deaf").exists)
        bench.post(f"/api/runs/{id}/stop")
        run = outcome(bench, id, within=30)
    assert run["state"] == "stopped"
    assert run["exit_code"] == -signal.SIGKILL


@pytest.mark.parametrize("system", [STUCK, DEAF])
def test_the_server_ends_promptly_with_a_run(serve, tmp_path, system):
    name = system.partition(":")[0]
    with serve(system) as bench:
        started(bench)
        awaited((tmp_path / "set" / name).exists)
        begun = time.monotonic()
        assert ended(bench, within=20) == 0
        assert time.monotonic() - begun < 12
    assert not running_runs(tmp_path)


def running_runs(folder: Path) -> list[str]:
    """Commands of ``karat run`` that still go on over this folder."""
    listed = subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True).stdout
    return [one for one in listed.splitlines() if "karat run" in one and str(folder) in one]


def test_a_server_that_is_killed_takes_its_run_with_it(serve, tmp_path):
    with serve(STUCK) as bench:
        started(bench)
        awaited((tmp_path / "set" / "stuck").exists)
        assert running_runs(tmp_path)
        bench.process.kill()
        awaited(lambda: not running_runs(tmp_path), within=15)


def test_no_line_of_a_log_holds_a_secret(here, tmp_path, monkeypatch):
    monkeypatch.setenv("DOOR_KEY", "swordfish-42")
    dead = 'dead: {retriever: http, url: "http://127.0.0.1:9/${DOOR_KEY}", body: {q: "{query}"}}'
    loud = 'loud: {retriever: python, call: "loud.py:search"}'
    with here(dead, loud) as bench:
        (tmp_path / "set" / "loud.py").write_text(
            "import os, sys\nprint('key', os.environ['DOOR_KEY'], file=sys.stderr)\n"
            "def search(text, k):\n    return ['pay#1']\n"
        )
        run = outcome(bench, started(bench, systems=["loud"]))
        assert "key ${DOOR_KEY}" in run["log"]
        assert "swordfish" not in json.dumps(run)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: (folder / "corpus.jsonl").unlink(), "corpus.jsonl"),
        (lambda folder: (folder / "corpus.jsonl").write_text('{"id": "a"\n'), "corpus.jsonl"),
        (lambda folder: (folder / "eval.jsonl").write_text(""), "eval.jsonl"),
        (
            lambda folder: (folder / "eval.jsonl").write_text(
                '{"id": "q1", "query": "pay", "relevant_chunk_ids": ["doc_pay#1"]}\n'
            ),
            "0 of 1 relevant items of eval.jsonl occur in corpus.jsonl",
        ),
    ],
)
def test_broken_input_is_a_failed_run_with_karats_sentence(here, tmp_path, spoil, told):
    with here(BM25) as bench:
        spoil(tmp_path / "set")
        run = outcome(bench, started(bench))
    assert run["state"] == "failed"
    assert run["exit_code"] == 2
    assert told in run["why"]
    assert run["evaluations"] == []
    own = subprocess.run(
        [sys.executable, "-m", "karat", "run", str(tmp_path / "set" / "karat.yaml")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert f"karat: {run['why']}" in own.stderr


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        ({"systems": ["bm24"]}, "unknown system 'bm24'; did you mean bm25?"),
        ({"systems": ["--json"]}, "unknown system"),
        ({"tags": ["two words"]}, "no blank"),
        ({"tags": ["12"]}, "would read as an id"),
        ({"tags": ["a\u0000b"]}, "tag"),
        ({"tags": "main"}, "tags:"),
    ],
)
def test_a_wish_that_cannot_be_met_starts_nothing(here, wish, told):
    with here(BM25) as bench:
        answer = bench.post("/api/runs", wish)
        assert answer.status_code == 400
        assert told in answer.json()["error"]
        assert bench.get("/api/runs").json() == {"runs": []}


def test_a_tag_that_looks_like_an_option_or_a_command_is_only_a_tag(here, tmp_path):
    tags = ["--json", "$(touch${IFS}oops)", ";reboot", "-"]
    with here(BM25) as bench:
        run = outcome(bench, started(bench, tags=tags))
        assert run["state"] == "done", run
    with Store.open(tmp_path / "h.db") as store:
        assert set(store.evaluations()[0].tags) == set(tags)
    assert not list(tmp_path.rglob("oops"))


def test_an_unknown_run_is_not_there(here):
    with here(BM25) as bench:
        answer = bench.get("/api/runs/7")
        assert answer.status_code == 404
        assert "evaluation 7" in answer.json()["error"]
        assert bench.get("/runs/7").status_code == 404


def test_the_runs_page_shows_what_is_known_without_any_script(here):
    with here(BM25) as bench:
        id = started(bench)
        run = outcome(bench, id)
        page = bench.get(f"/runs/{id}").text
    assert run["meaning"].replace("'", "&#39;") in page
    assert "saved as" in page
