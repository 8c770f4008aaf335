"""Lines of fields without a header: TREC runs and qrels, and TSV files of queries or gold.

In TREC files, fields are separated by white space, as trec_eval reads them: lines that begin with
``#`` are comments, blank lines are skipped, and a line of a run may have more than six columns. In
TSV files, fields are separated by single tabs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from karat.data.columns import Duplicates, join_spans, split_spans
from karat.data.tables import Gold, Queries, Run, with_ranks, with_scores
from karat.errors import InputError
from karat.formats.blocks import StreamedRun
from karat.formats.files import BYTE_ORDER_MARK, Input, decode, parse_ahead, write_frame
from karat.formats.registry import Head, Kind

_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
# Numbers that are refused, but show what a file is.
_NUMBER_LIKE = re.compile(rf"{_NUMBER}|^[+-]?(nan|inf|infinity)$", re.IGNORECASE)


@dataclass(frozen=True)
class LineFields:
    """The fields of a line with their types; those called ``_`` and a number are not kept."""

    types: Mapping[str, Any]
    expected: str
    number: str = ""
    """The field that must be a finite number."""
    need: str = ""
    """What a message says is needed of the number."""
    tabs: bool = False
    extra_allowed: bool = False

    @cached_property
    def columns_read(self) -> list[str]:
        return [name for name in self.types if not name.startswith("_")]


RUN = LineFields(
    {
        "query_id": str,
        "_1": str,
        "item_id": str,
        "rank": int,
        "score": float,
        "_5": str,
    },
    expected="6: query Q0 item rank score tag",
    number="score",
    need="a run needs finite scores",
    extra_allowed=True,
)
GOLD = LineFields(
    {"query_id": str, "_1": str, "item_id": str, "grade": float},
    expected="4: query iteration item grade",
    number="grade",
    need="a judgment needs a finite grade",
)
_TSV_QUERIES = LineFields(
    {"query_id": str, "text": str},
    expected="2 separated by tabs: query_id, text",
    tabs=True,
)
_TSV_GOLD = LineFields(
    {"query_id": str, "item_id": str, "grade": float},
    expected="3 separated by tabs: query_id, item_id, grade",
    number="grade",
    need="a judgment needs a finite grade",
    tabs=True,
)


def sniff(head: Head, kind: Kind, *, separator: str | None = None) -> bool:
    """Return True for lines with a score or grade in its column, or with tabs."""
    lines = head.lines
    line = next((line for line in lines if not line.lstrip().startswith("#")), lines[0])
    fields, tabs = line.split(), line.strip("\r").count("\t")
    if separator is not None:
        right_number = tabs == 2 if kind == "gold" else tabs > 0
        return right_number and not head.has_columns(kind, separator)
    if kind == "run":
        return len(fields) >= 6 and _NUMBER_LIKE.match(fields[4]) is not None
    is_tsv = tabs == 2 and head.suffix == ".tsv"
    return len(fields) == 4 and not is_tsv and _NUMBER_LIKE.match(fields[3]) is not None


def read_run(file: Input, *, name: str, strict: bool = False) -> StreamedRun:
    """Open a TREC run that is read block by block."""
    # The sixth column of the first line is the run's tag.
    lines = (line.split() for line in file.head.split(b"\n"))
    first = next((fields for fields in lines if fields and not fields[0].startswith(b"#")), [])
    meta = {"tag": first[5].decode("utf-8", "replace")} if len(first) > 5 else {}
    return StreamedRun(
        name,
        file.source,
        partial(read_fields, file, RUN, numbered=strict),
        meta=meta,
        strict=strict,
        expected=f"expected lines of {RUN.expected}",
        chunks=file.chunks,
    )


def read_gold(
    file: Input, *, duplicates: Duplicates = "agree", separator: str | None = None
) -> Gold:
    """Read judgments; the second column of TREC qrels is ignored."""
    table = _read_table(file, GOLD if separator is None else _TSV_GOLD, "judgments")
    lines, table = table["line"], split_spans(table.drop("line"))
    return Gold.from_frame(table, duplicates=duplicates, lines=lines, source=file.source)


def read_queries(file: Input, *, separator: str) -> Queries:
    """Read query ids and texts from a TSV file."""
    table = _read_table(file, _TSV_QUERIES, "queries")
    return Queries.from_frame(table.drop("line"), lines=table["line"], source=file.source)


def _read_table(file: Input, fields: LineFields, what: str) -> pl.DataFrame:
    tables = [table for table in read_fields(file, fields) if table.height]
    if not tables:
        raise InputError(f"holds no {what}; expected lines of {fields.expected}", where=file.name)
    return pl.concat(tables)


def read_fields(
    file: Input, fields: LineFields, *, numbered: bool = True, careful: bool = False
) -> Iterator[pl.DataFrame]:
    """Yield checked columns chunk by chunk, with each row's ``line`` if ``numbered``."""

    def parse(chunk: bytes) -> tuple[pl.DataFrame, int]:
        frame = None if careful or fields.tabs else parse_regular(chunk, fields)
        if frame is None:
            frame, lines = _parse_any(chunk, fields, file)
            return (frame if numbered else frame.drop("line")), lines
        lines = frame.height
        if numbered:
            frame = frame.insert_column(0, pl.int_range(1, lines + 1, eager=True).alias("line"))
        return frame, lines

    line = 0
    for parsed in parse_ahead(file.chunks(), parse):
        try:
            frame, lines = parsed.result()
        except InputError as error:
            place = None if error.line is None else error.line + line
            raise InputError(error.what, where=error.where, line=place) from None
        yield frame.with_columns(pl.col("line") + line) if numbered else frame
        line += lines


def parse_regular(chunk: bytes, fields: LineFields) -> pl.DataFrame | None:
    """Return the columns of regular lines; None if in doubt.

    Regular lines have single spaces between fields and no comments among them.
    """
    if any(byte in chunk for byte in (b"\t", b"\r", b"\0")):
        return None
    # Looking for one byte is ten times as fast as looking for two.
    if b"#" in chunk and (chunk[:1] == b"#" or b"\n#" in chunk):
        return None
    # A file's own is gone already; this one is part of an id, and Polars would drop it.
    if chunk.startswith(BYTE_ORDER_MARK):
        return None
    blank = np.frombuffer(chunk, np.uint8) <= ord(" ")
    if blank[0] or (blank[1:] & blank[:-1]).any():
        return None
    last = list(fields.types)[-1]
    lines = pl.scan_csv(
        chunk,
        separator=" ",
        has_header=False,
        quote_char=None,
        glob=False,
        schema=pl.Schema(fields.types),
    )
    try:
        frame = lines.select(list(dict.fromkeys([*fields.columns_read, last]))).collect()
    except pl.exceptions.PolarsError:
        return None
    # No line has too few fields and the number of blanks is right, so none has too many.
    blanks = int(np.count_nonzero(blank)) + (chunk[-1:] != b"\n")
    exact = blanks == len(fields.types) * frame.height
    if not exact or any(frame.null_count().row(0)):
        return None
    return frame.select(fields.columns_read) if frame[fields.number].is_finite().all() else None


def _parse_any(chunk: bytes, fields: LineFields, file: Input) -> tuple[pl.DataFrame, int]:
    """Return the columns of any lines with their line numbers, and the number of lines."""
    ends = chunk.count(b"\n") if chunk.isspace() else 0
    # Millions of blank lines would become millions of rows first.
    chunk = b"" if ends else chunk
    decode(chunk, file)
    lines = pl.scan_lines(chunk, name="text", row_index_name="line", row_index_offset=1).collect()
    count = ends or lines.height
    lines = lines.with_columns(pl.col("line").cast(pl.Int64))
    if fields.tabs:
        lines = lines.with_columns(pl.col("text").str.strip_chars_end("\r"))
        return _split(lines.filter(pl.col("text") != ""), fields, file), count
    lines = lines.with_columns(pl.col("text").str.strip_chars(" \t\r"))
    lines = lines.filter((pl.col("text") != "") & ~pl.col("text").str.starts_with("#"))
    odd = lines["text"].str.contains("\r", literal=True)
    _refuse(lines, odd, "the line contains a carriage return; end lines with a line feed", file)
    single = lines.with_columns(pl.col("text").str.replace_all("[ \t]+", " "))
    return _split(single, fields, file), count


def _split(lines: pl.DataFrame, fields: LineFields, file: Input) -> pl.DataFrame:
    separator, count = "\t" if fields.tabs else " ", len(fields.types)
    columns = lines["text"].str.splitn(separator, count + 1).struct.unnest()
    columns.columns = [*fields.types, "more"]
    wrong = columns.to_series(count - 1).is_null()
    if not fields.extra_allowed:
        wrong |= columns["more"].is_not_null()
    if wrong.any():
        actual = lines["text"].filter(wrong)[0].count(separator) + 1
        problem = f"{actual} column{'s' * (actual > 1)}; expected {fields.expected}"
        _refuse(lines, wrong, problem, file)
    table = columns.select(fields.columns_read).insert_column(0, lines["line"])
    if fields.number:
        raw = table[fields.number]
        values = raw.str.strip_chars().cast(pl.Float64, strict=False)
        wrong = ~raw.str.strip_chars().str.contains(_NUMBER) | ~values.is_finite()
        if wrong.any():
            problem = f"{fields.number} is {raw.filter(wrong)[0]!r}; {fields.need}"
            _refuse(table, wrong, problem, file)
        table = table.with_columns(values)
    if "rank" in table.columns:
        # A rank that is no number is left out; the scores rank the hits.
        table = table.with_columns(pl.col("rank").cast(pl.Int64, strict=False))
    return table


def _refuse(table: pl.DataFrame, wrong: pl.Series, what: str, file: Input) -> None:
    if wrong.any():
        raise InputError(what, where=file.name, line=int(table["line"].filter(wrong)[0]))


def write_run(run: Run, path: str | Path) -> None:
    """Write the final hits in file order; latencies, sources and other columns are dropped."""
    hits = with_ranks(with_scores(run.at("final")))
    tag = one_word(str(run.meta.get("tag") or run.name))
    constants = {"Q0": pl.lit("Q0"), "tag": pl.lit(tag)}
    lines = hits.with_columns(**constants)
    _write(lines.select("query_id", "Q0", "item_id", "rank", "score", "tag"), path)


def write_gold(gold: Gold, path: str | Path, *, separator: str | None = None) -> None:
    """Write judgments; queries without any, and the mark of hard negatives, are dropped."""
    table = join_spans(gold.frame).select("query_id", "item_id", "grade")
    if separator is not None:
        _write(table, path, separator)
        return
    grade = pl.col("grade")
    # As trec_eval wants them: whole numbers without a fraction.
    is_whole = (grade == grade.round()) & (grade.abs() < 2**53)
    plain = pl.when(is_whole).then(grade.cast(pl.Int64, strict=False).cast(pl.String))
    table = table.with_columns(plain.otherwise(grade.cast(pl.String)), iteration=pl.lit("0"))
    _write(table.select("query_id", "iteration", "item_id", "grade"), path)


def write_queries(queries: Queries, path: str | Path, *, separator: str) -> None:
    """Write query ids and texts as TSV; attributes are dropped."""
    _write(queries.frame.select("query_id", "text"), path, separator)


def one_word(tag: str) -> str:
    """Return a run's tag as one word."""
    return "_".join(tag.split()) or "run"


def _write(table: pl.DataFrame, path: str | Path, separator: str = " ") -> None:
    """Write lines of fields; refuse a text that would be read back as something else."""
    tabs = separator == "\t"
    odd, carrier = ("a tab or a line end", "TSV") if tabs else ("white space", "TREC")
    for name in (name for name in ("query_id", "item_id", "text") if name in table.columns):
        texts, problem = table[name], f"holds {odd}"
        wrong = texts.str.contains("[\t\r\n\x00\ufeff]") if tabs else unfit_for_columns(texts)
        if name == "query_id" and not tabs and not wrong.any():
            wrong, problem = texts.str.starts_with("#"), "begins with '#' as a comment does"
        if wrong.any():
            raise InputError(
                f"{name} {texts.filter(wrong)[0]!r} {problem}, which a {carrier} file cannot "
                "carry; write csv, jsonl or parquet",
                where=str(path),
            )
    write_frame(table, path, separator=separator, header=False)


def unfit_for_columns(ids: pl.Series) -> pl.Series:
    """Return which ids contain white space, and would be read back as two columns or lines."""
    return ids.str.contains(r"[\s\x00\x{feff}]")
