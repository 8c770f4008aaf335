"""The kindest and the harshest order of tied hits: how far a tie rule can move a mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from karat.measures.lists import Lists
from karat.measures.ranked import Entries, Ints, Ranked

if TYPE_CHECKING:
    from karat.measures.rank import Block


@dataclass(frozen=True, eq=False)
class Ties:
    """For each judged hit, the first rank of its group of equal scores and the group's size."""

    start: Ints
    size: Ints

    @classmethod
    def of(cls, lists: Lists, hits: Entries) -> Ties | None:
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
        return cls(start, np.where(tied, ends[group] - starts[group], 1))


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
    order = np.lexsort((-worth, ties.start, hits.query))
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
    entries = Entries(hits.n, query, rank, grade, row=None if hits.row is None else hits.row[order])
    return replace(ranked, hits=entries, found=entries)
