"""A standard stream that the caller closed: writing to it is an error, not a silent success."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

EVAL = ("eval", "run.trec", "--gold", "gold.txt", "-m", "RR")


@pytest.fixture
def closed(tmp_path):
    """Call karat with some of its streams closed, as a shell does."""
    (tmp_path / "run.trec").write_text("q1 Q0 a 1 1.0 x\n")
    (tmp_path / "gold.txt").write_text("q1 0 a 1\n")

    def call(redirections: str, *arguments: str, **environment: str):
        words = ["sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, "-m", "karat"]
        return subprocess.run(
            [*words, *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **environment},
            timeout=60,
        )

    return call


@pytest.mark.parametrize(
    "words",
    [
        EVAL,
        (*EVAL, "--json"),
        (*EVAL, "--quiet", "-o", "csv:-"),
        (*EVAL, "--quiet", "-o", "csv:/dev/stdout"),
        ("convert", "run.trec", "-", "--to", "csv"),
        ("measures",),
        ("--version",),
        ("--help",),
    ],
)
def test_what_cannot_be_printed_is_an_error(closed, words):
    done = closed(">&-", *words)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("karat: standard output is closed")
    assert "Traceback" not in done.stderr


def test_a_command_that_prints_nothing_needs_no_stream(closed, tmp_path):
    done = closed("<&- >&- 2>&-", *EVAL, "--quiet", "-o", "out.json")
    assert done.returncode == 0
    assert (tmp_path / "out.json").read_text().startswith("{")
    # A file that was opened as the number of a closed stream would have got what is printed.
    assert (tmp_path / "run.trec").read_text() == "q1 Q0 a 1 1.0 x\n"


def test_an_error_that_nobody_can_read_is_in_the_exit_code(closed):
    assert closed("2>&-", "eval", "gone.trec", "--gold", "gold.txt").returncode == 2
    assert closed(">&- 2>&-", *EVAL).returncode == 2
    # What is told beside the result is lost.
    assert closed("2>&-", "convert", "run.trec", "run.csv").returncode == 2
    done = closed("2>&-", *EVAL, "--quiet", "--json")
    assert (done.returncode, done.stdout[:1]) == (0, "{")


def test_in_a_workflow_it_is_an_error_too(closed):
    done = closed(">&-", *EVAL, GITHUB_ACTIONS="true")
    assert done.returncode == 2
    assert "standard output is closed" in done.stderr
