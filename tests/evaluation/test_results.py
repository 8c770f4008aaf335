"""Scores, comparisons and gates print as short tables, and give plain data, frames and files."""

import json

import polars as pl
import pytest

import karat

GOLD = {f"q{n}": ["a"] for n in range(8)}
OLD, NEW = (dict.fromkeys(GOLD, items) for items in (["x", "a"], ["a", "x"]))


def results():
    return {
        "scores": karat.evaluate(OLD, GOLD, ["RR", "R@1"]),
        "comparison": karat.compare({"old": OLD, "new": NEW}, GOLD, ["RR"]),
        "gates": karat.gate(OLD, ["RR >= 0.9", "R@5 >= 0.1"], gold=GOLD),
    }


@pytest.mark.parametrize(
    ("kind", "rows", "words"),
    [
        ("scores", 8, ["RR", "0.5000", "8 of 8 queries scored"]),
        ("comparison", 1, ["BETTER", "RR *", "+0.5000"]),
        ("gates", 2, ["FAIL", "1 of 2 gates", "RR"]),
    ],
)
def test_public_results_print_and_save_alike(kind, rows, words, tmp_path):
    result = results()[kind]
    for text in (repr(result), result._repr_html_()):
        assert all(word in text for word in words)
    assert result.to_frame().height == rows
    for name in ("a.json", "a.csv", "a.html", "a.md", "a.parquet"):
        result.save(tmp_path / name)
    assert json.loads((tmp_path / "a.json").read_text()).keys() == result.to_dict().keys()
    assert pl.read_parquet(tmp_path / "a.parquet").equals(result.to_frame())


def test_frames_have_intervals_and_segments_as_columns():
    queries = {query: {"text": query, "half": "ab"[n % 2]} for n, query in enumerate(GOLD)}
    compared = karat.compare({"old": OLD, "new": NEW}, GOLD, ["RR"], queries=queries, by=["half"])
    frame = compared.to_frame()
    assert frame["segment"].to_list() == [None, "a", "b"]
    assert {"ci_low", "ci_high", "delta", "p"} <= set(frame.columns)
