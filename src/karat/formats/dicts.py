"""JSON of ``{query: {item: score}}``, as ranx and pytrec_eval use for runs and qrels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from karat.data.columns import Duplicates, join_spans, split_spans, with_ids
from karat.data.tables import Gold, Run, with_scores
from karat.errors import InputError, UsageError
from karat.formats.blocks import duplicate_hit_error
from karat.formats.files import Input, write_lines
from karat.formats.json_records import read_json, whole_if_possible
from karat.formats.registry import Head, Kind


def sniff(head: Head, kind: Kind) -> bool:
    """Return True for an object of objects or lists, or one that is longer than the head."""
    if head.keys & {"test_cases", "retrieval_queries", "retrievalQueries", "corpora"}:
        return False  # a suite of memories or the queries of a story
    return head.record is None or all(isinstance(v, (dict, list)) for v in head.record.values())


def read_gold(file: Input, *, duplicates: Duplicates = "agree") -> Gold:
    """Read grades by query and item; in a list of items each has grade 1."""
    with _lists(file) as lists:
        gold = Gold.from_dict(lists)
        frame = split_spans(gold.frame)
        return Gold.from_frame(
            frame, query_ids=gold.query_ids, duplicates=duplicates, source=file.source
        )


def read_run(file: Input, *, name: str, strict: bool = False) -> Run:
    """Read scores by query and item, or ranked lists of items."""
    with _lists(file) as lists:
        run = Run.from_dict(lists, name=name)
    pairs = run.hits.select("query_id", "item_id")
    again = pairs.filter(~pairs.select(pl.struct(pl.all()).is_first_distinct()).to_series())
    if strict and again.height:
        query_id, item_id = again.row(0)
        raise duplicate_hit_error(query_id, item_id, file.name)
    return replace(run, source=file.source)


@contextmanager
def _lists(file: Input) -> Iterator[dict[str, Any]]:
    """Yield the object of a file; errors of the block name the file."""
    value = read_json(file)
    if not isinstance(value, dict) or not value:
        raise InputError("expected an object of {query: {item: number}}", where=file.name)
    try:
        with_ids(pl.DataFrame({"query_id": list(value)}), ("query_id",), file.source)
        yield value
    except InputError as error:
        raise InputError(error.what, where=file.name) from None
    except UsageError as error:
        raise InputError(str(error), where=file.name) from None


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
