"""The first items of every list of a run, in the run's own order, whether anyone judged them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from karat.columns import Source
from karat.errors import InputError
from karat.measures.conventions import Conventions
from karat.measures.listing import Wanted, without_repeats
from karat.measures.prepare import Prepared, prepare
from karat.measures.rank import Block, rank
from karat.tables import Blocks, Gold, InterleavedError, Queries, Run

PAIR = ("query_id", "item_id")


@dataclass(frozen=True, eq=False)
class Tops:
    """The top of each list that a run returned, and what became of the other queries.

    ``hits`` has ``query_id``, ``item_id`` and ``rank``. A query is answered if its call did not
    fail, even with an empty list; it is missing if the run does not have it at all.
    """

    source: Source
    hits: pl.DataFrame
    answered: int
    missing: int
    failed_calls: int
    not_asked: int
    repeats: int
    order_conflicts: int

    def gaps(self) -> dict[str, int]:
        """The counts, as they stand in a document."""
        return {
            "answered": self.answered,
            "missing": self.missing,
            "failed_calls": self.failed_calls,
            "not_asked": self.not_asked,
            "repeats": self.repeats,
            "order_conflicts": self.order_conflicts,
        }


def asked_of(
    runs: Iterable[Run | Blocks],
    *,
    gold: Sequence[Gold] = (),
    queries: Queries | None = None,
) -> list[str]:
    """Which queries there are: those of the queries file, else all that a run or gold has."""
    if queries is not None:
        return queries.frame["query_id"].to_list()
    named: dict[str, None] = {}
    for run in runs:
        named.update(dict.fromkeys(_ids(run)))
    for one in gold:
        named.update(dict.fromkeys(one.query_ids))
    return list(named)


def tops_of(
    run: Run | Blocks, query_ids: Sequence[str], *, depth: int, conventions: Conventions
) -> Tops:
    """The first ``depth`` items of each of these queries, each once: a repeat takes a place."""
    asked = _without_gold(query_ids, conventions)
    wanted = Wanted().with_lists(depth)
    try:
        blocks = [rank(block, asked, wanted) for block in run.blocks()]
    except InterleavedError:
        blocks = [rank(run.read(), asked, wanted)]
    codes = _codes([block.codes for block in blocks])
    failed = _codes([block.failed for block in blocks])
    strangers = sorted({name for block in blocks for name in block.strangers})
    if not len(codes) and not len(failed) and strangers:
        raise _never_meet(run, strangers, query_ids)
    return Tops(
        run.source,
        _hits(blocks, asked, depth),
        answered=len(codes),
        missing=len(query_ids) - len(codes) - len(failed),
        failed_calls=len(failed),
        not_asked=len(strangers),
        repeats=sum(block.repeats for block in blocks),
        order_conflicts=sum(block.conflicts for block in blocks),
    )


def _ids(run: Run | Blocks) -> list[str]:
    """Every query that a run was called for."""
    try:
        blocks = list(_block_ids(run.blocks()))
    except InterleavedError:
        blocks = list(_block_ids([run.read()]))
    return [name for block in blocks for name in block]


def _block_ids(blocks: Iterable[Run]) -> Iterable[list[str]]:
    for block in blocks:
        yield block.hits["query_id"].unique(maintain_order=True).to_list()
        if block.calls is not None:
            yield block.calls["query_id"].to_list()


def _without_gold(query_ids: Sequence[str], conventions: Conventions) -> Prepared:
    nothing = pl.DataFrame(schema=dict.fromkeys(PAIR, pl.String) | {"grade": pl.Float64})
    return prepare(Gold.from_frame(nothing, query_ids=query_ids), conventions)


def _hits(blocks: Sequence[Block], asked: Prepared, depth: int) -> pl.DataFrame:
    ids = pl.Series("query_id", list(asked.query_ids), dtype=pl.String)
    parts = [pl.DataFrame(schema=dict.fromkeys(PAIR, pl.String) | {"rank": pl.Int64})]
    for block in blocks:
        listing = block.ranked.listing
        if listing is None:
            continue
        part = listing.frame.select(
            ids.gather(block.codes[listing.query]),
            "item_id",
            "repeat",
            pl.Series("rank", listing.rank),
        )
        shown = without_repeats(part.filter(pl.col("rank") <= depth))
        parts.append(shown.select(*PAIR, "rank"))
    return pl.concat(parts)


def _codes(parts: Sequence[np.ndarray[tuple[int], np.dtype[np.int64]]]) -> np.ndarray:
    return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *parts]))


def _never_meet(
    run: Run | Blocks, strangers: Sequence[str], query_ids: Sequence[str]
) -> InputError:
    ours, theirs = (" and ".join(map(repr, names[:2])) for names in (strangers, query_ids))
    return InputError(
        f"no query of this run is asked: it has {ours}, and {theirs} are asked;"
        " check that both belong together",
        where=run.source.name,
    )
