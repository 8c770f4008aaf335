"""The lists of hits in a run log: many of them to columns, and back.

A list whose hits all have the same keys is taken apart column by column; any other is
taken hit by hit, and only that way makes messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from math import isfinite
from typing import Any

import polars as pl

from karat.columns import ITEM_NAMES, map_with
from karat.errors import InputError
from karat.formats.records import as_id, as_number, as_object

_TEXTS = {"doc_id": "doc_id", "doc_version": "version", "version": "version", "source": "source"}
_OURS: dict[str, str] = {"chunk_id": "item_id", **_TEXTS}
_NUMBERS = ("score", "similarity")
# Whole numbers, each with the lowest that it may be.
_WHOLE = {"rank": 1, "start": 0, "end": 0}
_REGULAR = frozenset(("chunk_id", "doc_id", "doc_version", "source", *_NUMBERS, *_WHOLE))
_KINDS = {
    "query_id": pl.String,
    "item_id": pl.String,
    "rank": pl.Int64,
    "score": pl.Float64,
    "stage": pl.String,
    "doc_id": pl.String,
    "version": pl.String,
    "source": pl.String,
    "similarity": pl.Float64,
    "start": pl.Int64,
    "end": pl.Int64,
}
_MOST_SHOWN = 20

Columns = dict[str, Sequence[Any]]


@dataclass
class HitLists:
    """Lists of hits on their way to one table."""

    where: str
    strict: bool
    owners: list[tuple[str, str, int]] = field(default_factory=list)
    parts: list[Columns] = field(default_factory=list)

    def add(self, query_id: str, stage: str, entries: list[Any], line: int) -> None:
        """Take one list; the line is for messages."""
        if not entries:
            return
        columns = _regular(entries)
        if columns is None:
            columns = _one_by_one(entries, self.where, line)
        if self.strict:
            self._refuse_twice(columns["item_id"], query_id, line)
        self.owners.append((query_id, stage, len(entries)))
        self.parts.append(columns)

    def frame(self) -> pl.DataFrame:
        """All hits; scores only where every hit has one, stages only where there are two."""
        present = set().union(*self.parts) | {"query_id", "item_id", "rank"}
        if not all("score" in part for part in self.parts):
            # Half a column of scores ranks nothing; the ranks do.
            present.discard("score")
        if any(stage != "final" for _, stage, _ in self.owners):
            present.add("stage")
        return pl.DataFrame([self._column(name) for name in _KINDS if name in present])

    def _column(self, name: str) -> pl.Series:
        if name in ("query_id", "stage"):
            place = 0 if name == "query_id" else 1
            values: chain[Any] = chain.from_iterable(
                repeat(owner[place], owner[2]) for owner in self.owners
            )
        else:
            values = chain.from_iterable(
                part.get(name) or repeat(None, owner[2])
                for part, owner in zip(self.parts, self.owners, strict=True)
            )
        return pl.Series(name, list(values), dtype=_KINDS[name])

    def _refuse_twice(self, names: Sequence[str], query_id: str, line: int) -> None:
        if len(set(names)) < len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise InputError(
                f"query {query_id!r} has item {twice!r} twice; --strict wants every item once",
                where=self.where,
                line=line,
            )


def join_lists(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The hits of several frames of lists, as if all lists had been in one."""
    filled = [frame for frame in frames if frame.height]
    if not filled:
        return HitLists("", strict=False).frame()
    present = set[str]().union(*(frame.columns for frame in filled))
    if not all("score" in frame.columns for frame in filled):
        present.discard("score")
    absent = [
        pl.lit("final" if name == "stage" else None, dtype=kind).alias(name)
        for name, kind in _KINDS.items()
        if name in present
    ]
    order = [name for name in _KINDS if name in present]
    return pl.concat(
        frame.with_columns(
            one for one in absent if one.meta.output_name() not in frame.columns
        ).select(order)
        for frame in filled
    )


def _regular(entries: list[Any]) -> Columns | None:
    """The columns of hits that all have the same keys and the usual types, else None."""
    first = entries[0]
    if type(first) is not dict or "chunk_id" not in first or not _REGULAR.issuperset(first):
        return None
    keys = first.keys()
    if not all(type(entry) is dict and entry.keys() == keys for entry in entries):
        return None
    columns: Columns = {"rank": range(1, len(entries) + 1)}
    for key in map(str, keys):
        values = [entry[key] for entry in entries]
        kinds = set(map(type, values))
        if key in _WHOLE:
            fine = kinds == {int} and min(values) >= _WHOLE[key] and max(values) < 2**63
        elif key in _NUMBERS:
            values = list(map(float, values)) if kinds <= {int, float} and _small(values) else []
            fine = bool(values)
        else:
            fine = kinds == {str} and "" not in values and "\0" not in "".join(values)
        if not fine:
            return None
        columns[_OURS.get(key, key)] = values
    return columns


def _small(values: list[Any]) -> bool:
    """Whether all are finite; whole numbers too large for a float are not."""
    try:
        return all(map(isfinite, values))
    except OverflowError:
        return False


def _one_by_one(entries: list[Any], where: str, line: int) -> Columns:
    hits = [_hit(entry, place, where, line) for place, entry in enumerate(entries, 1)]
    names = dict.fromkeys(chain.from_iterable(hits))
    columns: Columns = {name: [hit.get(name) for hit in hits] for name in names}
    if None in columns.get("score", ()):
        columns.pop("score")
    return columns


def _hit(entry: Any, place: int, where: str, line: int) -> dict[str, Any]:
    if isinstance(entry, str):
        entry = {"chunk_id": entry}
    entry = as_object(entry, "a hit", where, line)
    name = next((entry[key] for key in ITEM_NAMES if entry.get(key) is not None), None)
    if name is None:
        raise _no_item(entry, where, line)
    hit: dict[str, Any] = {"item_id": as_id(name, "chunk_id", where, line), "rank": place}
    for key, least in _WHOLE.items():
        value = entry.get(key)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**63:
            raise InputError(
                f"{key} is {value!r}; a whole number from {least} is expected",
                where=where,
                line=line,
            )
        hit[key] = value
    for key in _NUMBERS:
        if entry.get(key) is not None:
            hit[key] = as_number(entry[key], key, where, line)
    for key, ours in _TEXTS.items():
        if entry.get(key) not in (None, ""):
            hit[ours] = as_id(entry[key], key, where, line)
    return hit


def _no_item(entry: Mapping[str, Any], where: str, line: int) -> InputError:
    """What to say of a hit whose item has no known name, with the key that looks like it."""
    keys = ", ".join(list(entry)[:_MOST_SHOWN]) or "none at all"
    like = next(
        (
            key
            for key, value in entry.items()
            if key not in _REGULAR and type(value) in (str, int) and value != ""
        ),
        "KEY",
    )
    return InputError(
        f"a hit has no id of its item among its keys {keys}; expected one of "
        f"{', '.join(ITEM_NAMES)}; {map_with('item_id', like)}",
        where=where,
        line=line,
    )


def entry_of(row: dict[str, Any]) -> dict[str, Any]:
    """One row of hits as it stands in a log."""
    names = {"item_id": "chunk_id", "version": "doc_version"}
    order = ("rank", "item_id", "score", "version")
    front = {name: row.get(name) for name in order}
    return {names.get(k, k): v for k, v in (front | row).items() if v is not None}
