"""Run logs in JSONL: one call per line, with its hits, latencies and errors.

Hits are ranked by rank. ``run-log.schema.json`` describes every key and states what this reader
accepts: change both together. ``runlog_schema`` checks logs against it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from karat.data.columns import ITEM_NAMES, Source, is_date, mapping_hint
from karat.data.tables import Run, with_ranks
from karat.errors import InputError
from karat.formats.blocks import duplicate_hit_error, memory_budget
from karat.formats.field_mapping import explaining
from karat.formats.files import Input, write_lines
from karat.formats.hit_columns import (
    COLUMN_NAMES,
    HIT_TEXTS,
    LISTS,
    NUMBERS,
    STAGES,
    USUAL_KEYS,
    WHOLE,
    HitColumns,
    read_calls,
)
from karat.formats.json_records import (
    TEXTS,
    JsonRecord,
    frame_of,
    is_number,
    preview,
    to_line,
)
from karat.formats.registry import Head, Kind

RUN_LOG_VERSION = 1
VERSION_KEY = "schema_version"
# These keys name the set of queries; a log of two sets is a run on neither.
SAME_IN_ALL_LINES = ("dataset_version", "as_of_range")

_BLOCK_HITS = 200_000
_INT64 = 2**63
_MOST_SHOWN = 20

# The keys of a line.
_CALL = ("query", "rewritten", "source", "error", "entities", "as_of")
_AMOUNTS = {"latency": "latency_ms", "cost": "cost"}
# The keys that describe a call; all others describe the run.
CALL_KEYS = frozenset(
    (*_CALL, *LISTS.values(), STAGES, "query_id", *_AMOUNTS.values(), VERSION_KEY)
)
# Keys with the same value in every line, and the advice if they differ.
_ONE_VALUE = {
    "system": "keep each system's log in a file of its own",
    **dict.fromkeys(SAME_IN_ALL_LINES, "a log is of one set of queries: keep each in its own file"),
}

_TYPES = {
    "query_id": pl.String,
    "item_id": pl.String,
    "rank": pl.Int64,
    "score": pl.Float64,
    "stage": pl.String,
    "doc_id": pl.String,
    "version": pl.String,
    "source": pl.String,
    "similarity": pl.Float64,
    "start": pl.Int64,
    "end": pl.Int64,
}

Columns = dict[str, Sequence[Any]]


def sniff(head: Head, kind: Kind) -> bool:
    """Return True for a call: a query with its hits, its error or its latencies."""
    keys = head.keys
    return "topk" in keys or bool("query_id" in keys and keys & {"system", "error", "latency_ms"})


def read_run(file: Input, *, name: str, strict: bool = False) -> LoggedRun:
    """Open a run log that is read block by block."""
    return LoggedRun(file, name, strict)


def run_of_records(records: Iterable[Mapping[str, Any]], *, name: str) -> Run:
    """Return the run of records that are not from a file; ``name`` is for messages."""
    lines = [JsonRecord(number, dict(value), name) for number, value in enumerate(records, 1)]
    return CallReader(name).run(lines, name, Source(name))


@dataclass(frozen=True, eq=False)
class LoggedRun:
    """A run log that is read in blocks of calls."""

    file: Input
    name: str
    strict: bool = False
    staged: bool = True
    """A log may hold the list of every stage."""

    @property
    def source(self) -> Source:
        return self.file.source

    def blocks(self) -> Iterator[Run]:
        """Yield the run in blocks of whole calls."""
        reader = CallReader(self.file.name, self.strict, stages=False)
        with self.source.unchanged():
            for block in _blocks(read_calls(self.file)):
                with explaining(self.file.mapping):
                    run = reader.run(block, self.name, self.source)
                yield run
        self._refuse_empty(reader)

    def partitions(self) -> Iterator[Run]:
        """Yield the same blocks: each line holds a whole call."""
        return self.blocks()

    def read(self) -> Run:
        """Return the whole log."""
        with self.source.unchanged():
            reader = CallReader(self.file.name, self.strict)
            run = reader.run(read_calls(self.file), self.name, self.source)
        self._refuse_empty(reader)
        return run

    def _refuse_empty(self, reader: CallReader) -> None:
        if not reader.seen:
            raise InputError(
                "holds no calls; one object per line is expected", where=self.file.name
            )


def _blocks(records: Iterable[JsonRecord]) -> Iterator[list[JsonRecord]]:
    """Yield calls in blocks of about the same number of hits, because hits take the memory."""
    block: list[JsonRecord] = []
    # A hit takes more memory as a JSON object than as a row.
    hits, most = 0, min(_BLOCK_HITS, memory_budget().block_rows // 2)
    for record in records:
        block.append(record)
        lists = (record.value.get(key) for key in LISTS.values())
        hits += 1 + sum(
            len(entries) for entries in lists if isinstance(entries, (list, HitColumns))
        )
        if hits >= most:
            yield block
            block, hits = [], 0
    if block:
        yield block


@dataclass
class CallReader:
    """Reads the lines of a log, and refuses one that contradicts earlier lines."""

    where: str
    strict: bool = False
    stages: bool = True
    """False reads the final and raw lists only, which is enough for scoring."""
    meta: dict[str, Any] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)

    def run(self, records: Iterable[JsonRecord], name: str, source: Source) -> Run:
        """Return the run of some lines; as rows, hits take a sixth of the memory."""
        calls: list[dict[str, Any]] = []
        frames = [HitLists(self.strict).frame()]
        for block in _blocks(records):
            lists = HitLists(self.strict)
            calls += [self.call(record, lists) for record in block]
            frames.append(lists.frame())
        # With scores if every hit has one, with stages if there are several.
        hits = pl.concat(frames, how="diagonal")
        if "score" in hits.columns and hits["score"].null_count():
            hits = hits.drop("score")
        if (hits["stage"] == "final").all():
            hits = hits.drop("stage")
        return Run(
            hits.select(name for name in _TYPES if name in hits.columns),
            calls=frame_of(calls, ("query_id",), where=self.where),
            meta=self.meta,
            order="rank",
            name=name,
            source=source,
        )

    def call(self, record: JsonRecord, lists: HitLists) -> dict[str, Any]:
        """Return one line as a call and add its hits to ``lists``, unless the call failed."""
        value = record.value
        version = value.get(VERSION_KEY)
        # A line without a version has the first.
        if version is not None and not (is_number(version) and version == RUN_LOG_VERSION):
            raise record.error(
                f"{VERSION_KEY} is {preview(version)}; this karat reads version "
                f"{RUN_LOG_VERSION}: update karat, write {RUN_LOG_VERSION}, or leave the key out"
            )
        query_id = record.as_id(value.get("query_id"), "query_id")
        if query_id in self.seen:
            raise record.error(
                f"query {query_id!r} was already logged in line {self.seen[query_id]}; "
                "one call per query is expected"
            )
        self.seen[query_id] = record.line or 0
        self._add_meta(record)
        call = {"query_id": query_id, **_amounts(record)}
        call |= {name: value[name] for name in _CALL if value.get(name) not in (None, "")}
        error = call.pop("error", None)
        if error:  # false or 0 means that the call succeeded
            text = json.dumps(error, ensure_ascii=False, sort_keys=True)
            call["error"] = error if isinstance(error, str) else text
            lists = HitLists(strict=False)
        elif LISTS["final"] not in value:
            raise record.error(
                "has neither topk nor error; log the hits under topk, [] if there were none"
            )
        for stage, key in LISTS.items():
            lists.add(query_id, stage, _as_hits(value.get(key), key, record), record)
        stages = value.get(STAGES) if self.stages else None
        for stage, entries in record.as_object({} if stages is None else stages, STAGES).items():
            if stage in LISTS:
                raise record.error(f"stages has a list {stage!r}; it belongs under {LISTS[stage]}")
            lists.add(query_id, stage, _as_hits(entries, f"{STAGES}.{stage}", record), record)
        return call

    def _add_meta(self, record: JsonRecord) -> None:
        for key, value in record.value.items():
            first = self.meta.get(key)
            # Most lines repeat the first one; True is not the 1 that it equals.
            if key in CALL_KEYS or (value == first and type(value) is type(first)):
                continue
            fact = _check_fact(key, value, record)
            if fact is None or fact == "":
                continue
            first = self.meta.setdefault(key, fact)
            if key in _ONE_VALUE and fact != first:
                raise record.error(f"{key} is {fact!r} here and {first!r} above; {_ONE_VALUE[key]}")


def _as_hits(value: Any, what: str, record: JsonRecord) -> list[Any] | HitColumns:
    return value if isinstance(value, HitColumns) else record.as_list(value, what)


def _amounts(record: JsonRecord) -> dict[str, float]:
    """Return times and costs by stage; a bare number is the total."""
    amounts = {}
    for prefix, key in _AMOUNTS.items():
        logged = record.value.get(key)
        if logged is None:
            continue
        if isinstance(logged, (int, float)):
            logged = {"total": logged}
        for stage, number in record.as_object(logged, key).items():
            if number is not None:
                amounts[f"{prefix}.{stage}"] = record.as_amount(number, f"{key}.{stage}")
    return amounts


def check_facts(meta: Mapping[str, Any], where: str) -> None:
    """Raise InputError for a fact about a run that could be written but not read again."""
    for key, value in meta.items():
        _check_fact(key, value, JsonRecord(None, {}, where))


def _check_fact(key: str, value: Any, record: JsonRecord) -> Any:
    """Return a fact about a run; raise InputError if it does not have the type of its key."""
    if value is None or key not in _FACT_TYPES:
        return value
    has_type, expected = _FACT_TYPES[key]
    if not has_type(value):
        raise record.error(f"{key} is {preview(value)}; {expected} is expected")
    # JSON does not distinguish 50 from 50.0, and some writers turn one into the other.
    return int(value) if has_type is _is_whole else value


def _is_whole(value: Any) -> bool:
    return is_number(value) and 0 <= value < _INT64 and value == int(value)


def _is_label(value: Any) -> bool:
    return isinstance(value, str) or is_number(value)


def _is_date_range(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) == 2
        and all(isinstance(date, str) and is_date(date) for date in value)
        and value[0] <= value[1]
    )


_WHOLE_NUMBER = (_is_whole, "a whole number from 0")
_LABEL = (_is_label, "text or a number")
_FACT_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "system": _LABEL,
    "k": _WHOLE_NUMBER,
    "k_raw": _WHOLE_NUMBER,
    "max_failures": (lambda v: is_number(v) and 0 <= v <= 1, "a number from 0 to 1"),
    "chunker": (lambda v: isinstance(v, (str, dict)), "an object of its settings, or a name"),
    "index_version": (
        lambda v: isinstance(v, dict) or _is_label(v),
        "text, a number or an object of them",
    ),
    "dataset_version": _LABEL,
    "code_version": _LABEL,
    "as_of_range": (
        _is_date_range,
        "the first and the last date of the queries (YYYY-MM-DD), in that order,",
    ),
}


@dataclass
class HitLists:
    """Collects lists of hits and turns them into one table."""

    strict: bool
    owners: list[tuple[str, str, int]] = field(default_factory=list)
    parts: list[list[Columns] | HitColumns] = field(default_factory=list)

    def add(
        self, query_id: str, stage: str, entries: list[Any] | HitColumns, record: JsonRecord
    ) -> None:
        """Add one list of a record."""
        if not entries:
            return
        names: Sequence[str] = ()
        if isinstance(entries, HitColumns):
            if self.strict:
                names = entries.rows()["item_id"].to_list()
            self._add(entries)
        else:
            columns = _usual_columns(entries)
            if columns is None:
                hits = [_hit(entry, rank, record) for rank, entry in enumerate(entries, 1)]
                keys = dict.fromkeys(chain.from_iterable(hits))
                columns = {key: [hit.get(key) for hit in hits] for key in keys}
            names = columns["item_id"]
            self._add([columns])
        if self.strict and len(set(names)) < len(names):
            duplicate = next(name for i, name in enumerate(names) if name in names[:i])
            raise duplicate_hit_error(query_id, duplicate, record.where, record.line)
        self.owners.append((query_id, stage, len(entries)))

    def _add(self, hits: list[Columns] | HitColumns) -> None:
        """Add hits to those before them if they can be in the same frame."""
        last = self.parts[-1] if self.parts else None
        if isinstance(last, list) and isinstance(hits, list):
            last += hits
        elif isinstance(last, HitColumns) and isinstance(hits, HitColumns) and last.ends_at(hits):
            self.parts[-1] = HitColumns(last.table, last.start, len(last) + len(hits))
        else:
            self.parts.append(hits)

    def frame(self) -> pl.DataFrame:
        """Return all hits, with null for what a list does not have."""
        frames = [_frame_of([])]
        for parts in self.parts:
            frames.append(parts.rows() if isinstance(parts, HitColumns) else _frame_of(parts))
        query_ids, stages, lengths = zip(*self.owners, strict=True) if self.owners else ((), (), ())
        rows = np.repeat(np.arange(len(lengths)), lengths)
        return pl.concat(frames, how="diagonal").with_columns(
            query_id=pl.Series(query_ids, dtype=pl.String).gather(rows),
            stage=pl.Series(stages, dtype=pl.String).gather(rows),
        )


def _frame_of(lists: Sequence[Columns]) -> pl.DataFrame:
    columns = []
    for name in {"item_id", "rank"}.union(*lists):
        values = chain.from_iterable(
            part.get(name) or repeat(None, len(part["item_id"])) for part in lists
        )
        columns.append(pl.Series(name, list(values), dtype=_TYPES[name]))
    return pl.DataFrame(columns)


def _usual_columns(entries: list[Any]) -> Columns | None:
    """Return the columns of hits with equal keys and the usual types, else None (fast path)."""
    first = entries[0]
    if type(first) is not dict or "chunk_id" not in first or not USUAL_KEYS.issuperset(first):
        return None
    keys = first.keys()
    if not all(type(entry) is dict and entry.keys() == keys for entry in entries):
        return None
    columns: Columns = {"rank": range(1, len(entries) + 1)}
    for key in map(str, keys):
        values = [entry[key] for entry in entries]
        types = set(map(type, values))
        if key in WHOLE:
            valid = types == {int} and min(values) >= WHOLE[key] and max(values) < _INT64
        elif key in NUMBERS:
            valid = types <= {int, float} and _all_finite(values)
            values = list(map(float, values)) if valid else values
        else:
            valid = types == {str} and "" not in values and "\0" not in "".join(values)
        if not valid:
            return None
        columns[COLUMN_NAMES.get(key, key)] = values
    return columns


def _all_finite(values: list[Any]) -> bool:
    try:
        return all(map(isfinite, values))
    except OverflowError:  # a whole number too large for a float
        return False


def _hit(entry: Any, rank: int, record: JsonRecord) -> dict[str, Any]:
    """Return a hit of any form by the names of its columns, each value checked."""
    if isinstance(entry, str):
        entry = {"chunk_id": entry}
    entry = record.as_object(entry, "a hit")
    name = next((entry[key] for key in ITEM_NAMES if entry.get(key) is not None), None)
    if name is None:
        keys = ", ".join(list(entry)[:_MOST_SHOWN]) or "none at all"
        raise record.error(
            f"a hit has no id of its item among its keys {keys}; expected one of "
            f"{', '.join(ITEM_NAMES)}; {mapping_hint('item_id')}"
        )
    hit: dict[str, Any] = {"item_id": record.as_id(name, "chunk_id"), "rank": rank}
    for key, lowest in WHOLE.items():
        value = entry.get(key)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value < _INT64:
            raise record.error(f"{key} is {value!r}; a whole number from {lowest} is expected")
        hit[key] = value
    for key in NUMBERS:
        if entry.get(key) is not None:
            hit[key] = record.as_number(entry[key], key)
    for key, column in HIT_TEXTS.items():
        if entry.get(key) not in (None, ""):
            hit[column] = record.as_id(entry[key], key)
    return hit


def write_run(run: Run, path: str | Path) -> None:
    """Write one call per line, with its hits by rank, latencies, cost and error."""
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
        stages.setdefault(row.pop("stage"), []).append(_entry(row))
    calls = {} if run.calls is None else {c["query_id"]: c for c in run.calls.iter_rows(named=True)}
    order = run.hits["query_id"].unique(maintain_order=True).to_list()
    facts = {key: value for key, value in run.meta.items() if key != VERSION_KEY}
    meta = {VERSION_KEY: RUN_LOG_VERSION, "system": run.name, **facts}
    # Facts about the run were never in a table, so texts among them are not JSON.
    texts = TEXTS | meta.keys()
    for query_id in dict.fromkeys([*calls, *order]):
        stages = lists.get(query_id, {})
        record = {"query_id": query_id, **meta, "topk": stages.pop("final", [])}
        record["raw"] = stages.pop("raw", None) or None
        record[STAGES] = stages or None
        yield to_line(record | _call_record(calls.get(query_id, {})), texts=texts)


def _entry(row: dict[str, Any]) -> dict[str, Any]:
    """Return one hit as it is written to a log."""
    names = {"item_id": "chunk_id", "version": "doc_version"}
    first = {name: row.get(name) for name in ("rank", "item_id", "score", "version")}
    return {names.get(k, k): v for k, v in (first | row).items() if v is not None}


def _call_record(call: Mapping[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for column, value in call.items():
        group, _, stage = column.partition(".")
        if value is None or column == "query_id":
            continue
        if stage and group in _AMOUNTS:
            record.setdefault(_AMOUNTS[group], {})[stage] = value
        else:
            record[column] = value
    return record
