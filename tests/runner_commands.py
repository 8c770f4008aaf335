"""How GitHub's runner finds workflow commands in what a step prints, written down again here.

After the runner's own parsers: the form with two colons begins a line, white space aside; the
form with ``##[`` may stand anywhere in it. Lines end at a line feed or a carriage return.
"""

from __future__ import annotations

import re

REGISTERED = {
    "add-mask", "add-matcher", "add-path", "debug", "echo", "endgroup", "error", "group", "notice",
    "remove-matcher", "save-state", "set-env", "set-output", "stop-commands", "warning", "zz",
}  # fmt: skip


def commands(output: bytes) -> list[str]:
    """Every line that the runner would take for a command."""
    lines = re.split(r"[\r\n]", output.decode("utf-8", "replace"))
    return [line for line in lines if _with_colons(line) or _with_hashes(line)]


def _with_colons(line: str) -> bool:
    line = line.lstrip()
    end = line.find("::", 2)
    return line.startswith("::") and end >= 0 and _known(line[2:end])


def _with_hashes(line: str) -> bool:
    start = line.find("##[")
    end = line.find("]", start)
    return start >= 0 and end >= 0 and _known(line[start + 3 : end])


def _known(command: str) -> bool:
    return command.partition(" ")[0].lower() in REGISTERED
