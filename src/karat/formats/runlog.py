"""Run logs in JSONL: one call a line, with its hits, latencies and what went wrong.

Ranked by rank. ``run-log.schema.json`` describes every key, and says what this reader accepts:
whoever changes one of the two changes both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from karat.columns import Source
from karat.errors import InputError
from karat.formats.contract import (
    ONE_OF_A_KIND,
    RUN_LOG_VERSION,
    VERSION_KEY,
    check_facts,
    check_version,
    fact,
)
from karat.formats.files import Input, write_lines
from karat.formats.hitlists import HitLists, entry_of, join_lists
from karat.formats.ranking import with_ranks
from karat.formats.records import (
    TEXTS,
    Record,
    as_amount,
    as_id,
    as_list,
    as_object,
    frame_of,
    read_records,
    to_line,
)
from karat.formats.room import block_rows
from karat.tables import Run

_BLOCK_HITS = 200_000
_CALL = ("query", "rewritten", "source", "error", "entities", "as_of")
_LISTS = {"final": "topk", "raw": "raw"}
_STAGES = "stages"
_AMOUNTS = {"latency": "latency_ms", "cost": "cost"}
_NO_META = frozenset(
    (*_CALL, *_LISTS.values(), _STAGES, "query_id", *_AMOUNTS.values(), VERSION_KEY)
)
# What belongs together, and is therefore the same in every line.
_WHY_ONE = {
    "system": "keep each system's log in a file of its own",
    **dict.fromkeys(ONE_OF_A_KIND, "a log is of one set of queries: keep each in its own file"),
}


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
        reader = LineReader(self.file.name, self.strict, stages=False)
        empty, renamed = True, self.file.renamed
        with self.source.unchanged():
            for block in _blocks(read_records(self.file)):
                empty = False
                with nullcontext() if renamed is None else renamed.explaining():
                    run = reader.run(block, self.name, self.source)
                yield run
        if empty:
            raise InputError("holds no calls; one object a line is expected", where=self.file.name)

    def parted(self) -> Iterator[Run]:
        """The same pieces: a line holds a whole call."""
        return self.blocks()

    def read(self) -> Run:
        """The whole log in memory."""
        with self.source.unchanged():
            reader = LineReader(self.file.name, self.strict)
            run = reader.run(read_records(self.file), self.name, self.source)
        if not reader.seen:
            raise InputError("holds no calls; one object a line is expected", where=self.file.name)
        return run


def scan_run(file: Input, *, name: str, strict: bool = False) -> LoggedRun:
    """A run log, block by block."""
    return LoggedRun(file, name, strict)


def read_run(file: Input, *, name: str, strict: bool = False) -> Run:
    """A run log in memory."""
    return LoggedRun(file, name, strict).read()


def run_of_records(records: Iterable[Mapping[str, Any]], *, name: str) -> Run:
    """A run of records that have not been to a file; ``name`` is what messages call them."""
    lines = [Record(number, dict(value)) for number, value in enumerate(records, 1)]
    return LineReader(name).run(lines, name, Source(name))


def _blocks(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Calls in blocks of so many hits, since it is hits that fill the memory."""
    block: list[Record] = []
    # A hit takes more room as it stands in a log than as a row.
    hits, most = 0, min(_BLOCK_HITS, block_rows() // 2)
    for record in records:
        block.append(record)
        lists = (record.value.get(key) for key in _LISTS.values())
        hits += 1 + sum(len(entries) for entries in lists if isinstance(entries, list))
        if hits >= most:
            yield block
            block, hits = [], 0
    if block:
        yield block


@dataclass
class LineReader:
    """Reads a log's lines one after the other, and refuses what contradicts those before."""

    where: str
    strict: bool = False
    # A run in blocks is for scoring, which looks at the final lists only.
    stages: bool = True
    meta: dict[str, Any] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)

    def run(self, records: Iterable[Record], name: str, source: Source) -> Run:
        """A run of some lines; hits are rows soon, which take a sixth of the room."""
        calls: list[dict[str, Any]] = []
        frames = []
        for block in _blocks(records):
            lists = HitLists(self.where, self.strict)
            calls += [self.call(record, lists) for record in block]
            frames.append(lists.frame())
        return Run(
            join_lists(frames),
            calls=frame_of(calls, ("query_id",), where=self.where),
            meta=self.meta,
            order="rank",
            name=name,
            source=source,
        )

    def call(self, record: Record, lists: HitLists) -> dict[str, Any]:
        """One line as a call, its hits added to ``lists``; those of a failed call are not."""
        line, value = record
        check_version(value.get(VERSION_KEY), self.where, line)
        query_id = as_id(value.get("query_id"), "query_id", self.where, line)
        if query_id in self.seen:
            raise InputError(
                f"query {query_id!r} was already logged in line {self.seen[query_id]}; "
                "one call a query is expected",
                where=self.where,
                line=line,
            )
        self.seen[query_id] = line
        self._note_meta(value, line)
        call = {"query_id": query_id, **self._amounts(record), **_told(value)}
        if "error" in call:
            lists = HitLists(self.where, strict=False)
        elif _LISTS["final"] not in value:
            raise self._no_list(value, line)
        for stage, entries in self._lists(record):
            lists.add(query_id, stage, entries, line)
        return call

    def _no_list(self, value: Mapping[str, Any], line: int) -> InputError:
        if value.get("raw") or value.get(_STAGES):
            told = "has lists of earlier stages and no topk; the final list belongs under topk"
        else:
            told = "has neither topk nor error; log the hits under topk, [] if there were none"
        return InputError(told, where=self.where, line=line)

    def _lists(self, record: Record) -> Iterator[tuple[str, list[Any]]]:
        """The final list, the raw one, and those of the stages between them."""
        line, value = record
        for stage, key in _LISTS.items():
            yield stage, as_list(value.get(key), key, self.where, line)
        if not self.stages or value.get(_STAGES) is None:
            return
        for stage, entries in as_object(value[_STAGES], _STAGES, self.where, line).items():
            if stage in _LISTS:
                raise InputError(
                    f"stages has a list {stage!r}; it belongs under {_LISTS[stage]}",
                    where=self.where,
                    line=line,
                )
            yield stage, as_list(entries, f"{_STAGES}.{stage}", self.where, line)

    def _amounts(self, record: Record) -> dict[str, float]:
        """Times and costs; a bare number is the whole of it."""
        line, value = record
        amounts = {}
        for prefix, key in _AMOUNTS.items():
            logged = value.get(key)
            if logged is None:
                continue
            if isinstance(logged, (int, float)):
                logged = {"total": logged}
            for what, number in as_object(logged, key, self.where, line).items():
                if number is not None:
                    told = as_amount(number, f"{key}.{what}", self.where, line)
                    amounts[f"{prefix}.{what}"] = told
        return amounts

    def _note_meta(self, value: Mapping[str, Any], line: int) -> None:
        for key, told in value.items():
            first = self.meta.get(key)
            # Most lines repeat what the first said; True is not the 1 that it equals.
            if key in _NO_META or (told == first and type(told) is type(first)):
                continue
            here = fact(key, told, self.where, line)
            if here is None or here == "":
                continue
            first = self.meta.setdefault(key, here)
            if key in _WHY_ONE and here != first:
                raise InputError(
                    f"{key} is {here!r} here and {first!r} above; {_WHY_ONE[key]}",
                    where=self.where,
                    line=line,
                )


def _told(value: Mapping[str, Any]) -> dict[str, Any]:
    """What a line says of its call besides amounts; an error of any shape as text."""
    told = {name: value[name] for name in _CALL if value.get(name) not in (None, "")}
    error = told.pop("error", None)
    if error:  # not false or 0: then the call went well
        spelled = json.dumps(error, ensure_ascii=False, sort_keys=True)
        told["error"] = error if isinstance(error, str) else spelled
    return told


def write_run(run: Run, path: str | Path) -> None:
    """One call a line, with its hits by rank, latencies, cost and error."""
    check_facts(run.meta, str(path))
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
    about = {key: told for key, told in run.meta.items() if key != VERSION_KEY}
    meta = {VERSION_KEY: RUN_LOG_VERSION, "system": run.name, **about}
    # What is said of the run was never in a table, and so never made text of.
    texts = TEXTS | meta.keys()
    for query_id in dict.fromkeys([*calls, *order]):
        stages = lists.get(query_id, {})
        record = {"query_id": query_id, **meta, "topk": stages.pop("final", [])}
        record["raw"] = stages.pop("raw", None) or None
        record[_STAGES] = stages or None
        yield to_line(record | _call_record(calls.get(query_id, {})), texts=texts)


def _call_record(call: Mapping[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for column, value in call.items():
        group, _, what = column.partition(".")
        if value is None or column == "query_id":
            continue
        if what and group in _AMOUNTS:
            record.setdefault(_AMOUNTS[group], {})[what] = value
        else:
            record[column] = value
    return record
