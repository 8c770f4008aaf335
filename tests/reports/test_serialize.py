"""CSV reports: no cell is a formula or steers a terminal, and numbers stay numbers."""

from __future__ import annotations

import csv
import io
import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karat.data.tables import Gold, Run
from karat.evaluation.api import evaluate
from karat.pages.result import to_csv
from karat.pages.serialize import csv_cell, csv_table
from karat.reports.document import Report

FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1", "\n=1", "＝1", "＠x"]
TEXTS = st.text(st.sampled_from('=+-@\t\r\n\x00\x1b\x9b",a1. é'), max_size=8)


def runs_in_a_spreadsheet(cell: str) -> bool:
    """OWASP's list; what reads as a number is one."""
    try:
        number = math.isfinite(float(cell)) and "_" not in cell and cell == cell.strip()
    except ValueError:
        number = False
    return cell[:1] in tuple("=+-@\t\r\n＝＋－＠") and not number


@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_no_cell_runs_and_none_holds_a_control_character(texts):
    told = csv_table(pl.DataFrame({"name": ["x", *texts], "value": -0.5})).decode()
    header, *rows = csv.reader(io.StringIO(told, newline=""))
    assert header == ["name", "value"]
    assert len(rows) == len(texts) + 1
    assert not any(runs_in_a_spreadsheet(cell) for cell, _ in rows)
    assert not any(
        ord(sign) < 32 or 127 <= ord(sign) < 160 for sign in told if sign not in "\t\r\n"
    )
    assert {value for _, value in rows} == {"-0.5"}


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_is_marked_as_text(text):
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize(
    "text", ["", "-5", "+1.5e-3", "-.5", "q-1", "a=b", "'x", "ação", "2026-01-01"]
)
def test_everything_else_is_left_as_it_is(text):
    assert csv_cell(text) == text


def test_a_report_of_hostile_ids():
    gold = Gold.from_dict({one: {"a": 1} for one in FORMULAS[:4]})
    run = Run.from_dict({one: {"a": 1.0} for one in FORMULAS[:4]}, name="=cmd")
    told = to_csv(Report.of([evaluate(run, gold, ["RR"])], gold=gold)).decode()
    rows = list(csv.DictReader(io.StringIO(told)))
    assert {row["query_id"] for row in rows} == {f"'{one}" for one in FORMULAS[:4]}
    assert {row["system"] for row in rows} == {"'=cmd"}
    assert {row["RR"] for row in rows} == {"1.0"}
