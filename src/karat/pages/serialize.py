"""Documents as JSON that is stable to the byte, and tables as CSV that is safe to open."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import polars as pl


class Record:
    """A dataclass whose plain data are its fields."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        names = self.__dataclass_fields__  # type: ignore[attr-defined]
        return {name: plain(getattr(self, name)) for name in names}


def plain(value: Any) -> Any:
    """Return data as JSON can hold it: lists for tuples, dicts for records, null for NaN."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: plain(element) for key, element in value.items()}
    if isinstance(value, tuple | list):
        return [plain(element) for element in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def dumps(document: object, *, sort_keys: bool = True) -> bytes:
    """Return plain data as JSON: sorted keys, shortest floats, a newline at the end."""
    # The metadata of a run may hold dates.
    text = json.dumps(
        document,
        sort_keys=sort_keys,
        indent=2,
        ensure_ascii=False,
        allow_nan=False,
        default=str,
    )
    return (text + "\n").encode()


# How a formula starts in a spreadsheet, also in full-width characters. Some spreadsheets skip
# a tab or line end before it.
_FORMULA = re.compile(r"[=+\-@\t\r\n＝＋－＠]")  # noqa: RUF001
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
# Tabs and line ends are safe inside the quotes of a cell.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def csv_cell(text: str) -> str:
    r"""Return a text as a cell holds it, before it is quoted.

    A quote before what would be a formula makes it text, as OWASP advises. Control characters
    are spelled as JSON spells them. Numbers stay numbers.

    >>> csv_cell("=1+1"), csv_cell("-5"), csv_cell("\x1b[1m"), csv_cell("q-1")
    ("'=1+1", '-5', '\\u001b[1m', 'q-1')
    """
    text = _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    formula = _FORMULA.match(text) and not _NUMBER.fullmatch(text)
    return f"'{text}" if formula else text


def csv_table(frame: pl.DataFrame) -> bytes:
    """Return a table as CSV with a header; what is null is empty."""
    texts = frame.select(pl.col(pl.String))
    cells = {value: csv_cell(value) for column in texts for value in column.unique().drop_nulls()}
    changed = {value: cell for value, cell in cells.items() if cell != value}
    return frame.with_columns(texts.select(pl.all().replace(changed))).write_csv().encode()
