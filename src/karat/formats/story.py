"""Stories: a CNL story as a corpus of scenes, ``retrieval_queries`` JSON as an eval set.

Queries are an array, or under ``retrieval_queries`` or ``corpora``; each an object or a
bare text. One without an id is ``q_`` and its place, counted from 1.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from karat.columns import Duplicates
from karat.errors import InputError
from karat.formats.cnl import WHOLE, Story, is_scene_name, parse_story
from karat.formats.files import Input, open_input, write_lines
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
_MOST_DIGITS = 9


class Asked(NamedTuple):
    """One entry of ``retrieval_queries``; a blank or unreadable one has no text."""

    query_id: str
    text: str
    relevant: frozenset[str]
    k: int | None


@dataclass(frozen=True, eq=False)
class Told:
    """A story's scenes, and what its author should know about how they were read."""

    corpus: Corpus
    notes: tuple[str, ...]


def read_story(path: str | Path, *, lenient: bool = False) -> Told:
    """The scenes of a CNL story; ``lenient`` notes broken lines and reads on."""
    file = open_input(path)
    story = parse_story(file.text())
    if not lenient:
        _refuse_broken(story, file)
    notes = [f"{file.name}:{line}: {what}" for line, what in story.errors]
    if story.implicit:
        notes.append(f"{file.name}: no group is a scene, so all outside of groups is {WHOLE!r}")
    for name in _twice(scene.scene_id for scene in story.scenes):
        notes.append(f"{file.name}: scene {name!r} is told more than once; its last text counts")
    return Told(_scenes(story, file), tuple(notes))


def read_asked(path: str | Path) -> list[Asked]:
    """The ``retrieval_queries`` of a file one by one, blank and unreadable entries too."""
    file = open_input(path)
    entries = enumerate(_entries(file), 1)
    asked = [_asked(entry, number, file.name) for number, entry in entries]
    for name in _twice(one.query_id for one in asked if one.text):
        raise InputError(
            f"query id {name!r} occurs twice; give every query an id of its own", where=file.name
        )
    return asked


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _asked(entry: Any, number: int, where: str) -> Asked:
    if not isinstance(entry, (str, dict)):
        return Asked(f"q_{number}", "", frozenset(), None)
    case = _case(entry, number, where)
    relevant = frozenset(one.item_id for one in case.gold if one.grade >= _USUAL)
    return Asked(case.query_id, case.text, relevant, case.attributes.get("k"))


def read_corpus(file: Input) -> Corpus:
    """The scenes of a CNL story, in story order."""
    story = parse_story(file.text())
    _refuse_broken(story, file)
    return _scenes(story, file)


def _refuse_broken(story: Story, file: Input) -> None:
    if story.errors:
        (line, what), *more = story.errors
        rest = f"; wrong lines in all: {len(more) + 1}" if more else ""
        raise InputError(what + rest, where=file.name, line=line)


def _scenes(story: Story, file: Input) -> Corpus:
    """A scene told twice is one item: its first place, its last text."""
    if story.implicit and not story.scenes[0].text:
        raise InputError(
            "has no scene to search; name groups Sc1 or Scene 2, or say NAME has type scene",
            where=file.name,
        )
    texts = {scene.scene_id: scene.text for scene in story.scenes}
    rows = [{"item_id": name, "text": text} for name, text in texts.items()]
    frame = frame_of(rows, ("item_id", "text"), where=file.name)
    return Corpus.from_frame(frame, source=file.source)


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
        yield _case(entry, number, file.name)


def _case(entry: Any, number: int, where: str) -> Case:
    what = f"query {number}"
    spelled = {"query": entry} if isinstance(entry, str) else entry
    rest = dict(as_object(spelled, what, where, None))
    name = rest.pop("id", None)
    unnamed = name is None or name == ""
    query_id = f"q_{number}" if unnamed else as_id(name, f"the id of {what}", where, None)
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
    k = _cut(_take(rest, _K))
    rest = {key: value for key, value in rest.items() if key not in _K}
    if k is not None:
        rest["k"] = k
    gold = [
        *graded([Judged(item, _USUAL) for item in ids], grades),
        *(Judged(item, 0.0, True) for item in hard),
    ]
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


def _cut(value: Any) -> int | None:
    """A cut-off, as a number or spelled; what is no whole number above 0 is none."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < _MOST_DIGITS:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 < value < 10**_MOST_DIGITS else None


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
