"""Runs the examples of a Markdown page on the demo's files and puts in what they print.

``python docs/examples.py README.md`` refreshes a page; a test fails when an example is not true.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import karat

FIRST = Path(karat.__file__).parent / "recipes" / "first"
_BLOCK = re.compile(r"(?<=```console\n)(.*?)(?=```)", re.DOTALL)


def refreshed(page: str) -> str:
    """The page with the output of every example that shows one as it is now."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "demo"
        shutil.copytree(FIRST, place)
        return _BLOCK.sub(lambda block: "".join(_shown(block[0], place)), page)


def _shown(block: str, place: Path) -> Iterator[str]:
    for example in re.split(r"^(?=\$ )", block, flags=re.MULTILINE):
        command, _, output = example.partition("\n")
        if not command.startswith("$ "):
            continue
        printed = _printed(command.removeprefix("$ "), place)
        yield f"{command}\n{printed if output else ''}"


def _printed(command: str, place: Path) -> str:
    """Standard output and error; anything but a result, a verdict or a refusal is broken."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(  # noqa: S603 - the page is ours
        ["bash", "-o", "pipefail", "-c", command],  # noqa: S607 - the reader's shell
        cwd=place,
        env={**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1, 2, 3):
        raise SystemExit(f"{command}: exit code {done.returncode}\n{done.stdout}")
    lines = (line.rstrip() for line in done.stdout.splitlines())
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        file = Path(name)
        file.write_text(refreshed(file.read_text(encoding="utf-8")), encoding="utf-8")
