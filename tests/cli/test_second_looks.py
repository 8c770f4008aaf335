"""Defects that a second look found: each stays mended."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

KARAT = f"{shlex.quote(sys.executable)} -m karat"


@pytest.mark.parametrize("format", ["evalset", "dataset"])
def test_converted_gold_can_be_evaluated(run, files, format):
    assert run("convert", "qrels.txt", "g.jsonl", "--kind", "gold", "--to", format).code == 0
    done = run("eval", "bm25.trec", "--gold", "g.jsonl", "--json")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("eval - --gold qrels.txt <&-", 2, "karat: stdin: is empty; pipe a file into karat\n"),
        ("eval nope --gold qrels.txt 2>&-", 2, ""),
        ("eval nope --gold qrels.txt <&- >&- 2>&-", 2, ""),
    ],
)
def test_a_closed_stream_leaves_the_exit_code(files, line, code, told):
    done = subprocess.run(
        ["sh", "-c", f"{KARAT} {line}"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", told)


@pytest.mark.parametrize(
    ("name", "written"), [("P_5", "P@k"), ("ndcg_cut_10", "nDCG[@k]"), ("map", "AP[@k]")]
)
def test_measures_are_described_by_their_names_in_trec_eval(run, name, written):
    done = run("measures", name)
    assert done.code == 0
    assert done.out.startswith(f"{written}  (")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("bm25.trec", os.fsdecode(b"\xff.csv")), "its name is not UTF-8"),
        (("", "out.csv"), "an empty file name was given"),
        (("bm25.trec", ""), "an empty file name was given"),
        (("spaced.json", "out.trec", "--kind", "run"), "karat: out.trec: query_id 'q 1' holds"),
    ],
)
def test_convert_refuses_in_one_line(run, files, arguments, told):
    Path("spaced.json").write_text('{"q 1": {"a": 1}}')
    before = sorted(Path().iterdir())
    done = run("convert", *arguments)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert told in done.err
    assert sorted(Path().iterdir()) == before


def test_failed_calls_first_do_not_hinder_a_dict(run, files):
    Path("log.jsonl").write_text(
        '{"query_id": "q01", "system": "s", "error": "down"}\n'
        '{"query_id": "q02", "system": "s", "topk": []}\n'
    )
    assert run("convert", "log.jsonl", "out.json", "--kind", "run").code == 0
    assert Path("out.json").read_text() == '{"q02": {}}\n'
