"""Strict JSON with the line of each record, and records turned into columns.

Shared by every JSON format; knows what JSON may hold, not what its keys mean.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import polars as pl

from karat.data.columns import (
    ITEM_NAMES,
    NUL_IN_ID,
    QUERY_NAMES,
    TEXT_NAMES,
    Duplicates,
    split_spans,
)
from karat.data.tables import Gold
from karat.errors import InputError
from karat.formats.files import Input, check_columns, decode

# Sums and squares of larger numbers leave what a float can hold.
_MOST = 1e100
# The values of these keys are always text, even if they look like JSON.
TEXTS = frozenset((*QUERY_NAMES, *ITEM_NAMES, *TEXT_NAMES, "title", "rewritten"))
# Far deeper than any record; Python itself fails at about ten times as much.
_DEEPEST = 100
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class JsonRecord(NamedTuple):
    """A JSON object, its file, and its line unless the file holds one object; checks its values."""

    line: int | None
    value: dict[str, Any]
    where: str

    def error(self, problem: str) -> InputError:
        """Return an InputError at this record."""
        return InputError(problem, where=self.where, line=self.line)

    def as_id(self, value: Any, what: str) -> str:
        """Return an id as text; raise InputError unless it is text or a whole number."""
        if isinstance(value, str) and value:
            if "\0" in value:
                raise self.error(f"{what} {NUL_IN_ID}")
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        raise self.error(f"{what} is {preview(value)}; ids are text or whole numbers")

    def as_number(self, value: Any, what: str) -> float:
        """Return a finite number; raise InputError for anything else."""
        if is_number(value):
            return float(value)
        raise self.error(f"{what} is {preview(value)}; a finite number is expected")

    def as_amount(self, value: Any, what: str) -> float:
        """Return a time or cost: a number from 0 that can be added up."""
        number = self.as_number(value, what)
        if 0 <= number <= _MOST:
            return number
        raise self.error(f"{what} is {preview(value)}; a number from 0 to {_MOST:g} is expected")

    def as_list(self, value: Any, what: str) -> list[Any]:
        """Return a list; null is an empty one."""
        if value is None or isinstance(value, list):
            return value or []
        raise self.error(f"{what} is {preview(value)}; a list is expected")

    def as_object(self, value: Any, what: str) -> dict[str, Any]:
        """Return an object; raise InputError for anything else."""
        if isinstance(value, dict):
            return value
        raise self.error(f"{what} is {preview(value)}; an object is expected")


def read_records(file: Input) -> Iterator[JsonRecord]:
    """Yield the objects of a JSONL file; blank lines are skipped, all others must be objects."""
    for line, data in read_lines(file):
        yield read_record(data, file, line)


def read_record(data: bytes, file: Input, line: int) -> JsonRecord:
    """Return the object in a line of a file."""
    record = parse_record(decode(data, file, first_line=line), file.name, line)
    if file.mapping is not None:
        record = record._replace(value=file.mapping.record(record.value))
    return record


def read_lines(file: Input) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank with their numbers, as bytes."""
    return chain.from_iterable(read_line_chunks(file))


def read_line_chunks(file: Input) -> Iterator[Iterator[tuple[int, bytes]]]:
    """Yield the same lines in chunks."""
    before = 0
    for chunk in file.chunks():
        # Millions of blank lines would become millions of objects first.
        lines = [] if chunk.isspace() else chunk.split(b"\n")
        numbered = enumerate(lines, before + 1)
        yield ((number, data) for number, data in numbered if data and not data.isspace())
        before += chunk.count(b"\n")


def parse_record(
    text: str, where: str, line: int, decoder: json.JSONDecoder | None = None
) -> JsonRecord:
    """Parse one line of JSONL."""
    value = parse_json(text, where, line, decoder)
    if isinstance(value, dict):
        return JsonRecord(line, value, where)
    kinds: dict[type, str] = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    kind = kinds.get(type(value), "number")
    raise InputError(f"the line holds a JSON {kind}; an object is expected", where=where, line=line)


def read_json(file: Input) -> Any:
    """Return the JSON value of a file."""
    return parse_json(file.text(), file.name, None)


def parse_json(
    text: str, where: str, line: int | None, decoder: json.JSONDecoder | None = None
) -> Any:
    """Parse standard JSON: no NaN, no duplicate keys, no unpaired surrogates."""
    try:
        value = (decoder or _DECODER).decode(text)
        _refuse_depth(text, value)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False, default=str).encode()
    except json.JSONDecodeError as error:
        expected = "one JSON value" if line is None else "one object per line"
        line = line or error.lineno
        what = error.msg.removesuffix(" at")
        problem = f"not valid JSON: {what} at column {error.colno}; {expected} is expected"
    except UnicodeEncodeError:
        problem = "holds half of a surrogate pair (\\ud800 to \\udfff); write whole characters"
    except RecursionError:
        problem = f"JSON nested too deeply, more than {_DEEPEST} levels; flatten it"
    except ValueError as error:
        problem = str(error)
        if "set_int_max_str_digits" in problem:
            digits = sys.get_int_max_str_digits()
            problem = f"holds a number of more than {digits} digits; write it shorter or as text"
    else:
        return value
    raise InputError(problem, where=where, line=line)


def _refuse_depth(text: str, value: Any) -> None:
    """Raise RecursionError for deep nesting, for which writing or showing the value could fail."""
    opened = text.count("[") + text.count("{")
    # Siblings are not nested in each other, so most files need no closer look.
    siblings = sum(text.count(pair) for pair in ("}, {", "},{", "], [", "],["))
    if opened - siblings <= _DEEPEST:
        return
    level = [value]
    for _ in range(_DEEPEST + 1):
        contents = (inner.values() if type(inner) is dict else inner for inner in level)
        level = [inner for content in contents for inner in content if type(inner) in (dict, list)]
        if not level:
            return
    raise RecursionError


def _refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        duplicate = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"key {duplicate!r} occurs twice in one object; keep one of the two")
    return value


def refuse_constant(name: str) -> Any:
    """Raise ValueError for NaN and the infinities."""
    raise ValueError(f"{name} is not JSON; a finite number or null is expected")


def strict_decoder(constant: Callable[[str], Any] = refuse_constant) -> json.JSONDecoder:
    """Return a decoder that refuses duplicate keys; ``constant`` decides on NaN."""
    return json.JSONDecoder(object_pairs_hook=_refuse_duplicate_keys, parse_constant=constant)


_DECODER = strict_decoder()


def is_number(value: Any) -> bool:
    """Return True for a finite number; a whole number may be larger than any float."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and abs(value) <= sys.float_info.max


def preview(value: Any) -> str:
    """Return a value as JSON, shortened if it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "…"


def text_id(text: str) -> str:
    """Return the id of a query that has none: the start of its text's SHA-256."""
    return "q_" + hashlib.sha256(text.encode()).hexdigest()[:12]


def frame_of(
    rows: Sequence[Mapping[str, Any]], required: Sequence[str], *, where: str = "records"
) -> pl.DataFrame:
    """Return rows as columns of one type each; objects become JSON text, lists stay lists."""
    names: dict[str, None] = dict.fromkeys(required)
    for row in rows:
        names.update(dict.fromkeys(row))
    check_columns(len(names), len(rows), where)
    columns = []
    for name in names:
        values = [row.get(name) for row in rows]
        if name in required or any(value is not None for value in values):
            columns.append(_column(name, values))
    return pl.DataFrame(columns)


def _column(name: str, values: list[Any]) -> pl.Series:
    types = {type(value) for value in values if value is not None}
    if types <= {str}:
        return pl.Series(name, values, dtype=pl.String)
    if types == {bool}:
        return pl.Series(name, values, dtype=pl.Boolean)
    if types == {int} and all(v is None or -(2**63) <= v < 2**63 for v in values):
        return pl.Series(name, values, dtype=pl.Int64)
    too_large = any(isinstance(v, int) and abs(v) > sys.float_info.max for v in values)
    if float in types and types <= {int, float} and not too_large:
        numbers = [None if value is None else float(value) for value in values]
        return pl.Series(name, numbers, dtype=pl.Float64)
    items = (item for value in values for item in value or ()) if types == {list} else ()
    if types == {list} and not any(isinstance(item, (list, dict)) for item in items):
        texts = [None if value is None else [to_text(item) for item in value] for value in values]
        return pl.Series(name, texts, dtype=pl.List(pl.String))
    return pl.Series(name, [None if v is None else to_text(v) for v in values], dtype=pl.String)


def gold_of_rows(
    rows: Sequence[tuple[str, str, float, bool, int | None]],
    file: Input,
    *,
    duplicates: Duplicates,
    query_ids: Sequence[str] | None = None,
) -> Gold:
    """Return gold from rows of query, item, grade, whether it is a hard negative, and line."""
    schema = {"query_id": pl.String, "item_id": pl.String, "grade": pl.Float64}
    types = {**schema, "negative": pl.Boolean, "line": pl.Int64}
    table = pl.DataFrame(rows, schema=types, orient="row")
    if table["negative"].any():
        schema["negative"] = pl.Boolean
    return Gold.from_frame(
        split_spans(table.select(list(schema))),
        query_ids=query_ids,
        duplicates=duplicates,
        lines=None if table["line"].null_count() else table["line"],
        source=file.source,
    )


def whole_if_possible(grade: float) -> float:
    """Return a grade as a whole number if it is one, as other tools write grades."""
    return int(grade) if grade.is_integer() else grade


def to_text(value: Any) -> str:
    """Return a value as text: strings unchanged, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def from_text(value: Any) -> Any:
    """Return the object or list that ``to_text`` turned into text; other values unchanged."""
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    try:
        parsed = json.loads(value)
        return parsed if to_text(parsed) == value else value
    except (ValueError, RecursionError):
        return value


def restore(record: Mapping[str, Any], *, texts: Collection[str] = TEXTS) -> dict[str, Any]:
    """Return a row with objects and lists restored, without nulls; the keys ``texts`` stay text."""
    return {
        name: value if name in texts else from_text(value)
        for name, value in record.items()
        if value is not None
    }


def to_line(record: Mapping[str, Any], *, texts: Collection[str] = TEXTS) -> str:
    """Return one record, restored, as a line of JSON."""
    return json.dumps(restore(record, texts=texts), ensure_ascii=False, allow_nan=False)


def json_rows(frame: pl.DataFrame) -> Iterable[dict[str, Any]]:
    """Return a frame's rows with values that JSON can hold."""
    dates = [name for name, kind in frame.schema.items() if kind.is_temporal()]
    return frame.with_columns(pl.col(dates).cast(pl.String)).iter_rows(named=True)
