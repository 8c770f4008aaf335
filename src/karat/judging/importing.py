"""Judgments read from files: label lines with their raters, or gold of any format as one rater's.

A pair that a judge failed on is counted and left out: it is no judgment, and never a 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from karat.errors import InputError, UsageError
from karat.formats import read_gold
from karat.formats.detect import detect_input, refuse_binary
from karat.formats.files import Input, open_input
from karat.formats.labels import ADJUDICATION, Label, read_lines
from karat.formats.records import Record, read_records, shown
from karat.formats.registry import format_named
from karat.formats.spans import join_spans
from karat.judging.labelling import CANNOT_TELL, rater_name
from karat.tables import Gold

# What a judgment is of that does not say where it comes from.
IMPORT = "import"
HIGHEST_GRADE = 100


@dataclass(frozen=True, slots=True)
class Told:
    """One judgment of a file; the grade None is "can't tell", and ``place`` is where it stands."""

    query_id: str
    item_id: str
    rater: str
    grade: float | None
    rationale: str
    source: str
    given_at: datetime | None
    withdrawn_at: datetime | None
    place: str


@dataclass(frozen=True, slots=True)
class Import:
    """What a file says: its judgments, how many pairs failed, and its form."""

    name: str
    form: str
    judgments: list[Told]
    failed: int


def read_judgments(
    path: str | Path,
    *,
    rater: str | None = None,
    source: str | None = None,
    format: str | None = None,
) -> Import:
    """Read a file of judgments.

    ``rater`` is who gave those that name nobody, which gold never does. ``source`` is where all
    of them come from, whatever the file says.
    """
    who = None if rater is None else rater_name(rater)
    if str(path) != "-" and Path(path).is_dir():
        return _of_gold(read_gold(path, format=format), "beir", who, source)
    file = open_input(path)
    if format not in (None, "parquet"):
        refuse_binary(file, file.head())
    form = detect_input(file, "gold") if format is None else format_named(format)
    if form.name == "labels":
        return _of_lines(file, who, source)
    gold = form.reader("gold")(file, duplicates="agree")
    return _of_gold(gold, form.name, who, source)


def _of_gold(gold: Gold, form: str, rater: str | None, source: str | None) -> Import:
    name = gold.source.name
    if rater is None:
        raise UsageError(f"{name} is gold, which names no rater; say whose it is with --rater")
    if not gold.frame.height:
        raise InputError("holds no judgment; at least one is expected", where=name)
    table = join_spans(gold.frame).select("query_id", "item_id", "grade")
    told = []
    for query, item, grade in table.iter_rows():
        if not 0 <= grade <= HIGHEST_GRADE:
            pair = f"query {query!r}, item {item!r}"
            raise InputError(f"{pair}: {_out_of_range(grade)}", where=name)
        told.append(Told(query, item, rater, grade, "", source or IMPORT, None, None, name))
    return Import(name, form, told, 0)


def _of_lines(file: Input, rater: str | None, source: str | None) -> Import:
    told: list[Told] = []
    failed, unnamed = 0, 0
    for label, record in zip(read_lines(file), read_records(file), strict=True):
        if label.error is not None and label.error != CANNOT_TELL:
            failed += 1
            continue
        unnamed += label.rater is None
        told.append(_judgment(label, record, file.name, rater, source))
    if not told:
        each = f": each of its {failed:,} lines failed" if failed else ""
        raise InputError(f"holds no judgment{each}; judge its pairs again", where=file.name)
    if rater is not None and not unnamed:
        raise UsageError(f"{file.name} names the rater of every line; leave --rater out")
    return Import(file.name, "labels", told, failed)


def _judgment(
    label: Label, record: Record, where: str, rater: str | None, source: str | None
) -> Told:
    line, value = record.line, record.value
    who = label.rater if label.rater is not None else rater
    if who is None:
        told = "names no rater; add one to the line, or say whose it is with --rater"
        raise InputError(told, where=where, line=line)
    if label.grade is not None and not 0 <= label.grade <= HIGHEST_GRADE:
        raise InputError(_out_of_range(label.grade), where=where, line=line)
    from_where = _text(value, "source", where, line) or IMPORT
    if source is not None and from_where == ADJUDICATION:
        raise InputError(
            "is an adjudication, which another --source would make a vote; leave --source out",
            where=where,
            line=line,
        )
    given, withdrawn = (_moment(value, key, where, line) for key in ("given_at", "withdrawn_at"))
    if withdrawn is not None and given is None:
        told = "has withdrawn_at and no given_at; say when it was given, or leave the line out"
        raise InputError(told, where=where, line=line)
    try:
        name = rater_name(who)
    except UsageError as error:
        raise InputError(str(error), where=where, line=line) from None
    return Told(
        label.query_id,
        label.item_id,
        name,
        label.grade,
        _text(value, "rationale", where, line),
        source or from_where,
        given,
        withdrawn,
        f"{where}:{line}",
    )


def refuse_contradictions(files: Iterable[Import]) -> None:
    """Refuse two grades of one rater for a pair that no time puts in order, and two decisions."""
    first: dict[tuple[Any, ...], Told] = {}
    for one in (told for file in files for told in file.judgments):
        decides = one.source == ADJUDICATION
        whose = None if decides else one.rater
        key = (one.query_id, one.item_id, whose, one.given_at, one.withdrawn_at)
        before = first.setdefault(key, one)
        if before.grade != one.grade:
            grades = " and ".join(map(_grade, (before.grade, one.grade)))
            told = "decided" if decides else "judged"
            raters = f"the same rater {one.rater!r}"
            if before.rater != one.rater:
                raters = f"{before.rater!r} and {one.rater!r} at one time"
            raise InputError(
                f"query {one.query_id!r}, item {one.item_id!r} is {told} {grades} by {raters}"
                f" in {before.place} and {one.place}; keep one of the two"
            )


def refuse_future(files: Iterable[Import], too_late: Callable[[datetime], bool]) -> None:
    """Refuse what says that it was said in the future: it would count above all until then."""
    for one in (told for file in files for told in file.judgments):
        for name, moment in (("given_at", one.given_at), ("withdrawn_at", one.withdrawn_at)):
            if moment is not None and too_late(moment):
                told = f"{name} is {moment.isoformat()}, which is still to come; correct the time"
                raise InputError(told, where=one.place)


def _text(value: dict[str, Any], name: str, where: str, line: int) -> str:
    told = value.get(name)
    if told is None or isinstance(told, str):
        return told or ""
    raise InputError(f"{name} is {shown(told)}; a text is expected", where=where, line=line)


def _moment(value: dict[str, Any], name: str, where: str, line: int) -> datetime | None:
    told = value.get(name)
    if told is None:
        return None
    try:
        given = datetime.fromisoformat(told)
        # The first and the last hours of the calendar are none in UTC.
        moment = None if given.tzinfo is None else given.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        moment = None
    if moment is None:
        raise InputError(
            f"{name} is {shown(told)}; a time with its zone is expected, as 2026-01-31T09:30:00Z",
            where=where,
            line=line,
        )
    return moment


def _out_of_range(grade: float) -> str:
    return f"grade is {grade:g}; a grade is from 0 to {HIGHEST_GRADE}"


def _grade(grade: float | None) -> str:
    return CANNOT_TELL if grade is None else f"{grade:g}"


def pairs_of(files: Iterable[Import]) -> Iterator[tuple[str, str]]:
    """Every pair that files judge, in their order."""
    return ((one.query_id, one.item_id) for file in files for one in file.judgments)
