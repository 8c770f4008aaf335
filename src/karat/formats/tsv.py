"""Tab-separated lines without a header: two columns of queries, three of gold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from karat.data.columns import Duplicates, join_spans, split_spans
from karat.data.tables import Gold, Queries
from karat.errors import InputError
from karat.formats.files import Input, decode, write_frame

_LINES = {"line": pl.Int64, "text": pl.String}
_QUERIES = ("query_id", "text")
_GOLD = ("query_id", "item_id", "grade")
_NUMBER = r"^\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*$"


def read_queries(file: Input) -> Queries:
    """Read query ids and texts."""
    table = _columns(file, _QUERIES)
    lines = table["line"]
    _refuse(table["query_id"] == "", lines, "query_id is empty; every row needs one", file)
    twice = ~table["query_id"].is_first_distinct()
    if twice.any():
        name = table["query_id"].filter(twice)[0]
        _refuse(twice, lines, f"query id {name!r} occurs twice; ids must differ", file)
    return Queries.from_frame(table.drop("line"), source=file.source)


def read_gold(file: Input, *, duplicates: Duplicates = "agree") -> Gold:
    """Read query ids, item ids and grades."""
    table = _columns(file, _GOLD)
    lines, raw = table["line"], table["grade"]
    wrong = ~raw.str.contains(_NUMBER)
    if wrong.any():
        value = raw.filter(wrong)[0]
        _refuse(wrong, lines, f"grade is {value!r}; a judgment needs a finite grade", file)
    grades = raw.str.strip_chars().cast(pl.Float64, strict=False)
    table = split_spans(table.drop("line").with_columns(grades))
    return Gold.from_frame(table, duplicates=duplicates, lines=lines, source=file.source)


def _columns(file: Input, names: tuple[str, ...]) -> pl.DataFrame:
    lines = pl.concat([pl.DataFrame(schema=_LINES), *_lines(file)])
    count = len(names)
    fields = lines["text"].str.splitn("\t", count + 1).struct.unnest()
    fields.columns = [*names, "more"]
    wrong = fields[names[-1]].is_null() | fields["more"].is_not_null()
    if wrong.any():
        columns = lines["text"].filter(wrong)[0].count("\t") + 1
        expected = f"{count} separated by tabs: {', '.join(names)}"
        count_text = "1 column" if columns == 1 else f"{columns} columns"
        _refuse(wrong, lines["line"], f"{count_text}; expected {expected}", file)
    if not lines.height:
        raise InputError("is empty; at least one line is expected", where=file.name)
    return fields.drop("more").with_columns(lines["line"])


def _lines(file: Input) -> Iterator[pl.DataFrame]:
    """Yield the lines that are not empty, each with its number."""
    before = 0
    for chunk in file.chunks():
        decode(chunk, file, first_line=before + 1)
        lines = pl.scan_lines(chunk, name="text", row_index_name="line").collect()
        lines = lines.with_columns(
            pl.col("text").str.strip_chars_end("\r"), pl.col("line").cast(pl.Int64) + 1 + before
        )
        before += lines.height
        yield lines.filter(pl.col("text") != "")


def _refuse(wrong: pl.Series, lines: pl.Series, what: str, file: Input) -> None:
    if wrong.any():
        raise InputError(what, where=file.name, line=int(lines.filter(wrong)[0]))


def write_queries(queries: Queries, path: str | Path) -> None:
    """Write query ids and texts; attributes are dropped."""
    _write(queries.frame.select(_QUERIES), path)


def write_gold(gold: Gold, path: str | Path) -> None:
    """Write query ids, item ids and grades."""
    _write(join_spans(gold.frame).select(_GOLD), path)


def _write(table: pl.DataFrame, path: str | Path) -> None:
    for name in table.columns:
        if table.schema[name] == pl.String:
            bad = table[name].str.contains("[\t\r\n\x00\ufeff]").arg_true()
            if len(bad):
                raise InputError(
                    f"{name} {table[name][bad[0]]!r} holds a tab or a line end, which this "
                    "format cannot carry; write csv, jsonl or parquet",
                    where=str(path),
                )
    write_frame(table, path, separator="\t", header=False)
