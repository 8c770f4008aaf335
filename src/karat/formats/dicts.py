"""JSON of ``{query: {item: score}}``, as ranx and pytrec_eval use for runs and qrels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from karat.data.columns import NUL_IN_ID, Duplicates, join_spans, split_spans
from karat.data.tables import Gold, Run, with_scores
from karat.errors import InputError
from karat.formats.files import Input, write_lines
from karat.formats.json_records import as_number, preview, read_json


def read_gold(file: Input, *, duplicates: Duplicates = "agree") -> Gold:
    """Read grades by query and item; in a list of items each has grade 1."""
    value = _outer(file)
    rows = []
    for query_id, items in value.items():
        if isinstance(items, list):
            items = {_name(item, query_id, file): 1 for item in items}
        for item_id, grade in _inner(items, query_id, file).items():
            what = f"the grade of query {query_id!r}, item {item_id!r}"
            rows.append((query_id, item_id, as_number(grade, what, file.name, None)))
    schema = {"query_id": pl.String, "item_id": pl.String, "grade": pl.Float64}
    table = split_spans(pl.DataFrame(rows, schema=schema, orient="row"))
    return Gold.from_frame(table, query_ids=list(value), duplicates=duplicates, source=file.source)


def read_run(file: Input, *, name: str, strict: bool = False) -> Run:
    """Read scores by query and item, or ranked lists of items."""
    value = _outer(file)
    lists = {isinstance(items, list) for items in value.values()}
    if len(lists) > 1:
        raise InputError("mixes lists and objects; all must be the same", where=file.name)
    ranked = lists == {True}
    queries, items, numbers = [], [], []
    for query_id, inner in value.items():
        if ranked:
            names = [_name(item, query_id, file) for item in inner]
            values: list[float] = list(range(1, len(names) + 1))
            if strict and len(set(names)) < len(names):
                duplicate = next(item for item in names if names.count(item) > 1)
                raise InputError(
                    f"query {query_id!r} has item {duplicate!r} twice; "
                    "--strict wants every item once",
                    where=file.name,
                )
        else:
            names = list(_inner(inner, query_id, file))
            what = f"a score of query {query_id!r}"
            values = [as_number(score, what, file.name, None) for score in inner.values()]
        queries.extend([query_id] * len(names))
        items.extend(names)
        numbers.extend(values)
    hits = pl.DataFrame(
        {"query_id": queries, "item_id": items, "rank" if ranked else "score": numbers},
        schema_overrides={"query_id": pl.String, "item_id": pl.String},
    )
    calls = None if all(value.values()) else pl.DataFrame({"query_id": list(value)})
    return Run.from_frame(hits, calls=calls, name=name, source=file.source)


def _outer(file: Input) -> dict[str, Any]:
    value = read_json(file)
    if not isinstance(value, dict) or not value:
        raise InputError("expected an object of {query: {item: number}}", where=file.name)
    if "" in value:
        raise InputError("query_id is empty; every query needs one", where=file.name)
    if any("\0" in query_id for query_id in value):
        raise InputError(f"query_id {NUL_IN_ID}", where=file.name)
    return value


def _inner(items: Any, query_id: str, file: Input) -> dict[str, Any]:
    if isinstance(items, dict) and "" not in items:
        return items
    raise InputError(f"query {query_id!r}: expected {{item: number}}", where=file.name)


def _name(item: Any, query_id: str, file: Input) -> str:
    if isinstance(item, int) and not isinstance(item, bool):
        return str(item)
    if isinstance(item, str) and item:
        return item
    raise InputError(
        f"query {query_id!r}: an item is {preview(item)}; a list of ids is expected, each of them"
        " text or a whole number",
        where=file.name,
    )


def write_gold(gold: Gold, path: str | Path) -> None:
    """Write grades by query and item; queries without gold become empty objects."""
    nested: dict[str, dict[str, Any]] = {name: {} for name in gold.query_ids}
    for query_id, item_id, grade in (
        join_spans(gold.frame).select("query_id", "item_id", "grade").iter_rows()
    ):
        # ranx and pytrec_eval take whole grades only.
        nested[query_id][item_id] = int(grade) if float(grade).is_integer() else grade
    write_lines([json.dumps(nested, ensure_ascii=False, allow_nan=False)], path)


def write_run(run: Run, path: str | Path) -> None:
    """Write scores by query and item; of an item that occurs twice, the best score.

    A failed call is left out: an empty object would mean that nothing was found.
    """
    called = [] if run.calls is None else run.calls["query_id"].to_list()
    failed: set[str] = set()
    if run.calls is not None and "error" in run.calls.columns:
        failed = set(run.calls.filter(pl.col("error").is_not_null())["query_id"])
    nested: dict[str, dict[str, float]] = {name: {} for name in called if name not in failed}
    for query_id, item_id, score in (
        with_scores(run.at("final")).select("query_id", "item_id", "score").iter_rows()
    ):
        if query_id not in failed:
            inner = nested.setdefault(query_id, {})
            inner[item_id] = max(score, inner.get(item_id, score))
    if failed and not nested:
        raise InputError(
            "every call failed, and dict cannot store that; write runlog", where=str(path)
        )
    write_lines([json.dumps(nested, ensure_ascii=False, allow_nan=False)], path)
