"""An id with a NUL is refused with its place, by every reader; none is changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import karat
from karat.errors import InputError, UsageError
from karat.formats.readers import read_corpus, read_gold, read_queries, read_run
from karat.formats.runlog_schema import check_log
from karat.retrieve.protocol import Answer, Hit, Query
from karat.retrieve.run_log import record_of
from karat.store import LabelItem, Store

BAD = "a\0b"
OK = {"query_id": "q1", "item_id": "a", "chunk_id": "a", "score": 1, "grade": 1}
HIT = {"item_id": BAD, "score": 1}

# The file, what reads it, and its second line (or what it holds); the first has nothing wrong.
LINES: dict[str, tuple[Callable[..., Any], list[dict[str, Any]]]] = {
    "log.jsonl": (
        read_run,
        [{"query_id": "q1", "topk": [OK]}, {"query_id": "q2", "topk": [HIT]}],
    ),
    "log-queries.jsonl": (
        read_run,
        [{"query_id": "q1", "topk": [OK]}, {"query_id": BAD, "topk": [OK]}],
    ),
    "labels.jsonl": (read_gold, [OK, OK | {"item_id": BAD}]),
    "evalset.jsonl": (
        read_gold,
        [
            {"query": "x", "relevant_chunk_ids": ["a"]},
            {"query": "y", "relevant_chunk_ids": [BAD]},
        ],
    ),
    "dataset.jsonl": (
        read_gold,
        [
            {"query_id": "q1", "question": "x", "gold_evidence": [{"chunk_id": "a"}]},
            {"query_id": "q2", "question": "y", "gold_evidence": [{"chunk_id": BAD}]},
        ],
    ),
    "queries.jsonl": (read_queries, [{"id": "q1", "text": "x"}, {"id": BAD, "text": "y"}]),
    "corpus.jsonl": (read_corpus, [{"id": "a", "text": "x"}, {"id": BAD, "text": "y"}]),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_with_such_an_id_is_named(tmp_path, name):
    reader, lines = LINES[name]
    (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(InputError, match=r"holds a NUL character") as caught:
        reader(tmp_path / name)
    assert (caught.value.where, caught.value.line) == (name, 2)


@pytest.mark.parametrize("key", ["chunk_id", "doc_id", "doc_version", "source"])
@pytest.mark.parametrize("stage", ["topk", "raw"])
def test_so_is_a_hit_with_only_the_usual_keys(tmp_path, stage, key):
    good = {"chunk_id": "a", "doc_id": "d", "doc_version": "1", "source": "s", "score": 1.0}
    lines = [{"query_id": "q1", "topk": [good]}, {"query_id": "q2", "topk": [good]}]
    lines[1][stage] = [good, good | {key: BAD}]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(InputError, match=rf"{key} holds a NUL character") as caught:
        read_run(tmp_path / "log.jsonl")
    assert (caught.value.where, caught.value.line) == ("log.jsonl", 2)
    check = check_log(tmp_path / "log.jsonl")
    assert [error.line for error in check.errors] == [2]


@pytest.mark.parametrize("column", ["query_id", "item_id"])
@pytest.mark.parametrize(("reader", "value"), [(read_run, "score"), (read_gold, "grade")])
def test_so_is_a_row_of_a_table(tmp_path, reader, value, column):
    rows = {"query_id": ["q1", "q2"], "item_id": ["a", "b"], value: [1.0, 1.0]}
    rows[column][1] = BAD
    pl.DataFrame(rows).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError, match=rf"{column} holds a NUL character") as caught:
        reader(tmp_path / "t.parquet")
    assert (caught.value.where, caught.value.line) == ("t.parquet", 2)


@pytest.mark.parametrize("reader", [read_run, read_gold])
@pytest.mark.parametrize("held", [{BAD: {"a": 1}}, {"q1": {BAD: 1}}], ids=["query", "item"])
def test_so_is_a_dict(tmp_path, reader, held):
    (tmp_path / "d.json").write_text(json.dumps(held))
    with pytest.raises(InputError, match=r"d\.json.*holds a NUL character"):
        reader(tmp_path / "d.json")


@pytest.mark.parametrize("text", ["q1 Q0 a\0b 1 1.0 x\n", "query_id,item_id,score\nq1,a\0b,1\n"])
def test_text_with_such_a_byte_is_binary(tmp_path, text):
    (tmp_path / "run.txt").write_text(text)
    with pytest.raises(InputError, match="NUL byte"):
        read_run(tmp_path / "run.txt")


def test_tables_and_dicts_in_memory_are_refused():
    with pytest.raises(InputError, match="NUL"):
        karat.Run.from_dict({"q1": {BAD: 1.0}})
    with pytest.raises(InputError, match="NUL"):
        karat.Gold.from_dict({BAD: {"a": 1}})


@pytest.mark.parametrize("key", ["item_id", "doc_id", "version", "source"])
def test_no_log_is_written_with_one(key):
    hit = Hit("a")._replace(**{key: BAD})
    for answer in (Answer([hit]), Answer([], lists={"raw": [hit]})):
        with pytest.raises(ValueError, match=f"hit 1: {key} holds a NUL character"):
            record_of(Query("q1", "x"), answer, {})


def test_a_label_set_takes_no_such_id(tmp_path: Path):
    with Store.open(tmp_path / "h.db") as store:
        for pair in ((BAD, "a"), ("q1", BAD)):
            with pytest.raises(UsageError, match="NUL"):
                store.add_label_set("x", [LabelItem(*pair, "?", "!")])
