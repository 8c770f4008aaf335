"""Hits in any order, too many for memory: parted by query into files on disk, then read in turn.

Every part holds whole queries, its rows in the order in which they came. The files are in a
folder of their own among the system's temporary ones, and gone when the last part is read.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from karat.errors import InputError
from karat.formats.files import FULL
from karat.formats.limits import told
from karat.formats.room import VARIABLE, bound, size_in_memory

# A part that is still too large is parted again, so this need not fit every run.
PARTS = 64
_PART = "part"


@dataclass
class _Part:
    """Some queries' hits in a file: pieces one after the other, each a table of its own."""

    path: Path
    pieces: list[int] = field(default_factory=list)
    size: int = 0

    def add(self, hits: pl.DataFrame) -> None:
        # Larger strings are held by reference, and would all be written with every piece.
        packed = io.BytesIO()
        hits.write_ipc(packed, compression="lz4", compat_level=pl.CompatLevel.oldest())
        with self.path.open("ab") as file:
            file.write(packed.getbuffer())
        self.pieces.append(packed.tell())
        self.size += size_in_memory(hits)

    def frames(self) -> Iterator[pl.DataFrame]:
        """The pieces in the order in which they came; the file is gone after the last."""
        with self.path.open("rb") as file:
            for length in self.pieces:
                with _told(self.path.parent):
                    packed = io.BytesIO(file.read(length))
                yield pl.read_ipc(packed)
        self.path.unlink()


def parted(
    batches: Iterator[pl.DataFrame], where: str, *, most: int, level: int = 0
) -> Iterator[list[pl.DataFrame]]:
    """The rows of all batches in parts of whole queries, none larger than ``most`` bytes.

    ``where`` is what messages call the run. What fits is one part and never sees the disk.
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
        _refuse_one_query(first, where)
    with _folder() as folder:
        parts = _written(first, batches, folder, most, level)
        for part in parts:
            if part.size <= most:
                yield list(part.frames())
            else:
                yield from parted(part.frames(), where, most=most, level=level + 1)


def _written(
    first: list[pl.DataFrame],
    rest: Iterator[pl.DataFrame],
    folder: Path,
    most: int,
    level: int,
) -> list[_Part]:
    """Every row in the file of its part; ``first`` is emptied."""
    parts: dict[int, _Part] = {}
    waiting, size = first, sum(size_in_memory(frame) for frame in first)
    while True:
        if size >= most // 2:
            _write(waiting, parts, folder, level)
            waiting.clear()
            size = 0
        batch = next(rest, None)
        if batch is None:
            break
        waiting.append(batch)
        size += size_in_memory(batch)
    _write(waiting, parts, folder, level)
    waiting.clear()
    return [parts[number] for number in sorted(parts)]


def _write(frames: list[pl.DataFrame], parts: dict[int, _Part], folder: Path, level: int) -> None:
    """Frames with the same columns go together, which makes larger pieces."""
    while frames:
        columns = frames[0].columns
        same = next((n for n, one in enumerate(frames) if one.columns != columns), len(frames))
        hits, frames = pl.concat(frames[:same]), frames[same:]
        # A query must not meet the same others again in what is parted a second time.
        number = (hits["query_id"].hash(seed=level) % PARTS).alias(_PART)
        pieces = hits.with_columns(number).partition_by(
            _PART, as_dict=True, maintain_order=True, include_key=False
        )
        with _told(folder):
            for (place,), piece in pieces.items():
                parts.setdefault(place, _Part(folder / str(place))).add(piece)


def _refuse_one_query(frames: list[pl.DataFrame], where: str) -> None:
    """A part that holds one query only cannot be made smaller."""
    first = frames[0]["query_id"][0]
    if all((frame["query_id"] == first).all() for frame in frames):
        raise too_large_a_query(first, where)


def too_large_a_query(query_id: str, where: str) -> InputError:
    """One query whose hits alone are beyond the bound."""
    return InputError(
        f"the hits of query {query_id!r} alone take more than {told(bound())}, the most that karat"
        f" may take; set {VARIABLE} to more, or cut the lists",
        where=where,
    )


@contextmanager
def _folder() -> Iterator[Path]:
    try:
        made = tempfile.TemporaryDirectory(prefix="karat-", ignore_cleanup_errors=True)
    except OSError as error:
        raise _no_room(
            os.environ.get("TMPDIR") or "the folder for temporary files", error
        ) from None
    with made as name:
        yield Path(name)


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _no_room(folder, error) from None


def _no_room(folder: Path | str, error: OSError) -> InputError:
    room = "make room there, " if error.errno in FULL else ""
    return InputError(
        f"the run is parted by query in this folder, and that failed: "
        f"{error.strerror or os.strerror(error.errno or 0)}; {room}set TMPDIR to another folder, "
        f"{VARIABLE} to more than {told(bound())}, or sort the run by query",
        where=str(folder),
    )
