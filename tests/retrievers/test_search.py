"""karat.search: systems and queries in, run logs out, without a karat.yaml."""

from __future__ import annotations

import pytest

import karat
from karat.errors import UsageError
from karat.retrieve.search import SearchOptions, search

CORPUS = {"a": {"text": "apple tart"}, "b": {"text": "plum cake"}, "c": {"text": "apple cake"}}
QUERIES = {"q1": "apple", "q2": "cake"}


def plums(text, k):
    return ["b", ("c", 0.5)][:1] if text == "cake" else []


def test_mappings_and_callables_are_searched_and_logged(tmp_path):
    systems = {"words": {"retriever": "bm25", "k": 5}, "mine": plums}
    template = str(tmp_path / "{system}.jsonl")
    words, mine = karat.search(systems, QUERIES, CORPUS, logs=template, folder=tmp_path)
    assert (words.system, words.calls, words.failed) == ("words", 2, 0)
    assert words.to_dict()["log"] == str(tmp_path / "words.jsonl")
    found = karat.read_run(words.path).hits.filter(query_id="q1")["item_id"].to_list()
    assert sorted(found) == ["a", "c"]
    assert karat.read_run(mine.path).hits["item_id"].to_list() == ["b"]


def test_an_object_that_searches_tables_is_a_system(tmp_path):
    class Store:
        def search(self, queries, k):
            return karat.Run.from_dict({name: ["a"] for name in queries.frame["query_id"]})

    (result,) = search({"store": Store()}, QUERIES, logs=str(tmp_path / "log.jsonl"))
    assert karat.read_run(result.path).hits["item_id"].to_list() == ["a", "a"]


def test_files_are_read_and_a_finished_log_is_resumed(tmp_path):
    queries = tmp_path / "queries.tsv"
    queries.write_text("q1\tapple\nq2\tcake\n")
    where = {"logs": tmp_path / "log.jsonl", "folder": tmp_path}
    (first,) = search({"bow": {"retriever": "bow"}}, queries, CORPUS, **where)
    before = first.path.read_bytes()
    resumed = SearchOptions(resume=True)
    (second,) = search({"bow": {"retriever": "bow"}}, queries, CORPUS, options=resumed, **where)
    assert second.tally.asked == 0
    assert second.path.read_bytes() == before


def test_one_file_for_two_systems_is_refused(tmp_path):
    systems = {"a": {"retriever": "bow"}, "b": {"retriever": "bow"}}
    with pytest.raises(UsageError, match="one file for 2 systems"):
        search(systems, QUERIES, CORPUS, logs=tmp_path / "log.jsonl")
