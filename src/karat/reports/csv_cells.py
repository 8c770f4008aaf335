"""Cells of CSV reports: text that a spreadsheet or a terminal only shows."""

from __future__ import annotations

import re

import polars as pl

# What a spreadsheet begins a formula with, also in its wide forms; a tab or a line end before
# one is skipped by some.
_FORMULA = re.compile(r"[=+\-@\t\r\n＝＋－＠]")  # noqa: RUF001
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
# Tabs and line ends are held together by the cell's quotes.
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
    texts = {name: _safe(frame[name]) for name, kind in frame.schema.items() if kind == pl.String}
    return frame.with_columns(**texts).write_csv().encode()


def _safe(column: pl.Series) -> pl.Series:
    values = column.unique().to_list()
    changed = {
        value: cell for value in values if value is not None and (cell := csv_cell(value)) != value
    }
    return column.replace(changed) if changed else column
