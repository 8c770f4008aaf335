"""A row with an id of its own and a doc_id is that item, and the other its document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from karat.data.columns import ITEM_NAMES
from karat.data.tables import Corpus
from karat.formats.readers import read_corpus, read_gold, read_run
from karat.retrieve.http import HttpOptions
from karat.retrieve.http_connection import Reader, Response
from karat.retrieve.user_code import hits_from

OWN = [name for name in ITEM_NAMES if name != "doc_id"]


def _write(folder: Path, form: str, rows: list[dict[str, Any]]) -> Path:
    path = folder / f"table.{form}"
    if form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif form == "csv":
        pl.DataFrame(rows).write_csv(path)
    else:
        pl.DataFrame(rows).write_parquet(path)
    return path


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("doc_first", [True, False])
def test_a_corpus_row_is_the_item_of_its_own_id(
    tmp_path: Path, form: str, own: str, doc_first: bool
) -> None:
    ids = {"doc_id": "d", own: "c"} if doc_first else {own: "c", "doc_id": "d"}
    corpus = read_corpus(_write(tmp_path, form, [{**ids, "text": "a tart"}]))
    assert corpus.frame.select("item_id", "doc_id", "text").rows() == [("c", "d", "a tart")]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_a_corpus_of_documents_has_them_as_items(tmp_path: Path, form: str) -> None:
    corpus = read_corpus(_write(tmp_path, form, [{"doc_id": "d", "text": "a tart"}]))
    assert corpus.frame.select("item_id", "doc_id").rows() == [("d", "d")]


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("own", OWN)
def test_gold_and_runs_in_tables_name_the_item(tmp_path: Path, form: str, own: str) -> None:
    row = {"query_id": "q", "doc_id": "d", own: "c", "score": 1.0}
    path = _write(tmp_path, form, [row])
    assert read_run(path).hits.select("item_id", "doc_id").rows() == [("c", "d")]
    assert read_gold(path).frame["item_id"].to_list() == ["c"]


@pytest.mark.parametrize("own", OWN)
def test_hits_of_logs_functions_and_services_name_the_item(tmp_path: Path, own: str) -> None:
    hit = {"doc_id": "d", own: "c", "score": 1.0}
    log = _write(tmp_path, "jsonl", [{"query_id": "q", "topk": [hit]}])
    assert read_run(log).hits.select("item_id", "doc_id").rows() == [("c", "d")]

    (returned,) = hits_from([hit], 5, "search")
    assert (returned.item_id, returned.doc_id) == ("c", "d")

    reader = Reader(HttpOptions(url="http://127.0.0.1:1/search").model_dump(), lambda text: text)
    body = json.dumps({"hits": [hit]}).encode()
    (answered,) = reader.answer(Response(200, {"content-type": "application/json"}, body), 5).hits
    assert answered.item_id == "c"


def test_of_two_names_of_an_item_every_reader_takes_the_same(tmp_path: Path) -> None:
    names = {name: f"by {name}" for name in reversed(ITEM_NAMES)}
    expected = f"by {ITEM_NAMES[0]}"
    log = _write(tmp_path, "jsonl", [{"query_id": "q", "topk": [names]}])
    assert read_run(log).hits["item_id"].to_list() == [expected]
    assert hits_from([names], 5, "search")[0].item_id == expected
    assert Corpus.from_frame(pl.DataFrame([{**names, "text": ""}])).frame["item_id"][0] == expected
    reader = Reader(HttpOptions(url="http://127.0.0.1:1/search").model_dump(), lambda text: text)
    body = json.dumps({"hits": [names]}).encode()
    answered = reader.answer(Response(200, {"content-type": "application/json"}, body), 5)
    assert answered.hits[0].item_id == expected


def test_a_null_name_is_no_name(tmp_path: Path) -> None:
    hit = {"item_id": None, "id": "c", "doc_id": "d"}
    reader = Reader(HttpOptions(url="http://127.0.0.1:1/search").model_dump(), lambda text: text)
    body = json.dumps({"hits": [hit]}).encode()
    answered = reader.answer(Response(200, {"content-type": "application/json"}, body), 5)
    assert answered.hits[0].item_id == "c"


@pytest.mark.parametrize("name", ["item_id", "chunk_id", "memory_id", "docno", "doc_id"])
def test_an_eval_set_may_name_one_relevant_item(tmp_path: Path, name: str) -> None:
    path = _write(tmp_path, "jsonl", [{"id": "q", "query": "a tart", name: "c"}])
    assert read_gold(path).frame.rows() == [("q", "c", 1.0)]


def test_evidence_of_a_dataset_names_the_item(tmp_path: Path) -> None:
    evidence = [{"doc_id": "d", "id": "c", "grade": 1}]
    row = {"query_id": "q", "question": "a tart?", "gold_evidence": evidence}
    assert read_gold(_write(tmp_path, "jsonl", [row])).frame.rows() == [("q", "c", 1.0)]
