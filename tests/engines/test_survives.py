"""What happens to clusters: lost workers, lost machines, one huge query, files with nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from alike import assert_same_bits

import karat
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare
from karat.spark.engine import SparkEngine

MEASURES = ["nDCG@10", "R@100", "AP"]


def run_of(lengths):
    """A run whose queries have so many hits each; every seventh item is in the gold."""
    rows = [
        {"query_id": f"q{query}", "item_id": f"d{item}", "score": float(-((item * 37) % length))}
        for query, length in enumerate(lengths)
        for item in range(length)
    ]
    gold = {
        f"q{query}": {f"d{item}": 1 + item % 2 for item in range(0, length, 7)}
        for query, length in enumerate(lengths)
    }
    return karat.Run.from_frame(pl.DataFrame(rows)), karat.Gold.from_dict(gold)


def spark_frame(spark, frame: pl.DataFrame):
    return spark.createDataFrame(frame.rows(), frame.columns)


# Spark's own words on its libraries; karat's calls leave them out.
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support:FutureWarning")
def test_a_worker_that_dies_is_replaced(spark, tmp_path):
    run, gold = run_of([30, 20, 40, 10])
    flag = str(tmp_path / "died")

    def die_once(batches):
        for batch in batches:
            if not os.path.exists(flag):  # noqa: PTH110 - as it is in the worker
                with open(flag, "w"):  # noqa: PTH123
                    os._exit(9)
            yield batch

    hits = spark_frame(spark, run.hits)
    there = karat.evaluate(hits.mapInArrow(die_once, hits.schema), gold, MEASURES)
    assert Path(flag).exists()
    assert_same_bits(there, karat.evaluate(run, gold, MEASURES))


@pytest.mark.usefixtures("small_blocks")
def test_one_query_may_have_nearly_all_hits(spark, tmp_path):
    run, gold = run_of([5000, 3, 1, 2])
    run.hits.write_parquet(tmp_path / "run.parquet", row_group_size=700)
    assert_same_bits(scored(spark, tmp_path / "run.parquet", gold), here(run, gold))


@pytest.mark.usefixtures("small_blocks")
def test_files_without_a_row_are_no_trouble(spark, tmp_path):
    run, gold = run_of([9, 8, 7])
    for at, rows in enumerate((run.hits.clear(), run.hits[:10], run.hits.clear(), run.hits[10:])):
        rows.write_parquet(tmp_path / f"part-{at}.parquet")
    assert_same_bits(scored(spark, tmp_path, gold), here(run, gold))


@pytest.mark.usefixtures("small_blocks")
def test_queries_that_nobody_asked_for_do_not_hide_those_that_were(spark, tmp_path):
    hits = [(f"x{at}", "d1", 1.0) for at in range(200)] + [("q1", "d9", 2.0), ("q2", "d2", 1.0)]
    frame = pl.DataFrame(hits, schema=["query_id", "item_id", "score"], orient="row")
    frame.write_parquet(tmp_path / "run.parquet")
    gold = karat.Gold.from_dict({"q1": {"d1": 1}, "q2": {"d2": 1}, "q3": {"d3": 1}})
    run = karat.Run.from_frame(frame)
    assert_same_bits(scored(spark, tmp_path / "run.parquet", gold), here(run, gold))


def test_a_run_without_a_row_is_refused_as_it_is_here(spark, tmp_path):
    run, gold = run_of([4])
    run.hits.clear().write_parquet(tmp_path / "run.parquet")
    with pytest.raises(karat.InputError, match="holds no hits; at least one row is expected"):
        scored(spark, tmp_path / "run.parquet", gold)


@pytest.mark.parametrize("master", ["foo", "local[x]", "local[0]", "spark:/host"])
def test_what_is_no_master_is_refused_before_spark_is_started(run, tmp_path, master):
    (tmp_path / "run.trec").write_text("q1 Q0 d1 1 1 t\n")
    (tmp_path / "qrels.txt").write_text("q1 0 d1 1\n")
    files = (str(tmp_path / "run.trec"), "--gold", str(tmp_path / "qrels.txt"))
    told = run("eval", *files, "--engine", f"spark={master}")
    assert told.code == 2
    assert told.err.startswith(f"karat: {master!r} is not a Spark master; use local[4]")


def test_a_run_of_other_queries_is_refused(spark, tmp_path):
    run, _ = run_of([4])
    run.hits.write_parquet(tmp_path / "run.parquet")
    with pytest.raises(karat.InputError, match="share no query id: the run has 'q0'"):
        scored(spark, tmp_path / "run.parquet", karat.Gold.from_dict({"x": {"d1": 1}}))


def test_tables_of_spark_are_scored_from_python(spark):
    run, gold = run_of([30, 20, 40, 10])
    judged = gold.frame.rename({"query_id": "qid", "item_id": "docid", "grade": "relevance"})
    queries = karat.Queries.from_dict({f"q{at}": {"text": "x", "k": 3} for at in range(3)})
    settings = {"rel": 2}
    tables = [spark_frame(spark, run.hits), spark_frame(spark, judged)]
    for measures in (["R@k", "Coverage@5"], None):
        options = {"settings": settings, "queries": queries}
        there = karat.evaluate(*tables, measures, **options)
        assert there.counts.not_in_queries == 1
        assert_same_bits(there, karat.evaluate(run, gold, measures, **options))


def test_gold_of_spark_needs_a_run_of_spark(spark):
    run, gold = run_of([4])
    with pytest.raises(karat.UsageError, match="goes with a run of Spark"):
        karat.evaluate(run, spark_frame(spark, gold.frame))
    with pytest.raises(karat.UsageError, match="is expected, not int"):
        karat.evaluate(spark_frame(spark, run.hits), 5)


def test_what_is_wrong_with_a_table_is_said_without_a_traceback(spark):
    run, gold = run_of([4])
    broken = run.hits.with_columns(score=pl.lit(float("nan")))
    with pytest.raises(karat.InputError, match="Spark: score is nan; a run needs finite scores"):
        karat.evaluate(spark_frame(spark, broken), gold)
    with pytest.raises(karat.InputError, match="no column for the query id among item_id, score"):
        karat.evaluate(spark_frame(spark, broken.drop("query_id")), gold)


def here(run, gold):
    return karat.evaluate(run, gold, MEASURES)


def scored(spark, path, gold):
    conventions = conventions_of("karat", {})
    engine = SparkEngine(spark, owned=False)
    prepared = prepare(engine.read_gold(gold), conventions)
    return engine.score(str(path), prepared, parse_measures(MEASURES, conventions=conventions))


def test_what_spark_itself_logs_is_one_line_and_no_workflow_command():
    said = "a\\n::error::x\\r##[error]y"
    code = (
        "from karat.spark.session import session\n"
        "spark = session('local[1]')\n"
        "logs = spark._jvm.org.apache.logging.log4j.LogManager\n"
        f"logs.getLogger('karat').error('{said}')\n"
        "spark.stop()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    (line,) = [line for line in done.stderr.splitlines() if "ERROR" in line]
    assert line.endswith("ERROR karat: a\\n::error::x\\r## [error]y")
    assert "\n::error" not in done.stderr
