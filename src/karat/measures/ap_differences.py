"""Differences of average precision: exact for a few items, else a range that surely holds them.

The precisions at relevant ranks add up to a sum over ranks t: with C relevant items down to t,
each t counts C (C + 1) / 2 times 1 / t - 1 / (t + 1), and the last one 1 / t.
"""

from __future__ import annotations

import numpy as np

from karat.measures.aggregates import Values
from karat.measures.names import Measure
from karat.measures.pairs import Block, Pair
from karat.measures.prepare import Prepared
from karat.measures.ranked import Entries, Ints, Mask, Ranked, ratio
from karat.measures.unjudged import ABSENT

# So many items that matter are tried in all ways.
FEW = 12
_CELLS = 1 << 21
# The number of relevant items is looked at in ranges that grow so, the best of which are halved.
_GROWTH, _ROUNDS = 1.5, 24


def highest_ap(measure: Measure, pair: Pair, gold: Prepared) -> tuple[Values, Mask]:
    """Return the highest difference, and where it is exact."""
    exact = np.zeros(pair.n, dtype=bool)
    limit, divisor = pair.first.limit(measure.k), _divisor(measure, pair, gold)
    rel = rel_of(measure, gold)
    values = pair.each(lambda block: _surely_below(pair, block, limit, divisor, rel))
    for block in pair.blocks:
        seen = np.minimum(block.first, block.second) <= _last(limit[block.query])[:, None]
        matter = (seen & block.there).sum(axis=1)
        for few in range(FEW + 1):
            rows = np.flatnonzero(matter == few)
            for at in range(0, len(rows), max(_CELLS >> few, 1)):
                part = _matter(block, rows[at : at + max(_CELLS >> few, 1)], seen, few)
                values[part.query] = _tried(pair, part, limit, divisor, rel)
                exact[part.query] = True
    return values, exact


def _last(limit: Ints) -> Ints:
    """Return the last rank that counts, where an absent item has none."""
    return np.minimum(limit, ABSENT - 1)


class _Divisor:
    """What precisions are divided by, when so many items are relevant besides the gold."""

    def __init__(self, total: Values, most: Ints) -> None:
        self.total, self.most = total, most

    def at(self, query: Ints, more: Ints) -> Values:
        return np.minimum(self.total[query] + more, self.most[query])


def _divisor(measure: Measure, pair: Pair, gold: Prepared) -> _Divisor:
    total = pair.first.target.relevant(rel_of(measure, gold))
    forgiving = measure.arguments.get("norm") == "k"
    return _Divisor(total, pair.first.ideal_limit(measure.k if forgiving else None))


def _matter(block: Block, rows: Ints, seen: Mask, few: int) -> Block:
    """Return some rows, with those items only that a list holds within the cut-off."""
    order = np.argsort(~seen[rows], axis=1, kind="stable")[:, :few]
    one, other = (
        np.take_along_axis(ranks[rows], order, axis=1) for ranks in (block.first, block.second)
    )
    return Block(block.query[rows], block.size[rows], one, other)


def _tried(pair: Pair, part: Block, limit: Ints, divisor: _Divisor, rel: float) -> Values:
    """Return the highest of all labellings: items that do not matter are all relevant, or none."""
    few = part.first.shape[1]
    chosen = (np.arange(1 << few)[:, None] >> np.arange(few) & 1).astype(np.float64)
    above, below = np.triu_indices(few, 1)
    features = np.hstack((chosen, chosen[:, above] * chosen[:, below]))
    sums = [
        _judged(lists, part, limit, rel)[:, None]
        + _terms(lists, rank, part, limit, rel) @ features.T
        for lists, rank in ((pair.first, part.first), (pair.second, part.second))
    ]
    gap, number = sums[1] - sums[0], chosen.sum(axis=1).astype(np.int64)
    idle = (part.size - few)[:, None]
    values = [
        ratio(gap, divisor.at(part.query[:, None], number + more)) for more in (0 * idle, idle)
    ]
    return np.asarray(np.maximum(*values).max(axis=1))


def _judged(lists: Ranked, part: Block, limit: Ints, rel: float) -> Values:
    """Return the precisions of the judged items, added up."""
    hits = lists.hits
    mask = hits.relevant(rel) & (hits.rank <= limit[hits.query])
    return hits.sum(mask, hits.so_far(mask) / hits.rank)[part.query]


def _terms(lists: Ranked, rank: Ints, part: Block, limit: Ints, rel: float) -> Values:
    """Return what each item adds with the gold, then each pair of items: 1 / the lower rank."""
    last = _last(limit[part.query])[:, None]
    hits = lists.hits.where(lists.hits.relevant(rel))
    hits = hits.where(hits.rank <= limit[hits.query])
    deepest = int(np.max(np.where(rank <= last, rank, 0), initial=hits.rank.max(initial=0)))
    inside = np.where(rank <= last, rank, deepest + 1)
    counts = hits_so_far(hits, part.query, deepest)
    lower = np.diff(counts, axis=1, prepend=0) / np.maximum(np.arange(deepest + 1), 1)
    # At each rank: the gold above it brings 1 / rank each, the gold below its own 1 / rank.
    below = lower.sum(axis=1, keepdims=True) - np.cumsum(lower, axis=1)
    single = (counts + 1) / np.maximum(np.arange(deepest + 1), 1) + below
    single = np.hstack((single, np.zeros((len(rank), 1))))
    one, other = np.triu_indices(rank.shape[1], 1)
    deeper = np.maximum(inside[:, one], inside[:, other])
    pairs = np.where(deeper <= deepest, 1.0 / np.maximum(deeper, 1), 0.0)
    return np.hstack((np.take_along_axis(single, inside, axis=1), pairs))


class _Counts:
    """Down to each rank: relevant gold of both lists, and unjudged items in one, both or none."""

    def __init__(self, pair: Pair, block: Block, limit: Ints, rel: float) -> None:
        hits = [lists.hits.where(lists.hits.relevant(rel)) for lists in (pair.first, pair.second)]
        there = [np.where(r < ABSENT, r, 0).max(initial=1) for r in (block.first, block.second)]
        last = limit[block.query]
        deepest = int(min(last.max(), max(*there, *(h.rank.max(initial=0) for h in hits))))
        self.gold_first, self.gold_second = (
            hits_so_far(own, block.query, deepest)[:, 1:] for own in hits
        )
        self.both = so_far(np.maximum(block.first, block.second), deepest)[:, 1:]
        self.only_first = so_far(block.first, deepest)[:, 1:] - self.both
        self.only_second = so_far(block.second, deepest)[:, 1:] - self.both
        held = self.both + self.only_first + self.only_second
        self.neither = block.size[:, None] - held
        rank, last = np.arange(1, deepest + 1), np.minimum(last, deepest)[:, None]
        share = np.where(rank < last, 1.0 / (rank * (rank + 1.0)), 1.0 / rank)
        self.share = np.where(rank <= last, share, 0.0)

    def most(self, rows: Ints, fewest: Ints, many: Ints) -> Values:
        """No labelling with so many relevant items has a higher difference of sums.

        At each rank by itself, items of the second list alone are the best to be relevant;
        the shared ones help where the second list is ahead, and those of the first never do.
        """
        fewest, many = fewest[:, None], many[:, None]
        only, both, neither = self.only_second[rows], self.both[rows], self.neither[rows]
        own = np.minimum(only, many)
        left = np.maximum(fewest - only, 0)
        lost = np.maximum(left - both - neither, 0)
        second, first = self.gold_second[rows] + own, self.gold_first[rows] + lost
        helps = np.minimum(both, np.maximum(many - only, 0))
        forced = np.minimum(both, np.maximum(left - neither, 0))
        shared = np.where(second > first, helps, forced)
        twice = (second - first) * (second + first + 2 * shared + 1)
        return np.asarray(np.einsum("qr,qr->q", twice, self.share[rows]) / 2)


def _surely_below(pair: Pair, block: Block, limit: Ints, divisor: _Divisor, rel: float) -> Values:
    """Return what the difference cannot exceed, from every possible number of relevant items."""
    counts = _Counts(pair, block, limit, rel)

    def most(rows: Ints, fewest: Ints, many: Ints) -> Values:
        """Return the same for a range of numbers per row; none where it is empty."""
        last = np.minimum(many, block.size[rows])
        total = counts.most(rows, np.minimum(fewest, last), last)
        low, high = (divisor.at(block.query[rows], np.minimum(n, last)) for n in (fewest, last))
        return np.where(fewest <= last, ratio(total, np.where(total > 0, low, high)), -np.inf)

    fewest, many = _growing(int(block.size.max(initial=0)))
    every = np.arange(len(block.query))
    low, high = (np.tile(ends, (len(every), 1)) for ends in (fewest, many))
    value = np.stack([most(every, low[:, at], high[:, at]) for at in range(len(fewest))], axis=1)
    for _ in range(_ROUNDS):
        best = value.argmax(axis=1)
        start, end = low[every, best], np.minimum(high[every, best], block.size)
        rows = np.flatnonzero(start < end)
        if not len(rows):
            break
        half = (start + end) // 2
        high[rows, best[rows]] = half[rows]
        value[rows, best[rows]] = most(rows, start[rows], half[rows])
        upper = np.full(len(every), -np.inf)
        upper[rows] = most(rows, half[rows] + 1, end[rows])
        low, high = np.column_stack((low, half + 1)), np.column_stack((high, end))
        value = np.column_stack((value, upper))
    return np.asarray(value.max(axis=1))


def _growing(most: int) -> tuple[Ints, Ints]:
    """Return ranges of numbers from 0 to the most there can be, which grow."""
    starts = [0]
    while starts[-1] <= most:
        starts.append(int(starts[-1] * _GROWTH) + 1)
    return np.array(starts[:-1]), np.array(starts[1:]) - 1


def so_far(rank: Ints, deepest: int) -> Ints:
    """Return how many of each row's items stand at rank 0, 1, …, deepest or above it."""
    rows, wide = len(rank), deepest + 2
    place = np.minimum(rank, deepest + 1) + wide * np.arange(rows)[:, None]
    counts = np.bincount(place.ravel(), minlength=rows * wide).reshape(rows, wide)
    return np.cumsum(counts[:, :-1], axis=1)


def hits_so_far(hits: Entries, query: Ints, deepest: int) -> Ints:
    """Return how many of some queries' hits stand at rank 0, 1, …, deepest or above it."""
    row = np.full(hits.n, -1)
    row[query] = np.arange(len(query))
    wide = deepest + 2
    here = row[hits.query] >= 0
    place = np.minimum(hits.rank[here], deepest + 1) + wide * row[hits.query[here]]
    counts = np.bincount(place, minlength=len(query) * wide).reshape(len(query), wide)
    return np.cumsum(counts[:, :-1], axis=1)


def rel_of(measure: Measure, gold: Prepared) -> float:
    """Return the grade from which on an item is relevant."""
    return float(measure.arguments.get("rel", gold.conventions.rel))
