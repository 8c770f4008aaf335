"""Nothing that karat prints in a GitHub workflow is a command, but its own annotations."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karat.cli.main import main
from karat.errors import UsageError
from karat.reports.github import Guard, escaped, guarded_streams, write_commands
from runner_commands import commands

STOP, MASK = "::stop-commands::zz", "##[add-mask]all"
PIECES = st.sampled_from(
    ["::", ":", "#", "##", "[", "##[", "]", "\n", "\r", " ", "\t", "\u3000", "é", "a", "\\", '"',
     "error", "stop-commands::zz", "group", "%0A", "\x1b[1m"]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=30).map("".join)


def written(*chunks: bytes) -> bytes:
    kept = io.BytesIO()
    guard = Guard(kept)
    for chunk in chunks:
        assert guard.write(chunk) == len(chunk)
    return kept.getvalue()


@given(st.lists(TEXTS, max_size=8))
def test_no_text_in_whatever_pieces_is_a_command(texts):
    shown = written(*(text.encode() for text in texts))
    assert commands(shown) == []
    assert shown == written("".join(texts).encode())


@given(st.lists(TEXTS, max_size=4), st.sampled_from([None, 2]))
def test_json_means_the_same_afterwards(texts, indent):
    shown = written(json.dumps(dict.fromkeys(texts, texts), indent=indent).encode())
    assert json.loads(shown) == dict.fromkeys(texts, texts)
    assert commands(shown) == []


@pytest.mark.parametrize(
    "text",
    ["a::b ::c", "karat: ::error::x", "# title", "## [1]", "[##]", "12:30\n:x", "std::vector", ""],
)
def test_what_is_no_command_is_left_as_it_is(text):
    assert written(text.encode()) == text.encode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::error::x", ":\\u003aerror::x"),
        ("  ::error::x", "  :\\u003aerror::x"),
        ("a\r::error::x", "a\r:\\u003aerror::x"),
        ("\u3000::error::x", "\u3000:\\u003aerror::x"),
        ("x ##[error]y", "x ##\\u005berror]y"),
    ],
)
def test_a_command_is_broken_by_an_escape_that_json_has_too(text, shown):
    assert escaped(text) == shown
    assert written(text.encode()).decode() == shown
    assert written(*(text.encode()[i : i + 1] for i in range(len(text.encode())))).decode() == shown


def test_binary_data_is_written_as_it_is_or_not_at_all():
    assert written(b"PAR1\0##") == b"PAR1\0##"
    with pytest.raises(UsageError, match="file"):
        written(b"PAR1\0##[error]x")


def test_many_empty_lines_take_no_time():
    text = b"\n" * 300_000 + b" " * 300_000 + b"::error::x"
    start = time.perf_counter()
    assert commands(written(text)) == []
    assert time.perf_counter() - start < 5


def test_streams_are_guarded_in_a_workflow_only(monkeypatch):
    for environ, shown in (({}, f"{STOP}\n"), ({"GITHUB_ACTIONS": "true"}, None)):
        kept = io.BytesIO()
        stream = io.TextIOWrapper(kept, "utf-8", write_through=True)
        monkeypatch.setattr(sys, "stdout", stream)
        with guarded_streams(environ):
            print(STOP)
            sys.stdout.buffer.write(b"::error::x\n")
        assert sys.stdout is stream
        if shown is None:
            assert commands(kept.getvalue()) == []
        else:
            assert kept.getvalue().decode() == f"{shown}::error::x\n"


def test_own_commands_pass(monkeypatch):
    kept = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(kept, "utf-8"))
    with guarded_streams({"GITHUB_ACTIONS": "true"}):
        sys.stderr.write("before")
        write_commands("::error::own\n")
        sys.stderr.write("::error::data\n")
    assert commands(kept.getvalue()) == ["::error::own"]
    assert kept.getvalue().startswith(b"before\n::error::own\n")


def test_the_traceback_of_a_bug_is_no_command(monkeypatch, capfdbinary):
    def bug(arguments):
        raise ValueError("\n::error::x")

    monkeypatch.setattr("karat.cli.main._invoke", bug)
    monkeypatch.setenv("KARAT_DEBUG", "1")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert main([]) == 70
    told = capfdbinary.readouterr().err
    assert b"ValueError" in told
    assert commands(told) == []


# Through the command


def hostile(folder):
    """Two runs, gold and queries in which every name is a command."""
    ids = [f"{STOP}{n}" for n in range(4)] + [f"##[error]{n}" for n in range(4)]
    queries = [
        {"query_id": one, "text": MASK, "language": STOP if n % 2 else MASK, "\r::group::x": STOP}
        for n, one in enumerate(ids)
    ]
    lines = "".join(json.dumps(one) + "\n" for one in queries)
    (folder / "queries.jsonl").write_text(lines)
    (folder / "gold.json").write_text(json.dumps({one: {STOP: 1} for one in ids}))
    for name, item in ((STOP, STOP), (MASK, "\n::error::forged")):
        run = {one: {item: 2.0, "x": 1.0} for one in ids}
        (folder / f"{name}.json").write_text(json.dumps(run))
    return [f"{STOP}.json", f"{MASK}.json"]


def karat(folder, *words):
    done = subprocess.run(
        [sys.executable, "-m", "karat", *words],
        cwd=folder,
        capture_output=True,
        env={**os.environ, "GITHUB_ACTIONS": "true", "COLUMNS": "40"},
    )
    assert done.returncode != 70, done.stderr
    return done


OF = ["--gold", "gold.json", "--queries", "queries.jsonl", "--by", "language", "-m", "RR"]


@pytest.mark.parametrize("form", [None, "json", "csv", "md", "junit", "html"])
def test_no_report_on_standard_output_holds_a_command(tmp_path, form):
    runs = hostile(tmp_path)
    words = [] if form is None else ["-o", f"{form}:-"]
    done = karat(tmp_path, "compare", *runs, *OF, *words)
    assert commands(done.stdout) == []
    own = commands(done.stderr)
    assert own
    assert all(line.startswith(("::error title=", "::warning title=")) for line in own)
    assert not any("##[" in line for line in own)
    if form == "json":
        told = json.loads(done.stdout)
        assert [system["name"] for system in told["systems"]] == [STOP, MASK]
        assert set(told["systems"][0]["segments"]["language"]) == {STOP, MASK}


@pytest.mark.parametrize(
    "words",
    [
        ["eval", "::error::no.trec", "--gold", "gold.json"],
        ["eval", "##[error].json", "--gold", "gold.json"],
        ["eval", "gold.json", "--gold", "gold.json", "-m", "x\n::error::y"],
        ["convert", f"{STOP}.json", "-", "--to", "csv", "--kind", "run"],
        ["convert", f"{STOP}.json", "/dev/stdout", "--to", "csv", "--kind", "run"],
        ["convert", f"{STOP}.json", "-", "--to", "trec", "--kind", "run"],
        ["convert", f"{MASK}.json", "-", "--to", "jsonl", "--kind", "run"],
        ["diagnose", f"{MASK}.json", *OF[:4]],
        ["triage", f"{MASK}.json", *OF[:4]],
        ["sweep", f"{STOP}.json", *OF[:4], "-o", "csv:-"],
        ["check", "gold.json"],
    ],
)
def test_no_command_of_karat_prints_one(tmp_path, words):
    hostile(tmp_path)
    done = karat(tmp_path, *words)
    assert commands(done.stdout) == []
    assert all(line.startswith("::warning title=") for line in commands(done.stderr))
    assert done.stdout or done.stderr


def test_standard_output_is_guarded_under_its_path_too(tmp_path):
    hostile(tmp_path)
    words = ["convert", f"{STOP}.json", "--to", "csv", "--kind", "run"]
    by_path, by_dash = (karat(tmp_path, *words, out) for out in ("/dev/stdout", "-"))
    assert by_path.stdout == by_dash.stdout
    assert by_path.returncode == 0
