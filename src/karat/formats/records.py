"""JSON read strictly, with the line of each record, and records turned into columns.

Shared by every JSON format; knows what JSON may hold, not what its keys mean.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from karat.columns import ITEM_NAMES, NUL_IN_ID, QUERY_NAMES, TEXT_NAMES
from karat.errors import InputError
from karat.formats.files import Input, decode
from karat.formats.limits import check_columns

if TYPE_CHECKING:
    from karat.formats.field_mapping import Renamed

# Sums and squares of larger numbers leave what a float can hold.
_MOST = 1e100
# What these keys hold is text by what they mean, also where it looks like JSON.
TEXTS = frozenset((*QUERY_NAMES, *ITEM_NAMES, *TEXT_NAMES, "title", "rewritten"))
# Far deeper than any record; Python itself gives up at about ten times as much.
_DEEPEST = 100
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Record(NamedTuple):
    """One JSON object and the line that it stands on."""

    line: int
    value: dict[str, Any]


def read_records(file: Input) -> Iterator[Record]:
    """The objects of a JSONL file; blank lines are skipped, all else must be an object."""
    line = 0
    for chunk in file.chunks():
        if chunk.isspace():
            line += chunk.count(b"\n")
            continue
        for text in decode(chunk, file, first_line=line + 1).split("\n"):
            line += 1
            if text.strip():
                record = record_of_line(text, file.name, line)
                yield record if file.renamed is None else _renamed(record, file.renamed)
        # A chunk ends after its last line feed, where the next line has not begun yet.
        line -= 1


def _renamed(record: Record, renamed: Renamed) -> Record:
    return Record(record.line, renamed.record(record.value))


def record_of_line(text: str, where: str, line: int) -> Record:
    """The object of one line of JSONL."""
    value = parse(text, where, line)
    if isinstance(value, dict):
        return Record(line, value)
    raise InputError(
        f"a JSON {_kind(value)} stands here; an object is expected", where=where, line=line
    )


def read_json(file: Input) -> Any:
    """The one JSON value of a file."""
    return parse(file.text(), file.name, None)


def parse(text: str, where: str, line: int | None) -> Any:
    """JSON as the standard has it: no NaN, no key twice, no half characters."""
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        place = line if line is not None else error.lineno
        raise InputError(
            f"not valid JSON: {error.msg} at column {error.colno}; "
            f"{'one object a line' if line is not None else 'one JSON value'} is expected",
            where=where,
            line=place,
        ) from None
    except RecursionError:
        raise _too_deep(where, line) from None
    except ValueError as error:
        told = str(error)
        if "set_int_max_str_digits" in told:
            most = sys.get_int_max_str_digits()
            told = f"holds a number of more than {most} digits; write it shorter or as text"
        raise InputError(told, where=where, line=line) from None
    _refuse_depth(text, value, where, line)
    if _SURROGATE.search(text):
        _refuse_half_characters(value, where, line)
    return value


def _refuse_depth(text: str, value: Any, where: str, line: int | None) -> None:
    """Refuse what is nested so deeply that writing it again, or showing it, could fail."""
    opened = text.count("[") + text.count("{")
    # One that opens as its neighbour closes lies no deeper, which spares most files the look.
    beside = sum(text.count(pair) for pair in ("}, {", "},{", "], [", "],["))
    if opened - beside <= _DEEPEST:
        return
    level = [value]
    for _ in range(_DEEPEST + 1):
        insides = (one.values() if type(one) is dict else one for one in level)
        level = [one for inside in insides for one in inside if type(one) in (dict, list)]
        if not level:
            return
    raise _too_deep(where, line)


def _too_deep(where: str, line: int | None) -> InputError:
    return InputError(
        f"JSON nested too deeply, more than {_DEEPEST} levels; flatten it", where=where, line=line
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        often = Counter(name for name, _ in pairs)
        twice = next(name for name, count in often.items() if count > 1)
        raise ValueError(f"key {twice!r} occurs twice in one object; keep one of the two")
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON; a finite number or null is expected")


def _refuse_half_characters(value: Any, where: str, line: int | None) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InputError(
            "holds half of a surrogate pair (\\ud800 to \\udfff); whole characters are expected",
            where=where,
            line=line,
        ) from None


def _kind(value: Any) -> str:
    return {list: "array", str: "string", bool: "boolean", type(None): "null"}.get(
        type(value), "number"
    )


def as_id(value: Any, what: str, where: str, line: int | None) -> str:
    """An id as text; whole numbers are spelled, anything else is refused."""
    if isinstance(value, str) and value and "\0" not in value:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value:
        raise InputError(f"{what} {NUL_IN_ID}", where=where, line=line)
    raise InputError(
        f"{what} is {shown(value)}; ids are text or whole numbers", where=where, line=line
    )


def as_number(value: Any, what: str, where: str, line: int | None) -> float:
    """A number that is finite."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # A whole number may be larger than any float.
    if number and abs(value) <= sys.float_info.max:
        return float(value)
    raise InputError(
        f"{what} is {shown(value)}; a finite number is expected", where=where, line=line
    )


def as_amount(value: Any, what: str, where: str, line: int | None) -> float:
    """A number that time or money can come to: not below 0, and one that adds up."""
    number = as_number(value, what, where, line)
    if 0 <= number <= _MOST:
        return number
    expected = "a number from 0" if number < 0 else f"a number up to {_MOST:g}"
    raise InputError(f"{what} is {shown(value)}; {expected} is expected", where=where, line=line)


def as_list(value: Any, what: str, where: str, line: int | None) -> list[Any]:
    """A list; null is an empty one."""
    if value is None:
        return []
    if isinstance(value, list):
        return value
    raise InputError(f"{what} is {shown(value)}; a list is expected", where=where, line=line)


def as_object(value: Any, what: str, where: str, line: int | None) -> dict[str, Any]:
    """An object."""
    if isinstance(value, dict):
        return value
    raise InputError(f"{what} is {shown(value)}; an object is expected", where=where, line=line)


def shown(value: Any) -> str:
    """A value as it stands in a file, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "…"


def text_id(text: str) -> str:
    """The id of a query that has none: the start of its text's SHA-256."""
    return "q_" + hashlib.sha256(text.encode()).hexdigest()[:12]


def frame_of(
    rows: Sequence[Mapping[str, Any]], must: Sequence[str], *, where: str = "records"
) -> pl.DataFrame:
    """Rows as columns of one type each; objects become JSON text, lists stay lists."""
    names: dict[str, None] = dict.fromkeys(must)
    for row in rows:
        names.update(dict.fromkeys(row))
    check_columns(len(names), len(rows), where)
    columns = []
    for name in names:
        values = [row.get(name) for row in rows]
        if name in must or any(value is not None for value in values):
            columns.append(_column(name, values))
    return pl.DataFrame(columns)


def _column(name: str, values: list[Any]) -> pl.Series:
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {str}:
        return pl.Series(name, values, dtype=pl.String)
    if kinds == {bool}:
        return pl.Series(name, values, dtype=pl.Boolean)
    if kinds == {int} and all(v is None or -(2**63) <= v < 2**63 for v in values):
        return pl.Series(name, values, dtype=pl.Int64)
    if float in kinds and kinds <= {int, float} and not any(map(_is_too_large, values)):
        numbers = [None if value is None else float(value) for value in values]
        return pl.Series(name, numbers, dtype=pl.Float64)
    if kinds == {list} and all(map(_is_flat, values)):
        spelled = [None if value is None else [spell(item) for item in value] for value in values]
        return pl.Series(name, spelled, dtype=pl.List(pl.String))
    return pl.Series(name, [None if v is None else spell(v) for v in values], dtype=pl.String)


def _is_too_large(value: Any) -> bool:
    """Whether it is a whole number larger than any float."""
    return isinstance(value, int) and abs(value) > sys.float_info.max


def _is_flat(value: Any) -> bool:
    return value is None or not any(isinstance(item, (list, dict)) for item in value)


def spell(value: Any) -> str:
    """A value as text: strings as they are, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def unspell(value: Any) -> Any:
    """An object or list that ``spell`` made text of, restored; anything else as it is."""
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    try:
        restored = json.loads(value)
        return restored if spell(restored) == value else value
    except (ValueError, RecursionError):
        return value


def restored(record: Mapping[str, Any], *, texts: Collection[str] = TEXTS) -> dict[str, Any]:
    """A table's row with its objects and lists again, and without the keys that are null.

    Under the keys ``texts`` stands text, whatever it looks like.
    """
    return {
        name: value if name in texts else unspell(value)
        for name, value in record.items()
        if value is not None
    }


def to_line(record: Mapping[str, Any], *, texts: Collection[str] = TEXTS) -> str:
    """One record, restored, as a line of JSON."""
    return json.dumps(restored(record, texts=texts), ensure_ascii=False, allow_nan=False)


def flat_rows(frame: pl.DataFrame) -> Iterable[dict[str, Any]]:
    """A frame's rows as JSON can hold them."""
    dates = [name for name, kind in frame.schema.items() if kind.is_temporal()]
    return frame.with_columns(pl.col(dates).cast(pl.String)).iter_rows(named=True)
