"""What a command prints on a terminal of a certain width and kind, and where there is none."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([a-zA-Z])")
GOLD = ("--gold", "qrels.txt", "--queries", "queries.jsonl")
COMPARE = ("compare", "bm25.trec", "dense.jsonl", *GOLD, "-m", "nDCG@5,RR")


def on_a_terminal(*arguments: str, columns: int, **environment: str) -> str:
    """What karat prints on a pseudo-terminal that is so wide."""
    inside, outside = pty.openpty()
    fcntl.ioctl(outside, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    unset = {"COLUMNS", "NO_COLOR", "FORCE_COLOR", "TERM"}
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    process = subprocess.Popen(
        [sys.executable, "-m", "karat", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=outside,
        stderr=outside,
        env={**kept, "TERM": "xterm-256color", **environment},
    )
    os.close(outside)
    said = b""
    while True:
        try:
            piece = os.read(inside, 65536)
        except OSError:
            break
        if not piece:
            break
        said += piece
    os.close(inside)
    assert process.wait() == 0
    return said.decode().replace("\r\n", "\n")


def colours(text: str) -> set[str]:
    """The colours that a text asks for: 30 to 37, 90 to 97 and what follows 38."""
    codes = {code for codes, _ in ESCAPE.findall(text) for code in codes.split(";")}
    return {code for code in codes if re.fullmatch(r"3\d|9\d", code)}


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(files, columns):
    text = ESCAPE.sub("", on_a_terminal(*COMPARE, columns=columns))
    assert text.startswith("BETTER  ")
    assert max(map(len, text.splitlines())) <= columns
    # Nothing is lost at any width: the words and figures are the same.
    assert {"Jaccard@10", "+0.2472", "unclear", "permutations"} <= set(re.split(r"[\s()]+", text))


def test_a_dumb_terminal_gets_no_escapes_and_its_own_width(files):
    text = on_a_terminal(*COMPARE, columns=60, TERM="dumb")
    assert "\x1b" not in text
    assert 50 < max(map(len, text.splitlines())) <= 60


def test_colours_are_shown_unless_they_are_not_wanted(files):
    assert colours(on_a_terminal(*COMPARE, columns=80))
    assert not colours(on_a_terminal(*COMPARE, columns=80, NO_COLOR="1"))


def test_a_pipe_gets_no_escapes_and_whole_sentences(spawn, files):
    done = spawn(*COMPARE, TERM="xterm-256color")
    assert "\x1b" not in done.out
    assert max(map(len, done.out.splitlines())) > 100
    wide = spawn(*COMPARE, COLUMNS="300")
    assert len(wide.out.splitlines()) < len(done.out.splitlines()) or wide.out == done.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("eval", "bm25.trec", *GOLD),
        COMPARE,
        ("sweep", "bm25.trec", *GOLD),
    ],
)
def test_quiet_prints_nothing_at_all(files, arguments):
    assert on_a_terminal(*arguments, "--quiet", columns=80) == ""
