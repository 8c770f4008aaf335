"""Test suites of memories: what is damaged is refused by its number, never left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval_sets import read_eval_set
from karat.data.tables import Corpus, Gold, Queries
from karat.errors import InputError
from karat.formats.readers import (
    read_corpus,
    read_gold,
    read_queries,
    write_corpus,
    write_gold,
    write_queries,
)

SOUND = {"memory_id": 7, "content": "Ask before merging.", "generated_queries": ["who merges it"]}


def put(folder: Path, *cases: Any) -> Path:
    path = folder / "suite.json"
    path.write_text(json.dumps({"test_cases": cases}))
    return path


def refusal(read: Callable[[Path], object], path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("case", "told"),
    [
        ({}, "test case 2 has neither memory_id nor queries; give it"),
        ({"content": "x"}, "test case 2 has neither memory_id nor queries"),
        ({"memory_id": None, "generated_queries": []}, "test case 2 has neither memory_id nor"),
        ({"original_queries": ["who"]}, "test case 2 has neither memory_id nor queries"),
        (5, "test case 2 is 5; an object is expected"),
        (SOUND | {"memory_id": 1.5}, "the memory_id of test case 2 is 1.5; ids are text or"),
        (SOUND | {"memory_id": ""}, 'the memory_id of test case 2 is ""; ids are text or'),
        (SOUND | {"generated_queries": "who"}, 'generated_queries of test case 2 is "who"; a list'),
        (SOUND | {"content": 5}, "the content of test case 2 is 5; text is expected"),
        (SOUND | {"content": ["a"]}, 'the content of test case 2 is ["a"]; text is expected'),
        (SOUND | {"content": False}, "the content of test case 2 is false; text is expected"),
        (SOUND | {"content": {}}, "the content of test case 2 is {}; text is expected"),
    ],
)
@pytest.mark.parametrize("read", [read_gold, read_queries, read_corpus])
def test_a_damaged_test_case_is_refused_by_its_number(
    read: Callable[[Path], object], case: Any, told: str, tmp_path: Path
) -> None:
    path = put(tmp_path, SOUND | {"memory_id": 1}, case)
    assert refusal(read, path).startswith(f"suite.json: {told}")


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({}, 'query 2 of test case 2 has no text; expected "query"'),
        ({"category": "direct"}, "query 2 of test case 2 has no text"),
        ({"question": "who?"}, "query 2 of test case 2 has no text"),
        ({"id": None, "category": "direct"}, "query 2 of test case 2 has no text"),
        ({"query": None}, "query 2 of test case 2 has no text"),
        ({"id": "a", "query": 5}, "query 2 of test case 2 has no text"),
        ({"id": 1.5, "query": "who"}, "the id of query 2 of test case 2 is 1.5; ids are"),
        ({"query": "who", "grade": "2"}, 'the grade of query 2 of test case 2 is "2"; a finite'),
        ({"id": "7/1", "query": "who"}, "query id '7/1' occurs again as query 2 of test case 2"),
        (5, "query 2 of test case 2 is 5; an object is expected"),
        (None, "query 2 of test case 2 is null; an object is expected"),
    ],
)
@pytest.mark.parametrize("read", [read_gold, read_queries])
def test_a_damaged_query_is_refused_by_its_place(
    read: Callable[[Path], object], query: Any, told: str, tmp_path: Path
) -> None:
    path = put(tmp_path, SOUND, {"memory_id": 8, "generated_queries": ["a", query]})
    assert refusal(read, path).startswith(f"suite.json: {told}")


def test_a_query_known_by_its_id_needs_no_text(tmp_path: Path) -> None:
    queries, gold = read_eval_set(put(tmp_path, SOUND | {"generated_queries": [{"id": "a"}]}))
    assert gold.frame.rows() == [("a", "7", 1.0)]
    assert queries.frame.select("query_id", "text").rows() == [("a", "")]


def test_a_memory_without_content_is_gold_but_no_item_beside_others(tmp_path: Path) -> None:
    for lacking in ({}, {"content": None}):
        path = put(tmp_path, SOUND, {"memory_id": "b", "generated_queries": ["why"], **lacking})
        assert read_gold(path).frame["item_id"].to_list() == ["7", "b"]
        told = "suite.json: memory 'b' (test case 2) has no content, but others do; give it"
        assert refusal(read_corpus, path).startswith(told)


def test_content_of_no_memory_is_no_item_that_could_be_left_out(tmp_path: Path) -> None:
    path = put(tmp_path, SOUND, {"content": "Nobody's.", "generated_queries": ["whose is it"]})
    assert read_gold(path).frame["item_id"].to_list() == ["7"]
    told = "suite.json: test case 2 has content and no memory_id; give the memory an id"
    assert refusal(read_corpus, path) == told


def test_a_suite_without_any_content_is_a_corpus_of_ids(tmp_path: Path) -> None:
    corpus = read_corpus(put(tmp_path, {"memory_id": 1}, {"memory_id": 2, "severity": 3}))
    assert corpus.frame.select("item_id", "text").rows() == [("1", ""), ("2", "")]


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "written.json"
    gold = Gold.from_dict({"q1": {"a": 1, "b": 2}, "q2": {}})
    write_gold(gold, path, format="memory")
    again = read_gold(path)
    assert sorted(again.frame.rows()) == sorted(gold.frame.rows())
    assert set(again.query_ids) == {"q1", "q2"}
    queries = Queries.from_dict({"q1": "where are all the keys", "q2": ""})
    write_queries(queries, path, format="memory")
    assert read_queries(path).frame.select("query_id", "text").rows() == queries.frame.rows()
    corpus = Corpus.from_dict({"a": "the keys", "b": ""})
    write_corpus(corpus, path, format="memory")
    assert read_corpus(path).frame["text"].to_list() == ["the keys", ""]
