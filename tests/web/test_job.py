"""What a run says of itself, line by line, and what is made of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from karat.web.responses import RequestRefusedError
from karat.web.runs import Job, Jobs, RunRequest
from karat.web.settings import Settings

from .benches import lay

SLOW = 'slow: {retriever: python, call: "calls.py:slow"}'


def test_progress_is_json_where_the_environment_asks_for_it(tmp_path):
    config = lay(tmp_path, SLOW)
    words = [sys.executable, "-m", "karat", "run", str(config)]
    environment = {**os.environ, "KARAT_PROGRESS": "json"}
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=environment)
    said = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    calls = [one for one in said if one["what"] == "calls"]
    assert {"karat": "progress", "system": "slow", "what": "calls", "done": 3, "total": 3} in calls
    assert {one["done"] for one in calls} == {0, 1, 2, 3}
    files = [one for one in said if one["what"] == "files"]
    assert [(one["system"], one["done"], one["total"]) for one in files] == [(None, 0, 1)]
    quiet = subprocess.run(
        [*words, "--quiet", "--fresh"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    assert quiet.stderr == ""


def test_of_a_flood_of_calls_at_most_a_few_lines_a_second_are_told(capsys, monkeypatch):
    from karat.cli import progress

    monkeypatch.setenv("KARAT_PROGRESS", "json")
    clock = iter(range(100_000))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock) / 1_000)
    with progress.counting("bm25", 2_000, quiet=False) as bar:
        for _ in range(2_000):
            bar.advance(1)
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    # Two seconds by that clock: the first, the last, and five a second between them.
    assert 10 <= len(said) <= 13
    assert said[-1]["done"] == 2_000


def test_of_a_long_log_the_last_lines_are_kept_and_bars_drawn_over_count_once():
    job = Job(1, RunRequest(), ("bm25",))
    for at in range(2_000):
        job.read(f"line {at}")
    job.read("\x1b[32m 10%\r 50%\r100%\x1b[0m\x07")
    log = job.document()["log"]
    assert len(log) == 500
    assert log[-1] == "100%\ufffd"
    assert log[0] == "line 1501"
    assert job.document(after=1_999)["log"] == log[-2:]
    assert job.document(after=5)["log"] == log


@pytest.mark.parametrize(
    "line",
    [
        '{"karat": "progress", "system": "x", "what": "calls", "done": "3", "total": 4}',
        '{"karat": "progress", "system": "x", "done": -1, "total": 4}',
        '{"karat": "progress", broken',
        '{"karat": "progress", "done": true}',
    ],
)
def test_a_line_that_only_looks_like_progress_is_a_line_of_the_log(line):
    job = Job(1, RunRequest(), ("x",))
    job.read(line)
    assert job.document()["progress"] == []
    assert job.document()["log"] == [line]


@pytest.mark.parametrize(
    ("code", "stopping", "saved", "state"),
    [
        (0, False, True, "done"),
        (1, False, True, "done"),
        (1, False, False, "failed"),
        (2, False, False, "failed"),
        (3, False, False, "done"),
        (70, False, False, "failed"),
        (-9, False, False, "failed"),
        (130, True, False, "stopped"),
        (-9, True, False, "stopped"),
        (0, True, True, "done"),
    ],
)
def test_what_an_exit_code_means(code, stopping, saved, state):
    job = Job(1, RunRequest(), ("x",))
    if saved:
        job.read("saved as 12, 13 in .karat/history.db")
    if stopping:
        job.process = SimpleNamespace(stop=lambda grace: None)
        job.stop(1.0)
    job.end(code)
    document = job.document()
    assert document["state"] == state
    assert document["exit_code"] == code
    assert document["saved"] == ([12, 13] if saved else [])
    assert not job.running


def test_a_process_that_cannot_be_started_is_told_in_a_sentence(tmp_path, monkeypatch):
    def refused(*words: object, **more: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("karat.web.run_process.subprocess.Popen", refused)
    jobs = Jobs(Settings(config=tmp_path / "karat.yaml"))
    (tmp_path / "karat.yaml").write_text("systems: {}\n")
    with pytest.raises(RequestRefusedError, match="could not be started: Permission denied"):
        jobs.start(RunRequest(), ["bm25"])
    assert jobs.all() == []
