"""Defects that a second look found: each stays mended."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from karat.data.tables import Gold, Run
from karat.errors import InputError, UsageError
from karat.formats.readers import (
    queries_in_gold,
    read_gold,
    read_queries,
    read_run,
    write_gold,
    write_run,
)

RUN = Run.from_dict({"q1": {"a": 2.0, "b": 1.0}})


def log(folder: Path, **more: Any) -> Path:
    path = folder / "log.jsonl"
    fine = {"query_id": "q1", "system": "s", "topk": [{"rank": 1, "chunk_id": "a", "score": 1.0}]}
    path.write_text(f"{json.dumps(fine)}\n{json.dumps({**fine, 'query_id': 'q2', **more})}\n")
    return path


@pytest.mark.parametrize("format", ["evalset", "dataset", "memory", "story"])
def test_gold_without_texts_is_read_as_queries_with_empty_texts(
    tmp_path: Path, format: str
) -> None:
    path = tmp_path / "gold.json"
    write_gold(Gold.from_dict({"q1": {"a": 1}, "q2": {"b": 2}}), path, format=format)
    queries = queries_in_gold(path)
    assert queries is not None
    assert queries.frame.select("query_id", "text").rows() == [("q1", ""), ("q2", "")]
    assert read_gold(path).query_ids == ("q1", "q2")


@pytest.mark.parametrize(
    ("format", "record"),
    [("evalset", {"id": "q1", "query": 5}), ("dataset", {"query_id": "q1", "question": ["x"]})],
)
def test_a_query_whose_text_is_no_text_is_refused(
    tmp_path: Path, format: str, record: dict[str, Any]
) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"^e\.jsonl:1: no que"):
        read_queries(path, format=format)


@pytest.mark.parametrize("error", [False, 0, "", None])
def test_an_error_that_says_no_is_no_failed_call(tmp_path: Path, error: object) -> None:
    run = read_run(log(tmp_path, error=error))
    assert run.hits["query_id"].to_list() == ["q1", "q2"]
    assert run.calls is not None
    assert "error" not in run.calls.columns


def test_a_true_error_is_a_failed_call(tmp_path: Path) -> None:
    assert read_run(log(tmp_path, error=True)).hits["query_id"].to_list() == ["q1"]


def test_a_dict_leaves_failed_calls_out_and_keeps_empty_results(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_run(read_run(log(tmp_path, error="timeout")), path)
    assert json.loads(path.read_text()) == {"q1": {"a": 1.0}}
    write_run(read_run(log(tmp_path, topk=[])), path)
    assert json.loads(path.read_text()) == {"q1": {"a": 1.0}, "q2": {}}


def test_a_dict_of_failed_calls_only_is_refused(tmp_path: Path) -> None:
    logged = tmp_path / "log.jsonl"
    logged.write_text('{"query_id": "q1", "system": "s", "error": "down"}\n')
    with pytest.raises(InputError, match="every call failed"):
        write_run(read_run(logged), tmp_path / "run.json")
    assert not (tmp_path / "run.json").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            {"latency_ms": {"retrieve": -5}},
            "latency_ms.retrieve is -5; a number from 0 to 1e+100 is expected",
        ),
        ({"latency_ms": -0.5}, "latency_ms.total is -0.5; a number from 0 to 1e+100 is expected"),
        ({"cost": {"usd": 1e101}}, "cost.usd is 1e+101; a number from 0 to 1e+100 is expected"),
    ],
)
def test_an_absurd_latency_or_cost_is_refused(
    tmp_path: Path, more: dict[str, Any], told: str
) -> None:
    with pytest.raises(InputError) as error:
        read_run(log(tmp_path, **more))
    assert str(error.value) == f"log.jsonl:2: {told}"


@pytest.mark.parametrize("ending", ["csv", "trec", "json", "jsonl", "parquet"])
def test_a_file_name_that_is_not_utf8_is_refused(tmp_path: Path, ending: str) -> None:
    with pytest.raises(InputError, match="its name is not UTF-8"):
        write_run(RUN, tmp_path / os.fsdecode(b"\xff." + ending.encode()))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("path", "given"),
    [
        (None, "None"),
        (5, "int"),
        (b"x", "bytes"),
        (["x"], "list"),
        (io.StringIO("x"), "StringIO"),
    ],
    ids=["none", "number", "bytes", "list", "file"],
)
def test_what_is_no_path_is_refused(path: Any, given: str) -> None:
    for call in (lambda: read_run(path), lambda: write_run(RUN, path, format="csv")):
        with pytest.raises(UsageError, match=f"a path is expected, not {given}"):
            call()


def test_an_empty_path_is_refused() -> None:
    for call in (lambda: read_run(""), lambda: write_run(RUN, "", format="csv")):
        with pytest.raises(UsageError, match="an empty file name was given"):
            call()


def test_a_number_of_too_many_digits_is_refused_in_our_words(tmp_path: Path) -> None:
    path = log(tmp_path)
    path.write_text(path.read_text() + '{"query_id": ' + "1" * 5000 + "}\n")
    with pytest.raises(InputError, match=r"^log\.jsonl:3: .* more than \d+ digits") as error:
        read_run(path)
    assert "sys." not in str(error.value)


def test_an_empty_list_is_called_empty(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("[\n]\n")
    with pytest.raises(InputError, match=r"^run\.json: is empty; "):
        read_run(path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("format", ["csv", "trec", "parquet"])
def test_a_failed_write_names_the_target(format: str) -> None:
    with pytest.raises(InputError) as error:
        write_run(RUN, "/dev/full", format=format)
    assert str(error.value).startswith("/dev/full: cannot be written: No space left on device;")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder nobody can write to")
def test_a_failed_write_hides_the_temporary_name(ending: str) -> None:
    with pytest.raises(InputError, match="cannot be written") as error:
        write_run(RUN, f"/proc/out.{ending}")
    assert str(error.value).startswith(f"/proc/out.{ending}: ")
    assert ".part" not in str(error.value)
    assert "os error" not in str(error.value)
