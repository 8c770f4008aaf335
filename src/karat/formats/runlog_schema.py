"""The JSON Schema of run logs, and checks of logs against it.

A check names every bad line, and which facts a log lacks for being reproduced or explained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from karat.errors import InputError, UsageError, unknown
from karat.formats.files import atomic_write, check_path, decode, open_input
from karat.formats.json_records import parse_record, read_lines
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

    def text(self) -> str:
        """Return the schema as JSON."""
        return Path(__file__).with_name(f"{self.name}.schema.json").read_text(encoding="utf-8")

    def save(self, path: str | Path) -> None:
        """Write the schema to a file."""
        check_path(path)
        with atomic_write(path) as place:
            place.write_text(self.text(), encoding="utf-8")

    def check(self, paths: Sequence[str | Path]) -> LogChecks:
        """Check logs line by line, as any command would read them; a bad line stops nothing."""
        if [str(path) for path in paths].count("-") > 1:
            raise UsageError("only one input can be standard input (-)")
        return LogChecks(tuple(check_log(path) for path in paths))


SCHEMAS = {
    "run-log": Schema(
        "run-log",
        RUN_LOG_VERSION,
        "one line of a run log: a call, its hits, its times, and what was run",
    ),
}


def schema(name: str = "run-log") -> Schema:
    """Return the schema with that name; raise UsageError with the nearest name if unknown.

    >>> karat.schema("run-log").version
    1
    """
    if name not in SCHEMAS:
        raise unknown("schema", name, SCHEMAS)
    return SCHEMAS[name]


class Presence(NamedTuple):
    """In how many lines a log has a fact, of those that could have it."""

    lines: int = 0
    of: int = 0

    @property
    def word(self) -> str:
        """``all``, ``none`` or the number of lines."""
        if not self.lines:
            return "none"
        return "all" if self.lines == self.of else f"{self.lines:,} of {self.of:,}"


@dataclass(eq=False)
class LogCheck:
    """The check of one log: ``errors`` are the first bad lines, ``bad`` is their number."""

    name: str
    lines: int = 0
    failed: int = 0
    bad: int = 0
    errors: list[InputError] = field(default_factory=list)
    has: dict[str, Presence] = field(default_factory=lambda: dict.fromkeys(FACTS, Presence()))
    differing: dict[str, None] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        """True if every line is valid."""
        return not self.bad

    def to_dict(self) -> dict[str, Any]:
        """Return the check as plain data; facts are null if any line is bad."""
        has = {
            fact: {"in": presence.word, **presence._asdict()} for fact, presence in self.has.items()
        }
        return {
            "name": self.name,
            "sound": self.sound,
            "lines": self.lines,
            "failed_calls": self.failed,
            "bad_lines": self.bad,
            "errors": [{"line": error.line, "what": error.what} for error in self.errors],
            "has": has if self.sound else None,
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

    def table(self) -> list[list[str]]:
        """Return in how many lines each sound log has each fact, and why the fact matters."""
        logs = self.sound_logs
        header = ["has", *(label(log.name) for log in logs), "what"]
        rows = ([fact, *(log.has[fact].word for log in logs), FACTS[fact]] for fact in FACTS)
        return [header, *rows]


def check_log(path: str | Path) -> LogCheck:
    """Check one log."""
    file = open_input(path)
    # Logs from several folders may have the same name.
    file = replace(file, source=replace(file.source, name=str(path)))
    check, reader = LogCheck(file.name), CallReader(file.name)
    for number, data in read_lines(file):
        check.lines += 1
        try:
            # Decoded line by line, so that bad bytes affect only their line.
            record = parse_record(decode(data, file, first_line=number), file.name, number)
            call = reader.call(record, HitLists(strict=False))
        except InputError as error:
            check.bad += 1
            if check.bad <= MOST_SHOWN:
                check.errors.append(error)
            continue
        failed, value = "error" in call, record.value
        check.failed += failed
        for fact, presence in check.has.items():
            present = _has(fact, value, failed=failed)
            if present is not None:
                check.has[fact] = Presence(presence.lines + present, presence.of + 1)
            if present and fact not in _FACTS_OF_A_CALL and value[fact] != reader.meta.get(fact):
                check.differing[fact] = None
    if not check.lines:
        raise InputError("holds no calls; one object per line is expected", where=file.name)
    return check


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
