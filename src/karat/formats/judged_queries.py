"""Records that each hold a query and its gold: what eval-set formats share.

The formats ``evalset``, ``dataset``, ``memory`` and ``story`` define ``read_judged_queries`` and
``write_eval_set``; the functions here turn these into tables of queries and gold, and back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from karat.data.columns import (
    GOLD_NAMES,
    ITEM_NAMES,
    Duplicates,
    join_spans,
    mapping_hint,
    split_spans,
)
from karat.data.tables import Gold, Queries
from karat.errors import InputError, NoGoldError
from karat.formats.files import Input
from karat.formats.json_records import (
    as_id,
    as_list,
    as_number,
    as_object,
    frame_of,
    from_text,
    json_rows,
    preview,
)

# Column names that suggest gold.
_GOLD_LIKE = re.compile(
    r"gold|relevan|expect|answer|truth|target|positive|evidence|correct|reference|judg|qrel"
    r"|(chunk|doc|document|passage|context|item|memory|scene)s?([_-]?(id|no)s?)?$",
    re.IGNORECASE,
)
_LONGEST_ID = 200
_MOST_NAMED, _MOST_SHOWN = 3, 20
# This many values are enough to see what a column holds.
_SAMPLE = 100


@dataclass(frozen=True)
class Judgment:
    """The grade of one item for a query; ``negative`` marks a hard negative."""

    item_id: str
    grade: float
    negative: bool = False


@dataclass(frozen=True)
class JudgedQuery:
    """One query with its gold and all other keys of its record."""

    line: int | None
    query_id: str
    text: str
    gold: Sequence[Judgment]
    attributes: dict[str, Any] = field(default_factory=dict)
    has_gold_key: bool = True
    """Whether the record has a key for gold, even an empty one."""


class EvalSetFormat(Protocol):
    """The module of a format that holds queries and their gold in one file."""

    def read_judged_queries(self, file: Input, *, texts: bool) -> Iterable[JudgedQuery]:
        """Yield the queries of a file; with ``texts``, their texts are checked."""

    def write_eval_set(self, queries: Queries | None, gold: Gold | None, path: str | Path) -> None:
        """Write queries, gold or both to one file."""


def read_gold(form: EvalSetFormat, file: Input, *, duplicates: Duplicates = "agree") -> Gold:
    """Read the gold of an eval set."""
    return gold_of(form.read_judged_queries(file, texts=False), file, duplicates)


def read_queries(form: EvalSetFormat, file: Input) -> Queries:
    """Read the queries of an eval set, with all other keys of their records as attributes."""
    taken = {"query_id", "text"}
    rows = [
        {
            "query_id": query.query_id,
            "text": query.text,
            **{f"attribute.{k}" if k in taken else k: v for k, v in query.attributes.items()},
        }
        for query in _with_unique_ids(form.read_judged_queries(file, texts=True), file)
    ]
    frame = frame_of(rows, ("query_id", "text"), where=file.name)
    return Queries.from_frame(frame, source=file.source)


def write_gold(form: EvalSetFormat, gold: Gold, path: str | Path) -> None:
    """Write gold without the texts of its queries."""
    form.write_eval_set(None, gold, path)


def write_queries(form: EvalSetFormat, queries: Queries, path: str | Path) -> None:
    """Write queries without gold."""
    form.write_eval_set(queries, None, path)


def gold_of(queries: Iterable[JudgedQuery], file: Input, duplicates: Duplicates) -> Gold:
    """Return the gold of an eval set; queries without any gold are still its queries."""
    queries = _with_unique_ids(queries, file)
    answerable = [query for query in queries if not _is_true(query.attributes.get("no_answer"))]
    if answerable and not any(query.has_gold_key or query.gold for query in answerable):
        raise no_gold_error(_sample_columns(query.attributes for query in answerable), file.name)
    rows = [(query, judgment) for query in queries for judgment in query.gold]
    table = pl.DataFrame(
        {
            "query_id": [query.query_id for query, _ in rows],
            "item_id": [judgment.item_id for _, judgment in rows],
            "grade": [judgment.grade for _, judgment in rows],
        },
        schema={"query_id": pl.String, "item_id": pl.String, "grade": pl.Float64},
    )
    if any(judgment.negative for _, judgment in rows):
        table = table.with_columns(negative=pl.Series([judgment.negative for _, judgment in rows]))
    known = [query.line for query, _ in rows if query.line is not None]
    lines = pl.Series("line", known, dtype=pl.Int64) if len(known) == len(rows) else None
    return Gold.from_frame(
        split_spans(table),
        query_ids=[query.query_id for query in queries],
        duplicates=duplicates,
        lines=lines,
        source=file.source,
    )


def _is_true(value: Any) -> bool:
    return value is True or str(value).strip().casefold() in ("true", "yes", "1")


def _with_unique_ids(queries: Iterable[JudgedQuery], file: Input) -> list[JudgedQuery]:
    seen: dict[str, JudgedQuery] = {}
    for query in queries:
        if query.query_id in seen:
            first = seen[query.query_id].line
            place = "" if first is None else f" as in line {first}"
            raise InputError(
                f"query id {query.query_id!r} (text {query.text[:40]!r}) occurs again{place}; "
                "give every query an id of its own",
                where=file.name,
                line=query.line,
            )
        seen[query.query_id] = query
    if not seen:
        raise InputError("holds no queries; at least one is expected", where=file.name)
    return list(seen.values())


def take_first(record: dict[str, Any], names: Iterable[str]) -> Any:
    """Remove and return the first of these keys that has a value."""
    name = next((name for name in names if record.get(name) is not None), None)
    return None if name is None else record.pop(name)


def parse_relevant(
    value: Any, what: str, default_grade: float, where: str, line: int | None
) -> list[Judgment]:
    """Parse relevant items: a list of ids or objects, one of them alone, or grades by id."""
    single = isinstance(value, (str, int)) or (
        isinstance(value, dict) and _id_in(value) is not None
    )
    if isinstance(value, dict) and not single:
        value = [{"item_id": item_id, "grade": grade} for item_id, grade in value.items()]
    entries = [value] if single else as_list(value, what, where, line)
    judgments = []
    for entry in entries:
        if not isinstance(entry, dict):
            item = as_id(entry, f"an entry of {what}", where, line)
            judgments.append(Judgment(item, default_grade))
            continue
        item = as_id(_id_in(entry), f"chunk_id in {what}", where, line)
        if "start" in entry and "end" in entry:
            item = f"{item}:{entry['start']}-{entry['end']}"
        grade = entry.get("grade", default_grade)
        judgments.append(Judgment(item, as_number(grade, f"the grade of {item!r}", where, line)))
    return judgments


def _id_in(entry: dict[str, Any]) -> Any:
    return next((entry[name] for name in ITEM_NAMES if entry.get(name) is not None), None)


def take_grades(
    record: dict[str, Any], relevant: Sequence[Judgment], where: str, line: int | None
) -> list[Judgment]:
    """Return relevant items with the grades under the record's key ``grades``, which is removed.

    This is the inverse of ``relevant_ids`` and ``other_grades``.
    """
    grades = {
        item: as_number(grade, f"the grade of {item!r}", where, line)
        for item, grade in as_object(record.pop("grades", {}), "grades", where, line).items()
    }
    listed = {judgment.item_id for judgment in relevant}
    return [
        *(replace(item, grade=grades.get(item.item_id, item.grade)) for item in relevant),
        *(Judgment(item, grade) for item, grade in grades.items() if item not in listed),
    ]


def take_negatives(record: dict[str, Any], where: str, line: int | None) -> list[Judgment]:
    """Return the hard negatives under the record's key ``negatives``, which is removed."""
    items = as_list(record.pop("negatives", None), "negatives", where, line)
    return [Judgment(as_id(item, "a negative", where, line), 0.0, True) for item in items]


def relevant_ids(gold: Sequence[Judgment]) -> list[str]:
    """Return the items with a grade above 0."""
    return [judgment.item_id for judgment in gold if judgment.grade > 0]


def other_grades(gold: Sequence[Judgment], default_grade: float) -> dict[str, float]:
    """Return the grades by item that a list of relevant ids does not express."""
    return {
        judgment.item_id: judgment.grade
        for judgment in gold
        if judgment.grade != default_grade and not judgment.negative
    }


def negative_ids(gold: Sequence[Judgment]) -> list[str]:
    """Return the hard negatives."""
    return [judgment.item_id for judgment in gold if judgment.negative]


def queries_to_write(queries: Queries | None, gold: Gold | None) -> list[JudgedQuery]:
    """Return the records to write, from a table of queries, one of gold, or both."""
    rows = {} if queries is None else {row["query_id"]: row for row in json_rows(queries.frame)}
    judgments: dict[str, list[Judgment]] = {}
    if gold is not None:
        judgments = {query_id: [] for query_id in gold.query_ids}
        table = join_spans(gold.frame)
        if "negative" not in table.columns:
            table = table.with_columns(negative=pl.lit(value=False))
        columns = table.select(
            "query_id", "item_id", "grade", pl.col("negative").fill_null(value=False)
        )
        for query_id, item_id, grade, negative in columns.iter_rows():
            judgments[query_id].append(Judgment(item_id, grade, negative))
    return [
        JudgedQuery(
            line=None,
            query_id=query_id,
            text=rows.get(query_id, {}).get("text", ""),
            gold=judgments.get(query_id, []),
            attributes={
                key.removeprefix("attribute."): value
                for key, value in rows.get(query_id, {}).items()
                if key not in ("query_id", "text")
            },
        )
        for query_id in dict.fromkeys([*rows, *judgments])
    ]


def no_gold_error(columns: Mapping[str, Sequence[Any]], where: str) -> NoGoldError:
    """Return the error for queries without gold; it names the columns that look like gold."""
    known = ", ".join((*GOLD_NAMES, "gold_evidence"))
    problem = f"holds queries without gold under any known name ({known})"
    candidates = gold_like(columns)
    if not candidates:
        names = ", ".join(list(columns)[:_MOST_SHOWN])
        others = f"its other columns are {names}" if names else "it has no other column"
        hint = mapping_hint("gold", what="one")
        hint += ", or name the judgments: --gold FILE, or gold in karat.yaml"
        return NoGoldError(f"{problem}; {others}: {hint}", where=where)
    examples = ", ".join(f"{name!r} (such as {preview(candidates[name])})" for name in candidates)
    verb = "looks" if len(candidates) == 1 else "look"
    hint = mapping_hint("gold", next(iter(candidates)), what="it")
    return NoGoldError(f"{problem}; {examples} {verb} like it: {hint}", where=where)


def gold_like(columns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the columns that look like gold, each with an example; by name before by content."""
    samples = {
        name: [from_text(value) for value in values[:_SAMPLE] if value not in (None, "", [])]
        for name, values in columns.items()
    }
    lists = {
        name: values[0]
        for name, values in samples.items()
        if values and all(map(_is_list_of_items, values))
    }
    single = {
        name: values[0] for name, values in samples.items() if values and all(map(_is_id, values))
    }
    named = [name for name in (*lists, *single) if _GOLD_LIKE.search(name)]
    chosen = named or list(lists)
    return {name: (lists | single)[name] for name in chosen[:_MOST_NAMED]}


def _is_id(value: Any) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= _LONGEST_ID and not any(map(str.isspace, value))
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list_of_items(value: Any) -> bool:
    """Return True for a list of ids or of objects with one, or an object of grades by id."""
    if isinstance(value, dict):
        grades = value.values()
        numbers = all(isinstance(g, (int, float)) and not isinstance(g, bool) for g in grades)
        return _is_item(value) or (bool(value) and numbers)
    return isinstance(value, list) and bool(value) and all(map(_is_item, value))


def _is_item(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_is_id(value.get(name)) for name in ITEM_NAMES)
    return _is_id(value)


def _sample_columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            values = columns.setdefault(name, [])
            if len(values) < _SAMPLE and value is not None:
                values.append(value)
    return columns
