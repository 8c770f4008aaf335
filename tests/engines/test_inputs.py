"""What Spark reads, it reads as the readers of the formats do: the same numbers, the same words."""

from __future__ import annotations

import gzip
import itertools
import json
import random

import polars as pl
import pytest

import karat
from karat.formats.readers import read_gold, read_run, write_gold, write_run

MEASURES = "nDCG@10,R@5,AP,Coverage@10"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One run and its gold in every format, the run's rows in no order and with ties."""
    place = tmp_path_factory.mktemp("inputs")
    chance = random.Random(7)
    rows = [
        {
            "query_id": f"q{query}",
            "item_id": f"doc{chance.randint(0, 40)}",
            "score": chance.randint(0, 12) / 4,
        }
        for query in range(30)
        for _ in range(20)
    ]
    chance.shuffle(rows)
    frame = pl.DataFrame(rows)
    run = karat.Run.from_frame(frame)
    grades = {f"q{query}": {f"doc{chance.randint(0, 40)}": 1} for query in range(33)}
    for judged in grades.values():
        judged |= {f"doc{chance.randint(0, 40)}": chance.randint(0, 3) for _ in range(3)}
    gold = karat.Gold.from_dict(grades)
    for ending in ("trec", "csv", "tsv", "parquet"):
        write_run(run, place / f"run.{ending}")
        write_gold(gold, place / f"gold.{ending}")
    write_run(run, place / "log.jsonl")
    write_gold(gold, place / "labels.jsonl", format="labels")
    (place / "run.trec.gz").write_bytes(gzip.compress((place / "run.trec").read_bytes()))
    _in_parts(place)
    return place


def _in_parts(place):
    """The same rows in many files, as Spark itself would leave them."""
    for name, ending in (("parts", "parquet"), ("texts", "trec")):
        (place / name).mkdir()
        (place / name / "_SUCCESS").touch()
        (place / name / f"part-9.{ending}.crc").touch()
    frame = pl.read_parquet(place / "run.parquet")
    lines = (place / "run.trec").read_text().splitlines(keepends=True)
    # Of many lengths, since Spark reads long ones first.
    cuts = [0, 11, 250, 260, 599, 600]
    for at, (start, end) in enumerate(itertools.pairwise(cuts)):
        frame[start:end].write_parquet(place / "parts" / f"part-{at}.parquet")
        (place / "texts" / f"part-{at}.trec").write_text("".join(lines[start:end]))
    for name in ("parts", "texts"):
        for hidden in (place / name).glob("*.crc"):
            hidden.unlink()


def told(run, folder, monkeypatch, *arguments):
    """The report of a command in a folder, without what only whole lists can tell."""
    monkeypatch.chdir(folder)
    result = run(*arguments, "-m", MEASURES, "--json", "--no-bounds")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    for name in ("findings", "findings_of", "bounds_left_out", "inputs"):
        report.pop(name, None)
    for system in report["systems"]:
        for name in ("failures", "sweep", "waterfalls", "source", "name", "latency"):
            system.pop(name, None)
    return report


FORMATS = ["run.trec", "run.csv", "run.tsv", "run.parquet", "log.jsonl", "run.trec.gz"]


@pytest.mark.usefixtures("spark", "small_blocks")
@pytest.mark.parametrize("name", FORMATS)
def test_a_run_of_any_format_gives_the_local_report(run, folder, monkeypatch, name):
    asked = ("eval", name, "--gold", "gold.trec")
    there = told(run, folder, monkeypatch, *asked, "--engine", "spark")
    assert there == told(run, folder, monkeypatch, *asked)


@pytest.mark.usefixtures("spark", "small_blocks")
@pytest.mark.parametrize("name", ["gold.csv", "gold.tsv", "gold.parquet", "labels.jsonl"])
def test_gold_of_any_format_gives_the_local_report(run, folder, monkeypatch, name):
    asked = ("eval", "run.parquet", "--gold", name)
    there = told(run, folder, monkeypatch, *asked, "--engine", "spark")
    assert there == told(run, folder, monkeypatch, *asked)


@pytest.mark.usefixtures("spark", "small_blocks")
@pytest.mark.parametrize(
    "many", ["parts", "parts/*.parquet", "texts", "texts/part-*.trec", "file://{here}/parts"]
)
def test_many_files_are_one_run_in_the_order_of_their_names(run, folder, monkeypatch, many):
    whole = "run.trec" if many.startswith("texts") else "run.parquet"
    rest = ("--gold", "gold.parquet", "--set", "ties=given")
    named = many.format(here=folder)
    there = told(run, folder, monkeypatch, "eval", named, *rest, "--engine", "spark")
    assert there == told(run, folder, monkeypatch, "eval", whole, *rest)


@pytest.mark.usefixtures("spark")
def test_a_comparison_decides_as_the_local_one_does(run, folder, monkeypatch):
    better = read_run(folder / "run.parquet")
    gold = read_gold(folder / "gold.trec").frame.select("query_id", "item_id", "grade")
    hits = better.hits.join(gold, on=["query_id", "item_id"], how="left").with_columns(
        score=pl.col("score") + pl.col("grade").fill_null(0) / 3
    )
    hits.drop("grade").write_parquet(folder / "better.parquet")
    asked = ("compare", "run.parquet", "better.parquet", "--gold", "gold.trec")
    there = told(run, folder, monkeypatch, *asked, "--engine", "spark")
    here = told(run, folder, monkeypatch, *asked)
    assert there["comparisons"] == here["comparisons"]
    assert there == here


@pytest.mark.usefixtures("spark")
def test_values_of_queries_are_written_as_parquet(run, folder, monkeypatch, tmp_path):
    monkeypatch.chdir(folder)
    asked = ("eval", "run.parquet", "--gold", "gold.parquet", "-m", MEASURES, "--quiet")
    for engine in ("local", "spark"):
        result = run(*asked, "--engine", engine, "-o", f"{tmp_path}/{engine}.parquet")
        assert result.code == 0, result.err
    there, here = (pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("spark", "local"))
    assert there.height == 33
    assert there.equals(here)


WRONG = {
    "nan": ("q1 Q0 d1 1 nan x\n", "score is 'nan'"),
    "a Java number": ("q1 Q0 d1 1 1.5d x\n", "score is '1.5d'"),
    "short": ("q1 Q0 d1\n", "columns; expected 6"),
}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_line_is_refused_in_the_reader_s_words(run, folder, tmp_path, what):
    line, words = WRONG[what]
    whole = (folder / "run.trec").read_text() + line
    (tmp_path / "run.trec").write_text(whole)
    asked = ("eval", f"{tmp_path}/run.trec", "--gold", f"{folder}/gold.trec")
    there, here = run(*asked, "--engine", "spark"), run(*asked)
    assert (there.code, here.code) == (2, 2)
    assert words in there.err
    assert words in here.err
    # No number of a line says where it is in many files, so the line itself is shown.
    assert line.strip() in there.err
    assert "Traceback" not in there.err


@pytest.mark.usefixtures("spark")
def test_bytes_that_are_no_text_are_refused(run, folder, tmp_path):
    (tmp_path / "run.trec").write_bytes((folder / "run.trec").read_bytes() + b"q1 Q0 \xff 1 2 x\n")
    asked = ("eval", f"{tmp_path}/run.trec", "--gold", f"{folder}/gold.trec", "--engine", "spark")
    result = run(*asked)
    assert result.code == 2
    assert "UTF-8" in result.err
    assert "Traceback" not in result.err


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("gone.parquet",), "no such file"),
        (("-",), "not standard input"),
        (("run.parquet", "--bounds"), "--bounds needs every list in one place; use --engine local"),
        (("run.parquet", "--engine", "sparc"), "'sparc' is not known; use local, spark"),
        (("run.parquet", "--engine", "spark="), "'spark=' is not known"),
        (("run.parquet", "--engine", "spark=local[7]"), "session on 'local[2,4]' is active"),
    ],
)
def test_what_spark_cannot_do_is_said(run, folder, monkeypatch, arguments, words):
    monkeypatch.chdir(folder)
    asked = arguments if "--engine" in arguments else (*arguments, "--engine", "spark")
    result = run("eval", *asked, "--gold", "gold.trec")
    assert result.code == 2
    assert words in result.err
    assert "Traceback" not in result.err


@pytest.mark.usefixtures("spark")
def test_gold_of_documents_is_refused_for_a_run_of_chunks(run, tmp_path):
    (tmp_path / "run.trec").write_text("q1 Q0 faq#2 1 2.0 x\nq2 Q0 faq#1 1 2.0 x\n")
    (tmp_path / "gold.txt").write_text("q1 0 faq 1\nq2 0 help 1\n")
    asked = ("eval", f"{tmp_path}/run.trec", "--gold", f"{tmp_path}/gold.txt")
    there, here = run(*asked, "--engine", "spark"), run(*asked)
    assert there.code == 2
    assert "gold.txt names documents, and run.trec returned chunks of them" in there.err
    assert there.err == here.err


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("hit", "said"),
    [
        ("doc_{}", 'differ by the prefix "doc_"'),
        ("D{}", "upper and lower case"),
        ("{}z", "Check that both belong together"),
    ],
)
def test_ids_that_never_meet_are_refused_in_the_same_words(run, tmp_path, hit, said):
    ids = [f"d{n:03}" for n in range(200)]
    own = [hit.format(one[1:] if hit[0] == "D" else one) for one in ids]
    if hit == "{}z":
        own = [f"w{7 * n}z" for n in range(200)]
    (tmp_path / "gold.txt").write_text("".join(f"q{n} 0 {one} 1\n" for n, one in enumerate(ids)))
    (tmp_path / "run.trec").write_text(
        "".join(f"q{n} Q0 {one} 1 2.0 x\n" for n, one in enumerate(own))
    )
    asked = ("eval", f"{tmp_path}/run.trec", "--gold", f"{tmp_path}/gold.txt", "-m", "R@1")
    there, here = run(*asked, "--engine", "spark"), run(*asked)
    assert (there.code, here.code) == (2, 2)
    assert said in there.err
    assert there.err == here.err
    allowed = run(*asked, "--engine", "spark", "--set", "missing_ids=allow")
    assert allowed.code == 0
    assert "No relevant item was found for any of the 200 queries." in allowed.out
