"""Runs too large for memory: whole queries cut out of a stream of batches.

Knows rows and their order, not files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from karat.abreast import go_on
from karat.columns import Source
from karat.errors import InputError
from karat.formats.room import block_rows, size_in_memory, whole_bytes
from karat.formats.spilling import parted, too_large_a_query
from karat.tables import InterleavedError, Order, Run


def whole_queries(batches: Iterator[pl.DataFrame], where: str = "a run") -> Iterator[pl.DataFrame]:
    """Batches cut anew so that no query is split between two.

    Raises ``InterleavedError`` as soon as a query turns up again after another one's
    rows: such a run cannot be streamed. ``where`` is what messages call the run.
    """
    closed: set[str] = set()
    most = whole_bytes()
    carry: pl.DataFrame | None = None
    for batch in batches:
        if not batch.height:
            continue
        pieces = [batch] if carry is None else [carry, batch]
        runs = batch["query_id"].rle().struct.unnest()
        names: list[str] = runs["value"].to_list()
        open_name = None if carry is None else carry["query_id"][0]
        if open_name is not None and names[0] != open_name:
            names.insert(0, open_name)
        _note_closed(names, closed)
        if len(names) == 1:
            carry = joined(pieces)
            if size_in_memory(carry) > most:
                raise too_large_a_query(names[0], where)
            continue
        last = int(runs["len"][-1])
        pieces[-1] = batch.head(batch.height - last)
        carry = batch.tail(last)
        yield joined(pieces)
    if carry is not None:
        yield carry


def joined(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """The frames as one; ranks count as given only if all frames have them."""
    if not all("rank" in frame.columns for frame in frames):
        frames = [frame.drop("rank", strict=False) for frame in frames]
    return pl.concat(frames)


def _gathered(batches: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Small batches put together, since every block costs a little whatever its size.

    The first goes out as it is, so that rows in no order are noticed early.
    """
    frames: list[pl.DataFrame] = []
    enough = 0
    for batch in batches:
        frames.append(batch)
        if sum(frame.height for frame in frames) >= enough:
            yield joined(frames)
            frames, enough = [], block_rows()
    if frames:
        yield joined(frames)


def _note_closed(names: list[str], closed: set[str]) -> None:
    """Take down the queries that ended; the last of ``names`` may still go on."""
    ended = set(names[:-1])
    if len(ended) < len(names) - 1 or names[-1] in ended:
        raise InterleavedError(f"query {names[-1]!r} is not in one piece")
    if not closed.isdisjoint(names):
        raise InterleavedError("a query came back after another one's hits")
    closed |= ended


@dataclass(frozen=True, eq=False)
class Streamed:
    """A run that is read batch by batch; every call to ``blocks`` starts from the top.

    ``batches`` gives checked hits in file order, with their ``line`` when ``strict``.
    """

    name: str
    source: Source
    batches: Callable[[], Iterator[pl.DataFrame]]
    order: Order = "score"
    meta: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False
    staged: bool = False

    def blocks(self) -> Iterator[Run]:
        """The run in pieces of whole queries; ``InterleavedError`` if there are none."""
        for hits in whole_queries(_gathered(self._unchanged()), self.source.name):
            yield self._run(hits)

    def parted(self) -> Iterator[Run]:
        """A run in any order in pieces of whole queries; by way of the disk if it is large."""
        ranked = True

        def batches() -> Iterator[pl.DataFrame]:
            nonlocal ranked
            for batch in self._unchanged():
                ranked = ranked and "rank" in batch.columns
                yield batch

        refused: list[InputError] = []
        for frames in parted(batches(), self.source.name, most=whole_bytes()):
            hits = joined(frames)
            frames.clear()
            try:
                run = self._run(hits if ranked else hits.drop("rank", strict=False))
            except InputError as error:
                refused.append(error)
                continue
            yield run
        if refused:
            # The one that comes first in the file may be in any part.
            raise min(refused, key=lambda error: error.line or 0)

    def read(self) -> Run:
        """The whole run in memory."""
        return self._run(joined(list(self._unchanged())))

    def _unchanged(self) -> Iterator[pl.DataFrame]:
        with self.source.unchanged():
            for batch in self.batches():
                go_on()
                yield batch

    def _run(self, hits: pl.DataFrame) -> Run:
        if self.strict:
            hits = once_each(hits, self.source)
        return Run(hits, meta=self.meta, order=self.order, name=self.name, source=self.source)


def once_each(hits: pl.DataFrame, source: Source) -> pl.DataFrame:
    """Hits without their ``line``; the same item twice for one query is refused."""
    pair = [name for name in ("query_id", "item_id", "stage") if name in hits.columns]
    first = hits.select(pl.struct(pair).is_first_distinct()).to_series()
    if not first.all():
        row = int((~first).arg_true()[0])
        query, item, line = hits.select("query_id", "item_id", "line").row(row)
        raise InputError(
            f"query {query!r} has item {item!r} twice; --strict wants every item once",
            where=source.name,
            line=line,
        )
    return hits.drop("line")
