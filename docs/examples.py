"""Runs the examples of a Markdown page and puts in what they print.

They run in a folder with the files of the small set, or in an empty one where the page itself
says ``karat init``; ``cd`` leads on from there. ``python docs/examples.py README.md`` refreshes a
page; a test fails when an example is not true.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import karat
from karat.cli.main import main

_ENVIRONMENT = {"COLUMNS": "100", "NO_COLOR": "1"}
FIRST = Path(karat.__file__).parent / "recipes" / "first"
_BLOCK = re.compile(r"(?<=```console\n)(.*?)(?=```)", re.DOTALL)


def refreshed(page: str) -> str:
    """The page with the output of every example that shows one as it is now."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "demo"
        if "\n$ karat init" in page:
            place.mkdir()
        else:
            shutil.copytree(FIRST, place, ignore=shutil.ignore_patterns("__pycache__"))
        return refreshed_in(place, page)


def refreshed_in(place: Path, page: str) -> str:
    """The page with its examples run in a folder that has what they need."""
    shell = _Shell(place)
    return _BLOCK.sub(lambda block: "".join(_shown(block[0], shell)), page)


class _Shell:
    """The folder that the reader is in."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def run(self, command: str) -> str:
        """What a command prints; ``cd`` prints nothing and stays in force."""
        if command.startswith("cd "):
            self.place = (self.place / command.removeprefix("cd ").strip()).resolve(strict=True)
            return ""
        words = _plain_words(command)
        printed = _spawned(command, self.place) if words is None else _called(words, self.place)
        return "".join(f"{line.rstrip()}\n" for line in printed.splitlines())


def _shown(block: str, shell: _Shell) -> Iterator[str]:
    for example in re.split(r"^(?=\$ )", block, flags=re.MULTILINE):
        lines = example.split("\n")
        if not lines[0].startswith("$ "):
            continue
        last = _last_line(lines)
        command, output = "\n".join(lines[: last + 1]), "\n".join(lines[last + 1 :])
        printed = shell.run(command.removeprefix("$ "))
        yield f"{command}\n{printed if output else ''}"


def _last_line(lines: list[str]) -> int:
    """Where a command ends: a backslash leads on to the next line, ``<<END`` to that word."""
    until = re.search(r"<<\s*'?(\w+)'?\s*$", lines[0])
    if until is not None:
        return lines.index(until[1])
    return next(at for at, line in enumerate(lines) if not line.endswith("\\"))


def _plain_words(command: str) -> list[str] | None:
    """The words of a command that needs no shell, only karat; else None."""
    if not command.startswith("karat ") or any(sign in command for sign in "\\`$*?~\n"):
        return None
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    return None if any(set(word) <= set("();<>|&") for word in words) else words[1:]


def _called(words: list[str], place: Path) -> str:
    """What karat prints, called here: a process for each of many commands takes its time."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    before = dict(os.environ)
    try:
        os.environ |= _ENVIRONMENT
        with chdir(place), redirect_stdout(stream), redirect_stderr(stream):
            code = main(words)
    finally:
        os.environ.clear()
        os.environ.update(before)
    printed = stream.buffer.getvalue().decode()
    _check(code, " ".join(words), printed)
    return printed


def _spawned(command: str, place: Path) -> str:
    """Standard output and error of a command in the reader's shell."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(  # noqa: S603 - the page is ours
        ["bash", "-o", "pipefail", "-c", command],  # noqa: S607 - the reader's shell
        cwd=place,
        env={**os.environ, **_ENVIRONMENT, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    _check(done.returncode, command, done.stdout)
    return done.stdout


def _check(code: int, command: str, printed: str) -> None:
    """Anything but a result, a verdict or a refusal is broken."""
    if code not in (0, 1, 2, 3):
        raise SystemExit(f"{command}: exit code {code}\n{printed}")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        file = Path(name)
        file.write_text(refreshed(file.read_text(encoding="utf-8")), encoding="utf-8")
