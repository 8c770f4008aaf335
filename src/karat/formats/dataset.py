"""Datasets in JSONL: query_id, question, gold_evidence, negatives, as_of and attributes.

Gold evidence is of grade 2 unless an entry is ``{"chunk_id": …, "grade": …}``; entries may
be spans ``doc_id:start-end``. ``group_id`` is the query's ``group``. Gold that was written
without its queries has no ``question``; its text is empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from karat.columns import Duplicates
from karat.errors import InputError
from karat.formats.files import Input, write_lines
from karat.formats.records import Record, as_id, as_list, read_records, to_line
from karat.formats.sets import Case, Judged, cases_from, gold_of, queries_of, relevant
from karat.tables import Gold, Queries

_USUAL = 2.0


def read_gold(file: Input, *, duplicates: Duplicates = "agree") -> Gold:
    """The evidence and the hard negatives of each query."""
    return gold_of(_cases(file, texts=False), file, duplicates)


def read_queries(file: Input) -> Queries:
    """The questions with all their other keys as attributes."""
    return queries_of(_cases(file, texts=True), file)


def write_gold(gold: Gold, path: str | Path) -> None:
    """Records of ids, evidence and negatives, without questions."""
    write_eval_set(None, gold, path)


def write_queries(queries: Queries, path: str | Path) -> None:
    """Records of ids, questions and attributes, without evidence."""
    write_eval_set(queries, None, path)


def write_eval_set(queries: Queries | None, gold: Gold | None, path: str | Path) -> None:
    """Questions and their evidence in one file."""
    write_lines(
        (to_line(_record(case, gold is not None)) for case in cases_from(queries, gold)), path
    )


# The first that a record has; the others stay attributes.
_TEXT = ("question", "query", "text", "content")


def _cases(file: Input, *, texts: bool) -> Iterator[Case]:
    for record in read_records(file):
        yield _case(record, file.name, texts)


def _case(record: Record, where: str, texts: bool) -> Case:
    line, rest = record.line, dict(record.value)
    query_id = as_id(rest.pop("query_id", None), "query_id", where, line)
    named = next((name for name in _TEXT if rest.get(name) is not None), "question")
    text = rest.pop(named, None)
    if texts and text is not None and not isinstance(text, str):
        raise InputError('no question; expected "question" with its text', where=where, line=line)
    told = "gold_evidence" in rest
    gold = relevant(rest.pop("gold_evidence", None), "gold_evidence", _USUAL, where, line)
    hard = as_list(rest.pop("negatives", None), "negatives", where, line)
    negatives = [as_id(item, "a negative", where, line) for item in hard]
    both = next((judged.item_id for judged in gold if judged.item_id in set(negatives)), None)
    if both is not None:
        raise InputError(
            f"{both!r} is gold and a negative of query {query_id!r}; it can be one of the two",
            where=where,
            line=line,
        )
    gold.extend(Judged(item, 0.0, True) for item in negatives)
    if "group_id" in rest:
        rest["group"] = rest.pop("group_id")
    return Case(line, query_id, text if isinstance(text, str) else "", gold, rest, told)


def _record(case: Case, judged: bool) -> dict[str, Any]:
    record: dict[str, Any] = {"query_id": case.query_id}
    if case.text or not judged:
        record["question"] = case.text
    if judged:
        record["gold_evidence"] = [
            item.item_id
            if item.grade == _USUAL
            else {"chunk_id": item.item_id, "grade": item.grade}
            for item in case.gold
            if not item.negative
        ]
        record["negatives"] = [item.item_id for item in case.gold if item.negative] or None
    names = {"group": "group_id"}
    return record | {names.get(key, key): value for key, value in case.attributes.items()}
