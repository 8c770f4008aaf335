"""Test suites of memories (format_version 2.0): each memory with its generated queries.

One memory is right for a query. Queries have no ids, and the same text occurs under several
memories, so an id is the memory's id and the query's position in it, ``17/1``, unless the file
gives an ``id``; the same ``id`` under two memories is one query with two golds. A query that is
very short or very long is an edge case, unless the file gives a category.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from karat.data.tables import Corpus, Gold, Queries
from karat.errors import InputError
from karat.formats.evalset import JudgedItem, JudgedQuery, queries_to_write
from karat.formats.files import Input, write_lines
from karat.formats.json_records import (
    JsonRecord,
    frame_of,
    json_rows,
    preview,
    read_json,
    restore,
)
from karat.formats.registry import Head, Kind

EDGE_CASES = "edge_cases"
# Fewer words than the first, or more than the second, make a query an edge case.
_SHORT, _LONG = 3, 20
_OWN_KEYS = ("memory_id", "content", "generated_queries", "original_queries")


def category_of(text: str, category: Any = None) -> Any:
    """Return the given category, else ``edge_cases`` for a very short or very long query.

    Very short is fewer than 3 words, very long more than 20; words are separated by white space.
    Any other query without a category, and one without a text, gets None.

    >>> category_of("retry policy"), category_of("retry policy", "technical")
    ('edge_cases', 'technical')
    >>> category_of("what is our retry policy")
    """
    if category is not None and category != "":
        return category
    words = len(text.split())
    return EDGE_CASES if 0 < words < _SHORT or words > _LONG else None


def sniff(head: Head, kind: Kind) -> bool:
    """Return True: no other format has the key ``test_cases``."""
    return True


def read_corpus(file: Input) -> Corpus:
    """Read the memories with category, severity and all their other keys.

    A suite may leave out all contents; one that has some and lacks others is refused.
    """
    rows = []
    tests = list(_tests(file))
    has_contents = any(test.content is not None for test in tests)
    for test in tests:
        memory, content = test.memory, test.content
        if has_contents and memory is not None and content is None:
            raise test.record.error(
                f"memory {memory!r} ({test.name}) has no content, but others do; "
                'give it "content", or remove it'
            )
        if memory is None and content is not None:
            raise test.record.error(
                f"{test.name} has content and no memory_id; give the memory an id"
            )
        if memory is not None:
            remaining = {k: v for k, v in test.record.value.items() if k not in _OWN_KEYS}
            rows.append({"item_id": memory, "text": content or "", **remaining})
    if not rows:
        raise InputError("holds no memories; at least one is expected", where=file.name)
    frame = frame_of(rows, ("item_id", "text"), where=file.name)
    return Corpus.from_frame(frame, source=file.source)


def read_judged_queries(file: Input, *, texts: bool) -> list[JudgedQuery]:
    """Return the generated queries, each with its memory as gold of grade 1."""
    judged: dict[str, JudgedQuery] = {}
    for test in _tests(file):
        for position, entry in enumerate(test.queries, 1):
            name = f"query {position} of {test.name}"
            value = {"query": entry} if isinstance(entry, str) else entry
            record = test.record._replace(value=test.record.as_object(value, name))
            query = _judged_query(record, test.memory, position, name)
            before = judged.get(query.query_id)
            if before is not None:
                if "id" not in record.value or before.text != query.text:
                    raise record.error(
                        f"query id {query.query_id!r} occurs again as {name}; ids must differ"
                    )
                query = replace(query, gold=[*before.gold, *query.gold])
            judged[query.query_id] = query
    return list(judged.values())


def _judged_query(record: JsonRecord, memory: str | None, position: int, name: str) -> JudgedQuery:
    remaining = dict(record.value)
    own_id = remaining.pop("id", None)
    # With an id a query can be looked up elsewhere; with neither it is nothing.
    text = remaining.pop("query", None if own_id is None else "")
    if not isinstance(text, str):
        raise record.error(f'{name} has no text; expected "query"')
    query_id = f"{memory}/{position}"
    if own_id is not None:
        query_id = record.as_id(own_id, f"the id of {name}")
    grade = record.as_number(remaining.pop("grade", 1.0), f"the grade of {name}")
    negative = remaining.pop("negative", False) is True
    remaining["category"] = category_of(text, remaining.get("category"))
    gold = [] if memory is None else [JudgedItem(memory, grade, negative)]
    return JudgedQuery(None, query_id, text, gold, remaining)


class _MemoryTest(NamedTuple):
    """One test case; ``name`` is for messages, ``record`` holds all its keys."""

    name: str
    memory: str | None
    content: str | None
    queries: list[Any]
    record: JsonRecord


def _tests(file: Input) -> Iterator[_MemoryTest]:
    suite = JsonRecord(None, {}, file.name)
    value = suite.as_object(read_json(file), "the suite")
    for number, case in enumerate(suite.as_list(value.get("test_cases"), "test_cases"), 1):
        name = f"test case {number}"
        record = suite._replace(value=suite.as_object(case, name))
        memory, content, queries = (record.value.get(key) for key in _OWN_KEYS[:3])
        if memory is not None:
            memory = record.as_id(memory, f"the memory_id of {name}")
        queries = record.as_list(queries, f"generated_queries of {name}")
        if memory is None and not queries:
            raise record.error(
                f"{name} has neither memory_id nor queries; "
                'give it a "memory_id" or "generated_queries", or remove it'
            )
        if content is not None and not isinstance(content, str):
            raise record.error(f"the content of {name} is {preview(content)}; text is expected")
        yield _MemoryTest(name, memory, content, queries, record)


def write_eval_set(queries: Queries | None, gold: Gold | None, path: str | Path) -> None:
    """Write each memory with its queries; a query with several golds stands under each."""
    memories: dict[str | None, dict[str, Any]] = {}
    for query in queries_to_write(queries, gold):
        entry = {"id": query.query_id, "query": query.text, **restore(query.attributes)}
        judged: list[tuple[str | None, dict[str, Any]]] = []
        for item in query.gold:
            keys = {} if item.grade == 1.0 else {"grade": item.grade}
            judged.append((item.item_id, keys | ({"negative": True} if item.negative else {})))
        for memory_id, keys in judged or [(None, {})]:
            new: dict[str, Any] = {"memory_id": memory_id, "generated_queries": []}
            memories.setdefault(memory_id, new)["generated_queries"].append(entry | keys)
    _write(list(memories.values()), path)


def write_corpus(corpus: Corpus, path: str | Path) -> None:
    """Write the memories without queries."""
    memories = []
    for row in json_rows(corpus.frame):
        remaining = {k: v for k, v in restore(row).items() if k not in ("item_id", "text")}
        memories.append({"memory_id": row["item_id"], "content": row["text"], **remaining})
    _write(memories, path)


def _write(test_cases: list[dict[str, Any]], path: str | Path) -> None:
    suite = {"metadata": {"format_version": "2.0", "generator": "karat"}, "test_cases": test_cases}
    write_lines(json.dumps(suite, ensure_ascii=False, indent=2).split("\n"), path)
