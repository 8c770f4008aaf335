"""Run logs: hits, calls, failures, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import karat
from karat.errors import InputError
from karat.formats import runlog as module
from karat.formats.readers import read_run, scan_run, write_run


def log(folder: Path, *records: dict[str, Any], name: str = "log.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def call(query_id: str = "q1", **more: Any) -> dict[str, Any]:
    return {
        "query_id": query_id,
        "system": "hybrid",
        "k_raw": 50,
        "topk": [
            {"rank": 1, "chunk_id": "a#1", "score": 18.4, "doc_version": "2025-04-01"},
            {"rank": 2, "chunk_id": "b#2", "score": 17, "doc_version": "2024-12-01"},
        ],
        "latency_ms": {"retrieve": 35, "rerank": 22.5},
        "index_version": "v1",
        "chunker": {"algo": "x"},
        **more,
    }


def test_a_log_gives_hits_calls_and_meta(tmp_path: Path) -> None:
    run = read_run(
        log(tmp_path, call(), call("q2", cost={"tokens": 12}, rewritten="r", source="faq"))
    )
    assert run.order == "rank"
    assert run.name == "log"
    assert run.meta == {
        "system": "hybrid",
        "k_raw": 50,
        "index_version": "v1",
        "chunker": {"algo": "x"},
    }
    assert run.hits.columns == ["query_id", "item_id", "rank", "score", "version"]
    assert run.hits.row(1) == ("q1", "b#2", 2, 17.0, "2024-12-01")
    assert run.calls is not None
    assert run.calls.row(1, named=True) == {
        "query_id": "q2",
        "latency.retrieve": 35.0,
        "latency.rerank": 22.5,
        "cost.tokens": 12.0,
        "rewritten": "r",
        "source": "faq",
    }


def test_a_failed_call_is_kept_without_hits(tmp_path: Path) -> None:
    run = read_run(
        log(tmp_path, call(), {"query_id": "q2", "system": "hybrid", "error": "timeout"})
    )
    assert run.calls is not None
    assert run.calls["error"].to_list() == [None, "timeout"]
    assert run.hits["query_id"].unique().to_list() == ["q1"]


def test_a_log_of_failures_only_is_a_run(tmp_path: Path) -> None:
    run = read_run(log(tmp_path, {"query_id": "q", "system": "s", "error": "down"}))
    assert run.hits.height == 0
    assert run.hits.schema["rank"] == pl.Int64


def test_raw_lists_are_a_stage_of_their_own(tmp_path: Path) -> None:
    run = read_run(log(tmp_path, call(raw=[{"chunk_id": "z"}, "y"])))
    assert run.at("raw").hits["item_id"].to_list() == ["z", "y"]
    assert run.at("raw").hits["rank"].to_list() == [1, 2]
    assert "score" not in run.hits.columns


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"system": "other"}, "log.jsonl:2: system is 'other' here and 'hybrid' above"),
        ({"query_id": "q1"}, "log.jsonl:2: query 'q1' was already logged in line 1"),
        ({"query_id": 1.5}, "log.jsonl:2: query_id is 1.5; ids are text or whole numbers"),
        ({"query_id": None}, "log.jsonl:2: query_id is null; ids"),
        ({"topk": [{"chunk_id": "a", "rank": 0}]}, "log.jsonl:2: rank is 0; a whole number from 1"),
        ({"topk": [{"chunk_id": True}]}, "log.jsonl:2: chunk_id is true; ids"),
        ({"topk": [{"chunk_id": "a", "score": "x"}]}, 'log.jsonl:2: score is "x"; a finite number'),
        ({"topk": {"a": 1}}, 'log.jsonl:2: topk is {"a": 1}; a list is expected'),
        ({"latency_ms": {"retrieve": "fast"}}, 'log.jsonl:2: latency_ms.retrieve is "fast"'),
        ({"latency_ms": ""}, 'log.jsonl:2: latency_ms is ""; an object is expected'),
        ({"stages": []}, "log.jsonl:2: stages is []; an object is expected"),
        ({"stages": {"raw": ["a"]}}, "log.jsonl:2: stages has a list 'raw'; it belongs under raw"),
        ({"error": "down", "topk": "none"}, 'log.jsonl:2: topk is "none"; a list is expected'),
        ({"k_raw": "50"}, 'log.jsonl:2: k_raw is "50"; a whole number from 0 is expected'),
        ({"chunker": 3}, "log.jsonl:2: chunker is 3; an object of its settings, or a name"),
        ({"max_failures": 5}, "log.jsonl:2: max_failures is 5; a number from 0 to 1"),
        ({"schema_version": 2}, "log.jsonl:2: schema_version is 2; this karat reads version 1"),
    ],
)
def test_bad_calls_are_refused_with_their_line(
    change: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        read_run(log(tmp_path, call(), {**call("q2"), **change}))
    assert str(caught.value).startswith(told)


def test_strict_refuses_the_same_item_twice(tmp_path: Path) -> None:
    path = log(tmp_path, call(), call("q2", topk=[{"chunk_id": "a"}, {"chunk_id": "a"}]))
    assert read_run(path).hits.height == 4
    with pytest.raises(InputError, match=r"log\.jsonl:2: query 'q2' has item 'a' twice"):
        read_run(path, strict=True)


def test_blocks_join_to_the_whole_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_HITS", 9)
    path = log(tmp_path, *(call(f"q{i}") for i in range(10)))
    scan = scan_run(path)
    blocks = list(scan.blocks())
    assert len(blocks) == 4
    assert pl.concat([block.hits for block in blocks]).equals(scan.read().hits)
    assert all(block.calls is not None for block in blocks)


def test_a_log_survives_being_written(tmp_path: Path) -> None:
    full = call(
        "q2",
        raw=[
            {
                "rank": 1,
                "chunk_id": "z",
                "score": 3.0,
                "doc_id": "d",
                "similarity": 0.5,
                "source": "s",
            }
        ],
        cost={"tokens": 3},
        entities=["e1"],
    )
    run = read_run(
        log(tmp_path, call(), full, {"query_id": "q3", "system": "hybrid", "error": "down"})
    )
    write_run(run, tmp_path / "again.jsonl.gz")
    again = read_run(tmp_path / "again.jsonl.gz")
    assert again.hits.select(run.hits.columns).equals(run.hits)
    assert run.calls is not None
    assert again.calls is not None
    assert again.calls.select(run.calls.columns).equals(run.calls)
    assert again.meta == run.meta


def test_a_log_of_earlier_lists_alone_is_refused(tmp_path):
    log = tmp_path / "run.jsonl"
    log.write_text('{"query_id": "q1", "topk": []}\n{"query_id": "q2", "raw": ["a", "b"]}\n')
    with pytest.raises(InputError, match=r"run\.jsonl:2: has neither topk nor error; log the"):
        karat.read_run(log)


def test_a_call_that_neither_lists_nor_fails_is_refused(tmp_path):
    """A list under another name would otherwise count as one that found nothing."""
    path = log(tmp_path, call(), {"query_id": "q2", "results": ["a#1"]})
    with pytest.raises(InputError, match=r"log\.jsonl:2: has neither topk nor error; log the hits"):
        read_run(path)
    with pytest.raises(InputError, match=r"log\.jsonl:2: has neither topk nor error"):
        list(scan_run(path).blocks())
    for found in ([], None):
        run = read_run(log(tmp_path, call(), {"query_id": "q2", "topk": found}))
        assert run.calls is not None
        assert run.calls["query_id"].to_list() == ["q1", "q2"]


@pytest.mark.parametrize("error", ["[1, 2]", "[null]", '{"code": 503}', "true", "7"])
def test_an_error_of_any_shape_is_an_error(tmp_path, error):
    log = tmp_path / "run.jsonl"
    fine = '{"query_id": "q1", "topk": ["a"]}'
    log.write_text(f'{fine}\n{{"query_id": "q2", "topk": [], "error": {error}}}\n')
    gold = karat.Gold.from_dict({"q1": ["a"], "q2": ["a"]})
    assert karat.evaluate(karat.read_run(log), gold, ["R@1"]).counts.failed_calls == 1
    assert karat.read_run(log).calls["error"].to_list() == [None, error]
