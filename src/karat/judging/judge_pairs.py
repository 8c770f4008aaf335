"""The pairs of a pool that are to be judged: a query, an item, and both their texts."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from karat.errors import InputError
from karat.formats.files import open_input
from karat.formats.labels import item_of
from karat.formats.records import Record, as_id, read_records


class Pair(NamedTuple):
    """One query and one item with their texts."""

    query_id: str
    item_id: str
    query: str
    text: str


def read_pairs(path: str | Path) -> list[Pair]:
    """Read a pool; a pair without its texts, or one that occurs twice, is refused.

    A pool may be an empty file: nothing was left to judge. A pipe that brings nothing is
    refused, since what should have filled it may have failed.
    """
    if _is_blank(path):
        return []
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
    return pairs


def _is_blank(path: str | Path) -> bool:
    """Whether it is a file without a byte, which no reader of records takes."""
    if str(path) in ("", "-"):
        return False
    with suppress(OSError, ValueError):
        return Path(path).is_file() and not Path(path).stat().st_size
    # What cannot be looked at is refused where it is opened.
    return False


def _pair(record: Record, where: str) -> Pair:
    line, value = record.line, record.value
    query_id = as_id(value.get("query_id"), "query_id", where, line)
    item_id = item_of(record, where)
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
