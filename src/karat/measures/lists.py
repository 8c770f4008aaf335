"""Lists: the hits of some queries, one query after the other, and the order they are in.

Rows stay where they are; ``order`` says which row stands at which place. Places of one
query are consecutive, so a place minus the query's first place is a rank.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
import polars as pl

from karat.measures.ranked import Ints, Mask


@dataclass(frozen=True, eq=False)
class Lists:
    """Hits of some queries. ``tied`` are the places whose hit ties with the next one's."""

    hits: pl.DataFrame
    codes: Ints
    lengths: Ints
    order: Ints | None = None
    tied: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def of(cls, hits: pl.DataFrame, codes: Ints, lengths: Ints) -> Self:
        """Hits whose rows are grouped by query already."""
        return cls(hits, codes, lengths)

    @cached_property
    def starts(self) -> Ints:
        """The first place of each query."""
        return np.cumsum(self.lengths) - self.lengths

    def inside(self, pairs: Mask) -> Mask:
        """A mask over neighbouring pairs, without those that straddle two queries."""
        pairs[self.starts[(self.starts > 0) & (self.starts <= len(pairs))] - 1] = False
        return pairs

    def query_of(self, rows: Ints) -> Ints:
        """The query (its number in ``codes``) that each row belongs to."""
        return np.searchsorted(np.cumsum(self.lengths), rows, side="right")

    def row_at(self, places: Ints) -> Ints:
        """The row at each place."""
        return places if self.order is None else self.order[places]

    def place_of(self, rows: Ints) -> Ints:
        """The place of each row."""
        return rows if self.order is None else self._places[rows]

    @cached_property
    def _places(self) -> Ints:
        places = np.empty(self.hits.height, dtype=np.int64)
        places[self.order] = np.arange(self.hits.height)
        return places

    def tie_groups(self) -> tuple[Ints, Ints]:
        """First place and end of each group of tied hits."""
        first = (
            np.concatenate(([True], np.diff(self.tied) > 1)) if len(self.tied) else self.tied > 0
        )
        last = np.roll(first, -1)
        return self.tied[first], self.tied[last] + 2

    def without(self, rows: Ints) -> Lists:
        """The same lists with some rows taken out; the rest close up, in no order yet."""
        keep = np.ones(self.hits.height, dtype=bool)
        keep[rows] = False
        lengths = self.lengths - np.bincount(self.query_of(rows), minlength=len(self.codes))
        return Lists.of(self.hits.filter(keep), self.codes, lengths)

    def in_order(self) -> tuple[pl.DataFrame, Ints, Ints, Ints]:
        """All hits as they are ranked: the rows, and the row number, query and rank of each."""
        query = np.repeat(np.arange(len(self.codes)), self.lengths)
        rank = np.arange(1, len(query) + 1) - np.repeat(self.starts, self.lengths)
        rows = self.row_at(np.arange(len(query)))
        return (self.hits if self.order is None else self.hits[rows]), rows, query, rank
