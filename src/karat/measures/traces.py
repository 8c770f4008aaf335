"""What stays of a run once it is scored: where its judged hits stood, and what it said of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from karat.measures.ranked import Entries, Ints, Ranked, Repeats

if TYPE_CHECKING:
    from karat.measures.prepare import Prepared
    from karat.measures.rank import Block

# What a run may say of a hit besides its place.
FACTS = {
    "score": pl.Float64,
    "similarity": pl.Float64,
    "version": pl.String,
    "source": pl.String,
}


@dataclass(frozen=True, eq=False)
class Trace:
    """Every query of a score table, in its order, with all judged hits of its list.

    ``ranked`` lets any measure of ranks be computed again, at any cut-off; ``facts`` has a row
    for each of its hits: item_id, score, similarity, version, source; null where none is told.
    A query that the run does not answer has an empty list.
    """

    ranked: Ranked
    facts: pl.DataFrame


def facts_of(hits: pl.DataFrame, rows: Ints) -> pl.DataFrame:
    """What the run says of the hits in some rows."""
    told = [
        pl.col(name).cast(kind) if name in hits.columns else pl.lit(None, kind).alias(name)
        for name, kind in FACTS.items()
    ]
    return hits[rows].select("item_id", *told)


def traced(blocks: Sequence[Block], gold: Prepared) -> Trace:
    """The blocks of a run put together, each query in its place."""
    n = len(gold.query_ids)
    returned = np.zeros(n, dtype=np.int64)
    for block in blocks:
        returned[block.codes] = block.ranked.returned
    hits, order = _joined([(b, b.ranked.hits) for b in blocks], gold)
    found, _ = _joined([(b, b.ranked.found) for b in blocks], gold)
    nothing = pl.DataFrame(schema={"item_id": pl.String, **FACTS})
    facts = pl.concat([nothing, *(block.facts for block in blocks)])
    ranked = Ranked(gold.target(np.arange(n)), hits, found, returned, repeats=_repeats(blocks))
    return Trace(ranked, facts[order])


def _repeats(blocks: Sequence[Block]) -> Repeats | None:
    """The places of all blocks at which a list returns an item again."""
    some = [(block.codes, block.ranked.repeats) for block in blocks]
    known = [(codes[own.query], own.rank) for codes, own in some if own is not None]
    if not known:
        return None
    query, rank = (np.concatenate(side) for side in zip(*known, strict=True))
    order = np.lexsort((rank, query))
    return Repeats(query[order], rank[order])


def _joined(parts: Sequence[tuple[Block, Entries]], gold: Prepared) -> tuple[Entries, Ints]:
    """The entries of all blocks by query and rank, and the order that put them there."""
    nothing = np.empty(0, dtype=np.int64)
    query = np.concatenate([nothing, *(block.codes[own.query] for block, own in parts)])
    rank = np.concatenate([nothing, *(own.rank for _, own in parts)])
    row = np.concatenate([nothing, *(_rows(block, own, gold) for block, own in parts)])
    grade = np.concatenate([np.empty(0), *(own.grade for _, own in parts)])
    order = np.lexsort((rank, query))
    repeat, best = (
        np.concatenate([getattr(own, name) for _, own in parts])[order]
        if parts and all(getattr(own, name) is not None for _, own in parts)
        else None
        for name in ("repeat", "best")
    )
    entries = Entries(
        len(gold.query_ids), query[order], rank[order], grade[order], repeat, row[order], best
    )
    return entries, order


def _rows(block: Block, entries: Entries, gold: Prepared) -> Ints:
    """The place of each entry's judgment among those of all queries."""
    if entries.row is None:
        return np.zeros(len(entries.rank), dtype=np.int64)
    return gold.rows_of(block.codes)[0][entries.row]
