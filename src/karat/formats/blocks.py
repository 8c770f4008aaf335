"""Runs that are read block by block within the memory limit, each block holding whole queries.

A run in query order is streamed; one in any other order is partitioned by query, on disk if it is
too large for memory. This module knows rows and their order, not files.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from karat.data.columns import Source
from karat.data.tables import InterleavedError, Order, Run
from karat.errors import InputError, UsageError
from karat.parallel import stop_if_cancelled
from karat.process_limits import ROOMS

_UNITS = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([kmgt]?)b?", re.IGNORECASE)

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
_CGROUPS = Path("/sys/fs/cgroup")

# How many runs this process reads at once; they share its memory.
_readers = 1
# A partition that is too large is partitioned again, so this need not fit every run.
PARTITIONS = 64
_PARTITION = "partition"


@dataclass(frozen=True, eq=False)
class StreamedRun:
    """A run that is read batch by batch; every call to ``blocks`` starts from the top.

    ``batches`` yields checked hits in file order, with their ``line`` when ``strict``.
    """

    name: str
    source: Source
    batches: Callable[[], Iterator[pl.DataFrame]]
    order: Order = "score"
    meta: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False
    staged: bool = False
    expected: str = "at least one row is expected"
    """What a message says that the file should hold."""
    chunks: Callable[[int], Iterator[bytes]] | None = None
    """Yields whole lines of a TREC file, about so many bytes at a time."""

    def blocks(self) -> Iterator[Run]:
        """Yield the run in blocks of whole queries, of many rows because each has a fixed cost.

        Raises ``InterleavedError`` as soon as a query occurs again after another query's rows: such
        a run cannot be streamed.
        """
        closed: set[str] = set()
        budget = memory_budget()
        # The rows of the query that may continue, and all rows before them.
        open_rows: list[pl.DataFrame] = []
        block: list[pl.DataFrame] = []
        # The first block is yielded soon, so that an interleaved run is noticed early.
        enough = 0
        for batch in self._unchanged_batches():
            if not batch.height:
                continue
            runs = batch["query_id"].rle().struct.unnest()
            names: list[str] = runs["value"].to_list()
            if open_rows and open_rows[0]["query_id"][0] != names[0]:
                names.insert(0, open_rows[0]["query_id"][0])
            ended = set(names[:-1])
            if len(ended) < len(names) - 1 or names[-1] in ended or not closed.isdisjoint(names):
                raise InterleavedError("a query came back after another one's hits")
            closed |= ended
            if len(names) == 1:
                open_rows.append(batch)
                if sum(map(size_in_memory, open_rows)) > budget.table:
                    raise _query_too_large(names[0], self.source.name)
                continue
            last = int(runs["len"][-1])
            block += [*open_rows, batch.head(batch.height - last)]
            open_rows = [batch.tail(last)]
            if sum(frame.height for frame in block) >= enough:
                yield self._run(pl.concat(block))
                block, enough = [], budget.block_rows
        if block or open_rows:
            yield self._run(pl.concat([*block, *open_rows]))

    def partitions(self) -> Iterator[Run]:
        """Yield a run in any order in blocks of whole queries, using the disk if it is large."""
        errors: list[InputError] = []
        batches = self._unchanged_batches()
        for frames in partition_by_query(batches, self.source.name, most=memory_budget().table):
            # Sorting looks up rows ten times as fast in one chunk as in hundreds.
            hits = pl.concat(frames, rechunk=True)
            frames.clear()
            try:
                run = self._run(hits)
            except InputError as error:
                errors.append(error)
                continue
            yield run
        if errors:
            # The first error of the file may be in any partition.
            raise min(errors, key=lambda error: error.line or 0)

    def read(self) -> Run:
        """Return the whole run."""
        return self._run(pl.concat(self._unchanged_batches()))

    def _unchanged_batches(self) -> Iterator[pl.DataFrame]:
        empty = True
        with self.source.unchanged():
            for batch in self.batches():
                stop_if_cancelled()
                empty = empty and not batch.height
                yield batch
            if empty:
                raise InputError(f"holds no hits; {self.expected}", where=self.source.name)

    def _run(self, hits: pl.DataFrame) -> Run:
        """Return hits as a run, without incomplete ranks; ``strict`` refuses an item twice."""
        if "rank" in hits.columns and hits["rank"].null_count():
            hits = hits.drop("rank")
        if self.strict:
            pair = [name for name in ("query_id", "item_id", "stage") if name in hits.columns]
            again = hits.filter(~pl.struct(pair).is_first_distinct())
            if again.height:
                query, item, line = again.select("query_id", "item_id", "line").row(0)
                raise duplicate_hit_error(query, item, self.source.name, line)
            hits = hits.drop("line")
        return Run(hits, meta=self.meta, order=self.order, name=self.name, source=self.source)


def duplicate_hit_error(query: str, item: str, where: str, line: int | None = None) -> InputError:
    """Return the error for an item twice in the list of a query."""
    return InputError(
        f"query {query!r} has item {item!r} twice; --strict wants every item once",
        where=where,
        line=line,
    )


def partition_by_query(
    batches: Iterator[pl.DataFrame], where: str, *, most: int, level: int = 0
) -> Iterator[list[pl.DataFrame]]:
    """Yield the rows in partitions of whole queries, none larger than ``most`` bytes.

    ``where`` is the name of the run in messages. Rows that fit are one partition and stay in
    memory.
    """
    first, size = [], 0
    for batch in batches:
        first.append(batch)
        size += size_in_memory(batch)
        if size > most:
            break
    else:
        yield first
        return
    if level:
        query_id = first[0]["query_id"][0]
        # A partition of a single query cannot be made smaller.
        if all((frame["query_id"] == query_id).all() for frame in first):
            raise _query_too_large(query_id, where)
    with _disk_errors(os.environ.get("TMPDIR") or "the folder for temporary files"):
        temporary = tempfile.TemporaryDirectory(prefix="karat-", ignore_cleanup_errors=True)
    with temporary as name:
        folder = Path(name)
        partitions: dict[int, _Partition] = {}
        waiting = first
        for batch in batches:
            if size >= most // 2:
                _write(waiting, partitions, folder, level)
                waiting.clear()
                size = 0
            waiting.append(batch)
            size += size_in_memory(batch)
        _write(waiting, partitions, folder, level)
        waiting.clear()
        for _, partition in sorted(partitions.items()):
            if partition.size <= most:
                yield list(partition.frames())
            else:
                frames = partition.frames()
                yield from partition_by_query(frames, where, most=most, level=level + 1)


def _query_too_large(query_id: str, where: str) -> InputError:
    return InputError(
        f"the hits of query {query_id!r} alone take more than {format_bytes(memory_limit())}, the "
        f"most that karat may take; set {MEMORY_VARIABLE} to more, or cut the lists",
        where=where,
    )


@dataclass
class _Partition:
    """The hits of some queries in files of a folder, each a table."""

    folder: Path
    files: list[Path] = field(default_factory=list)
    size: int = 0

    def add(self, hits: pl.DataFrame) -> None:
        # Long strings are stored by reference, and would all be written with every piece.
        packed = io.BytesIO()
        hits.write_ipc(packed, compression="lz4", compat_level=pl.CompatLevel.oldest())
        self.folder.mkdir(exist_ok=True)
        file = self.folder / str(len(self.files))
        file.write_bytes(packed.getbuffer())
        self.files.append(file)
        self.size += size_in_memory(hits)

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield the tables in the order of writing, and delete their files."""
        for file in self.files:
            with _disk_errors(self.folder):
                packed = io.BytesIO(file.read_bytes())
                file.unlink()
            yield pl.read_ipc(packed)


def _write(
    frames: list[pl.DataFrame], partitions: dict[int, _Partition], folder: Path, level: int
) -> None:
    """Write every row to its partition."""
    hits = pl.concat(frames)
    # Another seed on each level separates queries that shared a partition before.
    number = (hits["query_id"].hash(seed=level) % PARTITIONS).alias(_PARTITION)
    pieces = hits.with_columns(number).partition_by(
        _PARTITION, as_dict=True, maintain_order=True, include_key=False
    )
    with _disk_errors(folder):
        for (place,), piece in pieces.items():
            partitions.setdefault(place, _Partition(folder / str(place))).add(piece)


@contextmanager
def _disk_errors(folder: Path | str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"partitioning the run by query in this folder failed: {error.strerror}; make room "
            f"there, set TMPDIR to another folder, {MEMORY_VARIABLE} to more than "
            f"{format_bytes(memory_limit())}, or sort the run by query",
            where=str(folder),
        ) from None


# The memory that reading runs may take.


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


def memory_limit() -> int:
    """Return how many bytes of memory karat may take while it reads runs.

    Without a setting, half of what the machine, the container or the process has.
    """
    if setting := os.environ.get(MEMORY_VARIABLE, "").strip():
        size = parse_size(setting, MEMORY_VARIABLE)
        if size < MIN_MEMORY:
            raise UsageError(
                f"{MEMORY_VARIABLE} is {setting!r}; karat needs at least "
                f"{format_bytes(MIN_MEMORY)}, most of it for itself and its libraries"
            )
        return size
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    groups = [""]
    with suppress(OSError):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        groups += [line.split(":", 2)[2].lstrip("/") for line in lines]
    # The control groups of this process and those around them, of versions 2 and 1.
    files = [_CGROUPS / "memory" / group / "memory.limit_in_bytes" for group in groups]
    for folder in (_CGROUPS / group for group in groups):
        files += [around / "memory.max" for around in (folder, *folder.parents)]
    for file in files:
        with suppress(OSError, ValueError):
            limits.append(int(file.read_text()))
    # A limit of the process is for karat alone, so it is not halved.
    return max(MIN_MEMORY, min([min(limits) // 2, *ROOMS]))


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


class MemoryBudget(NamedTuple):
    """The sizes at which one run is read, so that all runs read at once fit in memory."""

    total: int
    table: int
    """The bytes of a table of hits that is ranked in one piece."""
    chunk: int
    """The bytes of text that are parsed at once."""
    block_rows: int


def memory_budget() -> MemoryBudget:
    """Return the memory of each run that is being read."""
    total = (memory_limit() - _BASE_MEMORY) // _readers
    return MemoryBudget(
        total,
        table=total // _RANKING_FACTOR,
        chunk=min(_MAX_CHUNK, max(_MIN_CHUNK, total // 50)),
        block_rows=min(_MOST_ROWS, total // _ROW_BYTES),
    )


def size_in_memory(hits: pl.DataFrame) -> int:
    """Return the bytes that a table takes; Polars does not count the pointers to texts."""
    texts = sum(kind == pl.String for kind in hits.dtypes)
    return int(hits.estimated_size()) + _TEXT_BYTES * texts * hits.height


def fits_in_memory(source: Source) -> bool:
    """Return True if the file can be read and ranked in one piece."""
    if source.path is None or not source.path.is_file():
        return True
    factor = _FILE_FACTORS.get(source.path.suffix.lower(), 4)
    return factor * source.path.stat().st_size <= memory_budget().total
