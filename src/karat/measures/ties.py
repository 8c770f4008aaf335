"""The kindest and the harshest order of tied hits: how far a tie rule can move a mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from karat.measures.lists import Lists
from karat.measures.ranked import Entries, Ints, Ranked

if TYPE_CHECKING:
    from karat.measures.rank import Block


@dataclass(frozen=True, eq=False)
class Ties:
    """For each judged hit, the first rank of its group of equal scores and the group's size.

    ``again`` is how often the same group returns the item again.
    """

    start: Ints
    size: Ints
    again: Ints

    @classmethod
    def of(cls, lists: Lists, hits: Entries, again: Ints) -> Ties | None:
        """The groups that these hits are in; None if none of them is tied."""
        if not len(lists.tied) or not len(hits.rank):
            return None
        starts, ends = lists.tie_groups()
        places = lists.starts[hits.query] + hits.rank - 1
        group = np.maximum(np.searchsorted(starts, places, side="right") - 1, 0)
        tied = (starts[group] <= places) & (places < ends[group])
        if not tied.any():
            return None
        start = np.where(tied, starts[group], places) - lists.starts[hits.query] + 1
        size = np.where(tied, ends[group] - starts[group], 1)
        own = np.where(tied, group, -1)
        return cls(start, size, _copies(lists, starts, ends, places, own, again))


def _copies(lists: Lists, starts: Ints, ends: Ints, places: Ints, group: Ints, again: Ints) -> Ints:
    """How often the group of each hit returns its item again; -1 is no group."""
    if not len(again):
        return np.zeros(len(places), dtype=np.int64)
    items = lists.hits["item_id"]
    others = lists.places_of(again)
    theirs = np.maximum(np.searchsorted(starts, others, side="right") - 1, 0)
    inside = (starts[theirs] <= others) & (others < ends[theirs])
    names = ["group", "item"]
    copies = (
        pl.DataFrame({"group": theirs[inside], "item": items.gather(lists.row_at(others[inside]))})
        .group_by(names)
        .len("copies")
    )
    mine = pl.DataFrame({"group": group, "item": items.gather(lists.row_at(places))})
    counted = mine.join(copies, on=names, how="left", maintain_order="left")
    return counted["copies"].fill_null(0).cast(pl.Int64).to_numpy()


def tie_orders(block: Block) -> tuple[Ranked, Ranked] | None:
    """The block with tied hits at their worst and at their best; None where it cannot matter."""
    ties = block.ties
    if ties is None or block.ranked.target.shared or not (ties.size > 1).any():
        return None
    return _ordered(block.ranked, ties, best=False), _ordered(block.ranked, ties, best=True)


def _ordered(ranked: Ranked, ties: Ties, *, best: bool) -> Ranked:
    """Judged hits of each group of ties at its two ends: relevant ones first, or last."""
    hits = ranked.hits
    worth = hits.grade if best else -hits.grade
    # An item comes before its copies, so at their worst those with copies come first.
    copies = np.zeros_like(ties.again) if best else np.where(hits.grade > 0, ties.again, 0)
    late = (hits.grade > 0) & (not best)
    order = np.lexsort((-worth, -copies, late, ties.start, hits.query))
    query, start, size = hits.query[order], ties.start[order], ties.size[order]
    grade = hits.grade[order]
    leads = (grade > 0) == best
    group = np.cumsum(
        np.concatenate(([True], (query[1:] != query[:-1]) | (start[1:] != start[:-1])))
        if len(query)
        else np.empty(0, dtype=bool)
    )
    count = np.bincount(group, minlength=1)[group] if len(group) else group
    first = np.searchsorted(group, group)
    ordinal = np.arange(len(group)) - first
    rank = np.where(leads, start + ordinal, start + size - count + ordinal)
    if copies.any():
        rank = np.where(leads, rank, rank - _from_here_on(copies[order], group))
    entries = Entries(hits.n, query, rank, grade, row=None if hits.row is None else hits.row[order])
    return replace(ranked, hits=entries, found=entries)


def _from_here_on(values: Ints, group: Ints) -> Ints:
    """The sum of each group's values from each one to the group's end."""
    total = np.cumsum(values[::-1])[::-1]
    after = np.searchsorted(group, group, side="right")
    rest: Ints = total - np.append(total, 0)[after]
    return rest
