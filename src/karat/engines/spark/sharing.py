"""Rows shared out by their queries, packed: a few large pieces move, not every row by itself.

Spark moves rows one by one; packing them first, where they were read, takes half the time.
"""

from __future__ import annotations

import io
import pickle
import secrets
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.engines.spark.tables import FILE, Form

# A piece: of which block, whether of the run or the gold, where its rows were, and where the
# bytes are that they were packed into: here, or in a file that all workers see.
SCHEMA = "block int, side int, partition int, part int, rows binary, file string, start long"
RUN, GOLD = 0, 1
# So many rows are shared out at a time, more where there are many blocks: a piece costs something.
_ROWS = 1_000_000
_ROWS_A_PIECE = 500


@dataclass(frozen=True)
class Sharing:
    """How the rows of one side are shared out among ``blocks``.

    On one machine pieces need not go through Spark: they lie in files of ``folder``, and Spark
    moves where they are.
    """

    form: Form
    side: int
    blocks: int
    folder: str | None = None

    def pieces(self, batches: Iterable[Any], partition: int) -> Iterator[Any]:
        """Batches of Arrow, or frames, as pieces of blocks, in the order of their rows."""
        enough = max(_ROWS, _ROWS_A_PIECE * self.blocks)
        waiting: list[pl.DataFrame] = []
        rows = part = 0
        for batch in batches:
            frame = batch if isinstance(batch, pl.DataFrame) else pl.DataFrame(batch)
            waiting.append(frame)
            rows += frame.height
            if rows >= enough:
                yield self._packed(waiting, partition, part)
                waiting, rows, part = [], 0, part + 1
        if rows:
            yield self._packed(waiting, partition, part)

    def _packed(self, frames: list[pl.DataFrame], partition: int, part: int) -> Any:
        import pyarrow as pa

        # Files may keep the same column as other kinds of numbers.
        frame = pl.concat(frames, how="vertical_relaxed")
        of_row = self._block_of(frame)
        order = np.argsort(of_row, kind="stable")
        frame = frame[order]
        there, starts = np.unique(of_row[order], return_index=True)
        ends = [*starts[1:].tolist(), frame.height]
        spans = zip(starts.tolist(), ends, strict=True)
        packed = [_packed_rows(frame[start:end], self.form.query) for start, end in spans]
        n = len(there)
        columns = {
            "block": pa.array(there.astype(np.int32)),
            "side": pa.array(np.full(n, self.side, dtype=np.int32)),
            "partition": pa.array(np.full(n, partition, dtype=np.int32)),
            "part": pa.array(np.full(n, part, dtype=np.int32)),
            **self._kept(packed),
        }
        return pa.RecordBatch.from_pydict(columns)

    def _kept(self, packed: list[bytes]) -> dict[str, Any]:
        """The packed rows themselves, or the file that they are in and where in it each begins."""
        import pyarrow as pa

        if self.folder is None:
            nowhere = [None] * len(packed)
            file, start = pa.array(nowhere, pa.string()), pa.array(nowhere, pa.int64())
            return {"rows": pa.array(packed, pa.binary()), "file": file, "start": start}
        # Of a task that is tried again every attempt has its own file.
        path = Path(self.folder) / secrets.token_hex(8)
        path.write_bytes(b"".join(packed))
        ends = np.cumsum([len(one) for one in packed])
        return {
            "rows": pa.array([b""] * len(packed), pa.binary()),
            "file": pa.array([str(path)] * len(packed), pa.string()),
            "start": pa.array(ends - [len(one) for one in packed], pa.int64()),
        }

    def _block_of(self, frame: pl.DataFrame) -> NDArray[np.unsignedinteger[Any]]:
        """The block of each row: by its query's id, as text, whatever column that is in."""
        ids = frame[self.form.query].cast(pl.String).fill_null("")
        runs = ids.rle().struct.unnest()
        names = runs["value"].unique()
        hashed = [zlib.crc32(name.encode()) % self.blocks for name in names.to_list()]
        # Numbers below 65,536 are sorted by counting.
        kind = pl.UInt16 if self.blocks <= 1 << 16 else pl.UInt32
        blocks = runs["value"].replace_strict(names, hashed, return_dtype=kind)
        return np.repeat(blocks.to_numpy(), runs["len"].to_numpy())


def _packed_rows(frame: pl.DataFrame, query: str) -> bytes:
    """Rows as bytes; the query's id once for all of its rows that follow each other."""
    runs = frame[query].rle().struct.unnest()
    return pickle.dumps([_as_stream(one) for one in (runs, frame.drop(query))], protocol=5)


def _as_stream(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_ipc_stream(buffer, compression="uncompressed")
    return buffer.getvalue()


def _unpacked_rows(rows: bytes, file: str | None, start: int | None, *, query: str) -> pl.DataFrame:
    """The rows of a piece, wherever they were packed into."""
    # Nobody but our own workers packs them, within one job.
    if file is None:
        packed = pickle.loads(rows)  # noqa: S301
    else:
        with Path(file).open("rb") as opened:
            opened.seek(start or 0)
            packed = pickle.load(opened)  # noqa: S301
    runs, rest = map(pl.read_ipc_stream, packed)
    row = np.repeat(np.arange(runs.height), runs["len"].to_numpy())
    return rest.with_columns(runs["value"].gather(row).alias(query))


def unpacked(pieces: Any, side: int, query: str) -> pl.DataFrame:
    """The rows of one side of a block, in the order of their files."""
    own = pl.DataFrame(pl.from_arrow(pieces)).filter(pl.col("side") == side)
    if not own.height:
        return pl.DataFrame()
    pieces = own.sort("partition", "part").select("rows", "file", "start").iter_rows()
    every = [_unpacked_rows(*where, query=query) for where in pieces]
    frame = pl.concat(every, how="vertical_relaxed")
    if FILE in frame.columns:
        frame = frame.sort(FILE, maintain_order=True).drop(FILE)
    return frame
