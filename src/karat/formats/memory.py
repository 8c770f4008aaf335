"""Test suites of memories (format_version 2.0): each memory with its generated queries.

One memory is right for a query. Queries have no ids and the same text occurs under
several memories, so an id is the memory's and the query's place in it, ``17/1``, unless
the file gives an ``id``; the same ``id`` under two memories is one query with two golds.
A query that is very short or very long is an edge case, unless the file gives a category.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from karat.columns import Duplicates
from karat.errors import InputError
from karat.formats.files import Input, write_lines
from karat.formats.records import (
    as_id,
    as_list,
    as_number,
    as_object,
    flat_rows,
    frame_of,
    read_json,
    restored,
    shown,
)
from karat.formats.sets import Case, Judged, cases_from, gold_of, queries_of
from karat.tables import Corpus, Gold, Queries

_QUERIES = ("generated_queries", "original_queries")
_MEMORY = ("memory_id", "content")
EDGE_CASES = "edge_cases"
# Fewer words than the first, or more than the second, make a query an edge case.
_SHORT, _LONG = 3, 20


def category_of(text: str, given: Any = None) -> Any:
    """The category that a query was given; else ``edge_cases`` if it is very short or very long.

    Very short is fewer than 3 words, very long more than 20; words are parted by white space.
    None for any other query without a category, and for one without a text.

    >>> category_of("retry policy"), category_of("retry policy", "technical")
    ('edge_cases', 'technical')
    >>> category_of("what is our retry policy")
    """
    if given is not None and given != "":
        return given
    words = len(text.split())
    return EDGE_CASES if 0 < words < _SHORT or words > _LONG else None


def read_gold(file: Input, *, duplicates: Duplicates = "agree") -> Gold:
    """The memory of each query, of grade 1."""
    return gold_of(_cases(file), file, duplicates)


def read_queries(file: Input) -> Queries:
    """The generated queries with category, difficulty, expected_rank, min_similarity."""
    return queries_of(_cases(file), file)


def read_corpus(file: Input) -> Corpus:
    """The memories with category, severity and whatever else they carry.

    A suite may leave out all contents; one that has some and lacks others is refused.
    """
    rows = []
    tests = _tests(file)
    has_contents = any(test.content is not None for test in tests)
    for test in tests:
        if has_contents:
            _check_whole(test, file.name)
        if test.memory is not None:
            rest = {k: v for k, v in test.value.items() if k not in (*_QUERIES, *_MEMORY)}
            rows.append({"item_id": test.memory, "text": test.content or "", **rest})
    if not rows:
        raise InputError("holds no memories; at least one is expected", where=file.name)
    frame = frame_of(rows, ("item_id", "text"), where=file.name)
    return Corpus.from_frame(frame, source=file.source)


def write_gold(gold: Gold, path: str | Path) -> None:
    """Each memory with the ids of its queries, without texts."""
    write_eval_set(None, gold, path)


def write_queries(queries: Queries, path: str | Path) -> None:
    """The queries under no memory."""
    write_eval_set(queries, None, path)


def write_eval_set(queries: Queries | None, gold: Gold | None, path: str | Path) -> None:
    """Each memory with its queries; a query with several golds stands under each."""
    cases: dict[str | None, dict[str, Any]] = {}
    for case in cases_from(queries, gold):
        entry = {"id": case.query_id, "query": case.text, **restored(case.attributes)}
        homes: list[Judged | None] = [*case.gold] or [None]
        for judged in homes:
            name = None if judged is None else judged.item_id
            home = cases.setdefault(name, {"memory_id": name, "generated_queries": []})
            home["generated_queries"].append(entry | _grade(judged))
    _write(list(cases.values()), path)


def write_corpus(corpus: Corpus, path: str | Path) -> None:
    """The memories without queries."""
    cases = []
    for row in flat_rows(corpus.frame):
        rest = {k: v for k, v in restored(row).items() if k not in ("item_id", "text")}
        cases.append({"memory_id": row["item_id"], "content": row["text"], **rest})
    _write(cases, path)


def _grade(judged: Judged | None) -> dict[str, Any]:
    if judged is None or judged.grade == 1.0:
        return {}
    return {"grade": judged.grade} | ({"negative": True} if judged.negative else {})


def _write(cases: list[dict[str, Any]], path: str | Path) -> None:
    suite = {"metadata": {"format_version": "2.0", "generator": "karat"}, "test_cases": cases}
    write_lines(json.dumps(suite, ensure_ascii=False, indent=2).split("\n"), path)


class _Test(NamedTuple):
    """One test case: what messages call it, its memory, its queries, and all that it says."""

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
            f"the content of {name} is {shown(content)}; text is expected", where=where
        )
    return _Test(name, memory, content, queries, value)


def _check_whole(test: _Test, where: str) -> None:
    """Refuse half a memory, which would be an empty item or none."""
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


def _cases(file: Input) -> list[Case]:
    cases: dict[str, Case] = {}
    for test in _tests(file):
        for place, query in enumerate(test.queries, 1):
            name = f"query {place} of {test.name}"
            entry = {"query": query} if isinstance(query, str) else query
            entry = as_object(entry, name, file.name, None)
            case = _case(dict(entry), test.memory, place, name, file.name)
            before = cases.get(case.query_id)
            if before is not None:
                if "id" not in entry or before.text != case.text:
                    raise InputError(
                        f"query id {case.query_id!r} occurs again as {name}; ids must differ",
                        where=file.name,
                    )
                case = Case(
                    None, case.query_id, case.text, [*before.gold, *case.gold], case.attributes
                )
            cases[case.query_id] = case
    return list(cases.values())


def _case(rest: dict[str, Any], memory: str | None, place: int, name: str, where: str) -> Case:
    given = rest.pop("id", None)
    # With an id a query can be looked up elsewhere; with neither it is nothing.
    text = rest.pop("query", None if given is None else "")
    if not isinstance(text, str):
        raise InputError(f'{name} has no text; expected "query"', where=where)
    query_id = (
        f"{memory}/{place}" if given is None else as_id(given, f"the id of {name}", where, None)
    )
    grade = as_number(rest.pop("grade", 1.0), f"the grade of {name}", where, None)
    negative = rest.pop("negative", False) is True
    rest["category"] = category_of(text, rest.get("category"))
    gold = [] if memory is None else [Judged(memory, grade, negative)]
    return Case(None, query_id, text, gold, rest)
