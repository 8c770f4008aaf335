"""The pairs of a pool that are to be judged: a query, an item, and both their texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from karat.errors import InputError
from karat.formats.files import open_input
from karat.formats.records import Record, as_id, read_records

_ITEM = ("item_id", "chunk_id")


class Pair(NamedTuple):
    """One query and one item with their texts."""

    query_id: str
    item_id: str
    query: str
    text: str


def read_pairs(path: str | Path) -> list[Pair]:
    """Read a pool; a pair without its texts, or one that occurs twice, is refused."""
    file = open_input(path)
    lines: dict[tuple[str, str], int] = {}
    pairs = []
    for record in read_records(file):
        pair = _pair(record, file.name)
        before = lines.setdefault((pair.query_id, pair.item_id), record.line)
        if before != record.line:
            raise InputError(
                f"query {pair.query_id!r}, item {pair.item_id!r} occurs again as in line {before}; "
                "a pair is judged once",
                where=file.name,
                line=record.line,
            )
        pairs.append(pair)
    if not pairs:
        raise InputError("holds no pair; at least one line is expected", where=file.name)
    return pairs


def _pair(record: Record, where: str) -> Pair:
    line, value = record.line, record.value
    query_id = as_id(value.get("query_id"), "query_id", where, line)
    named = next((name for name in _ITEM if value.get(name) is not None), _ITEM[0])
    item_id = as_id(value.get(named), named, where, line)
    return Pair(query_id, item_id, _text(record, "query", where), _text(record, "text", where))


def _text(record: Record, name: str, where: str) -> str:
    value: Any = record.value.get(name)
    if isinstance(value, str):
        return value
    raise InputError(
        f'no {name}; a judge reads "query" and "text": karat pool --queries --corpus has them',
        where=where,
        line=record.line,
    )
