"""Run logs in JSONL: one call a line, with its hits, latencies and what went wrong.

Ranked by rank. Keys: query_id, system, k_raw, topk [{rank, chunk_id, score, doc_version}],
latency_ms, index_version, chunker; also ``raw`` (the list before later stages), ``stages``
(the list of each stage by its name), ``cost``, ``query``, ``rewritten``, ``source``, ``error``,
``entities``, ``as_of``, and on a hit ``doc_id``, ``source``, ``similarity``,
``start`` and ``end``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from karat.columns import Source
from karat.errors import InputError
from karat.formats.files import Input, write_lines
from karat.formats.hitlists import HitLists, entry_of
from karat.formats.ranking import with_ranks
from karat.formats.records import (
    Record,
    as_amount,
    as_id,
    as_list,
    as_object,
    frame_of,
    read_records,
    to_line,
)
from karat.tables import Run

_BLOCK_HITS = 200_000
_CALL = ("query", "rewritten", "source", "error", "entities", "as_of")
_LISTS = {"final": "topk", "raw": "raw"}
_STAGES = "stages"
_NO_META = frozenset((*_CALL, *_LISTS.values(), _STAGES, "query_id", "latency_ms", "cost"))


@dataclass(frozen=True, eq=False)
class LoggedRun:
    """A run log, read in blocks of calls."""

    file: Input
    name: str
    strict: bool = False

    @property
    def source(self) -> Source:
        return self.file.source

    @property
    def staged(self) -> bool:
        """A log may hold the list of every stage."""
        return True

    def blocks(self) -> Iterator[Run]:
        """The run in pieces of whole calls."""
        reader = _Reader(self.file, self.strict, stages=False)
        records = read_records(self.file)
        empty = True
        for block in _blocks(records):
            empty = False
            yield reader.run(block, self.name)
        if empty:
            raise InputError("holds no calls; one object a line is expected", where=self.file.name)

    def read(self) -> Run:
        """The whole log in memory."""
        records = list(read_records(self.file))
        if not records:
            raise InputError("holds no calls; one object a line is expected", where=self.file.name)
        return _Reader(self.file, self.strict).run(records, self.name)


def scan_run(file: Input, *, name: str, strict: bool = False) -> LoggedRun:
    """A run log, block by block."""
    return LoggedRun(file, name, strict)


def read_run(file: Input, *, name: str, strict: bool = False) -> Run:
    """A run log in memory."""
    return LoggedRun(file, name, strict).read()


def run_of_records(records: Iterable[Mapping[str, Any]], *, name: str) -> Run:
    """A run of records that have not been to a file; ``name`` is what messages call them."""
    lines = [Record(number, dict(value)) for number, value in enumerate(records, 1)]
    return _Reader(Input(Source(name)), strict=False).run(lines, name)


def _blocks(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Calls in blocks of so many hits, since it is hits that fill the memory."""
    block: list[Record] = []
    hits = 0
    for record in records:
        block.append(record)
        lists = (record.value.get(key) for key in _LISTS.values())
        hits += 1 + sum(len(entries) for entries in lists if isinstance(entries, list))
        if hits >= _BLOCK_HITS:
            yield block
            block, hits = [], 0
    if block:
        yield block


@dataclass
class _Reader:
    file: Input
    strict: bool
    # A run in blocks is for scoring, which looks at the final lists only.
    stages: bool = True
    meta: dict[str, Any] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)

    def run(self, records: list[Record], name: str) -> Run:
        lists = HitLists(self.file.name, self.strict)
        calls = []
        for record in records:
            call = self._call(record)
            calls.append(call)
            if "error" not in call:
                for stage, entries in self._lists(record):
                    lists.add(call["query_id"], stage, entries, record.line)
        return Run(
            lists.frame(),
            calls=frame_of(calls, ("query_id",)),
            meta=self.meta,
            order="rank",
            name=name,
            source=self.file.source,
        )

    def _lists(self, record: Record) -> Iterator[tuple[str, list[Any]]]:
        """The final list, the raw one, and those of the stages between them."""
        line, value = record
        where = self.file.name
        if "topk" not in value and (value.get("raw") or value.get(_STAGES)):
            raise InputError(
                "has lists of earlier stages and no topk; the final list belongs under topk",
                where=where,
                line=line,
            )
        for stage, key in _LISTS.items():
            yield stage, as_list(value.get(key), key, where, line)
        if not self.stages:
            return
        for stage, entries in as_object(value.get(_STAGES) or {}, _STAGES, where, line).items():
            if stage in _LISTS:
                raise InputError(
                    f"stages has a list {stage!r}; it belongs under {_LISTS[stage]}",
                    where=where,
                    line=line,
                )
            yield stage, as_list(entries, f"{_STAGES}.{stage}", where, line)

    def _call(self, record: Record) -> dict[str, Any]:
        line, value = record
        where = self.file.name
        query_id = as_id(value.get("query_id"), "query_id", where, line)
        if query_id in self.seen:
            raise InputError(
                f"query {query_id!r} was already logged in line {self.seen[query_id]}; "
                "one call a query is expected",
                where=where,
                line=line,
            )
        self.seen[query_id] = line
        self._note_meta(value, line)
        call: dict[str, Any] = {"query_id": query_id}
        for key, prefix in (("latency_ms", "latency"), ("cost", "cost")):
            logged = value.get(key)
            if isinstance(logged, (int, float)):
                logged = {"total": logged}
            for what, number in as_object(logged or {}, key, where, line).items():
                if number is not None:
                    call[f"{prefix}.{what}"] = as_amount(number, f"{key}.{what}", where, line)
        call.update({name: value[name] for name in _CALL if value.get(name) not in (None, "")})
        if not call.get("error"):
            call.pop("error", None)  # false or 0: the call went well
        elif not isinstance(call["error"], str):
            call["error"] = json.dumps(call["error"], ensure_ascii=False, sort_keys=True)
        return call

    def _note_meta(self, value: Mapping[str, Any], line: int) -> None:
        for key, told in value.items():
            if key not in _NO_META:
                self.meta.setdefault(key, told)
        first, here = self.meta.get("system"), value.get("system")
        if here != first and here is not None:
            raise InputError(
                f"system is {here!r} here and {first!r} above; "
                "keep each system's log in a file of its own",
                where=self.file.name,
                line=line,
            )


def write_run(run: Run, path: str | Path) -> None:
    """One call a line, with its hits by rank, latencies, cost and error."""
    write_lines(_lines(run), path)


def _lines(run: Run) -> Iterator[str]:
    hits = with_ranks(run.hits)
    if "stage" not in hits.columns:
        hits = hits.with_columns(stage=pl.lit("final"))
    hits = hits.sort("rank", maintain_order=True)
    lists: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in hits.iter_rows(named=True):
        stages = lists.setdefault(row.pop("query_id"), {"final": [], "raw": []})
        stages.setdefault(row.pop("stage"), []).append(entry_of(row))
    calls = {} if run.calls is None else {c["query_id"]: c for c in run.calls.iter_rows(named=True)}
    order = run.hits["query_id"].unique(maintain_order=True).to_list()
    meta = {"system": run.name, **run.meta}
    for query_id in dict.fromkeys([*calls, *order]):
        stages = lists.get(query_id, {})
        record = {"query_id": query_id, **meta, "topk": stages.pop("final", [])}
        record["raw"] = stages.pop("raw", None) or None
        record[_STAGES] = stages or None
        yield to_line(record | _call_record(calls.get(query_id, {})))


def _call_record(call: Mapping[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for column, value in call.items():
        group, _, what = column.partition(".")
        if value is None or column == "query_id":
            continue
        if what and group in ("latency", "cost"):
            key = "latency_ms" if group == "latency" else "cost"
            record.setdefault(key, {})[what] = value
        else:
            record[column] = value
    return record
