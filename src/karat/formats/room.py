"""How much memory a run may take: what KARAT_MEMORY says, or half of what the machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from karat import process_limits
from karat.columns import Source
from karat.errors import UsageError
from karat.formats.limits import size_of, told

VARIABLE = "KARAT_MEMORY"
LEAST = 250_000_000
# What Python, its libraries and a common gold take before the first row is read.
_OWN = 150_000_000
# Rows that are ranked are copied, hashed, sorted and met with the gold: so many times their size.
_TIMES = 6
# How many bytes it takes to rank what a byte of a file holds; of plain text, four.
_TIMES_IN_MEMORY = {".parquet": 20, ".gz": 40, ".zst": 40}
# A block of so many rows is as fast as a larger one, and a row of one takes about so much.
_MOST_ROWS, _ROW_BYTES = 400_000, 600
_TEXT_BYTES = 16
# With this much every piece can be as large as is fastest.
_ENOUGH = 500_000_000
_MOST_CHUNK, _LEAST_CHUNK = 8 << 20, 1 << 20
# No limit is written as a number that no machine has.
_UNLIMITED = 1 << 60

# How many runs are read at once by this process, which share its memory.
_readers = 1


def bound() -> int:
    """The most bytes that karat may take while it reads runs."""
    given = os.environ.get(VARIABLE, "").strip()
    if not given:
        return max(LEAST, memory() // 2)
    size = size_of(given, VARIABLE)
    if size < LEAST:
        raise UsageError(
            f"{VARIABLE} is {given!r}; karat needs at least {told(LEAST)}, "
            "most of it for itself and its libraries"
        )
    return size


def memory() -> int:
    """What the machine has, the container that this runs in, or what ulimit leaves."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    limits = [limit for file in _limit_files() if (limit := _limit(file)) is not None]
    # bound() is half of it, and what a process limit leaves is for this process alone.
    return min([pages * size, *limits, *(2 * room for room in process_limits.rooms())])


@contextmanager
def readers(runs: int) -> Iterator[int]:
    """Let that many runs be read at once, or fewer that have room; yields how many."""
    global _readers
    before, fit = _readers, (bound() - _OWN) // (_ENOUGH - _OWN)
    _readers = max(1, min(runs, fit))
    try:
        yield _readers
    finally:
        _readers = before


def _each() -> int:
    """What each of the runs may take that are read now."""
    return (bound() - _OWN) // _readers


def is_tight() -> bool:
    """Whether pieces have to be smaller than is fastest."""
    return _each() < _ENOUGH - _OWN


def whole_bytes() -> int:
    """How large a table of hits may be that is ranked at once."""
    return _each() // _TIMES


def size_in_memory(hits: pl.DataFrame) -> int:
    """The bytes that a table takes; Polars counts of a text only what is in it, not its place."""
    texts = sum(kind == pl.String for kind in hits.dtypes)
    return int(hits.estimated_size()) + _TEXT_BYTES * texts * hits.height


def fits(source: Source) -> bool:
    """Whether a file can be read as a whole and all that is in it be ranked."""
    if source.path is None or not source.path.is_file():
        return True
    name = source.path.name.lower()
    times = next((n for ending, n in _TIMES_IN_MEMORY.items() if name.endswith(ending)), 4)
    return times * source.path.stat().st_size <= _each()


def block_rows() -> int:
    """How many rows make a block, where queries are short."""
    return min(_MOST_ROWS, _each() // _ROW_BYTES)


def chunk_bytes() -> int:
    """How much of a text is parsed at once; there are some such pieces at a time."""
    return min(_MOST_CHUNK, max(_LEAST_CHUNK, _each() // 50))


def _limit_files() -> list[Path]:
    """Where Linux says how much a container may take, in its newer and its older way."""
    root = Path("/sys/fs/cgroup")
    own = []
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, kinds, place = line.split(":", 2)
        if not kinds:
            folder = root / place.lstrip("/")
            own += [one / "memory.max" for one in (folder, *folder.parents)]
        elif "memory" in kinds.split(","):
            own.append(root / "memory" / place.lstrip("/") / "memory.limit_in_bytes")
    inside = [root / "memory.max", root / "memory" / "memory.limit_in_bytes"]
    return [file for file in (*own, *inside) if file.is_relative_to(root)]


def _limit(file: Path) -> int | None:
    try:
        said = file.read_text().strip()
    except OSError:
        return None
    limit = int(said) if said.isdigit() else _UNLIMITED
    return limit if limit < _UNLIMITED else None
