"""Files that differ among themselves, or are not what their names say: scored alike, or refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

from karat.spark import session as sessions
from karat.spark.session import error_message

RUN = [("q1", "a", 3.0), ("q1", "b", 2.0), ("q2", "c", 1.5), ("q2", "a", 1.0)]
JUDGED = [("q1", "a"), ("q2", "c")]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.trec").write_text(
        "".join(f"{query} Q0 {item} 0 {score} x\n" for query, item, score in RUN)
    )
    (tmp_path / "gold.txt").write_text("".join(f"{query} 0 {item} 1\n" for query, item in JUDGED))
    return tmp_path


@pytest.fixture
def scored(run, spark):
    """The means that Spark finds, and those that the local engine finds in other files."""

    def both(there: list[str], local: list[str]) -> tuple[dict, dict]:
        found = []
        for words in ([*there, "--engine", "spark"], local):
            done = run("eval", *words, "-m", "RR,P@1", "--json", "--no-bounds")
            assert done.code == 0, done.err
            (system,) = json.loads(done.out)["systems"]
            found.append((system["counts"], system["measures"]))
        return found[0], found[1]

    return both


def refused(run, *words: str) -> str:
    done = run("eval", *words, "-m", "RR", "--engine", "spark")
    assert (done.code, done.out) == (2, ""), done.err
    assert done.err.count("\n") == 1
    return done.err


def test_headers_may_be_quoted_and_a_first_file_may_be_empty(here, scored):
    rows = [f"{query},{item},{score}" for query, item, score in RUN]
    files = {
        "0.csv": "",
        "1.csv": "\n".join(["query_id,item_id,score", *rows[:2], ""]),
        "2.csv": "\n".join(['\ufeff"query_id","item_id","score"\r', *rows[2:], ""]),
    }
    (here / "parts").mkdir()
    for name, text in files.items():
        (here / "parts" / name).write_text(text)
    there, local = scored(["parts", "--gold", "gold.txt"], ["run.trec", "--gold", "gold.txt"])
    assert there == local


@pytest.mark.parametrize("ending", ["", ",grade"])
def test_columns_in_another_order_are_refused(here, run, spark, ending):
    more = "" if not ending else ",1"
    (here / "golds").mkdir()
    (here / "golds" / "a.csv").write_text(f"query_id,item_id{ending}\nq1,a{more}\n")
    (here / "golds" / "b.csv").write_text(f"item_id,query_id{ending}\nc,q2{more}\n")
    told = refused(run, "run.trec", "--gold", "golds")
    assert f"in another order than 'query_id,item_id{ending}'; write them alike" in told


def test_parts_may_keep_a_column_as_other_kinds_of_numbers(here, scored):
    frame = pl.DataFrame(RUN, schema=["query_id", "item_id", "score"], orient="row")
    (here / "parts").mkdir()
    frame[:2].write_parquet(here / "parts" / "0.parquet")
    narrow = frame[2:].with_columns(pl.col("score").cast(pl.Float32))
    narrow.write_parquet(here / "parts" / "1.parquet")
    there, local = scored(["parts", "--gold", "gold.txt"], ["run.trec", "--gold", "gold.txt"])
    assert there == local


@pytest.mark.parametrize("side", ["run", "gold"])
def test_a_damaged_part_is_named(here, run, spark, side):
    frame = pl.DataFrame(RUN, schema=["query_id", "item_id", "score"], orient="row")
    if side == "gold":
        frame = frame.select("query_id", "item_id", grade=pl.lit(1))
    (here / "parts").mkdir()
    for name in ("0.parquet", "1.parquet"):
        frame.write_parquet(here / "parts" / name)
    whole = (here / "parts" / "1.parquet").read_bytes()
    (here / "parts" / "1.parquet").write_bytes(whole[:-50])
    words = ("parts", "--gold", "gold.txt") if side == "run" else ("run.trec", "--gold", "parts")
    told = refused(run, *words)
    assert "1.parquet: the Parquet file is damaged; copy or write it again" in told


def test_a_line_of_blanks_is_as_wrong_as_it_is_here(here, run, spark):
    (here / "run.csv").write_text("query_id,item_id,score\nq1,a,1\n\n  \n")
    told = refused(run, "run.csv", "--gold", "gold.txt")
    local = run("eval", "run.csv", "--gold", "gold.txt", "-m", "RR")
    assert local.code == 2
    assert "item_id is empty" in local.err
    assert "item_id is empty" in told


def test_what_is_judged_twice_is_shown_by_its_lines(here, run, spark):
    lines = [f"q{at} 0 d{at} 1\n" for at in range(300)]
    (here / "twice.txt").write_text("".join([*lines, "q7 0 d7 2\n"]))
    told = refused(run, "run.trec", "--gold", "twice.txt")
    assert "judged 2 here and 1 in the line 'q7 0 d7 1'" in told


def test_names_that_spark_goes_by_are_told_of(here, run, spark):
    text = (here / "run.trec").read_bytes()
    cases: dict[str, tuple[bytes, str]] = {
        "_run.trec": (text, "begin with _ or ."),
        ".run.trec": (text, "begin with _ or ."),
        "a:b.trec": (text, "with a colon"),
        "packed.trec": (gzip.compress(text), "is packed and not called so"),
        "plain.trec.gz": (text, "is called .gz and not packed"),
    }
    for name, (data, words) in cases.items():
        Path(name).write_bytes(data)
        assert words in refused(run, name, "--gold", "gold.txt")


def test_a_file_that_may_not_be_opened_is_refused_by_its_reader(here, run, spark, monkeypatch):
    def closed(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", closed)
    assert "Traceback" not in refused(run, "run.trec", "--gold", "gold.txt")


def test_the_last_words_of_a_worker_are_told_where_spark_has_none():
    error = Exception(
        "An exception was thrown from the Python worker:\n"
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "sharing.py", line 66, in _packed\n'
        "polars.exceptions.SchemaError: type Float32 is incompatible\n\n"
        "\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:572)\n"
        "Caused by: java.io.EOFException\n"
    )
    assert error_message(error) == "polars.exceptions.SchemaError: type Float32 is incompatible"
    plain = Exception("org.apache.spark.SparkException: Job aborted\nCaused by: no room left")
    assert error_message(plain) == "no room left"
    assert "install Java 17" in error_message(
        Exception("[JAVA_GATEWAY_EXITED] Java gateway process exited")
    )


def test_java_that_did_not_start_under_a_limit_is_told_with_the_limit(monkeypatch):
    stopped = Exception("[JAVA_GATEWAY_EXITED] Java gateway process exited")
    for limits, told in (({}, "install Java 17"), ({"-v": 2 * 10**9}, "ulimit -v allows")):
        monkeypatch.setattr(sessions, "LIMITS", limits)
        assert told in error_message(stopped)
