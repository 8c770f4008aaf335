"""Queries without gold under a known name are refused, with the columns that look like it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from karat.errors import InputError, NoGoldError
from karat.formats.evalset import gold_like
from karat.formats.readers import read_gold

Row = dict[str, Any]


def write(folder: Path, form: str, rows: list[Row]) -> Path:
    path = folder / f"eval.{form}"
    if form == "parquet":
        pl.DataFrame(rows).write_parquet(path)
    elif form == "csv":
        cells = [
            {k: json.dumps(v) if isinstance(v, list) else v for k, v in r.items()} for r in rows
        ]
        pl.DataFrame(cells).write_csv(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("name", ["gold_ids", "expected", "relevant", "answers", "positives"])
@pytest.mark.parametrize(
    "query",
    [
        {"id": "q1", "query": "a tart?"},
        {"query_id": "q1", "question": "a tart?"},
        {"qid": "q1", "text": "a tart?"},
    ],
    ids=["query", "question", "text"],
)
@pytest.mark.parametrize("told", [["c1", "c2"], "c1"], ids=["list", "one"])
def test_gold_under_another_name_is_named_with_the_option_that_maps_it(
    tmp_path: Path, form: str, name: str, query: Row, told: Any
) -> None:
    path = write(tmp_path, form, [{**query, name: told, "language": "en", "tags": ["x"]}])
    with pytest.raises(NoGoldError) as caught:
        read_gold(path)
    assert f"--field gold={name}" in str(caught.value)
    assert "--field gold=tags" not in str(caught.value)
    gold = read_gold(path, fields={"gold": name})
    assert gold.frame["item_id"].to_list() == (told if isinstance(told, list) else [told])


def test_without_anything_like_gold_the_columns_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "jsonl", [{"id": "q1", "query": "a tart?", "language": "en"}])
    with pytest.raises(NoGoldError, match=r"language.*--field gold=COLUMN"):
        read_gold(path)


def test_queries_marked_as_having_no_answer_need_no_gold(tmp_path: Path) -> None:
    rows: list[Row] = [{"id": "q1", "query": "a tart?", "no_answer": True}]
    assert read_gold(write(tmp_path, "jsonl", rows)).query_ids == ("q1",)
    # Nor do they make up for those that lack it.
    rows.append({"id": "q2", "query": "a pie?", "gold_ids": ["c1"]})
    with pytest.raises(NoGoldError, match="gold=gold_ids"):
        read_gold(write(tmp_path, "jsonl", rows))


@pytest.mark.parametrize("key", ["relevant_chunk_ids", "relevant_ids"])
def test_a_known_name_with_nothing_in_it_is_gold_that_is_empty(tmp_path: Path, key: str) -> None:
    path = write(tmp_path, "jsonl", [{"id": "q1", "query": "a tart?", key: []}])
    assert read_gold(path).frame.height == 0


def test_one_query_with_gold_is_enough(tmp_path: Path) -> None:
    rows = [{"id": "q1", "query": "a tart?"}, {"id": "q2", "query": "a?", "chunk_id": "c"}]
    gold = read_gold(write(tmp_path, "jsonl", rows))
    assert (gold.query_ids, gold.frame.rows()) == (("q1", "q2"), [("q2", "c", 1.0)])


def test_a_list_called_gold_is_gold_and_a_text_is_not(tmp_path: Path) -> None:
    row = {"id": "q1", "query": "a tart?", "gold": ["c1"]}
    assert read_gold(write(tmp_path, "jsonl", [row])).frame["item_id"].to_list() == ["c1"]
    answer = {**row, "gold": "In Paris.", "relevant_chunk_ids": ["c2"]}
    assert read_gold(write(tmp_path, "jsonl", [answer])).frame["item_id"].to_list() == ["c2"]


@pytest.mark.parametrize(
    ("examples", "expected"),
    [
        ({"tags": ["x"], "expected": ["c1"]}, ["expected"]),
        ({"tags": ["x"]}, []),
        ({"doc_ids": ["c1"], "notes": ["a long text"]}, ["doc_ids"]),
        ({"answer": "In Paris, since 1900.", "language": "en"}, []),
        ({"answer_id": 12, "k": 5}, ["answer_id"]),
        ({"judgments": [{"docno": "d", "rel": 1}]}, ["judgments"]),
        ({"truth": {"d1": 1, "d2": 0}}, ["truth"]),
        (
            {"gold_id": "c1", "gold_ids": ["c1"], "expected": ["c2"]},
            ["gold_ids", "expected", "gold_id"],
        ),
        ({"passages": "[1, 2]"}, ["passages"]),
        ({"relevant": True, "grade": 1.5}, []),
    ],
)
def test_what_looks_like_gold(examples: dict[str, Any], expected: list[str]) -> None:
    assert gold_like(examples) == expected


def test_gold_without_query_ids_names_the_columns_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ratings.csv"
    path.write_text("query,docid,rating\nred shoes,d1,3\n")
    with pytest.raises(InputError, match="no column for the query id among query, docid, rating"):
        read_gold(path)
