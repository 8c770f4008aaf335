"""Records that each hold a query and its gold: eval sets and datasets in JSONL, and shared code.

An eval set has one ``{"query": …, "relevant_chunk_ids": […]}`` per line. ``question`` is accepted
for ``query``; ``relevant_doc_ids`` and the names of a single item (``chunk_id``, ``doc_id`` …) for
``relevant_chunk_ids``. A query without an ``id`` gets a hash of its text; one with an ``id`` may
lack its text. ``grades`` and ``negatives`` hold what a list of ids cannot express.

A dataset has ``query_id``, ``question``, ``gold_evidence`` of grade 2 unless an entry is
``{"chunk_id": …, "grade": …}``, ``negatives``, and ``group_id``, which is the query's ``group``.

Every other format of such records defines ``read_judged_queries`` and ``write_eval_set`` too; the
functions here turn these into tables of queries and gold, and back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from karat.data.columns import (
    GOLD_NAMES,
    ITEM_NAMES,
    QUERY_NAMES,
    TEXT_NAMES,
    Duplicates,
    join_spans,
    mapping_hint,
)
from karat.data.tables import Gold, Queries
from karat.errors import InputError, NoGoldError
from karat.formats.files import Input, write_lines
from karat.formats.json_records import (
    JsonRecord,
    frame_of,
    from_text,
    gold_of_rows,
    json_rows,
    preview,
    read_records,
    text_id,
    to_line,
)
from karat.formats.registry import Head, Kind

_ID = ("query_id", "id", "_id", "qid")
_TEXT = ("query", "question", "text", "content")
# Lists of items, or one relevant item by its own name; the record's own id is the query's.
_GOLD = (*GOLD_NAMES, *(name for name in ITEM_NAMES if name not in QUERY_NAMES))
_EVIDENCE = "gold_evidence"
# The grade of an item that is listed without one.
_GRADES = {"evalset": 1.0, "dataset": 2.0}


@dataclass(frozen=True)
class JudgedItem:
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
    gold: Sequence[JudgedItem]
    attributes: dict[str, Any] = field(default_factory=dict)
    has_gold_key: bool = True
    """Whether the record has a key for gold, even an empty one."""


def sniff(head: Head, kind: Kind, *, style: str = "evalset") -> bool:
    """Return True for a record of a query and its gold; of gold, a text is enough.

    Queries where gold is expected are read as an eval set, whose reader names what looks like gold.
    """
    keys, lists = head.keys, head.keys & set(GOLD_NAMES)
    if style == "dataset":
        return _EVIDENCE in keys or (keys >= {"question", "query_id"} and not lists)
    if lists or (kind == "gold" and keys & set(TEXT_NAMES)):
        return True
    return bool(keys & {"query", "question"}) and not keys & set(QUERY_NAMES)


def read_judged_queries(
    file: Input, *, texts: bool, style: str = "evalset"
) -> Iterator[JudgedQuery]:
    """Yield the queries with their relevant items and hard negatives."""
    for record in read_records(file):
        yield (_dataset_query if style == "dataset" else _evalset_query)(record, texts)


def _evalset_query(record: JsonRecord, texts: bool) -> JudgedQuery:
    remaining = dict(record.value)
    name, text = take_first(remaining, _ID), take_first(remaining, _TEXT)
    if not isinstance(text, str) and (name is None or (texts and text is not None)):
        raise record.error('no query; expected "query" with its text')
    query_id = text_id(str(text)) if name is None else record.as_id(name, "id")
    # A key "gold" may also hold the text of an answer, which is no id.
    keys = [*_GOLD, *(["gold"] if isinstance(remaining.get("gold"), (list, dict)) else [])]
    has_gold_key = any(key in remaining for key in keys)
    relevant = parse_relevant(take_first(remaining, keys), _GOLD[0], _GRADES["evalset"], record)
    gold = [*take_grades(remaining, relevant, record), *take_negatives(remaining, record)]
    text = text if isinstance(text, str) else ""
    return JudgedQuery(record.line, query_id, text, gold, remaining, has_gold_key)


def _dataset_query(record: JsonRecord, texts: bool) -> JudgedQuery:
    remaining = dict(record.value)
    query_id = record.as_id(remaining.pop("query_id", None), "query_id")
    text = take_first(remaining, ("question", *_TEXT))
    if texts and text is not None and not isinstance(text, str):
        raise record.error('no question; expected "question" with its text')
    has_gold_key = _EVIDENCE in remaining
    gold = parse_relevant(remaining.pop(_EVIDENCE, None), _EVIDENCE, _GRADES["dataset"], record)
    gold += take_negatives(remaining, record)
    if "group_id" in remaining:
        remaining["group"] = remaining.pop("group_id")
    text = text if isinstance(text, str) else ""
    return JudgedQuery(record.line, query_id, text, gold, remaining, has_gold_key)


def write_eval_set(
    queries: Queries | None, gold: Gold | None, path: str | Path, *, style: str = "evalset"
) -> None:
    """Write queries, gold or both to one file."""
    judged = queries_to_write(queries, gold)
    write_lines((to_line(_record(query, gold is not None, style)) for query in judged), path)


def _record(query: JudgedQuery, with_gold: bool, style: str) -> dict[str, Any]:
    dataset, grade = style == "dataset", _GRADES[style]
    record: dict[str, Any] = {"query_id" if dataset else "id": query.query_id}
    if query.text or not with_gold:
        record["question" if dataset else "query"] = query.text
    if with_gold and dataset:
        record[_EVIDENCE] = [
            item.item_id if item.grade == grade else {"chunk_id": item.item_id, "grade": item.grade}
            for item in query.gold
            if not item.negative
        ]
        record["negatives"] = negative_ids(query.gold) or None
    elif with_gold:
        record |= gold_keys(query.gold, "relevant_chunk_ids", grade)
    renamed = {"group": "group_id"} if dataset else {}
    return record | {renamed.get(key, key): value for key, value in query.attributes.items()}


# What every format of records of queries with their gold shares.


def read_gold_of(
    read: Callable[..., Iterable[JudgedQuery]], file: Input, *, duplicates: Duplicates = "agree"
) -> Gold:
    """Read the gold of an eval set."""
    return gold_of(read(file, texts=False), file, duplicates)


def read_queries_of(read: Callable[..., Iterable[JudgedQuery]], file: Input) -> Queries:
    """Read the queries of an eval set, with all other keys of their records as attributes."""
    reserved = {"query_id", "text"}
    rows = [
        {
            "query_id": query.query_id,
            "text": query.text,
            **{f"attribute.{k}" if k in reserved else k: v for k, v in query.attributes.items()},
        }
        for query in _with_unique_ids(read(file, texts=True), file)
    ]
    frame = frame_of(rows, ("query_id", "text"), where=file.name)
    return Queries.from_frame(frame, source=file.source)


def write_gold_of(write: Callable[..., None], gold: Gold, path: str | Path) -> None:
    """Write gold without the texts of its queries."""
    write(None, gold, path)


def write_queries_of(write: Callable[..., None], queries: Queries, path: str | Path) -> None:
    """Write queries without gold."""
    write(queries, None, path)


def gold_of(queries: Iterable[JudgedQuery], file: Input, duplicates: Duplicates) -> Gold:
    """Return the gold of an eval set; queries without any gold are still its queries."""
    queries = _with_unique_ids(queries, file)
    answerable = [
        query
        for query in queries
        if str(query.attributes.get("no_answer")).strip().casefold() not in ("true", "yes", "1")
    ]
    if answerable and not any(query.has_gold_key or query.gold for query in answerable):
        raise no_gold_error([query.attributes for query in answerable], file.name)
    rows = [
        (query.query_id, item.item_id, item.grade, item.negative, query.line)
        for query in queries
        for item in query.gold
    ]
    ids = [query.query_id for query in queries]
    return gold_of_rows(rows, file, duplicates=duplicates, query_ids=ids)


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
    value: Any, what: str, default_grade: float, record: JsonRecord
) -> list[JudgedItem]:
    """Parse relevant items: a list of ids or objects, one of them alone, or grades by id."""
    single = isinstance(value, (str, int)) or (
        isinstance(value, dict) and _id_in(value) is not None
    )
    if isinstance(value, dict) and not single:
        value = [{"item_id": item_id, "grade": grade} for item_id, grade in value.items()]
    items = []
    for entry in [value] if single else record.as_list(value, what):
        if not isinstance(entry, dict):
            item_id = record.as_id(entry, f"an entry of {what}")
            items.append(JudgedItem(item_id, default_grade))
            continue
        item_id = record.as_id(_id_in(entry), f"chunk_id in {what}")
        if "start" in entry and "end" in entry:
            item_id = f"{item_id}:{entry['start']}-{entry['end']}"
        grade = record.as_number(entry.get("grade", default_grade), f"the grade of {item_id!r}")
        items.append(JudgedItem(item_id, grade))
    return items


def _id_in(entry: Mapping[str, Any]) -> Any:
    return next((entry[name] for name in ITEM_NAMES if entry.get(name) is not None), None)


def take_grades(
    remaining: dict[str, Any], relevant: Sequence[JudgedItem], record: JsonRecord
) -> list[JudgedItem]:
    """Return relevant items with the grades under the key ``grades``, which is removed."""
    grades = {
        item: record.as_number(grade, f"the grade of {item!r}")
        for item, grade in record.as_object(remaining.pop("grades", {}), "grades").items()
    }
    listed = {item.item_id for item in relevant}
    return [
        *(replace(item, grade=grades.get(item.item_id, item.grade)) for item in relevant),
        *(JudgedItem(item, grade) for item, grade in grades.items() if item not in listed),
    ]


def take_negatives(remaining: dict[str, Any], record: JsonRecord) -> list[JudgedItem]:
    """Return the hard negatives under the key ``negatives``, which is removed."""
    items = record.as_list(remaining.pop("negatives", None), "negatives")
    return [JudgedItem(record.as_id(item, "a negative"), 0.0, True) for item in items]


def gold_keys(gold: Sequence[JudgedItem], key: str, default_grade: float) -> dict[str, Any]:
    """Return gold as a list of ids under ``key``, and what a list cannot express."""
    grades = {
        item.item_id: item.grade
        for item in gold
        if item.grade != default_grade and not item.negative
    }
    relevant = [item.item_id for item in gold if item.grade > 0]
    return {key: relevant, "grades": grades or None, "negatives": negative_ids(gold) or None}


def negative_ids(gold: Sequence[JudgedItem]) -> list[str]:
    """Return the hard negatives."""
    return [item.item_id for item in gold if item.negative]


def queries_to_write(queries: Queries | None, gold: Gold | None) -> list[JudgedQuery]:
    """Return the records to write, from a table of queries, one of gold, or both."""
    rows = {} if queries is None else {row["query_id"]: row for row in json_rows(queries.frame)}
    items: dict[str, list[JudgedItem]] = {}
    if gold is not None:
        items = {query_id: [] for query_id in gold.query_ids}
        for row in join_spans(gold.frame).iter_rows(named=True):
            item = JudgedItem(row["item_id"], row["grade"], row.get("negative") is True)
            items[row["query_id"]].append(item)
    judged = []
    for query_id in dict.fromkeys([*rows, *items]):
        row = dict(rows.get(query_id, {}), query_id=query_id)
        text = row.pop("text", "")
        attributes = {k.removeprefix("attribute."): v for k, v in row.items() if k != "query_id"}
        judged.append(JudgedQuery(None, query_id, text, items.get(query_id, []), attributes))
    return judged


# Column names that suggest gold.
_GOLD_LIKE = re.compile(
    r"gold|relevan|expect|answer|truth|target|positive|evidence|correct|reference|judg|qrel"
    r"|(chunk|doc|document|passage|context|item|memory|scene)s?([_-]?(id|no)s?)?$",
    re.IGNORECASE,
)
# An id, not the text of an answer.
_ID_LIKE = re.compile(r"\S{1,200}")
_MOST_SHOWN = 20


def no_gold_error(rows: Sequence[Mapping[str, Any]], where: str) -> NoGoldError:
    """Return the error for queries without gold; it names the columns that look like gold."""
    names = dict.fromkeys(name for row in rows for name in row)
    examples = {
        name: next((row[name] for row in rows if row.get(name) not in (None, "", [])), None)
        for name in names
    }
    candidates = gold_like(examples)
    if candidates:
        shown = ", ".join(f"{name!r} (such as {preview(examples[name])})" for name in candidates)
        hint = f"{shown} may be it: {mapping_hint('gold', candidates[0], what='it')}"
    else:
        hint = f"its other columns are {', '.join(list(names)[:_MOST_SHOWN]) or 'none'}: "
        hint += f"{mapping_hint('gold', what='one')}, or name the judgments: --gold FILE, or gold "
        hint += "in karat.yaml"
    known = ", ".join((*GOLD_NAMES, _EVIDENCE))
    problem = f"holds queries without gold under any known name ({known})"
    return NoGoldError(f"{problem}; {hint}", where=where)


def gold_like(examples: Mapping[str, Any]) -> list[str]:
    """Return the columns whose name and first value look like gold; lists come first."""
    lists, single = [], []
    for name, value in examples.items():
        if not _GOLD_LIKE.search(name):
            continue
        if isinstance(from_text(value), (list, dict)):
            lists.append(name)
        elif type(value) in (str, int) and _ID_LIKE.fullmatch(str(value)):
            single.append(name)
    return lists + single
