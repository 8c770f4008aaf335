from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time

import pytest

import karat


def test_version(run):
    assert run("--version").out == f"karat {karat.__version__}\n"


def test_no_command_shows_help_and_fails(run):
    done = run()
    assert done.code == 2
    assert "Usage: karat" in done.err


@pytest.mark.parametrize("command", ["eval", "convert", "measures", "demo"])
def test_every_help_has_an_example(run, command):
    done = run(command, "--help")
    assert done.code == 0
    assert f"  karat {command}" in done.out


def test_help_imports_neither_polars_nor_numpy():
    code = (
        "import sys; from karat.cli.main import main; main(['eval', '--help']); main(['--help']);"
        "heavy = {'polars', 'numpy', 'rich', 'scipy', 'pandas'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["eval", "compare"])
def test_runs_are_scored_without_what_only_a_karat_yaml_needs(files, command):
    words = [command, "bm25.trec", "dense.jsonl", "--gold", "qrels.txt", "--quiet", "-m", "R@5"]
    code = (
        f"import sys; from karat.cli.main import main; code = main({words});"
        "more = {'pydantic', 'sqlalchemy', 'karat.project.config'} & set(sys.modules);"
        "sys.exit(str(more) if more else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_takes_less_than_a_third_of_a_second_of_cpu(spawn):
    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    # The first writes what others read, and a busy machine takes more for the same.
    times = []
    for _ in range(4):
        before = spent()
        spawn("--help")
        times.append(spent() - before)
    assert min(times) < 0.3


def test_an_interrupt_exits_with_130(run, files, monkeypatch):
    def interrupt(*given: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("karat.evaluation.evaluation.Evaluation.score_runs", interrupt)
    done = run("eval", "bm25.trec", "--gold", "qrels.txt")
    assert (done.code, done.out) == (130, "")
    assert done.err == "karat: interrupted; nothing was written\n"


def test_ctrl_c_ends_a_wait_for_input(files):
    waiting = subprocess.Popen(
        [sys.executable, "-m", "karat", "eval", "-", "--gold", "qrels.txt", "-o", "out.json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with waiting:
        # More than a pipe holds: once it is written, karat is reading and waits for more.
        waiting.stdin.write(b"q01 Q0 refunds#1 1 0.5 t\n" * 40_000)
        waiting.stdin.flush()
        time.sleep(0.2)
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(timeout=10) == 130
        assert waiting.stderr.read() == b"karat: interrupted; nothing was written\n"
    assert not (files / "out.json").exists()


@pytest.mark.parametrize("error", [MemoryError(), OSError(28, "No space left on device")])
def test_the_machine_s_troubles_are_one_line(run, files, monkeypatch, error):
    def fail(*given: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("karat.evaluation.evaluation.Evaluation.score_runs", fail)
    done = run("eval", "bm25.trec", "--gold", "qrels.txt")
    assert done.code == 2
    assert done.err.startswith("karat: ")
    assert done.err.count("\n") == 1


def test_a_closed_pipe_is_quiet(files):
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "karat", "measures"], stdout=write_end, stderr=subprocess.PIPE
    )
    os.close(write_end)
    assert done.stderr == b""
    assert done.returncode == 141


def test_a_terminal_without_unicode_gets_signs_that_read_alike(spawn, files):
    done = spawn("eval", "bm25.trec", "--gold", "qrels.txt", PYTHONIOENCODING="ascii")
    assert done.code == 0
    assert "profile karat / order score" in done.out
