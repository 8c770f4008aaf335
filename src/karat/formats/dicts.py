"""JSON of ``{query: {item: score}}``, as ranx and pytrec_eval use for runs and qrels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from karat.data.columns import Duplicates, join_spans
from karat.data.tables import Gold, Run, with_scores
from karat.errors import InputError
from karat.formats.blocks import duplicate_hit_error
from karat.formats.files import Input, write_lines
from karat.formats.json_records import Record, gold_of_rows, read_json, whole_if_possible
from karat.formats.registry import Head, Kind


def sniff(head: Head, kind: Kind) -> bool:
    """Return True for an object of objects or lists, or one that is longer than the head."""
    if head.keys & {"test_cases", "retrieval_queries", "retrievalQueries", "corpora"}:
        return False  # a suite of memories or the queries of a story
    return head.record is None or all(isinstance(v, (dict, list)) for v in head.record.values())


def read_gold(file: Input, *, duplicates: Duplicates = "agree") -> Gold:
    """Read grades by query and item; in a list of items each has grade 1."""
    record = _record(file)
    rows = []
    for query_id, items in record.value.items():
        if isinstance(items, list):
            items = dict.fromkeys(_names(items, query_id, record), 1)
        for item_id, grade in _numbers(items, query_id, record, "grade").items():
            rows.append((query_id, item_id, grade, False, None))
    return gold_of_rows(rows, file, duplicates=duplicates, query_ids=list(record.value))


def read_run(file: Input, *, name: str, strict: bool = False) -> Run:
    """Read scores by query and item, or ranked lists of items."""
    record = _record(file)
    lists = {isinstance(items, list) for items in record.value.values()}
    if len(lists) > 1:
        raise record.error("mixes lists and objects; all must be the same")
    ranked = lists == {True}
    rows: list[tuple[str, str, float]] = []
    for query_id, items in record.value.items():
        if ranked:
            names = _names(items, query_id, record)
            if strict and len(set(names)) < len(names):
                duplicate = next(item for item in names if names.count(item) > 1)
                raise duplicate_hit_error(query_id, duplicate, file.name)
            rows += [(query_id, item_id, rank) for rank, item_id in enumerate(names, 1)]
        else:
            scores = _numbers(items, query_id, record, "score").items()
            rows += [(query_id, item_id, score) for item_id, score in scores]
    number = ("rank", pl.Int64) if ranked else ("score", pl.Float64)
    schema = [("query_id", pl.String), ("item_id", pl.String), number]
    hits = pl.DataFrame(rows, schema=schema, orient="row")
    called = list(record.value)
    calls = None if all(record.value.values()) else pl.DataFrame({"query_id": called})
    return Run.from_frame(hits, calls=calls, name=name, source=file.source)


def _record(file: Input) -> Record:
    value = read_json(file)
    if not isinstance(value, dict) or not value:
        raise InputError("expected an object of {query: {item: number}}", where=file.name)
    record = Record(None, value, file.name)
    if "" in value:
        raise record.error("query_id is empty; every query needs one")
    for query_id in value:
        record.as_id(query_id, "query_id")
    return record


def _numbers(items: Any, query_id: str, record: Record, what: str) -> dict[str, float]:
    if not isinstance(items, dict) or "" in items:
        raise record.error(f"query {query_id!r}: expected {{item: number}}")
    return {
        item_id: record.as_number(number, f"the {what} of query {query_id!r}, item {item_id!r}")
        for item_id, number in items.items()
    }


def _names(items: list[Any], query_id: str, record: Record) -> list[str]:
    return [record.as_id(item, f"an item of query {query_id!r}") for item in items]


def write_gold(gold: Gold, path: str | Path) -> None:
    """Write grades by query and item; queries without gold become empty objects."""
    nested: dict[str, dict[str, float]] = {name: {} for name in gold.query_ids}
    rows = join_spans(gold.frame).select("query_id", "item_id", "grade")
    for query_id, item_id, grade in rows.iter_rows():
        # ranx and pytrec_eval take whole grades only.
        nested[query_id][item_id] = whole_if_possible(grade)
    write_lines([json.dumps(nested, ensure_ascii=False, allow_nan=False)], path)


def write_run(run: Run, path: str | Path) -> None:
    """Write scores by query and item; of an item that occurs twice, the best score.

    A failed call is left out: an empty object would mean that nothing was found.
    """
    calls = pl.DataFrame(schema={"query_id": pl.String}) if run.calls is None else run.calls
    failed: set[str] = set()
    if "error" in calls.columns:
        failed = set(calls.filter(pl.col("error").is_not_null())["query_id"])
    nested: dict[str, dict[str, float]] = {
        query_id: {} for query_id in calls["query_id"] if query_id not in failed
    }
    rows = with_scores(run.at("final")).select("query_id", "item_id", "score")
    for query_id, item_id, score in rows.iter_rows():
        if query_id not in failed:
            inner = nested.setdefault(query_id, {})
            inner[item_id] = max(score, inner.get(item_id, score))
    if failed and not nested:
        raise InputError(
            "every call failed, and dict cannot store that; write runlog", where=str(path)
        )
    write_lines([json.dumps(nested, ensure_ascii=False, allow_nan=False)], path)
