"""Test suites of memories (format_version 2.0): each memory with its generated queries.

One memory is right for a query. Queries have no ids and the same text occurs under
several memories, so an id is the memory's and the query's place in it, ``17/1``, unless
the file gives an ``id``; the same ``id`` under two memories is one query with two golds.
A query that is very short or very long is an edge case, unless the file gives a category.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
    unspell,
)
from karat.formats.sets import Case, Judged, cases_from, gold_of, queries_of
from karat.tables import Corpus, Gold, Queries

_QUERIES = ("generated_queries", "original_queries")
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
    """The memories with category, severity and whatever else they carry."""
    rows = []
    for case in _test_cases(file):
        if case.get("memory_id") is not None:
            rest = {k: v for k, v in case.items() if k not in (*_QUERIES, "content")}
            name = as_id(rest.pop("memory_id"), "memory_id", file.name, None)
            rows.append({"item_id": name, "text": case.get("content") or "", **rest})
    if not rows:
        raise InputError("holds no memories; at least one is expected", where=file.name)
    return Corpus.from_frame(frame_of(rows, ("item_id", "text")), source=file.source)


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
        rest = {key: unspell(v) for key, v in case.attributes.items() if v is not None}
        entry = {"id": case.query_id, "query": case.text, **rest}
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
        rest = {
            k: unspell(v) for k, v in row.items() if v is not None and k not in ("item_id", "text")
        }
        cases.append({"memory_id": row["item_id"], "content": row["text"], **rest})
    _write(cases, path)


def _grade(judged: Judged | None) -> dict[str, Any]:
    if judged is None or judged.grade == 1.0:
        return {}
    return {"grade": judged.grade} | ({"negative": True} if judged.negative else {})


def _write(cases: list[dict[str, Any]], path: str | Path) -> None:
    suite = {"metadata": {"format_version": "2.0", "generator": "karat"}, "test_cases": cases}
    write_lines(json.dumps(suite, ensure_ascii=False, indent=2).split("\n"), path)


def _test_cases(file: Input) -> list[dict[str, Any]]:
    value = as_object(read_json(file), "the suite", file.name, None)
    cases = as_list(value.get("test_cases"), "test_cases", file.name, None)
    return [as_object(case, "a test case", file.name, None) for case in cases]


def _cases(file: Input) -> list[Case]:
    cases: dict[str, Case] = {}
    for test in _test_cases(file):
        name = test.get("memory_id")
        memory = None if name is None else as_id(name, "memory_id", file.name, None)
        queries = as_list(test.get("generated_queries"), "generated_queries", file.name, None)
        for place, query in enumerate(queries, 1):
            entry = {"query": query} if isinstance(query, str) else query
            entry = as_object(entry, f"a query of memory {memory!r}", file.name, None)
            case = _case(dict(entry), memory, place, file.name)
            before = cases.get(case.query_id)
            if before is not None:
                if "id" not in entry or before.text != case.text:
                    raise InputError(
                        f"query id {case.query_id!r} occurs twice; ids must differ",
                        where=file.name,
                    )
                case = Case(
                    None, case.query_id, case.text, [*before.gold, *case.gold], case.attributes
                )
            cases[case.query_id] = case
    return list(cases.values())


def _case(rest: dict[str, Any], memory: str | None, place: int, where: str) -> Case:
    given = rest.pop("id", None)
    query_id = f"{memory}/{place}" if given is None else as_id(given, "id", where, None)
    text = rest.pop("query", "")
    if not isinstance(text, str):
        raise InputError(f'query {query_id!r} has no text; expected "query"', where=where)
    grade = as_number(rest.pop("grade", 1.0), f"the grade of {query_id!r}", where, None)
    negative = rest.pop("negative", False) is True
    rest["category"] = category_of(text, rest.get("category"))
    gold = [] if memory is None else [Judged(memory, grade, negative)]
    return Case(None, query_id, text, gold, rest)
