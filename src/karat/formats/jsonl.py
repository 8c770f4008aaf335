"""Queries and corpora in JSONL: objects with an id, a text and attributes.

A nested ``meta`` or ``metadata`` is flattened; a ``title`` stays an attribute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from karat.data.columns import ITEM_NAMES, QUERY_NAMES, TEXT_NAMES, mapping_hint
from karat.data.tables import Corpus, Queries
from karat.errors import InputError
from karat.formats.files import Input, write_lines
from karat.formats.json_records import Record, as_id, frame_of, json_rows, read_records, to_line

_META = ("meta", "metadata")


def read_queries(file: Input) -> Queries:
    """Read queries under any of the usual names for their id and text."""
    return Queries.from_frame(_frame(file, "query_id", QUERY_NAMES), source=file.source)


def read_corpus(file: Input) -> Corpus:
    """Read items under any of the usual names for their id and text."""
    return Corpus.from_frame(_frame(file, "item_id", ITEM_NAMES), source=file.source)


def _frame(file: Input, key: str, names: Sequence[str]) -> pl.DataFrame:
    rows = list(_rows(file, key, names))
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
    id_key = next((name for name in names if rest.get(name) is not None), None)
    if id_key is None:
        raise InputError(
            f"no id; expected one of {', '.join(names)}; {mapping_hint(key, 'KEY')}",
            where=where,
            line=line,
        )
    row_id = as_id(rest.pop(id_key), id_key, where, line)
    text_key = next((name for name in TEXT_NAMES if isinstance(rest.get(name), str)), None)
    if text_key is None:
        raise InputError(
            f"no text; expected one of {', '.join(TEXT_NAMES)}; {mapping_hint('text', 'KEY')}",
            where=where,
            line=line,
        )
    row: dict[str, Any] = {key: row_id, "text": rest.pop(text_key)}
    for inner in _META:
        if isinstance(rest.get(inner), dict):
            nested = rest.pop(inner)
            rest.update({k: v for k, v in nested.items() if k not in rest})
    if key == "item_id" and rest.get("doc_id") is not None:
        rest["doc_id"] = as_id(rest["doc_id"], "doc_id", where, line)
    row.update({name: value for name, value in rest.items() if name not in row})
    return row


def write_queries(queries: Queries, path: str | Path) -> None:
    """Write one object per query, with every attribute."""
    write_lines(map(to_line, json_rows(queries.frame)), path)


def write_corpus(corpus: Corpus, path: str | Path) -> None:
    """Write one object per item, with every attribute."""
    write_lines(map(to_line, json_rows(corpus.frame)), path)
