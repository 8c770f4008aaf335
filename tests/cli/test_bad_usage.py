from __future__ import annotations

import os
from pathlib import Path

import pytest

EVAL = ("eval", "bm25.trec", "--gold", "qrels.txt")


def refused(done, *words: str) -> None:
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("karat: ")
    assert done.err.count("\n") == 1
    for word in words:
        assert word in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("eval", "bm25.trec"), ("--gold", "karat eval --help")),
        (("eval", "--gold", "qrels.txt"), ("RUN",)),
        ((*EVAL, "--nope"), ("--nope",)),
        (("evl",), ("evl",)),
        ((*EVAL, "-m", "ndgc@10"), ("did you mean nDCG",)),
        ((*EVAL, "-m", ""), ("measure",)),
        ((*EVAL, "--profile", "trek"), ("did you mean trec",)),
        ((*EVAL, "--set", "ties"), ("ties", "id-asc, id-desc, given")),
        ((*EVAL, "--set", "tie=given"), ("did you mean ties",)),
        ((*EVAL, "--set", "rel=2", "--set", "rel=1"), ("twice",)),
        ((*EVAL, "--by", "language"), ("queries file",)),
        ((*EVAL, "--by", "langage", "--queries", "queries.jsonl"), ("did you mean language",)),
        ((*EVAL, "-o", "report.docx"), ("report.docx", ".parquet")),
        ((*EVAL, "-o", "junt:report.xml"), ("junt",)),
        ((*EVAL, "-o", "trec:"), ("no file name",)),
        ((*EVAL, "-o", "a.json", "-o", "./a.json"), ("twice",)),
        ((*EVAL, "-o", "json:qrels.txt"), ("also an input",)),
        ((*EVAL, "--json", "-o", "trec:-"), ("standard output",)),
        ((*EVAL, "-o", "json:."), ("folder",)),
        ((*EVAL, "-o", "qrels.txt/a.json"), ("both a file and a folder",)),
        ((*EVAL, "--run-format", "trek"), ("did you mean trec",)),
        (("eval", "-", "--gold", "-"), ("standard input",)),
        (("measures", "ndgc"), ("did you mean nDCG",)),
        (("eval", "none.trec", "--gold", "qrels.txt"), ("none.trec", "no such file")),
        (("eval", "bm25.trec", "--gold", "none.txt"), ("none.txt", "no such file")),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(run, files, arguments, words):
    before = sorted(Path().iterdir())
    refused(run(*arguments), *words)
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ("empty",)),
        (b"q01 Q0 refunds#1 1 nan tag\n", (":1:", "nan")),
        (b"q01 Q0 refunds#1 1 0.5 t\nq01 Q0 a 2 x t\n", (":2:", "'x'")),
        (b"q01 Q0 refunds#1 1 0.5 t\nq01 Q0 a\n", (":2:", "columns")),
        (b"\x00\x01\x02\xff\xfe" * 10, ()),
        (b"\x1f\x8b\x08\x00", ()),
        (b"x1 Q0 refunds#1 1 0.5 t\nx2 Q0 refunds#1 1 0.5 t\n", ("'x1'", "'x2'", "'q01'")),
    ],
    ids=["empty", "nan", "word", "cut", "binary", "gzip", "strangers"],
)
def test_bad_input_is_one_line_and_leaves_no_output(run, files, content, words):
    Path("bad.trec").write_bytes(content)
    done = run("eval", "bad.trec", "--gold", "qrels.txt", "-o", "out.json", "-o", "out.csv")
    refused(done, *words)
    assert not list(Path().glob("out*"))
    assert not list(Path().glob(".out*"))


def test_a_bad_second_run_leaves_no_output(run, files):
    Path("bad.trec").write_text("q01 Q0 refunds#1 1 nan tag\n")
    refused(run(*EVAL[:2], "bad.trec", *EVAL[2:], "-o", "out.json"), "bad.trec:1")
    assert not Path("out.json").exists()


def test_an_existing_output_survives_a_failure(run, files):
    Path("out.json").write_text("precious")
    Path("bad.trec").write_text("q01 Q0 refunds#1 1 nan tag\n")
    assert run("eval", "bad.trec", "--gold", "qrels.txt", "-o", "out.json").code == 2
    assert Path("out.json").read_text() == "precious"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_refused_before_any_work(run, files):
    Path("locked").mkdir(mode=0o500)
    refused(run("eval", "none.trec", "--gold", "qrels.txt", "-o", "locked/a.json"), "written")
