"""Run logs: one JSON line per call, resumed where a run stopped, used again where nothing changed.

Every line carries the digest of what the run depends on, so that a log never holds answers of
two different systems or sets of queries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from karat.data.columns import NUL_IN_ID
from karat.data.tables import Run
from karat.errors import KaratError, UsageError
from karat.formats.runlog import CALL_KEYS, run_of_records
from karat.jobs.journal import RESUME, Journal, json_lines
from karat.retrieve.protocol import Answer, Hit, Hits, Query

DIGEST = "run_digest"
# Milliseconds are logged to the microsecond, which is as good as the clock.
_DIGITS = 3
_ID_FIELDS = ("item_id", "doc_id", "version", "source")
_CHANGED = "the system, the queries or the corpus changed since"


def record_of(
    query: Query, answer: Answer, meta: Mapping[str, Any], *, latency: bool = True
) -> dict[str, Any]:
    """Return the record of a successful call."""
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
        record["latency_ms"] = {stage: round(ms, _DIGITS) for stage, ms in answer.latency.items()}
    if answer.cost:
        record["cost"] = answer.cost
    return record


def failed_record(query: Query, reason: str, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a failed call: no hits, but the reason."""
    return {"query_id": query.query_id, **meta, "topk": [], "error": reason}


def _entries(hits: Hits) -> list[dict[str, Any]]:
    return [_entry(rank, hit) for rank, hit in enumerate(hits, 1)]


def _entry(rank: int, hit: Hit) -> dict[str, Any]:
    """Return a hit without its empty fields; raises ValueError for one that no log can hold."""
    for name in _ID_FIELDS:
        value = getattr(hit, name)
        if isinstance(value, str) and "\0" in value:
            raise ValueError(f"hit {rank}: {name} {NUL_IN_ID}")
    placed = hit.start is not None and hit.end is not None
    fields = {
        "score": hit.score,
        "doc_version": hit.version,
        "doc_id": hit.doc_id,
        "source": hit.source,
        "similarity": hit.similarity,
        "start": hit.start if placed else None,
        "end": hit.end if placed else None,
    }
    present = {key: value for key, value in fields.items() if value is not None}
    return {"rank": rank, "chunk_id": hit.item_id, **present}


def to_json_line(record: Mapping[str, Any]) -> bytes:
    """Return a record as a line of a log."""
    text = json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))
    return text.encode() + b"\n"


def run_of(
    name: str, meta: Mapping[str, Any], queries: Sequence[Query], answers: Sequence[Answer]
) -> Run:
    """Return the run that the log of these answers would be read as."""
    meta = {"system": name, **meta}
    records = [
        record_of(query, answer, meta) for query, answer in zip(queries, answers, strict=True)
    ]
    return run_of_records(records, name=name)


class RunLog(Journal):
    """Writes a run log.

    ``done`` are the calls that an interrupted log already has, as query id and whether the call
    failed. With ``resume``, ``kept`` has the lines of the good calls of a finished log of the
    same run by query id.
    """

    def __init__(
        self,
        path: Path,
        digest: str,
        query_ids: Sequence[str],
        *,
        resume: bool,
        restart: bool = False,
        remedy: str = RESUME,
    ) -> None:
        super().__init__(path, remedy=remedy)
        self.digest = digest
        self.done: list[tuple[str, bool]] = []
        self.kept: dict[str, bytes] = {}
        self.meta: dict[str, Any] | None = None
        try:
            if self.part.is_file():
                self.lock()
                if not restart:
                    self._continue_part(resume, query_ids)
            if resume and path.is_file():
                self._keep_finished()
        except KaratError:
            self.close()
            raise

    def finish(self, *, all_failed: bool = False) -> None:
        """Give the log its name; one of failures alone goes beside an earlier one with answers."""
        earlier = _lines(self.path) if all_failed and self.path.is_file() else ()
        if any(not line.failed for line in earlier):
            self.path = failed_log(self.path)
        super().finish()

    def _continue_part(self, resume: bool, query_ids: Sequence[str]) -> None:
        """Keep the lines of an interrupted run as far as they are complete and in order."""
        for line, query_id in zip(_lines(self.part), query_ids, strict=False):
            if self.meta is None:
                if line.record.get(DIGEST) != self.digest:
                    raise UsageError(
                        f"{self.part} is of another run: {_CHANGED}; start over with --restart"
                    )
                self.meta = meta_of(line.record)
            if line.query_id != query_id:
                break
            self.done.append((line.query_id, line.failed))
            self.keep(line.data)
        if self.done and not resume:
            raise UsageError(
                f"{self.part} holds {len(self.done):,} calls of an interrupted run; "
                "resume it with --resume, or start over with --restart"
            )

    def _keep_finished(self) -> None:
        """Keep the good calls of the finished log if it is of this run.

        One of another run is an error, unless a part of this run exists already.
        """
        if has_digest(self.path, self.digest):
            for line in _lines(self.path):
                self.meta = self.meta or meta_of(line.record)
                if not line.failed:
                    self.kept[line.query_id] = line.data
        elif not self.done:
            raise UsageError(
                f"{self.path} is of another run: {_CHANGED}; leave out --resume to search again"
            )


def failed_log(path: Path) -> Path:
    """Return the name of a log in which every call failed, beside an earlier one with answers."""
    return path.with_name(f"{path.stem}.failed{path.suffix}")


def has_digest(path: Path, digest: str) -> bool:
    """Return whether a log was begun under this digest."""
    return path.is_file() and first_meta(path).get(DIGEST) == digest


def first_meta(path: Path) -> dict[str, Any]:
    """Return what a log says of its run; nothing if it has no line."""
    first = next(_lines(path), None)
    return {} if first is None else meta_of(first.record)


def is_complete(path: Path, digest: str, query_ids: list[str]) -> bool:
    """Return whether a log answers exactly these queries under this digest, with no failed call."""
    expected = iter(query_ids)
    try:
        for line in _lines(path):
            same_run = line.record.get(DIGEST) == digest
            if not same_run or line.failed or next(expected, None) != line.query_id:
                return False
    except OSError:
        return False
    return next(expected, None) is None


def meta_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a record that describe the run rather than the call."""
    return {key: value for key, value in record.items() if key not in CALL_KEYS}


def notes_in(meta: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the notes of a log's retrievers, such as settings of theirs that have no effect."""
    notes, parts = meta.get("notes"), meta.get("parts")
    inner = parts.values() if isinstance(parts, Mapping) else ()
    return (
        *(str(note) for note in notes or () if isinstance(notes, list)),
        *(note for part in inner for note in notes_in(part)),
    )


class _Line(NamedTuple):
    query_id: str
    failed: bool
    data: bytes
    record: dict[str, Any]


def _lines(path: Path) -> Iterator[_Line]:
    """Yield the calls of a log, up to the first line that is none."""
    for data, record in json_lines(path):
        if not isinstance(record.get("query_id"), str):
            return
        yield _Line(record["query_id"], bool(record.get("error")), data, record)
