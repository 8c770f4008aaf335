from __future__ import annotations

import io

import polars as pl

from karat.data.tables import Gold, Run
from karat.evaluation.api import evaluate
from karat.pages.result import to_csv, to_parquet
from karat.reports.document import Report


def test_csv_has_a_row_a_system_and_query(report):
    table = pl.read_csv(io.BytesIO(to_csv(report)))
    assert table.columns == ["system", "query_id", "status", "nDCG@10", "R@2", "P@5", "RR"]
    assert table.height == 8
    missing = table.filter(pl.col("status") == "missing")
    assert missing["query_id"].to_list() == ["q10"]
    empty = table.filter(pl.col("query_id") == "q4")
    assert empty["RR"].null_count() == 2


def test_csv_and_parquet_hold_the_same_values(report):
    csv, parquet = pl.read_csv(io.BytesIO(to_csv(report))), pl.read_parquet(to_parquet(report))
    assert csv.equals(parquet)


def test_csv_quotes_what_needs_quotes():
    gold = Gold.from_dict({'q "1", a': {"x": 1}})
    run = Run.from_dict({'q "1", a': {"x": 1.0}}, name="a,b")
    report = Report.of([evaluate(run, gold, ["F(beta=2)@5", "RBP(p=0.5, rel=1)"])], gold=gold)
    table = pl.read_csv(io.BytesIO(to_csv(report)))
    assert table["query_id"].to_list() == ['q "1", a']
    assert table["system"].to_list() == ["a,b"]
    assert table.columns[3:] == list(report.systems[0].summaries)
