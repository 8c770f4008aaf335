"""Eval sets in JSONL: one ``{"query": …, "relevant_chunk_ids": […]}`` per line.

``question`` is accepted for ``query``; ``relevant_doc_ids`` and the names of a single item
(``chunk_id``, ``doc_id`` …) for ``relevant_chunk_ids``. A query without an ``id`` gets a hash
of its text; one with an ``id`` may lack its text. All other keys become attributes. ``grades``
and ``negatives`` hold what a list of ids cannot express.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from karat.data.columns import GOLD_NAMES, ITEM_NAMES, QUERY_NAMES
from karat.data.tables import Gold, Queries
from karat.errors import InputError
from karat.formats.files import Input, write_lines
from karat.formats.json_records import Record, as_id, read_records, text_id, to_line
from karat.formats.judged_queries import (
    JudgedQuery,
    negative_ids,
    other_grades,
    parse_relevant,
    queries_to_write,
    relevant_ids,
    take_first,
    take_grades,
    take_negatives,
)

_ID = ("query_id", "id", "_id", "qid")
_TEXT = ("query", "question", "text", "content")
# Lists of items, or one relevant item by its own name; the record's own id is the query's.
_GOLD = (*GOLD_NAMES, *(name for name in ITEM_NAMES if name not in QUERY_NAMES))
_DEFAULT_GRADE = 1.0


def read_judged_queries(file: Input, *, texts: bool) -> Iterator[JudgedQuery]:
    """Yield the queries with their relevant ids, of grade 1 unless ``grades`` says otherwise."""
    for record in read_records(file):
        yield _judged_query(record, file.name, texts)


def _judged_query(record: Record, where: str, texts: bool) -> JudgedQuery:
    line, rest = record.line, dict(record.value)
    name = take_first(rest, _ID)
    text = take_first(rest, _TEXT)
    if not isinstance(text, str) and (name is None or (texts and text is not None)):
        raise InputError('no query; expected "query" with its text', where=where, line=line)
    query_id = text_id(str(text)) if name is None else as_id(name, "id", where, line)
    # A key "gold" may also hold the text of an answer, which is no id.
    gold_keys = [*_GOLD, *(["gold"] if isinstance(rest.get("gold"), (list, dict)) else [])]
    has_gold_key = any(key in rest for key in gold_keys)
    relevant = parse_relevant(take_first(rest, gold_keys), _GOLD[0], _DEFAULT_GRADE, where, line)
    gold = [*take_grades(rest, relevant, where, line), *take_negatives(rest, where, line)]
    text = text if isinstance(text, str) else ""
    return JudgedQuery(line, query_id, text, gold, rest, has_gold_key)


def write_eval_set(queries: Queries | None, gold: Gold | None, path: str | Path) -> None:
    """Write queries, gold or both to one file."""
    records = (_record(query, gold is not None) for query in queries_to_write(queries, gold))
    write_lines(map(to_line, records), path)


def _record(query: JudgedQuery, with_gold: bool) -> dict[str, Any]:
    record: dict[str, Any] = {"id": query.query_id}
    if query.text or not with_gold:
        record["query"] = query.text
    if with_gold:
        record["relevant_chunk_ids"] = relevant_ids(query.gold)
        record["grades"] = other_grades(query.gold, _DEFAULT_GRADE) or None
        record["negatives"] = negative_ids(query.gold) or None
    return record | query.attributes
