from __future__ import annotations

from pathlib import Path

import pytest

import karat
import karat.data
from karat.formats.readers import read_gold, read_queries, read_run


@pytest.mark.parametrize("target", ["run.parquet", "run.csv", "run.json", "run.tsv", "run.trec.gz"])
def test_a_run_keeps_its_hits_in_any_format(run, files, target):
    done = run("convert", "bm25.trec", target)
    assert done.code == 0
    assert "58 hits written" in done.err
    ours = ["query_id", "item_id", "score"]
    before, after = read_run("bm25.trec").hits, read_run(target).hits
    assert after.select(ours).sort(ours).equals(before.select(ours).sort(ours))


def test_what_the_other_format_cannot_carry_is_said(run, files):
    done = run("convert", "dense.jsonl", "dense.trec")
    assert done.code == 0
    assert "not carried by trec: version, calls' latency.retrieve" in done.err


def test_a_log_rewritten_as_a_log_loses_nothing(run, files):
    done = run("convert", "dense.jsonl", "copy.jsonl.gz")
    assert done.code == 0
    assert "not carried" not in done.err


def test_gold_is_told_from_a_run_by_its_columns(run, files):
    done = run("convert", "qrels.txt", "gold.csv")
    assert "23 judgments written as csv" in done.err
    assert read_gold("gold.csv").frame.height == 23


def test_queries_lose_their_attributes_in_two_columns(run, files):
    done = run("convert", "queries.jsonl", "queries.tsv", "--kind", "queries")
    assert "not carried by tsv: topic, difficulty, language" in done.err
    assert read_queries("queries.tsv").frame.height == 12


def test_a_conversion_can_be_piped(spawn, files):
    log = (files / "dense.jsonl").read_bytes()
    done = spawn("convert", "-", "-", "--from", "runlog", "--to", "trec", stdin=log)
    assert done.code == 0
    assert done.out.splitlines()[0].split()[:3] == ["q01", "Q0", "refunds-2025#1"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("corpus.jsonl", "corpus.csv"), "--kind"),
        (("-", "out.csv"), "--kind"),
        (("bm25.trec", "-"), "--to"),
        (("bm25.trec", "bm25.trec"), "same file"),
        (("bm25.trec", "run.docx"), "run.docx"),
        (("bm25.trec", "run.csv", "--kind", "runs"), "did you mean run"),
        (("bm25.trec", "run.csv", "--to", "cvs"), "did you mean csv"),
        (("bm25.trec", "run.csv", "--from", "trek"), "did you mean trec"),
        (("none.trec", "run.csv"), "no such file"),
        (("queries.jsonl", "run.trec", "--kind", "queries"), "run.trec"),
    ],
)
def test_what_cannot_be_converted_is_one_line(run, files, arguments, words):
    before = {path: path.read_bytes() for path in Path().iterdir()}
    done = run("convert", *arguments)
    assert done.code == 2
    assert done.err.startswith("karat: ")
    assert done.err.count("\n") == 1
    assert words in done.err
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_a_file_with_a_bad_line_leaves_nothing(run, files):
    with Path("bm25.trec").open("a") as file:
        file.write("q12 Q0 passes#4 9 inf bm25\n")
    done = run("convert", "bm25.trec", "out.csv")
    assert done.code == 2
    assert "bm25.trec:59" in done.err
    assert not Path("out.csv").exists()


def test_the_library_call_returns_what_was_written_and_dropped(files):
    result = karat.convert("dense.jsonl", "dense.trec")
    assert (result.unit, result.format) == ("hits", "trec")
    assert "version" in result.lost
    assert read_run("dense.trec").hits.height == result.rows
