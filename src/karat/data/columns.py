"""Checks of columns: their names in other tools, ids as text, numbers that are finite.

``karat.data.tables`` runs these checks when a table is made; each raises InputError with file,
line and what is expected.
"""

from __future__ import annotations

import hashlib
import os
import re
from calendar import monthrange
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from numbers import Integral
from operator import attrgetter
from pathlib import Path
from stat import S_ISREG
from typing import Any, Literal

import polars as pl

from karat.errors import InputError, NoColumnError, UsageError

Duplicates = Literal["agree", "last", "refuse"]
# Size and times of the last changes to a file's content and to its metadata.
Stamp = tuple[int, int, int]
_STAMP: Callable[[os.stat_result], Stamp] = attrgetter("st_size", "st_mtime_ns", "st_ctime_ns")
# Databases do not store NUL, and text ends there for programs in C.
NUL_IN_ID = "holds a NUL character; leave it out of ids"
# Column names of other tools, for every reader; the first one that is present wins.
QUERY_NAMES = ("query_id", "qid", "q_id", "topic", "query-id", "_id", "id")
# An item may have only a document id, but its own id comes first.
ITEM_NAMES = (
    "item_id",
    "chunk_id",
    "memory_id",
    "scene_id",
    "docno",
    "doc_no",
    "corpus-id",
    "docid",
    "_id",
    "id",
    "doc_id",
)
# Lists of relevant items in the record or row of their query.
GOLD_NAMES = ("relevant_chunk_ids", "relevant_doc_ids", "relevant_ids")
GRADE_NAMES = ("grade", "relevance", "label", "rel", "rating", "score")
TEXT_NAMES = ("text", "query", "question", "content", "contents", "lesson")
# As in run-log.schema.json, which does not check the number of days of a month.
_DATE = re.compile(
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]+)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_SPAN = r"^(?s)(.+):([0-9]{1,18})-([0-9]{1,18})$"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a table comes from: its name in reports and the digest of its bytes."""

    name: str
    path: Path | None = None
    sha256: str | None = None
    stamp: Stamp | None = None

    @classmethod
    def of(cls, path: Path) -> Source:
        """Return the source of a file, with its size and times to notice later changes."""
        stat = path.stat()
        # A pipe is read once, so it has no state to compare with.
        return cls(path.name, path=path, stamp=_STAMP(stat) if S_ISREG(stat.st_mode) else None)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Raise InputError if the file changes inside the block, whatever other error occurs."""
        problem: InputError | None = None
        try:
            yield
        except InputError as error:
            problem = error
        if self.path is not None and self.stamp is not None:
            stamp: Stamp | None = None
            with suppress(OSError):
                stamp = _STAMP(self.path.stat())
            if stamp != self.stamp:
                message = "the file changed while it was being read; run again"
                raise InputError(message, where=self.name)
        if problem is not None:
            raise problem

    def digest(self) -> str | None:
        """Return the SHA-256 of the bytes, or None for data that is not from a file."""
        if self.sha256 is not None or self.path is None or not self.path.is_file():
            return self.sha256
        with self.unchanged(), self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


IN_MEMORY = Source("in memory")


def to_polars(frame: Any, source: Source = IN_MEMORY) -> pl.DataFrame:
    """Return a Polars, pandas or Arrow table as a Polars frame."""
    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, pl.LazyFrame):
        try:
            return frame.collect()
        except pl.exceptions.PolarsError as error:
            message = str(error).strip().splitlines()[0]
            raise InputError(f"the lazy frame cannot be collected: {message}") from None
    module = type(frame).__module__.partition(".")[0]
    if module == "pandas" and hasattr(frame, "columns"):
        if not frame.columns.is_unique:
            duplicate = frame.columns[frame.columns.duplicated()][0]
            raise InputError(
                f"column {duplicate!r} occurs twice; names must differ", where=source.name
            )
        names = frame.columns
        return pl.DataFrame({str(name): _pandas_column(frame, name) for name in names})
    if module == "pyarrow" or hasattr(frame, "__arrow_c_stream__"):
        table = pl.from_arrow(frame)
        if isinstance(table, pl.DataFrame):
            return table
    raise UsageError(
        f"{source.name}: cannot read a {type(frame).__name__}; give a Polars, pandas or Arrow table"
    )


def _pandas_column(frame: Any, name: object) -> pl.Series:
    """Return one pandas column; objects go through Python, so that Arrow is not needed."""
    column = frame[name]
    if str(column.dtype) in {"object", "str", "string"}:
        values = [None if value is None or value != value else value for value in column.tolist()]
        return pl.Series(str(name), values, strict=False)
    return pl.Series(str(name), column.to_numpy())


def check_lists(lists: Any, what: str) -> None:
    """Raise UsageError unless the value is a dict of dicts or lists."""
    if not isinstance(lists, Mapping):
        raise UsageError(f"{what} takes a dict by query, not a {type(lists).__name__}")
    for query_id, items in lists.items():
        if isinstance(items, str) or not isinstance(items, Mapping | Collection):
            raise UsageError(
                f"query {query_id!r} holds {items!r}; give a dict or a list of its items"
            )


def text_series(name: str, values: list[Any]) -> pl.Series:
    """Return ids as a text column; raise InputError unless they are text or whole numbers."""
    try:
        return pl.Series(name, values, dtype=pl.String)
    except (TypeError, UnicodeEncodeError, pl.exceptions.PolarsError):
        return pl.Series(name, [_id_text(name, value) for value in values], dtype=pl.String)


def _id_text(name: str, value: Any) -> str:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole and not isinstance(value, str):
        raise InputError(f"{name} is {value!r}; ids must be text or whole numbers")
    try:
        str(value).encode()
    except UnicodeEncodeError:
        raise InputError(f"{name} {value!r} is not text that can be written down") from None
    return str(value)


def number_series(name: str, values: list[Any]) -> pl.Series:
    """Return a column of numbers; raise InputError for a value that is not one."""
    try:
        return pl.Series(name, values, strict=True, nan_to_null=False)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        return pl.Series(name, [_number(name, value) for value in values], dtype=pl.Float64)


def _number(name: str, value: Any) -> float:
    try:
        if not isinstance(value, bool | str):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        value = repr(value)[:100]
    raise InputError(f"{name} is {value}; a finite number is expected")


def find_column(table: pl.DataFrame, names: Sequence[str], what: str, source: Source) -> str:
    """Return the first of ``names`` that is a column."""
    for name in names:
        if name in table.columns:
            return name
    raise NoColumnError(
        f"no column for the {what}",
        table.columns,
        f"expected one of {', '.join(names)}; {mapping_hint(names[0])}",
        where=source.name,
    )


def mapping_hint(field: str, column: str = "COLUMN", *, what: str = "yours") -> str:
    """Return how to map a column of another name: on the command line, in Python, in a file.

    >>> print(mapping_hint("k", "cut"))
    map yours with --field k=cut, fields={"k": "cut"} in Python, or fields: {k: cut} in karat.yaml
    """
    python = f'fields={{"{field}": "{column}"}}'
    config = f"fields: {{{field}: {column}}}"
    options = f"--field {field}={column}, {python} in Python, or {config} in karat.yaml"
    return f"map {what} with {options}"


def with_ids(
    table: pl.DataFrame, names: Sequence[str], source: Source, lines: pl.Series | None = None
) -> pl.DataFrame:
    """Return the table with its ``query_id``, ``item_id`` or both under these names, as text.

    Raises InputError if a column is missing, or for an empty id.
    """
    for name in names:
        id_names = QUERY_NAMES if name == "query_id" else ITEM_NAMES
        table = table.rename({find_column(table, id_names, name.replace("_", " "), source): name})
    for name in names:
        kind = table.schema[name]
        if not table.height:
            table = table.with_columns(pl.lit(None, dtype=pl.String).alias(name)).clear()
            continue
        if not kind.is_integer() and kind not in (pl.String, pl.Categorical, pl.Enum, pl.Null):
            type_name = "decimal numbers" if kind.is_float() else str(kind)
            raise InputError(
                f"{name} holds {type_name}; ids must be text or whole numbers", where=source.name
            )
        if kind != pl.String:
            table = table.with_columns(pl.col(name).cast(pl.String))
        for wrong, problem in (
            ((table[name] == "").fill_null(value=True), "is empty; every row needs one"),
            (table[name].str.contains("\0", literal=True).fill_null(value=False), NUL_IN_ID),
        ):
            if wrong.any():
                line = _line_of(wrong.arg_max() or 0, lines)
                raise InputError(f"{name} {problem}", where=source.name, line=line)
    return table


def check_numbers(
    table: pl.DataFrame,
    name: str,
    need: str,
    source: Source,
    lines: pl.Series | None,
    *,
    whole: bool = False,
) -> pl.DataFrame:
    """Return the table with a column of finite or whole numbers; else the error says ``need``."""
    raw, kind = table[name], pl.Int64 if whole else pl.Float64
    if not raw.dtype.is_numeric() and raw.dtype not in (pl.String, pl.Boolean, pl.Null):
        raise InputError(f"{name} holds {raw.dtype}; numbers are expected", where=source.name)
    values = raw if raw.dtype == kind else raw.cast(kind, strict=False)
    wrong = values.is_null()
    if not whole:
        wrong |= ~values.is_finite()
    elif raw.dtype.is_float():
        wrong |= values != raw
    if wrong.any():
        row = int(wrong.arg_true()[0])
        shown = "missing" if raw[row] is None else repr(raw[row])
        raise InputError(f"{name} is {shown}; {need}", where=source.name, line=_line_of(row, lines))
    return table if raw is values else table.with_columns(values)


def _line_of(row: int, lines: pl.Series | None) -> int:
    return row + 1 if lines is None else int(lines[row])


def unique_judgments(
    table: pl.DataFrame, duplicates: Duplicates, lines: pl.Series | None, source: Source
) -> pl.DataFrame:
    """Return each (query, item) once; spans of one document differ by start and end."""
    pair = [name for name in ("query_id", "item_id", "start", "end") if name in table.columns]
    is_first = table.select(pl.struct(pair).is_first_distinct()).to_series()
    if is_first.all():
        return table
    if duplicates != "last":
        numbers = pl.int_range(1, table.height + 1, eager=True) if lines is None else lines
        judged = table.with_columns(_line=numbers.cast(pl.Int64)).with_columns(
            _early=pl.col("grade").first().over(pair), _first=pl.col("_line").first().over(pair)
        )
        wrong = judged["grade"] != judged["_early"] if duplicates == "agree" else ~is_first
        if wrong.any():
            late = judged.filter(wrong).row(0, named=True)
            advice = "keep one of the two" if duplicates == "agree" else "give each judgment once"
            raise InputError(
                f"query {late['query_id']!r}, item {late['item_id']!r} is judged "
                f"{late['grade']:g} here and {late['_early']:g} in line {late['_first']}; {advice}",
                where=source.name,
                line=late["_line"],
            )
    keep: Literal["first", "last"] = "last" if duplicates == "last" else "first"
    return table.unique(pair, keep=keep, maintain_order=True)


def split_spans(table: pl.DataFrame) -> pl.DataFrame:
    """Split ``item_id`` into document, ``start`` and ``end``, if every id is a span.

    If any id is not a span, colons are part of the ids, so none is split.
    """
    if not table.height or "start" in table.columns or table["item_id"].dtype != pl.String:
        return table
    parts = table.select(pl.col("item_id").str.extract_groups(_SPAN).alias("_")).unnest("_")
    doc, start, end = parts.get_columns()
    if doc.null_count():
        return table
    bounds = pl.DataFrame({"start": start.cast(pl.Int64), "end": end.cast(pl.Int64)})
    if not (bounds["start"] < bounds["end"]).all():
        return table
    return table.with_columns(doc.alias("item_id"), bounds["start"], bounds["end"])


def join_spans(table: pl.DataFrame) -> pl.DataFrame:
    """Return ``item_id`` as ``doc_id:start-end`` where a row has a span."""
    if "start" not in table.columns or "end" not in table.columns:
        return table
    span = pl.format("{}:{}-{}", "item_id", "start", "end")
    return table.with_columns(item_id=pl.coalesce(span, "item_id")).drop("start", "end")


def has_places(table: pl.DataFrame) -> bool:
    """Return True if every row has the start and end of a chunk, both whole numbers."""
    if not {"start", "end"} <= set(table.columns):
        return False
    columns = (table["start"], table["end"])
    return all(column.dtype.is_integer() and not column.null_count() for column in columns)


def doc_of(item: pl.Expr) -> pl.Expr:
    """Return the document of an item: the part of its id before the last ``#``, else the id."""
    return item.str.replace(r"#[^#]*$", "")


def doc_of_text(item_id: str) -> str:
    """Return the document of one item id.

    >>> doc_of_text("faq#billing#2"), doc_of_text("faq")
    ('faq#billing', 'faq')
    """
    return item_id.rpartition("#")[0] if "#" in item_id else item_id


def is_date(text: str) -> bool:
    """Return True for a day, or a time on one, in ISO 8601 with hyphens.

    >>> is_date("2025-06-01"), is_date("2025-06-01T12:00:00Z"), is_date("2025-02-30"), is_date("v2")
    (True, True, False, False)
    """
    if _DATE.fullmatch(text) is None:
        return False
    year, month, day = (int(part) for part in text[:10].split("-"))
    return year > 0 and day <= monthrange(year, month)[1]


def date_range(dates: Iterable[Any]) -> tuple[str, str] | None:
    """Return the first and the last of some dates, as text; None if there are none.

    Also None if any is not a date: the order of versions such as v2 and v10 is unknown.

    >>> date_range(["2025-06-01", None, "2024-12-31"])
    ('2024-12-31', '2025-06-01')
    """
    known = [str(date) for date in dates if date not in (None, "")]
    return (min(known), max(known)) if known and all(map(is_date, known)) else None
