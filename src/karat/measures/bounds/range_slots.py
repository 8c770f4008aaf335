"""Slots: the ranks of unjudged items as rows of a table, so that all queries are searched at once.

Where a number of items is relevant, a measure is highest with them in the first slots of a list
and lowest with them in the last. So a search tries numbers, and no two places for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from karat.measures.bounds.unjudged import ABSENT, Listed
from karat.measures.numbers import Values
from karat.measures.ranked import Ints, Mask

# So many cells of a table are worked on at a time.
_CELLS = 1 << 18
_QUERY = np.int64(1) << 32
_Kind = TypeVar("_Kind", np.int64, np.float64)


@dataclass(frozen=True, eq=False)
class Slots:
    """The unjudged items of some queries: a row each, from the top, padded on the right.

    ``rank`` is ABSENT where a list has no further slot; ``size`` counts those it has.
    """

    query: Ints
    rank: Ints
    size: Ints

    @property
    def real(self) -> Mask:
        """Which cells hold an item."""
        return self.rank < ABSENT

    @property
    def first(self) -> Ints:
        """For each state of a list how many of its first slots it tells from the others."""
        return np.arange(self.rank.shape[1] + 1)[None, :]

    @property
    def last(self) -> Ints:
        """How many slots come after the first ones."""
        return np.asarray(np.maximum(self.size[:, None] - self.first, 0))

    def best(self, values: Values) -> Ints:
        """How many of the first slots to fill for the largest value; the fewest that give it."""
        known = np.where(self.first <= self.size[:, None], values, -np.inf)
        return np.asarray(np.argmax(known, axis=1))

    def worst(self, values: Values) -> Ints:
        """How many of the first slots to leave for the smallest value; the most that give it."""
        known = np.where(self.first <= self.size[:, None], values, np.inf)
        return np.asarray(values.shape[1] - 1 - np.argmin(known[:, ::-1], axis=1))


@dataclass(frozen=True, eq=False)
class Places:
    """The ranks of some entries of many lists, sorted, to be counted."""

    query: Ints
    rank: Ints

    def up_to(self, query: Ints, rank: Ints) -> Ints:
        """How many entries each of these queries has up to and including a rank."""
        keys = self.query * _QUERY + self.rank
        start = query * _QUERY
        last = start + np.minimum(rank, _QUERY - 1)
        return np.searchsorted(keys, last, side="right") - np.searchsorted(keys, start)

    def rows(self, query: Ints) -> Ints:
        """The ranks of each of these queries, padded with ABSENT."""
        return rows_of(self.query, self.rank, query, ABSENT)


def rows_of(owner: Ints, values: NDArray[_Kind], query: Ints, fill: float) -> NDArray[_Kind]:
    """Values that belong to queries, sorted by these, as a row for each query asked for."""
    start, stop = np.searchsorted(owner, query), np.searchsorted(owner, query, side="right")
    width = int((stop - start).max(initial=0))
    table = np.full((len(query), width), fill, dtype=values.dtype)
    at = start[:, None] + np.arange(width)
    inside = at < stop[:, None]
    table[inside] = values[at[inside]]
    return table


def slots_of(one: Listed, limit: Ints | None = None) -> Iterator[Slots]:
    """All queries with slots (up to a last rank for each), lists of similar length together."""
    query, rank = one.unjudged.query, one.unjudged.rank
    if limit is not None:
        query, rank = query[rank <= limit[query]], rank[rank <= limit[query]]
    size = np.bincount(query, minlength=one.ranked.n)
    (some,) = np.nonzero(size)
    some = some[np.argsort(size[some], kind="stable")]
    while len(some):
        width = 2 * int(size[some[0]])
        similar = int(np.searchsorted(size[some], width, side="right"))
        here = np.sort(some[: max(1, min(similar, _CELLS // width))])
        yield Slots(here, rows_of(query, rank, here, ABSENT), size[here])
        some = some[len(here) :]


def between(one: Listed, start: Ints, stop: Ints) -> Mask:
    """Which unjudged items stand in the slots of their query from one number to before another."""
    query = one.unjudged.query
    number = np.arange(len(query)) - np.searchsorted(query, query)
    return np.asarray((number >= start[query]) & (number < stop[query]))


def sums_from_top(steps: Values) -> Values:
    """The sum of each row's first cells: none, one, two, … all of them."""
    return np.concatenate((np.zeros((len(steps), 1)), np.cumsum(steps, axis=1)), axis=1)


def sums_from_bottom(steps: Values) -> Values:
    """The sum of what follows each row's first cells, none of these, one, two, … all of them."""
    return sums_from_top(steps[:, ::-1])[:, ::-1]
