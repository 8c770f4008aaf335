"""The unjudged items of two systems side by side, as blocks that are computed on at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from karat.measures.aggregates import Values
from karat.measures.ranges import Listed, in_common
from karat.measures.ranked import Ints, Mask, Ranked
from karat.measures.unjudged import ABSENT

# A block has at most so many queries, and so many cells unless one query needs more.
_QUERIES, _CELLS = 1024, 1 << 19


@dataclass(frozen=True, eq=False)
class Block:
    """Some queries of two systems, a row each: where either list has each unjudged item.

    ``query`` is what a row stands for, ``size`` how many items it has; ranks beyond are ABSENT.
    """

    query: Ints
    size: Ints
    first: Ints
    second: Ints

    @property
    def there(self) -> Mask:
        """Which cells stand for an item."""
        return np.arange(self.first.shape[1]) < self.size[:, None]

    @property
    def upto(self) -> tuple[Ints, Mask]:
        """How many items may be judged relevant: 0, 1, …, and which of these a row has."""
        number = np.arange(self.first.shape[1] + 1)
        return number, number <= self.size[:, None]


@dataclass(frozen=True, eq=False)
class Pair:
    """Two systems over the same queries, and what is unjudged in either."""

    first: Ranked
    second: Ranked
    blocks: tuple[Block, ...]

    @property
    def n(self) -> int:
        """The number of queries."""
        return self.first.n

    @property
    def swapped(self) -> Pair:
        """The second system compared with the first."""
        blocks = tuple(replace(b, first=b.second, second=b.first) for b in self.blocks)
        return Pair(self.second, self.first, blocks)

    @property
    def settled(self) -> Pair:
        """The same lists with nothing left to be judged."""
        return replace(self, blocks=_blocks(np.zeros(self.n, np.int64), _NONE, _NONE))

    def of(self, query: Ints) -> Pair:
        """Return the pair with some of its queries only; the others have no row."""
        wanted = np.zeros(self.n, dtype=bool)
        wanted[query] = True
        kept = [(block, wanted[block.query]) for block in self.blocks]
        blocks = [
            Block(b.query[rows], b.size[rows], b.first[rows], b.second[rows])
            for b, rows in kept
            if rows.any()
        ]
        return replace(self, blocks=tuple(blocks))

    def each(self, compute: Callable[[Block], Values]) -> Values:
        """Return a number for each query, computed block by block."""
        values = np.zeros(self.n)
        for block in self.blocks:
            values[block.query] = compute(block)
        return values

    @property
    def items(self) -> tuple[Ints, Ints]:
        """The query of every unjudged item, and its rank in the second list."""
        blocks = [(np.repeat(b.query, b.size), b.second[b.there]) for b in self.blocks]
        query = np.concatenate([_NONE, *(owner for owner, _ in blocks)])
        return query, np.concatenate([_NONE, *(rank for _, rank in blocks)])

    @cached_property
    def sizes(self) -> Ints:
        """How many unjudged items each query has."""
        sizes = np.zeros(self.n, dtype=np.int64)
        for block in self.blocks:
            sizes[block.query] = block.size
        return sizes

    @cached_property
    def alike(self) -> Mask:
        """Which queries have two lists that no labelling can tell apart."""
        alike = np.equal(self.first.returned, self.second.returned)
        for block in self.blocks:
            alike[block.query] &= (block.first == block.second).all(axis=1)
        one, other = self.first.hits, self.second.hits
        rows = [np.concatenate((getattr(one, a), getattr(other, a))) for a in _PLACE]
        order = np.lexsort(rows)
        query, rank, grade = (row[order] for row in rows)
        twin = (query[1:] == query[:-1]) & (rank[1:] == rank[:-1]) & (grade[1:] == grade[:-1])
        alone = ~(np.append(twin, False) | np.insert(twin, 0, False))[: len(query)]
        alike[query[alone]] = False
        return alike


_NONE = np.empty(0, dtype=np.int64)
_PLACE = ("query", "rank", "grade")
# Every measure of one comparison asks for the same pair.
_PAIRS: WeakKeyDictionary[Listed, WeakKeyDictionary[Listed, Pair]] = WeakKeyDictionary()


def pair_of(first: Listed, second: Listed) -> Pair:
    """Return two systems as a pair, put together once."""
    known = _PAIRS.setdefault(first, WeakKeyDictionary())
    if second not in known:
        common = in_common(first, second)
        sizes = np.bincount(common.query, minlength=first.ranked.n)
        blocks = _blocks(sizes, common.first, common.second)
        known[second] = Pair(first.ranked, second.ranked, blocks)
    return known[second]


def _blocks(sizes: Ints, first: Ints, second: Ints) -> tuple[Block, ...]:
    """Items by query, cut into blocks of queries with about as many."""
    order = np.argsort(sizes, kind="stable")
    starts = np.cumsum(sizes) - sizes
    blocks, at = [], 0
    while at < len(order):
        # Sizes grow, so the last query of a block decides how wide it is.
        ends = np.arange(at, min(at + _QUERIES, len(order)))
        fits = (ends - at + 1) * (sizes[order[ends]] + 1) <= _CELLS
        query = order[at : at + max(int(fits.sum()), 1)]
        at += len(query)
        width = np.arange(int(sizes[query].max()))
        there = width < sizes[query][:, None]
        cells = np.where(there, starts[query][:, None] + width, 0)
        one, other = (
            np.where(there, ranks[cells], ABSENT) if len(ranks) else np.empty(there.shape, np.int64)
            for ranks in (first, second)
        )
        blocks.append(Block(query, sizes[query], one, other))
    return tuple(blocks)
