"""The JSON Schema of run logs, and checks of logs against it.

A check names every bad line, and which facts a log lacks for being reproduced or explained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from karat.errors import InputError, UsageError, unknown
from karat.formats.files import Input, decode, open_input
from karat.formats.json_records import Record, parse_record
from karat.formats.runlog import RUN_LOG_VERSION, CallReader, HitLists
from karat.pages.formatting import label, plural

MOST_SHOWN = 20

# The facts that a log needs to be reproduced or explained, and what each is for.
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
_FACTS_OF_A_CALL = ("raw", "doc_version", "latency_by_stage")


@dataclass(frozen=True, slots=True)
class Schema:
    """A JSON Schema that comes with karat; ``version`` is the version of what it describes."""

    name: str
    version: int
    about: str
    file: str

    def text(self) -> str:
        """Return the schema as JSON."""
        return Path(__file__).with_name(self.file).read_text(encoding="utf-8")

    def to_dict(self) -> dict[str, Any]:
        """Return name, version and description."""
        return {"name": self.name, "version": self.version, "about": self.about}


SCHEMAS = {
    "run-log": Schema(
        "run-log",
        RUN_LOG_VERSION,
        "one line of a run log: a call, its hits, its times, and what was run",
        "run-log.schema.json",
    ),
}


def schema(name: str = "run-log") -> Schema:
    """Return the schema with that name; raise UsageError with the nearest name if unknown."""
    if name not in SCHEMAS:
        raise unknown("schema", name, SCHEMAS)
    return SCHEMAS[name]


@dataclass(frozen=True, slots=True)
class Presence:
    """In how many lines a log has a fact, of those that could have it."""

    lines: int
    of: int

    @property
    def word(self) -> str:
        """``all``, ``none`` or the number of lines."""
        if not self.lines:
            return "none"
        return "all" if self.lines == self.of else f"{self.lines:,} of {self.of:,}"

    def to_dict(self) -> dict[str, Any]:
        return {"in": self.word, "lines": self.lines, "of": self.of}


@dataclass(frozen=True, eq=False)
class LogCheck:
    """The check of one log: ``errors`` are the first bad lines, ``bad`` is their number."""

    name: str
    lines: int
    failed: int
    bad: int
    errors: tuple[InputError, ...]
    has: Mapping[str, Presence]
    differing: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """True if every line is valid."""
        return not self.bad

    def to_dict(self) -> dict[str, Any]:
        """Return the check as plain data; facts are null if any line is bad."""
        return {
            "name": self.name,
            "sound": self.sound,
            "lines": self.lines,
            "failed_calls": self.failed,
            "bad_lines": self.bad,
            "errors": [{"line": error.line, "what": error.what} for error in self.errors],
            "has": {fact: p.to_dict() for fact, p in self.has.items()} if self.sound else None,
            "differs_between_lines": list(self.differing) if self.sound else None,
        }

    def problems(self) -> list[str]:
        """Return one line per shown error, and how many lines are bad in all."""
        if self.sound:
            return []
        more = self.bad - len(self.errors)
        counts = f"{self.bad:,} of {plural(self.lines, 'line')}"
        return [
            *(label(" ".join(str(error).split())) for error in self.errors),
            *([f"and {more:,} more"] if more else []),
            f"karat: {label(self.name)}: {counts} cannot be read as a call of a run log",
        ]


@dataclass(frozen=True, eq=False)
class LogChecks:
    """The checks of several logs."""

    logs: tuple[LogCheck, ...]

    @property
    def sound(self) -> bool:
        """True if every line of every log is valid."""
        return all(log.sound for log in self.logs)

    @property
    def sound_logs(self) -> list[LogCheck]:
        return [log for log in self.logs if log.sound]

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "run-log",
            "schema_version": RUN_LOG_VERSION,
            "sound": self.sound,
            "logs": [log.to_dict() for log in self.logs],
        }

    def summary(self) -> list[str]:
        """Return one line per sound log."""
        lines = []
        for log in self.sound_logs:
            failed = f", {log.failed:,} failed" if log.failed else ""
            lines.append(f"{label(log.name)}: sound, {plural(log.lines, 'call')}{failed}")
        return lines

    def table(self) -> list[list[str]]:
        """Return in how many lines each sound log has each fact; for one log, why it matters."""
        logs = self.sound_logs
        if len(logs) == 1:
            rows = [[fact, logs[0].has[fact].word, purpose] for fact, purpose in FACTS.items()]
            return [["has", "in lines", "what"], *rows]
        header = ["has", *(label(log.name) for log in logs)]
        return [header, *([fact, *(log.has[fact].word for log in logs)] for fact in FACTS)]


def check_logs(paths: Sequence[str | Path]) -> LogChecks:
    """Check logs line by line, as any command would read them, without stopping at a bad line."""
    if [str(path) for path in paths].count("-") > 1:
        raise UsageError("only one input can be standard input (-)")
    return LogChecks(tuple(check_log(path) for path in paths))


def check_log(path: str | Path) -> LogCheck:
    """Check one log."""
    file = open_input(path)
    # Logs from several folders may have the same name.
    file = replace(file, source=replace(file.source, name=str(path)))
    counter = _Counter(CallReader(file.name))
    for number, data in _lines(file):
        counter.add(data, number, file)
    if not counter.lines:
        raise InputError("holds no calls; one object per line is expected", where=file.name)
    return counter.result(file.name)


def _lines(file: Input) -> Iterator[tuple[int, bytes]]:
    """Yield the lines by number, as bytes, so that one with bad bytes affects only itself."""
    done = 0
    for chunk in file.chunks():
        lines = chunk.split(b"\n")
        yield from enumerate(lines, done + 1)
        # A chunk ends with a line feed; the next line starts in the next chunk.
        done += len(lines) - 1


@dataclass
class _Counter:
    reader: CallReader
    lines: int = 0
    failed: int = 0
    bad: int = 0
    errors: list[InputError] = field(default_factory=list)
    has: dict[str, list[int]] = field(default_factory=lambda: {fact: [0, 0] for fact in FACTS})
    differing: dict[str, None] = field(default_factory=dict)

    def add(self, data: bytes, number: int, file: Input) -> None:
        """Read a line and count its facts; blank lines do not count."""
        if not data.strip():
            return
        self.lines += 1
        try:
            text = decode(data, file, first_line=number)
            record = parse_record(text, file.name, number)
            call = self.reader.call(record, HitLists(file.name, strict=False))
        except InputError as error:
            self.bad += 1
            if len(self.errors) < MOST_SHOWN:
                self.errors.append(error)
            return
        self._count(record, failed="error" in call)

    def _count(self, record: Record, *, failed: bool) -> None:
        self.failed += failed
        for fact, counts in self.has.items():
            present = _has(fact, record.value, failed=failed)
            if present is not None:
                counts[0] += present
                counts[1] += 1
            first = self.reader.meta.get(fact)
            if present and fact not in _FACTS_OF_A_CALL and record.value[fact] != first:
                self.differing[fact] = None

    def result(self, name: str) -> LogCheck:
        return LogCheck(
            name,
            self.lines,
            self.failed,
            self.bad,
            tuple(self.errors),
            {fact: Presence(*counts) for fact, counts in self.has.items()},
            tuple(self.differing),
        )


def _has(fact: str, value: Mapping[str, Any], *, failed: bool) -> bool | None:
    """Return whether a line has a fact; None if it cannot, such as hits of a failed call."""
    if fact not in _FACTS_OF_A_CALL:
        return value.get(fact) not in (None, "", {})
    hits = value.get("topk") or []
    if failed or (fact == "doc_version" and not hits):
        return None
    if fact == "raw":
        return value.get("raw") is not None
    if fact == "doc_version":
        return all(
            isinstance(hit, dict)
            and any(hit.get(key) not in (None, "") for key in ("doc_version", "version"))
            for hit in hits
        )
    times = value.get("latency_ms")
    return isinstance(times, dict) and any(
        stage != "total" and ms is not None for stage, ms in times.items()
    )
