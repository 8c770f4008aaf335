"""What stops a run half way: what is kept is said, and how to go on with the very command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CALLS = 40
SLOW = """\
import time
from pathlib import Path


def search(text, k):
    Path(f"asked-{text}").touch()
    time.sleep(0.05)
    return [text]


def stuck(text, k):
    Path("stuck").touch()
    time.sleep(600)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ids = [f"q{i:02}" for i in range(CALLS)]
    asked = [{"id": one, "query": one, "relevant_chunk_ids": [one]} for one in ids]
    Path("eval.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))
    Path("corpus.jsonl").write_text("".join(json.dumps({"id": i, "text": i}) + "\n" for i in ids))
    Path("slow_calls.py").write_text(SLOW)
    return tmp_path


def write(*systems: str) -> None:
    lines = ["queries: eval.jsonl", "corpus: corpus.jsonl", "measures: [R@1]", "systems:"]
    Path("karat.yaml").write_text("\n".join([*lines, *(f"  {one}" for one in systems)]) + "\n")


def stopped(until: str, *words: str, number: int = signal.SIGINT, code: int = 130) -> str:
    """What karat says when a signal reaches it after a file came to be."""
    command = [sys.executable, "-m", "karat", *words]
    going = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Under nohup, or in the background of a script, a signal would be ignored by all below.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    try:
        end = time.monotonic() + 60
        while not Path(until).exists():
            assert time.monotonic() < end
            assert going.poll() is None, going.communicate()
            time.sleep(0.01)
        going.send_signal(number)
        _, told = going.communicate(timeout=60)
    finally:
        going.kill()
        going.wait()
    assert going.returncode == code, told
    return next(line for line in told.splitlines() if line.startswith("karat: "))


LIVE = "live: {retriever: python, call: 'slow_calls.py:search', concurrency: 1, k: 1}"


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["run"], "run it again to go on"),
        (["run", "--fresh"], "run it again without --fresh to go on"),
        (["search"], "resume with --resume"),
    ],
)
def test_what_was_answered_is_kept_and_gone_on_with_as_the_command_can(run, place, words, remedy):
    write(LIVE)
    told = stopped("asked-q05", *words)
    part = place / "runs" / "live.jsonl.part"
    lines = part.read_bytes().count(b"\n")
    assert 0 < lines < CALLS
    assert told == f"karat: interrupted; {lines} of {CALLS} calls are kept in {part}: {remedy}"
    Path("asked-q00").unlink()
    again = ("search", "--resume") if words == ["search"] else ("run",)
    assert run(*again).code == 0
    assert not Path("asked-q00").exists(), "it was asked again"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_other_signals_say_what_was_kept_as_well(place, number, code):
    write(LIVE)
    told = stopped("asked-q05", "run", number=number, code=code)
    assert f" of {CALLS} calls are kept in " in told
    assert told.endswith(": run it again to go on")


def test_where_nothing_was_kept_nothing_is_said_to_be(place):
    write("live: {retriever: python, call: 'slow_calls.py:stuck', k: 1, timeout: 900}")
    told = stopped("stuck", "run")
    assert told == "karat: interrupted before the first call; no file was written"
    assert not list(Path().glob("runs/*"))


def test_a_finished_log_is_said_to_be_as_it_was(run, place):
    write(LIVE)
    assert run("run", "--quiet").code == 0
    log = place / "runs" / "live.jsonl"
    before = log.read_bytes()
    Path("slow_calls.py").write_text(
        SLOW.replace("def search", "def other").replace("stuck(", "search(")
    )
    told = stopped("stuck", "run")
    assert told == f"karat: interrupted before the first call; {log} is unchanged"
    assert log.read_bytes() == before


def test_ctrl_c_while_scoring_costs_no_log(run, place, monkeypatch):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    write("a: {retriever: bm25}", "b: {retriever: bm25, k: 3}")
    monkeypatch.setattr("karat.project.project.report", stop)
    done = run("run", "--quiet")
    assert done.code == 130
    assert done.err == (
        "karat: interrupted before the report; run it again: "
        "runs/a.jsonl, runs/b.jsonl will be reused\n"
    )


QUALITY = "t2:\n  quality:\n    enabled: true\n"


@pytest.mark.parametrize(
    ("second", "told"),
    [
        ("retriever: quality, config: broken.yaml", "alpha_semantic is nan"),
        ("retriever: quality, config: aliased.yaml", "words.yaml:1: a stands for 5"),
        ("retriever: bm25, aliases: words.yaml", "words.yaml:1: a stands for 5"),
        ("retriever: bm25, aliases: gone.yaml", "gone.yaml: no such file"),
        ("retriever: bm25, aliases: {A: x, a: y}", "karat.yaml:6: system 'b': aliases: 'a' stands"),
        ("retriever: fuse, of: [{retriever: bm25, aliases: words.yaml}]", "words.yaml:1: a stands"),
    ],
)
def test_a_broken_file_of_the_second_system_is_told_before_the_first_is_asked(
    run, place, second, told
):
    Path("broken.yaml").write_text(QUALITY + "    fusion: {alpha_semantic: .nan}\n")
    Path("aliased.yaml").write_text(QUALITY + "    aliasing: {map_path: words.yaml}\n")
    Path("words.yaml").write_text("a: 5\n")
    write("a: {retriever: bm25}", f"b: {{{second}}}")
    refused = run("run")
    assert (refused.code, refused.out) == (2, "")
    assert told in refused.err
    assert not Path("runs").exists()
