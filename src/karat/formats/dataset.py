"""Datasets in JSONL: query_id, question, gold_evidence, negatives, as_of and attributes.

Gold evidence has grade 2 unless an entry is ``{"chunk_id": …, "grade": …}``; entries may be
spans ``doc_id:start-end``. ``group_id`` is the query's ``group``. Gold that was written without
its queries has no ``question``; its text is empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from karat.data.tables import Gold, Queries
from karat.errors import InputError
from karat.formats.files import Input, write_lines
from karat.formats.json_records import Record, as_id, read_records, to_line
from karat.formats.judged_queries import (
    JudgedQuery,
    negative_ids,
    parse_relevant,
    queries_to_write,
    take_negatives,
)

_DEFAULT_GRADE = 2.0
# The first of these keys is the text; the others stay attributes.
_TEXT = ("question", "query", "text", "content")


def read_judged_queries(file: Input, *, texts: bool) -> Iterator[JudgedQuery]:
    """Yield the questions with their evidence and hard negatives."""
    for record in read_records(file):
        yield _judged_query(record, file.name, texts)


def _judged_query(record: Record, where: str, texts: bool) -> JudgedQuery:
    line, rest = record.line, dict(record.value)
    query_id = as_id(rest.pop("query_id", None), "query_id", where, line)
    text_key = next((name for name in _TEXT if rest.get(name) is not None), "question")
    text = rest.pop(text_key, None)
    if texts and text is not None and not isinstance(text, str):
        raise InputError('no question; expected "question" with its text', where=where, line=line)
    has_gold_key = "gold_evidence" in rest
    evidence = rest.pop("gold_evidence", None)
    gold = parse_relevant(evidence, "gold_evidence", _DEFAULT_GRADE, where, line)
    negatives = take_negatives(rest, where, line)
    both = {judgment.item_id for judgment in negatives}.intersection(j.item_id for j in gold)
    if both:
        item = next(judgment.item_id for judgment in gold if judgment.item_id in both)
        raise InputError(
            f"{item!r} is gold and a negative of query {query_id!r}; it can be one of the two",
            where=where,
            line=line,
        )
    if "group_id" in rest:
        rest["group"] = rest.pop("group_id")
    text = text if isinstance(text, str) else ""
    return JudgedQuery(line, query_id, text, [*gold, *negatives], rest, has_gold_key)


def write_eval_set(queries: Queries | None, gold: Gold | None, path: str | Path) -> None:
    """Write questions, evidence or both to one file."""
    records = (_record(query, gold is not None) for query in queries_to_write(queries, gold))
    write_lines(map(to_line, records), path)


def _record(query: JudgedQuery, with_gold: bool) -> dict[str, Any]:
    record: dict[str, Any] = {"query_id": query.query_id}
    if query.text or not with_gold:
        record["question"] = query.text
    if with_gold:
        record["gold_evidence"] = [
            item.item_id
            if item.grade == _DEFAULT_GRADE
            else {"chunk_id": item.item_id, "grade": item.grade}
            for item in query.gold
            if not item.negative
        ]
        record["negatives"] = negative_ids(query.gold) or None
    attributes = query.attributes.items()
    return record | {"group_id" if key == "group" else key: value for key, value in attributes}
