"""A run log held against its contract: every bad line, and what it lacks to be reproduced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from karat.errors import InputError
from karat.formats.contract import RUN_LOG_VERSION
from karat.formats.files import Input, decode, open_input
from karat.formats.hitlists import HitLists
from karat.formats.records import Record, record_of_line
from karat.formats.runlog import LineReader

MOST_SHOWN = 20

# What a log needs to be made again or explained, and what each pays for.
FACTS = {
    "k_raw": "how deep was searched: headroom, sweeps of k_raw",
    "raw": "what was retrieved: whether a miss was lost before or after",
    "doc_version": "which version was found: freshness",
    "latency_by_stage": "latency_ms of each stage: where the time goes",
    "index_version": "what was searched",
    "chunker": "how documents were cut",
    "dataset_version": "which queries and gold it is for",
    "as_of_range": "which dates the queries speak of",
    "code_version": "which code was asked",
}
_OF_A_CALL = ("raw", "doc_version", "latency_by_stage")


@dataclass(frozen=True, slots=True)
class Presence:
    """In how many lines a log has something, of those that could."""

    lines: int
    of: int

    @property
    def word(self) -> str:
        """``all``, ``none`` or how many."""
        if not self.lines:
            return "none"
        return "all" if self.lines == self.of else f"{self.lines:,} of {self.of:,}"

    def document(self) -> dict[str, Any]:
        """As plain data."""
        return {"in": self.word, "lines": self.lines, "of": self.of}


@dataclass(frozen=True, eq=False)
class LogCheck:
    """What came of it: ``errors`` are the first bad lines, ``bad`` is how many there are."""

    name: str
    lines: int
    failed: int
    bad: int
    errors: tuple[InputError, ...]
    has: Mapping[str, Presence]
    differing: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether every line keeps to the contract."""
        return not self.bad

    def document(self) -> dict[str, Any]:
        """As plain data; of a log with bad lines nothing is said of what it has."""
        return {
            "name": self.name,
            "sound": self.sound,
            "lines": self.lines,
            "failed_calls": self.failed,
            "bad_lines": self.bad,
            "errors": [{"line": one.line, "what": one.what} for one in self.errors],
            "has": {key: one.document() for key, one in self.has.items()} if self.sound else None,
            "differs_between_lines": list(self.differing) if self.sound else None,
        }


def check_log(path: str | Path) -> LogCheck:
    """Read a log line by line as any command would, and go on after a bad line."""
    file = open_input(path)
    # Logs of several folders may have one name.
    file = replace(file, source=replace(file.source, name=str(path)))
    counting = _Counting(LineReader(file.name))
    for number, data in _lines(file):
        counting.take(data, number, file)
    if not counting.lines:
        raise InputError("holds no calls; one object a line is expected", where=file.name)
    return counting.finished(file.name)


def _lines(file: Input) -> Iterator[tuple[int, bytes]]:
    """The lines by number, as bytes: one that is no text spoils only itself."""
    done = 0
    for chunk in file.chunks():
        lines = chunk.split(b"\n")
        yield from enumerate(lines, done + 1)
        # A chunk ends after its last line feed, where the next line has not begun yet.
        done += len(lines) - 1


@dataclass
class _Counting:
    reader: LineReader
    lines: int = 0
    failed: int = 0
    bad: int = 0
    errors: list[InputError] = field(default_factory=list)
    has: dict[str, list[int]] = field(default_factory=lambda: {key: [0, 0] for key in FACTS})
    differing: dict[str, None] = field(default_factory=dict)

    def take(self, data: bytes, number: int, file: Input) -> None:
        """Read a line and count what it has; a blank one is none."""
        if not data.strip():
            return
        self.lines += 1
        try:
            text = decode(data, file, first_line=number)
            record = record_of_line(text, file.name, number)
            call = self.reader.call(record, HitLists(file.name, strict=False))
        except InputError as error:
            self.bad += 1
            if len(self.errors) < MOST_SHOWN:
                self.errors.append(error)
            return
        self._count(record, failed="error" in call)

    def _count(self, record: Record, *, failed: bool) -> None:
        self.failed += failed
        for key, seen in self.has.items():
            told = _has(key, record.value, failed=failed)
            if told is not None:
                seen[0] += told
                seen[1] += 1
            first = self.reader.meta.get(key)
            if told and key not in _OF_A_CALL and record.value[key] != first:
                self.differing[key] = None

    def finished(self, name: str) -> LogCheck:
        return LogCheck(
            name,
            self.lines,
            self.failed,
            self.bad,
            tuple(self.errors),
            {key: Presence(*seen) for key, seen in self.has.items()},
            tuple(self.differing),
        )


def _has(key: str, value: Mapping[str, Any], *, failed: bool) -> bool | None:
    """Whether a line has it; None where it could not have it, such as hits of a failed call."""
    if key not in _OF_A_CALL:
        return value.get(key) not in (None, "", {})
    hits = value.get("topk") or []
    if failed or (key == "doc_version" and not hits):
        return None
    if key == "raw":
        return value.get("raw") is not None
    if key == "doc_version":
        return all(isinstance(one, dict) and _is_dated(one) for one in hits)
    times = value.get("latency_ms")
    return isinstance(times, dict) and any(
        stage != "total" and ms is not None for stage, ms in times.items()
    )


def _is_dated(hit: Mapping[str, Any]) -> bool:
    return any(hit.get(key) not in (None, "") for key in ("doc_version", "version"))


def checks_document(checks: list[LogCheck]) -> dict[str, Any]:
    """Several logs as plain data."""
    return {
        "schema": "run-log",
        "schema_version": RUN_LOG_VERSION,
        "sound": all(one.sound for one in checks),
        "logs": [one.document() for one in checks],
    }
