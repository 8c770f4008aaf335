"""Queries and corpora in JSONL: objects with an id and a text, and attributes.

A nested ``meta`` or ``metadata`` is laid flat; a ``title`` stays an attribute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from karat.columns import ITEM_NAMES, QUERY_NAMES, TEXT_NAMES, map_with
from karat.errors import InputError
from karat.formats.files import Input, write_lines
from karat.formats.records import Record, as_id, flat_rows, frame_of, read_records, to_line
from karat.tables import Corpus, Queries

_META = ("meta", "metadata")


def read_queries(file: Input) -> Queries:
    """Queries under any of the usual names for their id and text."""
    rows = list(_rows(file, "query_id", QUERY_NAMES))
    return Queries.from_frame(_frame(rows, "query_id", file), source=file.source)


def read_corpus(file: Input) -> Corpus:
    """Items under any of the usual names for their id and text."""
    rows = list(_rows(file, "item_id", ITEM_NAMES))
    return Corpus.from_frame(_frame(rows, "item_id", file), source=file.source)


def write_queries(queries: Queries, path: str | Path) -> None:
    """One object a query, with every attribute."""
    write_lines(_lines(queries.frame), path)


def write_corpus(corpus: Corpus, path: str | Path) -> None:
    """One object an item, with every attribute."""
    write_lines(_lines(corpus.frame), path)


def lines_of(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Rows as lines of JSON."""
    return (to_line(row) for row in rows)


def _lines(frame: pl.DataFrame) -> Iterator[str]:
    return lines_of(flat_rows(frame))


def _frame(rows: list[dict[str, Any]], key: str, file: Input) -> pl.DataFrame:
    if not rows:
        raise InputError("is empty; at least one object is expected", where=file.name)
    return frame_of(rows, (key, "text"), where=file.name)


def _rows(file: Input, key: str, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    seen: dict[str, int] = {}
    for record in read_records(file):
        row = _row(record, key, names, file.name)
        if row[key] in seen:
            raise InputError(
                f"id {row[key]!r} occurs again as in line {seen[row[key]]}; ids must differ",
                where=file.name,
                line=record.line,
            )
        seen[row[key]] = record.line
        yield row


def _row(record: Record, key: str, names: Sequence[str], where: str) -> dict[str, Any]:
    line, rest = record.line, dict(record.value)
    found = next((name for name in names if rest.get(name) is not None), None)
    if found is None:
        raise InputError(
            f"no id; expected one of {', '.join(names)}; {map_with(key, 'KEY')}",
            where=where,
            line=line,
        )
    name = as_id(rest.pop(found), found, where, line)
    told = next((name for name in TEXT_NAMES if isinstance(rest.get(name), str)), None)
    if told is None:
        raise InputError(
            f"no text; expected one of {', '.join(TEXT_NAMES)}; {map_with('text', 'KEY')}",
            where=where,
            line=line,
        )
    row: dict[str, Any] = {key: name, "text": rest.pop(told)}
    for inner in _META:
        if isinstance(rest.get(inner), dict):
            nested = rest.pop(inner)
            rest.update({k: v for k, v in nested.items() if k not in rest})
    if key == "item_id" and rest.get("doc_id") is not None:
        rest["doc_id"] = as_id(rest["doc_id"], "doc_id", where, line)
    row.update({name: value for name, value in rest.items() if name not in row})
    return row
