"""The tables of ``karat ab``: tab-separated columns without a header, each line told by number."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import polars as pl

from karat.errors import InputError
from karat.formats.files import Input, open_input
from karat.tables import Gold, Queries

# What the columns of queries are called where there is no header.
_HEADER = ["qid", "query_text"]


@dataclass(frozen=True)
class Inputs:
    """What both configs are held against, and how much of their lists counts."""

    queries: Queries
    gold: Gold
    k: int
    quiet: bool

    @property
    def asked(self) -> list[tuple[str, str]]:
        """Each query's id and text."""
        return self.queries.frame.select("query_id", "text").rows()


class Row(NamedTuple):
    """The columns of one line, and its number."""

    line: int
    columns: list[str]


def read_queries(path: str) -> Queries:
    """Query ids and texts; every id stands once."""
    file = _opened(path)
    rows = list(_rows(file, path, 2))
    if not rows:
        raise InputError("holds no queries; write one a line: id, tab, text", where=file.name)
    if [column.lower() for column in rows[0].columns] == _HEADER:
        what = "is a header, and would be asked like a query; delete this line"
        raise InputError(what, where=file.name, line=rows[0].line)
    seen: dict[str, int] = {}
    for line, (query_id, _) in rows:
        if query_id in seen:
            what = f"query id {query_id!r} stands in line {seen[query_id]} too; ids must differ"
            raise InputError(what, where=file.name, line=line)
        seen[query_id] = line
        if not query_id:
            raise InputError("query_id is empty; every row needs one", where=file.name, line=line)
    ids, texts = zip(*(row.columns for row in rows), strict=True)
    table = pl.DataFrame({"query_id": ids, "text": texts}, schema_overrides=_TEXT)
    return Queries.from_frame(table, source=file.source)


def read_truth(path: str) -> Gold:
    """Judgments: query ids, item ids and grades; two that differ on one pair are refused."""
    file = _opened(path)
    rows = list(_rows(file, path, 3))
    if not rows:
        what = "holds no judgments; write one a line: query id, tab, item id, tab, grade"
        raise InputError(what, where=file.name)
    ids, items, grades = zip(*(row.columns for row in rows), strict=True)
    table = pl.DataFrame(
        {"query_id": ids, "item_id": items, "grade": [grade.strip() for grade in grades]},
        schema_overrides=_TEXT,
    )
    lines = pl.Series([row.line for row in rows])
    return Gold.from_frame(table, lines=lines, source=file.source)


_TEXT = {"query_id": pl.String, "item_id": pl.String, "text": pl.String, "grade": pl.String}


def _opened(path: str) -> Input:
    """The file; the digest of what came through a pipe is taken while it is there."""
    file = open_input(path)
    if file.data is None:
        return file
    digest = hashlib.sha256(file.data).hexdigest()
    return replace(file, source=replace(file.source, sha256=digest))


def _rows(file: Input, path: str, count: int) -> Iterator[Row]:
    for number, line in enumerate(io.StringIO(file.text(), newline=None), 1):
        text = line.rstrip("\n")
        if not text:
            continue
        columns = text.split("\t")
        if len(columns) != count:
            raise InputError(
                f"Expected {count} tab-separated columns on line {number} of {path}, "
                f"got {len(columns)}"
            )
        yield Row(number, columns)
