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

_UNITS = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([kmgt]?)b?", re.IGNORECASE)


@dataclass(frozen=True)
class SizeLimit:
    """A number of bytes with the environment variable that sets it."""

    variable: str
    default: int
    about: str
    """What it limits, in the words of the documentation."""
    problem: str
    """What a message says of an input beyond the ``{limit}``."""

    def bytes(self) -> int:
        """Return the limit in force."""
        setting = os.environ.get(self.variable, "").strip()
        return parse_size(setting, self.variable) if setting else self.default

    def error(self, where: str, line: int | None = None, *, most: int | None = None) -> InputError:
        """Return the error for an input beyond the limit, or beyond ``most`` if given."""
        limit = format_bytes(self.bytes() if most is None else most)
        problem = self.problem.format(limit=limit)
        return InputError(f"{problem}, or set {self.variable} to more", where=where, line=line)


MAX_LINE = SizeLimit(
    "KARAT_MAX_LINE",
    64_000_000,
    "the longest line",
    "the line is longer than {limit}, the limit; end lines with a line feed",
)
MAX_DOCUMENT = SizeLimit(
    "KARAT_MAX_DOCUMENT",
    512_000_000,
    "the largest document that is read as a whole: JSON, stories and piped input",
    "is larger than {limit}, the limit for a file that is read as a whole; use a file with one "
    "record per line",
)
MAX_UNPACKED = SizeLimit(
    "KARAT_MAX_UNPACKED",
    32_000_000,
    "what a packed file may unpack to; unless set, 200 times its size if that is more",
    "unpacks to more than {limit}, the limit; check where it comes from",
)
LIMITS = (MAX_LINE, MAX_DOCUMENT, MAX_UNPACKED)

# Text that people write does not compress better than this; only repetition does.
_MAX_RATIO = 200
# A table with more columns most likely has its rows written as columns.
_MOST_COLUMNS = 10_000
# Rows that each have their own keys make a table of mostly empty cells.
_MOST_CELLS, _ALWAYS_ALLOWED = 20_000_000, 1_000


def max_unpacked(packed: int) -> int:
    """Return how many bytes a packed file of this size may unpack to."""
    set_by_hand = os.environ.get(MAX_UNPACKED.variable, "").strip()
    return MAX_UNPACKED.bytes() if set_by_hand else max(MAX_UNPACKED.default, _MAX_RATIO * packed)


def parse_size(text: str, what: str) -> int:
    """Parse a number of bytes, such as ``64MB``.

    >>> parse_size("64MB", "KARAT_MAX_LINE"), parse_size("1.5 GB", "KARAT_MAX_LINE")
    (64000000, 1500000000)
    """
    size = 0
    if match := _SIZE.fullmatch(text):
        factors = {unit[0].lower(): factor for unit, factor in _UNITS.items()}
        size = int(float(match[1]) * factors.get(match[2].lower(), 1))
    if not 0 < size < 2**63:
        raise UsageError(f"{what} is {text!r}; a size is expected, such as 64MB or 2GB")
    return size


def format_bytes(size: int) -> str:
    """Format a number of bytes in a readable unit.

    >>> format_bytes(64_000_000), format_bytes(1_500_000_000), format_bytes(999)
    ('64 MB', '1.5 GB', '999 bytes')
    """
    for unit, factor in _UNITS.items():
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} bytes"


def check_columns(columns: int, rows: int, where: str) -> None:
    """Raise InputError if a table has too many columns for its number of rows."""
    most = max(_ALWAYS_ALLOWED, min(_MOST_COLUMNS, _MOST_CELLS // max(rows, 1)))
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
    """Return how many bytes of memory karat may take while it reads runs.

    Without a setting, half of what the machine, the container or the process has.
    """
    setting = os.environ.get(MEMORY_VARIABLE, "").strip()
    if not setting:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        # A limit of the process is for karat alone, so it is not halved.
        shared = min([machine, *_cgroup_limits()]) // 2
        return max(MIN_MEMORY, min([shared, *process_limits.rooms()]))
    size = parse_size(setting, MEMORY_VARIABLE)
    if size < MIN_MEMORY:
        raise UsageError(
            f"{MEMORY_VARIABLE} is {setting!r}; karat needs at least {format_bytes(MIN_MEMORY)}, "
            "most of it for itself and its libraries"
        )
    return size


def _cgroup_limits(root: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """Return the memory limits of this process's control groups, versions 2 and 1."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    files = {root / "memory.max", root / "memory" / "memory.limit_in_bytes"}
    for line in lines:
        group = line.split(":", 2)[2].lstrip("/")
        files |= {folder / "memory.max" for folder in (root / group, *(root / group).parents)}
        files.add(root / "memory" / group / "memory.limit_in_bytes")
    limits = []
    for file in files:
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < _UNLIMITED:
            limits.append(int(text))
    return limits


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
    factor = _FILE_FACTORS.get(source.path.suffix.lower(), 4)
    return factor * source.path.stat().st_size <= _memory_per_run()


def block_rows() -> int:
    """Return the number of rows in a block."""
    return min(_MOST_ROWS, _memory_per_run() // _ROW_BYTES)


def chunk_bytes() -> int:
    """Return how many bytes of a text are parsed at once."""
    return min(_MAX_CHUNK, max(_MIN_CHUNK, _memory_per_run() // 50))
