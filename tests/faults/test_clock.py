"""A clock that jumps: times are measured by another, and the last word stays the last."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from karat.store import Store

from .moved_clock import KIND, Clock
from .services import Service
from .worlds import lay_pool, lay_runs, write_lines

CALLS = 12
# Much longer than anything here takes, and much shorter than any jump.
PATIENCE = 600.0
# Back by a day, a year ahead, to and fro.
JUMPS = (-1, 365, 0, -1, 366, 2)
JUMPING = f"""\
from pathlib import Path
from threading import Event


def search(text, k):
    turn = int(text.removeprefix("word"))
    part = Path(f"clock.{{turn}}")
    part.write_text(f"{{{JUMPS}[turn % {len(JUMPS)}]:+}}d\\n")
    part.replace("clock")
    # libfaketime has time.sleep fail.
    Event().wait(0.01)
    return [text]
"""


@pytest.fixture
def clock(tmp_path) -> Clock:
    folder = tmp_path / "files"
    folder.mkdir()
    return Clock(folder / "clock")


def karat(clock: Clock, *words: str, jumps: bool = False, **more: str) -> None:
    done = subprocess.run(
        [*clock.command, *words],
        cwd=clock.path.parent,
        env={**os.environ, **clock.environment(jumps=jumps), **more},
        capture_output=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr.decode()


def test_a_search_whose_clock_jumps_at_every_call(clock, told):
    """No latency below zero or of days, no pace or timeout that waits for a clock to come back."""
    folder = clock.path.parent
    asked = [{"id": f"q{at:02}", "query": f"word{at}"} for at in range(CALLS)]
    write_lines(folder / "queries.jsonl", map(json.dumps, asked))
    (folder / "jumping.py").write_text(JUMPING)
    system = "{retriever: python, call: 'jumping.py:search', k: 1, timeout: 60, concurrency: 2}"
    (folder / "karat.yaml").write_text(f"queries: queries.jsonl\nsystems:\n  live: {system}\n")
    begun = time.monotonic()
    karat(clock, "search", "--rate", "20", "--quiet", jumps=True)
    took = time.monotonic() - begun
    assert (CALLS - 1) / 20 <= took < PATIENCE
    lines = (folder / "runs" / "live.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [one["query_id"] for one in records] == [one["id"] for one in asked]
    assert not any(one.get("error") for one in records)
    assert all(10 <= one["latency_ms"]["total"] < 1000 * PATIENCE for one in records)
    told(f"a clock that jumps ({KIND})", "search, at every call", CALLS, "latencies true, no wait")


def test_a_judge_whose_clock_jumps_at_every_call(run, clock, monkeypatch, told):
    """An endpoint that asks for a second of patience gets it, whatever day it is here."""
    folder = clock.path.parent
    lay_pool(folder / "p", CALLS)
    monkeypatch.chdir(folder)
    (folder / "prompt.md").write_text("{query}\n{text}\n")

    def jump(about: str, turn: int) -> str | None:
        clock.set(JUMPS[service.asked.total() % len(JUMPS)])
        return "is busy" if turn == 1 and service.asked.total() % 4 == 0 else None

    with Service() as service:
        words = ("judge", "p/pool.jsonl", "--model", "m", "--prompt", "prompt.md", "--quiet")
        words = (*words, "--url", f"{service.url}/v1", "--rate", "20", "--timeout", "60")
        assert run(*words, "-o", "whole.jsonl", "--cache", "first").code == 0
        service.asked.clear()
        service.fault = jump
        begun = time.monotonic()
        karat(clock, *words, "-o", "labels.jsonl", jumps=True)
        assert time.monotonic() - begun < PATIENCE
    assert (folder / "labels.jsonl").read_bytes() == (folder / "whole.jsonl").read_bytes()
    told(f"a clock that jumps ({KIND})", "judge, at every call", CALLS, "the same labels, no wait")


def test_reports_know_no_clock(run, clock, monkeypatch, told):
    """The same bytes a year ahead and a day behind, in whatever zone."""
    folder = clock.path.parent
    lay_runs(folder / "runs", queries=5)
    words = ("eval", "runs/old.trec", "--gold", "runs/qrels.txt", "--quiet", "-o", "out.json")
    monkeypatch.chdir(folder)
    assert run(*words).code == 0
    whole = (folder / "out.json").read_bytes()
    for days, zone in ((365, "America/New_York"), (-1, "Europe/Berlin")):
        clock.set(days)
        karat(clock, *words, TZ=zone)
        assert (folder / "out.json").read_bytes() == whole
    told(f"a clock that jumps ({KIND})", "eval -o", 2, "the same bytes")


def test_a_tag_is_of_who_got_it_last_not_of_who_is_ahead(clock, told):
    folder = clock.path.parent
    lay_runs(folder / "runs", queries=5)
    for days, name in ((365, "old"), (-1, "new")):
        clock.set(days)
        words = ("eval", f"runs/{name}.trec", "--gold", "runs/qrels.txt", "-m", "RR", "--quiet")
        karat(clock, *words, "--save", "--tag", "main", "--store", "h.db")
        with Store.open(folder / "h.db") as store:
            assert store.baseline("main").evaluation.system == name
    clock.set(-2)
    karat(clock, "history", "--show", "1", "--tag-as", "main", "--store", "h.db")
    with Store.open(folder / "h.db") as store:
        assert store.baseline("main").evaluation.id == 1
    told(f"a clock that jumps ({KIND})", "eval --save --tag", 3, "the last to get a tag has it")


def test_what_a_rater_said_last_counts_whatever_the_clock_said(clock, told):
    """In one workbench, whose clock jumps between two judgments."""
    folder = clock.path.parent
    lay_pool(folder / "p", 4)
    said = [turn % 4 for turn in range(len(JUMPS))]
    with serving(clock) as client:
        for days, grade in zip(JUMPS, said, strict=True):
            clock.set(days)
            body = {"rater": "Ana", "position": 0, "grade": grade}
            answer = client.post("/api/label-sets/1/judgments", json=body)
            assert answer.status_code == 200, answer.text
            assert answer.json()["judgment"]["grade"] == grade
        clock.set(-3)
        undone = client.post("/api/label-sets/1/undo", json={"rater": "Ana"}).json()
        assert undone["judgment"]["grade"] == said[-1]
    with Store.open(folder / "h.db") as store:
        (counts,) = store.judgments(1)
        every = store.judgments(1, every=True)
    assert counts.grade == said[-2]
    assert [one.grade for one in every] == said
    assert len({one.given_at for one in every}) == len(JUMPS)
    told(f"a clock that jumps ({KIND})", "serve, between judgments", len(JUMPS), "the last counts")


@contextmanager
def serving(clock: Clock) -> Iterator[httpx.Client]:
    token, folder = "t" * 20, clock.path.parent
    words = ("serve", "--pool", "p/pool.jsonl", "--store", "h.db", "--port", "0", "--token", token)
    said = folder / "said"
    with said.open("wb") as file:
        going = subprocess.Popen(
            [*clock.command, *words],
            cwd=folder,
            env={**os.environ, **clock.environment(jumps=True)},
            stdout=file,
            stderr=file,
        )
    try:
        until = time.monotonic() + PATIENCE
        while "karat serves " not in said.read_text():
            assert going.poll() is None, said.read_text()
            assert time.monotonic() < until
            time.sleep(0.02)
        url = said.read_text().partition("karat serves ")[2].split()[0].rstrip("/")
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
            yield client
    finally:
        going.kill()
        going.wait()
