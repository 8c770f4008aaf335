"""Run the examples of a Markdown page and update their output.

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
    """Return the page with the current output of every example that shows one."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "demo"
        if "\n$ karat init" in page:
            place.mkdir()
        else:
            shutil.copytree(FIRST, place, ignore=shutil.ignore_patterns("__pycache__"))
        return refreshed_in(place, page)


def refreshed_in(place: Path, page: str) -> str:
    """Return the page with its examples run in a folder that has their inputs."""
    shell = _Shell(place)
    return _BLOCK.sub(lambda block: "".join(_shown(block[0], shell)), page)


class _Shell:
    """The reader's current folder."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def run(self, command: str) -> str:
        """Return what a command prints; ``cd`` prints nothing and persists."""
        if command.startswith("cd "):
            self.place = (self.place / command.removeprefix("cd ").strip()).resolve(strict=True)
            return ""
        return "".join(f"{line.rstrip()}\n" for line in _printed(command, self.place).splitlines())


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
    """Return where a command ends: a backslash continues it, ``<<END`` extends it to that word."""
    until = re.search(r"<<\s*'?(\w+)'?\s*$", lines[0])
    if until is not None:
        return lines.index(until[1])
    return next(at for at, line in enumerate(lines) if not line.endswith("\\"))


def _printed(command: str, place: Path) -> str:
    """Return the output and errors of a command; karat runs in this process if possible."""
    first, sign, rest = _split(command)
    words = _plain_words(_filled(first, place))
    if words is None:
        return _spawned(command, place)
    out = _Stream()
    said = _Stream() if sign == " | " else out
    code = _called(words, place, out, said)
    if sign == " | ":
        # Messages of the first command appear before the output of the pipe.
        return said.text + _spawned(rest, place, out.text)
    return out.text + (_spawned(f"(exit {code}); {rest}", place) if rest else "")


def _split(command: str) -> list[str]:
    """Return a command and, if any, what follows its pipe or its end."""
    return [*re.split(r"( \| |; )", command, maxsplit=1), "", ""][:3]


def _filled(command: str, place: Path) -> str:
    """Return a karat command with the words that it reads from files."""
    if not command.startswith("karat "):
        return command
    return re.sub(r"\$\(cat (\w+)\)", lambda name: (place / name[1]).read_text(), command)


def _plain_words(command: str) -> list[str] | None:
    """Return the words of a command that needs only karat and no shell, else None."""
    if not command.startswith("karat ") or any(sign in command for sign in "\\`$*?~\n"):
        return None
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        # Split within quotes, so the bar was not a pipe.
        return None
    return None if any(set(word) <= set("();<>|&") for word in words) else words[1:]


class _Stream(io.TextIOWrapper):
    """A stream that records what is written to it, as bytes like those of a process."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    @property
    def text(self) -> str:
        return self.buffer.getvalue().decode()


def _called(words: list[str], place: Path, out: _Stream, said: _Stream) -> int:
    """Return karat's exit code, called in this process because starting many is slow."""
    before = dict(os.environ)
    try:
        os.environ |= _ENVIRONMENT
        with chdir(place), redirect_stdout(out), redirect_stderr(said):
            code = main(words)
    finally:
        os.environ.clear()
        os.environ.update(before)
    _check(code, " ".join(words), out.text + said.text)
    return code


def _spawned(command: str, place: Path, given: str = "") -> str:
    """Return the output and errors of a command in the reader's shell."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(  # noqa: S603 - the page is ours
        ["bash", "-o", "pipefail", "-c", command],  # noqa: S607 - the reader's shell
        cwd=place,
        env={**os.environ, **_ENVIRONMENT, "PATH": path},
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    _check(done.returncode, command, done.stdout)
    return done.stdout


def _check(code: int, command: str, printed: str) -> None:
    """Refuse an exit code that is not a result, a verdict or a usage error."""
    if code not in (0, 1, 2, 3):
        raise SystemExit(f"{command}: exit code {code}\n{printed}")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        file = Path(name)
        file.write_text(refreshed(file.read_text(encoding="utf-8")), encoding="utf-8")
