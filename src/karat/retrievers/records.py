"""One call as it stands in a run log: its lists, times and costs, or why it failed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from karat.columns import NUL_IN_ID
from karat.formats.runlog import run_of_records
from karat.retrievers.protocol import Answer, Hit, Hits, Query
from karat.tables import Run

# Microseconds are all that a clock is good for here.
_DIGITS = 3
# What of a hit is an id, or is read as one.
_NAMES = ("item_id", "doc_id", "version", "source")


def record_of(
    query: Query, answer: Answer, meta: Mapping[str, Any], *, latency: bool = True
) -> dict[str, Any]:
    """A call that went well."""
    record: dict[str, Any] = {"query_id": query.query_id, **meta}
    if answer.rewritten is not None:
        record["query"] = query.text
        record["rewritten"] = answer.rewritten
    if answer.source is not None:
        record["source"] = answer.source
    record["topk"] = _entries(answer.hits)
    lists = dict(answer.lists)
    if "raw" in lists:
        record["raw"] = _entries(lists.pop("raw"))
    if lists:
        record["stages"] = {stage: _entries(hits) for stage, hits in lists.items()}
    if latency and answer.latency:
        record["latency_ms"] = {s: round(ms, _DIGITS) for s, ms in answer.latency.items()}
    if answer.cost:
        record["cost"] = answer.cost
    return record


def failed_record(query: Query, reason: str, meta: Mapping[str, Any]) -> dict[str, Any]:
    """A call that failed: no lists, but the reason."""
    return {"query_id": query.query_id, **meta, "topk": [], "error": reason}


def to_json_line(record: Mapping[str, Any]) -> bytes:
    """A record as a line of a log."""
    text = json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))
    return text.encode() + b"\n"


def run_of(
    name: str, meta: Mapping[str, Any], queries: Sequence[Query], answers: Sequence[Answer]
) -> Run:
    """The answers as the run that their log would be read as."""
    told = {"system": name, **meta}
    records = [
        record_of(query, answer, told) for query, answer in zip(queries, answers, strict=True)
    ]
    return run_of_records(records, name=name)


def _entries(hits: Hits) -> list[dict[str, Any]]:
    return [_entry(rank, hit) for rank, hit in enumerate(hits, 1)]


def _entry(rank: int, hit: Hit) -> dict[str, Any]:
    """A hit without the keys that it has nothing for; ValueError where no log can hold it."""
    for name in _NAMES:
        value = getattr(hit, name)
        if isinstance(value, str) and "\0" in value:
            raise ValueError(f"hit {rank}: {name} {NUL_IN_ID}")
    entry: dict[str, Any] = {"rank": rank, "chunk_id": hit.item_id}
    if hit.score is not None:
        entry["score"] = hit.score
    if hit.version is not None:
        entry["doc_version"] = hit.version
    if hit.doc_id is not None:
        entry["doc_id"] = hit.doc_id
    if hit.source is not None:
        entry["source"] = hit.source
    if hit.similarity is not None:
        entry["similarity"] = hit.similarity
    if hit.start is not None and hit.end is not None:
        entry["start"], entry["end"] = hit.start, hit.end
    return entry
