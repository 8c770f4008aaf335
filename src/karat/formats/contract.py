"""The contract of run logs: its version, its JSON Schema, and what a line may say of its run.

The schema describes one line; ``runlog`` reads lines, and is what decides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from karat.columns import is_date
from karat.errors import InputError, unknown
from karat.formats.records import shown

RUN_LOG_VERSION = 1
VERSION_KEY = "schema_version"
# What names the set of queries: a log of two of them is a run on neither.
ONE_OF_A_KIND = ("dataset_version", "as_of_range")
_LARGEST = 2**63


@dataclass(frozen=True, slots=True)
class Schema:
    """A JSON Schema that ships with karat: ``version`` is that of what it describes."""

    name: str
    version: int
    about: str
    file: str

    def text(self) -> str:
        """The schema as JSON."""
        return Path(__file__).with_name(self.file).read_text(encoding="utf-8")

    def document(self) -> dict[str, Any]:
        """What there is to know of it besides the schema itself."""
        return {"name": self.name, "version": self.version, "about": self.about}


SCHEMAS = {
    one.name: one
    for one in (
        Schema(
            "run-log",
            RUN_LOG_VERSION,
            "one line of a run log: a call, its hits, its times, and what was run",
            "run-log.schema.json",
        ),
    )
}


def schema_named(name: str) -> Schema:
    """The schema of that name."""
    if name not in SCHEMAS:
        raise unknown("schema", name, SCHEMAS)
    return SCHEMAS[name]


def check_version(told: Any, where: str | None, line: int | None) -> None:
    """Refuse a line of a later contract; one that names no version is of the first."""
    if told is None or (_is_number(told) and told == RUN_LOG_VERSION):
        return
    if _is_number(told) and told == told // 1 and told > RUN_LOG_VERSION:
        todo = f"update karat, or write the log as version {RUN_LOG_VERSION}"
    else:
        todo = f"write {RUN_LOG_VERSION}, or leave the key out"
    raise InputError(
        f"{VERSION_KEY} is {shown(told)}; this karat reads version {RUN_LOG_VERSION}: {todo}",
        where=where,
        line=line,
    )


def fact(key: str, told: Any, where: str | None, line: int | None) -> Any:
    """What a line says of its run, checked where karat reads that key; null says nothing."""
    if told is None or key not in _KINDS:
        return told
    fits, expected = _KINDS[key]
    if not fits(told):
        raise InputError(f"{key} is {shown(told)}; {expected} is expected", where=where, line=line)
    # JSON does not tell 50 from 50.0, and some writers turn one into the other.
    return int(told) if fits is _is_whole else told


def check_facts(meta: Mapping[str, Any], where: str) -> None:
    """Refuse what could be written into a log, but not read from it again."""
    for key, told in meta.items():
        fact(key, told, where, None)


def _is_number(told: Any) -> bool:
    return (
        isinstance(told, (int, float))
        and not isinstance(told, bool)
        and abs(told) <= sys.float_info.max
    )


def _is_whole(told: Any) -> bool:
    return _is_number(told) and 0 <= told < _LARGEST and told == int(told)


def _is_share(told: Any) -> bool:
    return _is_number(told) and 0 <= told <= 1


def _is_label(told: Any) -> bool:
    return isinstance(told, str) or _is_number(told)


def _is_range(told: Any) -> bool:
    return (
        isinstance(told, (list, tuple))
        and len(told) == 2
        and all(isinstance(one, str) and is_date(one) for one in told)
        and told[0] <= told[1]
    )


_WHOLE = (_is_whole, "a whole number from 0")
_LABEL = (_is_label, "text or a number")
_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "system": _LABEL,
    "k": _WHOLE,
    "k_raw": _WHOLE,
    "max_failures": (_is_share, "a number from 0 to 1"),
    "chunker": (lambda told: isinstance(told, (str, dict)), "an object of its settings, or a name"),
    "index_version": (
        lambda told: isinstance(told, dict) or _is_label(told),
        "text, a number or an object of them",
    ),
    "dataset_version": _LABEL,
    "code_version": _LABEL,
    "as_of_range": (
        _is_range,
        "the first and the last date of the queries (YYYY-MM-DD), in that order,",
    ),
}
