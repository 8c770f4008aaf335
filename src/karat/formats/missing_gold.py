"""A file of queries without gold: the error, with the columns that look like gold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from karat.columns import GOLD_NAMES, ITEM_NAMES, map_with
from karat.errors import NoGoldError
from karat.formats.records import shown, unspell

_KNOWN = (*GOLD_NAMES, "gold_evidence")
_NAME = re.compile(
    r"gold|relevan|expect|answer|truth|target|positive|evidence|correct|reference|judg|qrel"
    r"|(chunk|doc|document|passage|context|item|memory|scene)s?([_-]?(id|no)s?)?$",
    re.IGNORECASE,
)
_LONGEST_ID = 200
_MOST_NAMED, _MOST_SHOWN = 3, 20
# So many values tell what a column holds.
_SAMPLE = 100


def no_gold(columns: Mapping[str, Sequence[Any]], where: str) -> NoGoldError:
    """What to say of queries without gold; ``columns`` are those that no name is known for."""
    told = f"holds queries without gold under any known name ({', '.join(_KNOWN)})"
    like = gold_like(columns)
    if not like:
        names = ", ".join(list(columns)[:_MOST_SHOWN])
        has = f"its other columns are {names}" if names else "it has no other column"
        todo = map_with("gold", what="one")
        todo += ", or name the judgments: --gold FILE, or gold in karat.yaml"
        return NoGoldError(f"{told}; {has}: {todo}", where=where)
    examples = ", ".join(f"{name!r} (such as {shown(like[name])})" for name in like)
    verb = "looks" if len(like) == 1 else "look"
    first = next(iter(like))
    todo = map_with("gold", first, what="it")
    return NoGoldError(f"{told}; {examples} {verb} like it: {todo}", where=where)


def gold_like(columns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The columns that look like gold, each with an example; those named like it before others."""
    samples = {
        name: [unspell(value) for value in values[:_SAMPLE] if value not in (None, "", [])]
        for name, values in columns.items()
    }
    lists = {
        name: values[0]
        for name, values in samples.items()
        if values and all(map(_is_list_of_items, values))
    }
    single = {
        name: values[0] for name, values in samples.items() if values and all(map(_is_id, values))
    }
    named = [name for name in (*lists, *single) if _NAME.search(name)]
    chosen = named or list(lists)
    return {name: (lists | single)[name] for name in chosen[:_MOST_NAMED]}


def _is_id(value: Any) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= _LONGEST_ID and not any(map(str.isspace, value))
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list_of_items(value: Any) -> bool:
    """Whether it is a list of ids or of objects with one, or an object of grades by id."""
    if isinstance(value, dict):
        return _is_item(value) or (bool(value) and all(map(_is_number, value.values())))
    return isinstance(value, list) and bool(value) and all(map(_is_item, value))


def _is_item(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_is_id(value.get(name)) for name in ITEM_NAMES)
    return _is_id(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def columns_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Some values of each key of some records."""
    columns: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            values = columns.setdefault(name, [])
            if len(values) < _SAMPLE and value is not None:
                values.append(value)
    return columns
