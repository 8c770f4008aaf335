"""Lists: the hits of some queries, and the order they are in.

Rows stay where they are; ``order`` says which row stands at which place. Places of one
query are consecutive, so a place minus the query's first place, plus one, is a rank.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.measures.ranked import Ints, Mask

Column = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Lists:
    """Hits of some queries.

    ``owner`` is each row's query (its number in ``codes``), left out where the rows of one
    query follow each other; ``order`` is left out where rows stand in their places already,
    except for those that ``moved`` (places in ascending order, and the row at each).
    ``tied`` are the places whose hit ties with the next one's.
    """

    hits: pl.DataFrame
    codes: Ints
    lengths: Ints
    owner: Ints | None = None
    order: Ints | None = None
    moved: tuple[Ints, Ints] | None = None
    tied: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

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
        if self.owner is not None:
            return self.owner[rows]
        return self.query_at(rows)

    def owners(self) -> Ints:
        """The query of every row."""
        if self.owner is not None:
            return self.owner
        return np.repeat(np.arange(len(self.codes)), self.lengths)

    def row_at(self, places: Ints) -> Ints:
        """The row at each place."""
        rows: Ints = places if self.order is None else self.order[places]
        return rows if self.moved is None else _replaced(rows, *self.moved)

    def places_of(self, rows: Ints) -> Ints:
        """The places of some rows, in ascending order."""
        if self.order is None:
            if self.moved is not None:
                order = np.argsort(self.moved[1])
                rows = _replaced(rows, self.moved[1][order], self.moved[0][order])
            return np.sort(rows)
        wanted = np.zeros(self.hits.height, dtype=bool)
        wanted[rows] = True
        return np.flatnonzero(wanted[self.order])

    def at_places(self, column: Column) -> Column:
        """A column of the rows, put in the order of places."""
        if self.order is not None:
            return np.take(column, self.order)
        if self.moved is not None:
            places, rows = self.moved
            moved, column = column[rows], column.copy()
            column[places] = moved
        return column

    def query_at(self, places: Ints) -> Ints:
        """The query (its number in ``codes``) that each place belongs to."""
        queries: Ints = np.searchsorted(np.cumsum(self.lengths), places, side="right")
        return queries

    def places_in(self, queries: Ints) -> Ints:
        """All places of some queries."""
        sizes = self.lengths[queries]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        places: Ints = np.repeat(self.starts[queries], sizes) + within
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
        owner = None if self.owner is None else self.owner[keep]
        return Lists(self.hits.filter(keep), self.codes, lengths, owner)

    def of_queries(self, keep: Mask) -> Lists:
        """The lists of some queries; those left out must be empty."""
        if keep.all():
            return self
        owner = None if self.owner is None else (np.cumsum(keep) - 1)[self.owner]
        return Lists(self.hits, self.codes[keep], self.lengths[keep], owner)

    def in_order(self, depth: int | None = None) -> tuple[pl.DataFrame, Ints, Ints, Ints]:
        """The hits as they are ranked, to a depth: rows, and row number, query and rank of each."""
        shown = self.lengths if depth is None else np.minimum(self.lengths, depth)
        query = np.repeat(np.arange(len(self.codes)), shown)
        rank = np.arange(1, len(query) + 1) - np.repeat(np.cumsum(shown) - shown, shown)
        rows = self.row_at(self.starts[query] + rank - 1)
        still = self.order is None and self.moved is None and len(rows) == self.hits.height
        return (self.hits if still else self.hits[rows]), rows, query, rank


def _replaced(values: Ints, known: Ints, by: Ints) -> Ints:
    """Values with those that are known (in ascending order) replaced by others."""
    at = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return np.where(known[at] == values, by[at], values)
