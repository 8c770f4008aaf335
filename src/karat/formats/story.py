"""Stories: a CNL story as a corpus of scenes, ``retrieval_queries`` JSON as an eval set.

Queries are an array, or under ``retrieval_queries`` or ``corpora``; each an object or a
bare text. One without an id is ``q_`` and its place, counted from 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from karat.columns import Duplicates
from karat.errors import InputError
from karat.formats.cnl import is_scene_name, parse_story
from karat.formats.files import Input, write_lines
from karat.formats.records import as_id, as_list, as_number, as_object, frame_of, read_json, unspell
from karat.formats.sets import (
    Case,
    Judged,
    cases_from,
    gold_of,
    graded,
    grades_beyond,
    queries_of,
    relevant_ids,
)
from karat.tables import Corpus, Gold, Queries

_OUTER = ("retrieval_queries", "retrievalQueries")
_TEXT = ("query", "q", "text")
_GOLD = ("relevant", "relevant_ids", "relevantIds", "answers", "ground_truth")
_K = ("topK", "k")
_USUAL = 1.0


def read_corpus(file: Input) -> Corpus:
    """The scenes of a CNL story, in story order."""
    story = parse_story(file.text())
    if story.errors:
        line, what = story.errors[0]
        raise InputError(what, where=file.name, line=line)
    # A scene told twice is one item: its first place, its last text.
    texts = {scene.scene_id: scene.text for scene in story.scenes}
    rows = [{"item_id": name, "text": text} for name, text in texts.items()]
    return Corpus.from_frame(frame_of(rows, ("item_id", "text")), source=file.source)


def read_gold(file: Input, *, duplicates: Duplicates = "agree") -> Gold:
    """The relevant scenes of each query."""
    return gold_of(_cases(file), file, duplicates)


def read_queries(file: Input) -> Queries:
    """The queries; a query's own cut-off is its ``k``."""
    return queries_of(_cases(file), file)


def write_gold(gold: Gold, path: str | Path) -> None:
    """Entries of ids and relevant items, without texts."""
    write_eval_set(None, gold, path)


def write_queries(queries: Queries, path: str | Path) -> None:
    """Entries of ids, texts and attributes, without gold."""
    write_eval_set(queries, None, path)


def write_eval_set(queries: Queries | None, gold: Gold | None, path: str | Path) -> None:
    """Queries and their gold in one file."""
    entries = [_entry(case, gold is not None) for case in cases_from(queries, gold)]
    text = json.dumps({"retrieval_queries": entries}, ensure_ascii=False, indent=2)
    write_lines(text.split("\n"), path)


def write_corpus(corpus: Corpus, path: str | Path) -> None:
    """Items as scenes with a ``describes`` for each line of their texts."""
    lines: list[str] = []
    for name, text in corpus.frame.select("item_id", "text").iter_rows():
        quoted = [f'  "{name}" describes "{part.strip()}"' for part in text.split("\n")]
        unsafe = '"' in name + text or "\\" in name + text or name != " ".join(name.split())
        if unsafe or any(part != part.strip() for part in text.split("\n")):
            raise InputError(
                f"item {name!r} holds quotes, backslashes or outer white space, which a CNL "
                "story cannot carry; write jsonl, csv or parquet",
                where=str(path),
            )
        kind = [] if is_scene_name(name) else [f'  "{name}" has type scene']
        lines += [f'"{name}" group begin', *kind, *quoted, f'"{name}" group end', ""]
    write_lines(lines[:-1], path)


def _cases(file: Input) -> Iterator[Case]:
    for number, entry in enumerate(_entries(file), 1):
        rest = {"query": entry} if isinstance(entry, str) else entry
        what = f"query {number}"
        rest = dict(as_object(rest, what, file.name, None))
        yield _case(rest, number, what, file.name)


def _case(rest: dict[str, Any], number: int, what: str, where: str) -> Case:
    name = rest.pop("id", None)
    query_id = f"q_{number}" if name is None else as_id(name, f"the id of {what}", where, None)
    text = _take(rest, _TEXT)
    found = _take(rest, _GOLD)
    # As the language's own tools: gold that is no list is no gold.
    items = found if isinstance(found, list) else []
    ids = [as_id(item, f"a relevant id of {what}", where, None) for item in items]
    grades = {
        item: as_number(grade, f"the grade of {item!r}", where, None)
        for item, grade in as_object(rest.pop("grades", {}), "grades", where, None).items()
    }
    hard = [
        as_id(item, f"a negative of {what}", where, None)
        for item in as_list(rest.pop("negatives", None), "negatives", where, None)
    ]
    k = _take(rest, _K)
    if isinstance(k, int) and not isinstance(k, bool) and k > 0:
        rest["k"] = k
    gold = [*graded(ids, grades, _USUAL), *(Judged(item, 0.0, True) for item in hard)]
    return Case(None, query_id, text.strip() if isinstance(text, str) else "", gold, rest)


def _entries(file: Input) -> list[Any]:
    value = read_json(file)
    if isinstance(value, dict) and isinstance(value.get("corpora"), dict):
        value = value["corpora"]
    if isinstance(value, dict):
        value = next((value[name] for name in _OUTER if name in value), None)
    if isinstance(value, list):
        return value
    raise InputError(
        'no list of queries; expected an array or {"retrieval_queries": […]}', where=file.name
    )


def _take(record: dict[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        if record.get(name) is not None:
            return record.pop(name)
    return None


def _entry(case: Case, judged: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": case.query_id, "query": case.text}
    if judged:
        entry["relevant"] = relevant_ids(case.gold)
        entry["grades"] = grades_beyond(case.gold, _USUAL)
        entry["negatives"] = [item.item_id for item in case.gold if item.negative]
    rest = {"topK" if key == "k" else key: unspell(v) for key, v in case.attributes.items()}
    return {
        key: v
        for key, v in (entry | rest).items()
        if v is not None and v != {} and (key != "negatives" or v)
    }
