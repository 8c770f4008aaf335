"""How large what is read may be, and how whoever needs more says so.

A file that is read line by line may have any size. What is limited is what has to be in memory
at once, and what a few bytes can be blown up to: longer than any honest file, small enough
that a broken or hostile one is refused before it fills the memory.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from karat.errors import InputError, UsageError

_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([kmgt]?b?)", re.IGNORECASE)


@dataclass(frozen=True)
class Limit:
    """A number of bytes with the environment variable that sets it."""

    variable: str
    default: int
    about: str
    """What it bounds, in the words of the documentation."""

    def bytes(self) -> int:
        """The limit in force."""
        told = os.environ.get(self.variable, "").strip()
        return size_of(told, self.variable) if told else self.default


LINE = Limit("KARAT_MAX_LINE", 64_000_000, "the longest line")
DOCUMENT = Limit(
    "KARAT_MAX_DOCUMENT",
    512_000_000,
    "the largest document that is read as a whole: JSON, stories, and what comes through a pipe",
)
UNPACKED = Limit(
    "KARAT_MAX_UNPACKED",
    32_000_000,
    "what a packed file may unpack to; unless set, 200 times its size where that is more",
)
LIMITS = (LINE, DOCUMENT, UNPACKED)

# No text that people write packs better; what does is one thing over and over.
TIMES = 200
# A table of more columns is no table of items; its rows are most likely written as columns.
MOST_COLUMNS = 10_000
# Rows that each name columns of their own make a table of nothing but gaps.
_MOST_GAPS, _ALWAYS = 20_000_000, 1_000


def most_unpacked(packed: int) -> int:
    """How many bytes so many packed ones may unpack to."""
    set_by_hand = os.environ.get(UNPACKED.variable, "").strip()
    return UNPACKED.bytes() if set_by_hand else max(UNPACKED.default, TIMES * packed)


def size_of(text: str, what: str) -> int:
    """A number of bytes, as people write it.

    >>> size_of("64MB", "KARAT_MAX_LINE"), size_of("1.5 GB", "KARAT_MAX_LINE")
    (64000000, 1500000000)
    """
    match = _SIZE.fullmatch(text)
    size = 0
    if match is not None:
        unit = match[2].lower().removesuffix("b")
        size = int(float(match[1]) * _UNITS[f"{unit}b" if unit else ""])
    if not 0 < size < 2**63:
        raise UsageError(f"{what} is {text!r}; a size is expected, such as 64MB or 2GB")
    return size


def told(size: int) -> str:
    """A number of bytes in the unit that suits it.

    >>> told(64_000_000), told(1_500_000_000), told(999)
    ('64 MB', '1.5 GB', '999 bytes')
    """
    for unit in ("tb", "gb", "mb", "kb"):
        if size >= _UNITS[unit]:
            shown = "kB" if unit == "kb" else unit.upper()
            return f"{size / _UNITS[unit]:.4g} {shown}"
    return f"{size} bytes"


def too_long_a_line(where: str, line: int | None, limit: int) -> InputError:
    """A line that is longer than any that is read."""
    return InputError(
        f"the line is longer than {told(limit)}, the most that is read; "
        f"end lines with a line feed, or set {LINE.variable} to more",
        where=where,
        line=line,
    )


def too_large_a_document(where: str, limit: int) -> InputError:
    """A document that is larger than any that is read as a whole."""
    return InputError(
        f"is larger than {told(limit)}, the most that is read as a whole; "
        f"use a format with a record a line, in a file, or set {DOCUMENT.variable} to more",
        where=where,
    )


def unpacks_too_far(where: str, packed: int, limit: int) -> InputError:
    """A packed file that hardly holds what it claims to."""
    return InputError(
        f"{told(packed)} of it unpack to more than {told(limit)}, the most that is unpacked; "
        f"if you trust it, set {UNPACKED.variable} to more",
        where=where,
    )


def check_columns(columns: int, rows: int, where: str) -> None:
    """Refuse a table with more columns than any table of items has."""
    most = max(_ALWAYS, min(MOST_COLUMNS, _MOST_GAPS // max(rows, 1)))
    if columns > most:
        raise InputError(
            f"has {columns:,} columns; a table of {rows:,} rows may have {most:,}; "
            "keep the ones that you need",
            where=where,
        )
