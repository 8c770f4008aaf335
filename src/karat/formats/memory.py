"""Test suites of memories (format_version 2.0): each memory with its generated queries.

One memory is right for a query. Queries have no ids, and the same text occurs under several
memories, so an id is the memory's id and the query's position in it, ``17/1``, unless the file
gives an ``id``; the same ``id`` under two memories is one query with two golds. A query that is
very short or very long is an edge case, unless the file gives a category.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from karat.data.tables import Corpus, Gold, Queries
from karat.errors import InputError
from karat.formats.files import Input, write_lines
from karat.formats.json_records import (
    as_id,
    as_list,
    as_number,
    as_object,
    frame_of,
    json_rows,
    preview,
    read_json,
    restore,
)
from karat.formats.judged_queries import (
    JudgedQuery,
    Judgment,
    queries_to_write,
)

EDGE_CASES = "edge_cases"
# Fewer words than the first, or more than the second, make a query an edge case.
_SHORT, _LONG = 3, 20
_QUERIES = ("generated_queries", "original_queries")
_MEMORY = ("memory_id", "content")


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


def read_corpus(file: Input) -> Corpus:
    """Read the memories with category, severity and all their other keys.

    A suite may leave out all contents; one that has some and lacks others is refused.
    """
    rows = []
    tests = _tests(file)
    has_contents = any(test.content is not None for test in tests)
    for test in tests:
        if has_contents:
            _check_complete(test, file.name)
        if test.memory is not None:
            rest = {k: v for k, v in test.value.items() if k not in (*_QUERIES, *_MEMORY)}
            rows.append({"item_id": test.memory, "text": test.content or "", **rest})
    if not rows:
        raise InputError("holds no memories; at least one is expected", where=file.name)
    frame = frame_of(rows, ("item_id", "text"), where=file.name)
    return Corpus.from_frame(frame, source=file.source)


def _check_complete(test: _Test, where: str) -> None:
    """Refuse a memory without content, and content without a memory id."""
    if test.memory is not None and test.content is None:
        raise InputError(
            f"memory {test.memory!r} ({test.name}) has no content, others have; "
            'give it "content", or take it out',
            where=where,
        )
    if test.memory is None and test.content is not None:
        raise InputError(
            f"{test.name} has content and no memory_id; give the memory an id", where=where
        )


def read_judged_queries(file: Input, *, texts: bool) -> list[JudgedQuery]:
    """Return the generated queries, each with its memory as gold of grade 1."""
    judged: dict[str, JudgedQuery] = {}
    for test in _tests(file):
        for position, entry in enumerate(test.queries, 1):
            name = f"query {position} of {test.name}"
            record = {"query": entry} if isinstance(entry, str) else entry
            record = as_object(record, name, file.name, None)
            query = _judged_query(dict(record), test.memory, position, name, file.name)
            before = judged.get(query.query_id)
            if before is not None:
                if "id" not in record or before.text != query.text:
                    raise InputError(
                        f"query id {query.query_id!r} occurs again as {name}; ids must differ",
                        where=file.name,
                    )
                query = replace(query, gold=[*before.gold, *query.gold])
            judged[query.query_id] = query
    return list(judged.values())


def _judged_query(
    rest: dict[str, Any], memory: str | None, position: int, name: str, where: str
) -> JudgedQuery:
    given_id = rest.pop("id", None)
    # With an id a query can be looked up elsewhere; with neither it is nothing.
    text = rest.pop("query", None if given_id is None else "")
    if not isinstance(text, str):
        raise InputError(f'{name} has no text; expected "query"', where=where)
    query_id = (
        f"{memory}/{position}"
        if given_id is None
        else as_id(given_id, f"the id of {name}", where, None)
    )
    grade = as_number(rest.pop("grade", 1.0), f"the grade of {name}", where, None)
    negative = rest.pop("negative", False) is True
    rest["category"] = category_of(text, rest.get("category"))
    gold = [] if memory is None else [Judgment(memory, grade, negative)]
    return JudgedQuery(None, query_id, text, gold, rest)


class _Test(NamedTuple):
    """One test case; ``name`` is for messages, ``value`` holds all its keys."""

    name: str
    memory: str | None
    content: str | None
    queries: list[Any]
    value: dict[str, Any]


def _tests(file: Input) -> list[_Test]:
    value = as_object(read_json(file), "the suite", file.name, None)
    cases = as_list(value.get("test_cases"), "test_cases", file.name, None)
    return [_test(case, f"test case {n}", file.name) for n, case in enumerate(cases, 1)]


def _test(case: Any, name: str, where: str) -> _Test:
    value = as_object(case, name, where, None)
    memory, content = (value.get(key) for key in _MEMORY)
    if memory is not None:
        memory = as_id(memory, f"the memory_id of {name}", where, None)
    queries = value.get("generated_queries")
    queries = as_list(queries, f"generated_queries of {name}", where, None)
    if memory is None and not queries:
        raise InputError(
            f"{name} has neither memory_id nor queries; "
            'give it a "memory_id" or "generated_queries", or take it out',
            where=where,
        )
    if content is not None and not isinstance(content, str):
        raise InputError(
            f"the content of {name} is {preview(content)}; text is expected", where=where
        )
    return _Test(name, memory, content, queries, value)


def write_eval_set(queries: Queries | None, gold: Gold | None, path: str | Path) -> None:
    """Write each memory with its queries; a query with several golds stands under each."""
    memories: dict[str | None, dict[str, Any]] = {}
    for query in queries_to_write(queries, gold):
        entry = {"id": query.query_id, "query": query.text, **restore(query.attributes)}
        golds: list[Judgment | None] = [*query.gold] or [None]
        for gold_item in golds:
            memory_id = None if gold_item is None else gold_item.item_id
            memory = memories.setdefault(
                memory_id, {"memory_id": memory_id, "generated_queries": []}
            )
            grade: dict[str, Any] = {}
            if gold_item is not None and gold_item.grade != 1.0:
                grade = {"grade": gold_item.grade} | (
                    {"negative": True} if gold_item.negative else {}
                )
            memory["generated_queries"].append(entry | grade)
    _write(list(memories.values()), path)


def write_corpus(corpus: Corpus, path: str | Path) -> None:
    """Write the memories without queries."""
    memories = []
    for row in json_rows(corpus.frame):
        rest = {k: v for k, v in restore(row).items() if k not in ("item_id", "text")}
        memories.append({"memory_id": row["item_id"], "content": row["text"], **rest})
    _write(memories, path)


def _write(test_cases: list[dict[str, Any]], path: str | Path) -> None:
    suite = {"metadata": {"format_version": "2.0", "generator": "karat"}, "test_cases": test_cases}
    write_lines(json.dumps(suite, ensure_ascii=False, indent=2).split("\n"), path)
