"""Limits on the size of inputs and on the memory that reading them takes.

A file that is read line by line may have any size. Limited are single lines, documents that are
read as a whole, and what packed files unpack to, so that a broken or hostile file is refused
before it fills the memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from karat import process_limits
from karat.data.columns import Source
from karat.errors import InputError, UsageError

_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([kmgt]?b?)", re.IGNORECASE)


@dataclass(frozen=True)
class Limit:
    """A number of bytes with the environment variable that sets it."""

    variable: str
    default: int
    about: str
    """What it limits, in the words of the documentation."""

    def bytes(self) -> int:
        """Return the limit in force."""
        setting = os.environ.get(self.variable, "").strip()
        return parse_size(setting, self.variable) if setting else self.default


MAX_LINE = Limit("KARAT_MAX_LINE", 64_000_000, "the longest line")
MAX_DOCUMENT = Limit(
    "KARAT_MAX_DOCUMENT",
    512_000_000,
    "the largest document that is read as a whole: JSON, stories and piped input",
)
MAX_UNPACKED = Limit(
    "KARAT_MAX_UNPACKED",
    32_000_000,
    "what a packed file may unpack to; unless set, 200 times its size if that is more",
)
LIMITS = (MAX_LINE, MAX_DOCUMENT, MAX_UNPACKED)

# Text that people write does not compress better than this; only repetition does.
MAX_RATIO = 200
# A table with more columns most likely has its rows written as columns.
MOST_COLUMNS = 10_000
# Rows that each have their own keys make a table of mostly empty cells.
_MOST_CELLS, _ALWAYS_ALLOWED = 20_000_000, 1_000


def max_unpacked(packed: int) -> int:
    """Return how many bytes a packed file of this size may unpack to."""
    set_by_hand = os.environ.get(MAX_UNPACKED.variable, "").strip()
    return MAX_UNPACKED.bytes() if set_by_hand else max(MAX_UNPACKED.default, MAX_RATIO * packed)


def parse_size(text: str, what: str) -> int:
    """Parse a number of bytes, such as ``64MB``.

    >>> parse_size("64MB", "KARAT_MAX_LINE"), parse_size("1.5 GB", "KARAT_MAX_LINE")
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


def format_bytes(size: int) -> str:
    """Format a number of bytes in a readable unit.

    >>> format_bytes(64_000_000), format_bytes(1_500_000_000), format_bytes(999)
    ('64 MB', '1.5 GB', '999 bytes')
    """
    for unit in ("tb", "gb", "mb", "kb"):
        if size >= _UNITS[unit]:
            label = "kB" if unit == "kb" else unit.upper()
            return f"{size / _UNITS[unit]:.4g} {label}"
    return f"{size} bytes"


def line_too_long(where: str, line: int | None, limit: int) -> InputError:
    return InputError(
        f"the line is longer than {format_bytes(limit)}, the limit; "
        f"end lines with a line feed, or set {MAX_LINE.variable} to more",
        where=where,
        line=line,
    )


def document_too_large(where: str, limit: int) -> InputError:
    return InputError(
        f"is larger than {format_bytes(limit)}, the limit for a file that is read as a whole; "
        f"use a file with one record per line, or set {MAX_DOCUMENT.variable} to more",
        where=where,
    )


def unpacks_too_large(where: str, packed: int, limit: int) -> InputError:
    return InputError(
        f"{format_bytes(packed)} of it unpack to more than {format_bytes(limit)}, the limit; "
        f"if you trust it, set {MAX_UNPACKED.variable} to more",
        where=where,
    )


def check_columns(columns: int, rows: int, where: str) -> None:
    """Raise InputError if a table has too many columns for its number of rows."""
    most = max(_ALWAYS_ALLOWED, min(MOST_COLUMNS, _MOST_CELLS // max(rows, 1)))
    if columns > most:
        raise InputError(
            f"has {columns:,} columns; a table of {rows:,} rows may have {most:,}; "
            "keep the columns that you need",
            where=where,
        )


MEMORY_VARIABLE = "KARAT_MEMORY"
MIN_MEMORY = 250_000_000
# What Python, its libraries and a usual gold take before the first row is read.
_BASE_MEMORY = 150_000_000
# Ranking copies, hashes, sorts and joins the rows: it takes this many times their size.
_RANKING_FACTOR = 6
# Memory that ranking takes per byte of a file; 4 for plain text.
_FILE_FACTORS = {".parquet": 20, ".gz": 40, ".zst": 40}
# A larger block is not faster; a row takes about this many bytes.
_MOST_ROWS, _ROW_BYTES = 400_000, 600
_TEXT_BYTES = 16
# With this much memory every block and chunk can have its fastest size.
_ENOUGH = 500_000_000
_MAX_CHUNK, _MIN_CHUNK = 8 << 20, 1 << 20
# Linux writes "no limit" as a number that no machine has.
_UNLIMITED = 1 << 60

# How many runs this process reads at once; they share its memory.
_readers = 1


def memory_limit() -> int:
    """Return how many bytes of memory karat may take while it reads runs."""
    setting = os.environ.get(MEMORY_VARIABLE, "").strip()
    if not setting:
        return max(MIN_MEMORY, available_memory() // 2)
    size = parse_size(setting, MEMORY_VARIABLE)
    if size < MIN_MEMORY:
        raise UsageError(
            f"{MEMORY_VARIABLE} is {setting!r}; karat needs at least {format_bytes(MIN_MEMORY)}, "
            "most of it for itself and its libraries"
        )
    return size


def available_memory() -> int:
    """Return the memory of the machine, the container or the process, whichever is least."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    limits = [limit for file in _limit_files() if (limit := _limit(file)) is not None]
    # memory_limit() halves this, but a process limit is for this process alone: count it twice.
    return min([pages * size, *limits, *(2 * room for room in process_limits.rooms())])


@contextmanager
def concurrent_readers(runs: int) -> Iterator[int]:
    """Share the memory among that many runs, or as many as fit; yields how many."""
    global _readers
    before, fit = _readers, (memory_limit() - _BASE_MEMORY) // (_ENOUGH - _BASE_MEMORY)
    _readers = max(1, min(runs, fit))
    try:
        yield _readers
    finally:
        _readers = before


def _memory_per_run() -> int:
    return (memory_limit() - _BASE_MEMORY) // _readers


def is_tight() -> bool:
    """Return True if blocks and chunks have to be smaller than their fastest size."""
    return _memory_per_run() < _ENOUGH - _BASE_MEMORY


def max_table_bytes() -> int:
    """Return how large a table of hits may be that is ranked in one piece."""
    return _memory_per_run() // _RANKING_FACTOR


def size_in_memory(hits: pl.DataFrame) -> int:
    """Return the bytes that a table takes; Polars does not count the pointers to texts."""
    texts = sum(kind == pl.String for kind in hits.dtypes)
    return int(hits.estimated_size()) + _TEXT_BYTES * texts * hits.height


def fits_in_memory(source: Source) -> bool:
    """Return True if the file can be read and ranked in one piece."""
    if source.path is None or not source.path.is_file():
        return True
    name = source.path.name.lower()
    factor = next((n for suffix, n in _FILE_FACTORS.items() if name.endswith(suffix)), 4)
    return factor * source.path.stat().st_size <= _memory_per_run()


def block_rows() -> int:
    """Return the number of rows in a block."""
    return min(_MOST_ROWS, _memory_per_run() // _ROW_BYTES)


def chunk_bytes() -> int:
    """Return how many bytes of a text are parsed at once."""
    return min(_MAX_CHUNK, max(_MIN_CHUNK, _memory_per_run() // 50))


def _limit_files() -> list[Path]:
    """Return the files in which cgroups (version 2 and 1) state the memory limit."""
    root = Path("/sys/fs/cgroup")
    nested = []
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:
            folder = root / group.lstrip("/")
            nested += [parent / "memory.max" for parent in (folder, *folder.parents)]
        elif "memory" in controllers.split(","):
            nested.append(root / "memory" / group.lstrip("/") / "memory.limit_in_bytes")
    top_level = [root / "memory.max", root / "memory" / "memory.limit_in_bytes"]
    return [file for file in (*nested, *top_level) if file.is_relative_to(root)]


def _limit(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    limit = int(text) if text.isdigit() else _UNLIMITED
    return limit if limit < _UNLIMITED else None
