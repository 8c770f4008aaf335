"""Eval sets in JSONL: ``{"query": …, "relevant_chunk_ids": […]}`` a line.

``question`` is understood for ``query``; ``relevant_doc_ids`` and the names of a single item
(``chunk_id``, ``doc_id`` …) for ``relevant_chunk_ids``. A query without an ``id`` gets a hash
of its text; one with an ``id`` may lack its text. All other keys become attributes. ``grades``
and ``negatives`` hold what a list of ids cannot say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from karat.columns import GOLD_NAMES, ITEM_NAMES, QUERY_NAMES, Duplicates
from karat.errors import InputError
from karat.formats.files import Input, write_lines
from karat.formats.records import (
    Record,
    as_id,
    as_list,
    as_number,
    as_object,
    read_records,
    text_id,
    to_line,
)
from karat.formats.sets import (
    Case,
    Judged,
    cases_from,
    gold_of,
    graded,
    grades_beyond,
    queries_of,
    relevant,
    relevant_ids,
)
from karat.tables import Gold, Queries

_ID = ("query_id", "id", "_id", "qid")
_TEXT = ("query", "question", "text", "content")
# Besides lists, one relevant item by its own name; the record's own id is the query's.
_GOLD = (*GOLD_NAMES, *(name for name in ITEM_NAMES if name not in QUERY_NAMES))
_USUAL = 1.0


def read_gold(file: Input, *, duplicates: Duplicates = "agree") -> Gold:
    """The relevant ids of each query, of grade 1 unless ``grades`` says otherwise."""
    return gold_of(_cases(file, texts=False), file, duplicates)


def read_queries(file: Input) -> Queries:
    """The queries with all their other keys as attributes."""
    return queries_of(_cases(file, texts=True), file)


def write_gold(gold: Gold, path: str | Path) -> None:
    """Records of ids and relevant ids, without texts."""
    write_eval_set(None, gold, path)


def write_queries(queries: Queries, path: str | Path) -> None:
    """Records of ids, texts and attributes, without gold."""
    write_eval_set(queries, None, path)


def write_eval_set(queries: Queries | None, gold: Gold | None, path: str | Path) -> None:
    """Queries and their gold in one file."""
    write_lines(
        (to_line(_record(case, gold is not None)) for case in cases_from(queries, gold)), path
    )


def _cases(file: Input, *, texts: bool) -> Iterator[Case]:
    for record in read_records(file):
        yield _case(record, file.name, texts)


def _case(record: Record, where: str, texts: bool) -> Case:
    line, rest = record.line, dict(record.value)
    name = _take(rest, _ID)
    text = _take(rest, _TEXT)
    if not isinstance(text, str) and (name is None or (texts and text is not None)):
        raise InputError('no query; expected "query" with its text', where=where, line=line)
    query_id = text_id(str(text)) if name is None else as_id(name, "id", where, line)
    # Where only gold is there, it may also be the text of an answer, which is no id.
    names = [*_GOLD, *(["gold"] if isinstance(rest.get("gold"), (list, dict)) else [])]
    told = any(name in rest for name in names)
    listed = relevant(_take(rest, names), _GOLD[0], _USUAL, where, line)
    grades = {
        item: as_number(grade, f"the grade of {item!r}", where, line)
        for item, grade in as_object(rest.pop("grades", {}), "grades", where, line).items()
    }
    hard = as_list(rest.pop("negatives", None), "negatives", where, line)
    negatives = [Judged(as_id(item, "a negative", where, line), 0.0, True) for item in hard]
    gold = [*graded(listed, grades), *negatives]
    return Case(line, query_id, text if isinstance(text, str) else "", gold, rest, told)


def _take(record: dict[str, Any], names: Sequence[str]) -> Any:
    """Take the first of these keys that says something out of the record."""
    for name in names:
        if record.get(name) is not None:
            return record.pop(name)
    return None


def _record(case: Case, judged: bool) -> dict[str, Any]:
    record: dict[str, Any] = {"id": case.query_id}
    if case.text or not judged:
        record["query"] = case.text
    if judged:
        record["relevant_chunk_ids"] = relevant_ids(case.gold)
        record["grades"] = grades_beyond(case.gold, _USUAL) or None
        record["negatives"] = [judged.item_id for judged in case.gold if judged.negative] or None
    return record | case.attributes
