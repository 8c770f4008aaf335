"""Eval sets: records that each hold a query and its gold.

What the formats ``evalset``, ``dataset``, ``memory`` and ``story`` have in common once
their keys are told apart; knows no keys itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from karat.columns import ITEM_NAMES, Duplicates
from karat.errors import InputError
from karat.formats.files import Input
from karat.formats.missing_gold import columns_of, no_gold
from karat.formats.records import (
    as_id,
    as_list,
    as_number,
    flat_rows,
    frame_of,
)
from karat.formats.spans import join_spans, split_spans
from karat.tables import Gold, Queries


@dataclass(frozen=True)
class Judged:
    """One item's grade for a query; ``negative`` marks a hard distractor."""

    item_id: str
    grade: float
    negative: bool = False


@dataclass(frozen=True)
class Case:
    """One query with its gold and whatever else its record says."""

    line: int | None
    query_id: str
    text: str
    gold: Sequence[Judged]
    attributes: dict[str, Any] = field(default_factory=dict)
    # Whether the record has a key for gold, be it empty.
    told: bool = True


def queries_of(cases: Iterable[Case], file: Input) -> Queries:
    """The queries of an eval set."""
    rows = [
        {"query_id": case.query_id, "text": case.text, **_renamed(case.attributes)}
        for case in checked(cases, file)
    ]
    frame = frame_of(rows, ("query_id", "text"), where=file.name)
    return Queries.from_frame(frame, source=file.source)


def gold_of(cases: Iterable[Case], file: Input, duplicates: Duplicates) -> Gold:
    """The gold of an eval set; queries without any are still its queries."""
    cases = checked(cases, file)
    _refuse_no_gold(cases, file)
    rows = [(case, judged) for case in cases for judged in case.gold]
    table = pl.DataFrame(
        {
            "query_id": [case.query_id for case, _ in rows],
            "item_id": [judged.item_id for _, judged in rows],
            "grade": [judged.grade for _, judged in rows],
        },
        schema={"query_id": pl.String, "item_id": pl.String, "grade": pl.Float64},
    )
    if any(judged.negative for _, judged in rows):
        table = table.with_columns(negative=pl.Series([judged.negative for _, judged in rows]))
    known = [case.line for case, _ in rows if case.line is not None]
    lines = pl.Series("line", known, dtype=pl.Int64) if len(known) == len(rows) else None
    return Gold.from_frame(
        split_spans(table),
        query_ids=[case.query_id for case in cases],
        duplicates=duplicates,
        lines=lines,
        source=file.source,
    )


def _refuse_no_gold(cases: Sequence[Case], file: Input) -> None:
    """Refuse queries of which not one has gold; those marked as having no answer need none."""
    asked = [case for case in cases if not _is_marked(case.attributes.get("no_answer"))]
    if asked and not any(case.told or case.gold for case in asked):
        raise no_gold(columns_of(case.attributes for case in asked), file.name)


def _is_marked(told: Any) -> bool:
    return told is True or str(told).strip().casefold() in ("true", "yes", "1")


def checked(cases: Iterable[Case], file: Input) -> list[Case]:
    """The cases, each with an id of its own."""
    seen: dict[str, Case] = {}
    for case in cases:
        if case.query_id in seen:
            before = seen[case.query_id].line
            place = "" if before is None else f" as in line {before}"
            raise InputError(
                f"query id {case.query_id!r} (text {case.text[:40]!r}) occurs again{place}; "
                "give every query an id of its own",
                where=file.name,
                line=case.line,
            )
        seen[case.query_id] = case
    if not seen:
        raise InputError("holds no queries; at least one is expected", where=file.name)
    return list(seen.values())


def _renamed(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes under names that do not clash with a query's own columns."""
    taken = {"query_id", "text"}
    return {f"attribute.{k}" if k in taken else k: v for k, v in attributes.items()}


def relevant(told: Any, what: str, usual: float, where: str, line: int | None) -> list[Judged]:
    """Relevant items as a list of ids or objects, as one of them, or as grades by id."""
    single = isinstance(told, (str, int)) or (isinstance(told, dict) and _id_in(told) is not None)
    if isinstance(told, dict) and not single:
        told = [{"item_id": name, "grade": grade} for name, grade in told.items()]
    entries = [told] if single else as_list(told, what, where, line)
    return [_relevant(entry, what, usual, where, line) for entry in entries]


def _relevant(entry: Any, what: str, usual: float, where: str, line: int | None) -> Judged:
    if not isinstance(entry, dict):
        return Judged(as_id(entry, f"an entry of {what}", where, line), usual)
    item = as_id(_id_in(entry), f"chunk_id in {what}", where, line)
    if "start" in entry and "end" in entry:
        item = f"{item}:{entry['start']}-{entry['end']}"
    grade = entry.get("grade", usual)
    return Judged(item, as_number(grade, f"the grade of {item!r}", where, line))


def _id_in(entry: dict[str, Any]) -> Any:
    return next((entry[name] for name in ITEM_NAMES if entry.get(name) is not None), None)


def cases_from(queries: Queries | None, gold: Gold | None) -> list[Case]:
    """Cases to write, from a table of queries, one of gold, or both."""
    rows = {} if queries is None else {row["query_id"]: row for row in flat_rows(queries.frame)}
    judged: dict[str, list[Judged]] = {}
    if gold is not None:
        judged = {name: [] for name in gold.query_ids}
        table = join_spans(gold.frame)
        if "negative" not in table.columns:
            table = table.with_columns(negative=pl.lit(value=False))
        columns = table.select(
            "query_id", "item_id", "grade", pl.col("negative").fill_null(value=False)
        )
        for query_id, item_id, grade, negative in columns.iter_rows():
            judged[query_id].append(Judged(item_id, grade, negative))
    return [
        Case(
            line=None,
            query_id=name,
            text=rows.get(name, {}).get("text", ""),
            gold=judged.get(name, []),
            attributes={
                key.removeprefix("attribute."): value
                for key, value in rows.get(name, {}).items()
                if key not in ("query_id", "text")
            },
        )
        for name in dict.fromkeys([*rows, *judged])
    ]


def grades_beyond(gold: Sequence[Judged], usual: float) -> dict[str, float]:
    """The grades that a list of relevant ids cannot tell, for a key of their own."""
    return {
        judged.item_id: judged.grade
        for judged in gold
        if judged.grade != usual and not judged.negative
    }


def relevant_ids(gold: Sequence[Judged]) -> list[str]:
    """The items that count as relevant."""
    return [judged.item_id for judged in gold if judged.grade > 0]


def graded(listed: Sequence[Judged], grades: dict[str, float]) -> list[Judged]:
    """The reverse of the two above: relevant items with the grades of their own key."""
    names = {judged.item_id for judged in listed}
    known = [replace(one, grade=grades.get(one.item_id, one.grade)) for one in listed]
    return known + [Judged(name, grade) for name, grade in grades.items() if name not in names]
