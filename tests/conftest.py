"""Ways to call karat, for all tests."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from karat.cli.main import main


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]):
    """Call karat in this process."""

    def call(*arguments: str) -> Result:
        capfd.readouterr()
        code = main(arguments)
        out, err = capfd.readouterr()
        return Result(code, out, err)

    return call


@pytest.fixture
def spawn():
    """Call karat as a process of its own."""

    def call(*arguments: str, stdin: bytes | None = None, **environment: str) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "karat.cli", *arguments],
            input=stdin,
            capture_output=True,
            env={**os.environ, **environment},
            timeout=60,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call
