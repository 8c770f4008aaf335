from __future__ import annotations

import io

import polars as pl
from rich.console import Console

from karat.measures.scores import evaluate
from karat.reports.document import build_report
from karat.reports.per_query import to_csv, to_parquet
from karat.reports.terminal import show_report
from karat.reports.to_markdown import to_markdown
from karat.tables import Gold, Queries, Run


def shown(report, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False, emoji=False)
    show_report(report, console)
    return console.file.getvalue()


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
    report = build_report([evaluate(run, gold, ["F(beta=2)@5", "RBP(p=0.5, rel=1)"])], gold=gold)
    table = pl.read_csv(io.BytesIO(to_csv(report)))
    assert table["query_id"].to_list() == ['q "1", a']
    assert table["system"].to_list() == ["a,b"]
    assert table.columns[3:] == list(report.systems[0].summaries)


def test_markdown_has_tables_counts_conventions_and_inputs(report):
    text = to_markdown(report).decode()
    assert "| measure | good | poor | ceiling |" in text
    assert "## good by language" in text
    assert "| pt-BR | 1 |" in text
    assert "## Conventions" in text
    assert "1 missing from the run" in text


def test_markdown_cannot_be_broken_out_of():
    gold = Gold.from_dict({"q": {"x": 1}})
    run = Run.from_dict({"q": {"x": 1.0}}, name="a|b\n# <b>[x](y)")
    text = to_markdown(build_report([evaluate(run, gold, ["RR"])], gold=gold)).decode()
    assert "a\\|b" in text
    assert "<b>" not in text
    assert "\n# <" not in text


def test_the_terminal_shows_ceilings_ties_and_counts(report):
    text = shown(report)
    assert "ceiling" in text
    assert "by tie order" in text
    assert "good: 3 of 4 queries scored" in text
    assert "1 in the run but not asked" in text


def test_a_name_cannot_steer_the_terminal(gold):
    run = Run.from_dict({"q1": {"a": 1.0}}, name="\x1b[31mred\x1b[0m [bold]")
    text = shown(build_report([evaluate(run, gold, ["RR"])], gold=gold))
    assert "\x1b" not in text
    assert "[bold]" in text


def test_narrow_terminals_split_tables_and_keep_numbers_whole(report):
    text = shown(report, width=24)
    for system in report.results()["systems"]:
        for measure in system["measures"].values():
            assert f"{measure['mean']:.4f}" in text
    assert "…" not in text


def test_a_wide_name_is_shown_whole():
    gold = Gold.from_dict({"q": {"x": 1}})
    name = "a-very-long-name-of-a-system-" * 4
    run = Run.from_dict({"q": {"x": 1.0}}, name=name)
    assert name in shown(build_report([evaluate(run, gold, ["RR"])], gold=gold), width=40)


def test_many_segments_of_many_measures_fit(gold, runs):
    queries = Queries.from_dict(
        {name: {"text": name, "kind": name * 3} for name in ("q1", "q2", "q10", "q4")}
    )
    scores = [evaluate(runs[0], gold, ["RR", *(f"R@{k}" for k in range(1, 20))], queries=queries)]
    report = build_report(scores, gold=gold, queries=queries, by=["kind"])
    lines = shown(report, width=60).splitlines()
    assert max(map(len, lines[:-1])) <= 60
