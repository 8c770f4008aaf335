"""Queries and corpora in JSONL: objects with an id, a text and attributes.

A nested ``meta`` or ``metadata`` is flattened; a ``title`` stays an attribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from karat.data.columns import ITEM_NAMES, QUERY_NAMES, TEXT_NAMES, mapping_hint
from karat.data.tables import Corpus, Queries
from karat.errors import InputError
from karat.formats.files import Input, write_lines
from karat.formats.json_records import Record, frame_of, json_rows, read_records, to_line
from karat.formats.registry import Head, Kind

_META = ("meta", "metadata")


def sniff(head: Head, kind: Kind) -> bool:
    """Return True for an object with a text; of a corpus, also with an id."""
    return bool(head.keys & set(TEXT_NAMES) and (kind == "queries" or head.keys & set(ITEM_NAMES)))


def read_queries(file: Input) -> Queries:
    """Read queries under any of the usual names for their id and text."""
    return Queries.from_frame(_frame(file, "query_id", QUERY_NAMES), source=file.source)


def read_corpus(file: Input) -> Corpus:
    """Read items under any of the usual names for their id and text."""
    return Corpus.from_frame(_frame(file, "item_id", ITEM_NAMES), source=file.source)


def _frame(file: Input, key: str, names: Sequence[str]) -> pl.DataFrame:
    rows: dict[str, dict[str, Any]] = {}
    lines: dict[str, int | None] = {}
    for record in read_records(file):
        row = _row(record, key, names)
        name = row[key]
        if name in rows:
            raise record.error(
                f"id {name!r} occurs again as in line {lines[name]}; ids must differ"
            )
        rows[name], lines[name] = row, record.line
    if not rows:
        raise InputError("is empty; at least one object is expected", where=file.name)
    return frame_of(list(rows.values()), (key, "text"), where=file.name)


def _row(record: Record, key: str, names: Sequence[str]) -> dict[str, Any]:
    rest = dict(record.value)
    id_key = next((name for name in names if rest.get(name) is not None), None)
    text_key = next((name for name in TEXT_NAMES if isinstance(rest.get(name), str)), None)
    if id_key is None:
        raise _missing_error(record, "id", key, names)
    if text_key is None:
        raise _missing_error(record, "text", "text", TEXT_NAMES)
    row = {key: record.as_id(rest.pop(id_key), id_key), "text": rest.pop(text_key)}
    for inner in _META:
        if isinstance(rest.get(inner), dict):
            nested = rest.pop(inner)
            rest |= {name: value for name, value in nested.items() if name not in rest}
    if key == "item_id" and rest.get("doc_id") is not None:
        rest["doc_id"] = record.as_id(rest["doc_id"], "doc_id")
    return row | {name: value for name, value in rest.items() if name not in row}


def _missing_error(record: Record, what: str, field: str, names: Sequence[str]) -> InputError:
    hint = mapping_hint(field, "KEY")
    return record.error(f"no {what}; expected one of {', '.join(names)}; {hint}")


def write_queries(queries: Queries, path: str | Path) -> None:
    """Write one object per query, with every attribute."""
    write_lines(map(to_line, json_rows(queries.frame)), path)


def write_corpus(corpus: Corpus, path: str | Path) -> None:
    """Write one object per item, with every attribute."""
    write_lines(map(to_line, json_rows(corpus.frame)), path)
