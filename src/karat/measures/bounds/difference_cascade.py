"""Differences of ERR: a user goes down both lists and stops where satisfied."""

from __future__ import annotations

import numpy as np

from karat.measures.bounds.difference_pairs import Block, Pair
from karat.measures.bounds.unjudged import ABSENT
from karat.measures.names import Measure
from karat.measures.numbers import Values
from karat.measures.ranked import Ints, Mask, Ranked, add_up

# So many items that both lists hold are tried in all ways, and only the topmost of more.
FEW, TOPMOST = 10, 7
_CELLS = 1 << 20


def highest_err(measure: Measure, pair: Pair, top: float) -> tuple[Values, Mask]:
    """The highest difference, and where it is exact.

    The difference is linear in what each item does to a user, so every item is of the best
    grade or of none; an item that one list alone holds helps that list. Those that both hold
    are tried in all ways; where they are many, the lower ones are taken to be of the best grade
    in the second list and of none in the first, which no labelling can surpass.
    """
    values, exact = np.zeros(pair.n), np.zeros(pair.n, dtype=bool)
    highest = 2.0 ** float(measure.arguments.get("max", 4))
    stop = (2.0**top - 1) / highest
    limit = np.minimum(pair.first.limit(measure.k), ABSENT - 1)
    for block in pair.blocks:
        last = limit[block.query][:, None]
        shared = (block.first <= last) & (block.second <= last)
        number = shared.sum(axis=1)
        exact[block.query] = number <= FEW
        number = np.where(number <= FEW, number, TOPMOST)
        for few in np.unique(number).tolist():
            rows = np.flatnonzero(number == few)
            for at in range(0, len(rows), max(_CELLS >> few, 1)):
                part = rows[at : at + max(_CELLS >> few, 1)]
                query = block.query[part]
                values[query] = _tried(pair, block, part, shared[part], few, (stop, highest, limit))
    return values, exact


def _tried(
    pair: Pair,
    block: Block,
    rows: Ints,
    shared: Mask,
    few: int,
    terms: tuple[float, float, Ints],
) -> Values:
    """The highest difference over all labellings of the topmost shared items."""
    first, second = block.first[rows], block.second[rows]
    near = np.where(shared, np.minimum(first, second), ABSENT)
    order = np.argsort(near, axis=1, kind="stable")
    tried = np.take_along_axis(first, order[:, :few], axis=1)
    again = np.take_along_axis(second, order[:, :few], axis=1)
    # What is not tried is relevant in the second list, and left out of the first.
    rest = np.take_along_axis(second, order[:, few:], axis=1)
    query = block.query[rows]
    one = _all_ways(pair.first, query, tried, np.empty((len(rows), 0), np.int64), terms)
    other = _all_ways(pair.second, query, again, rest, terms)
    return np.asarray((other - one).max(axis=1))


def _all_ways(
    lists: Ranked, query: Ints, tried: Ints, relevant: Ints, terms: tuple[float, float, Ints]
) -> Values:
    """A list's value for each way of judging the tried items; bit i stands for item i."""
    few = tried.shape[1]
    satisfied, passing = _stretches(lists, query, np.sort(tried, axis=1), relevant, terms)
    order = np.argsort(tried, axis=1)
    bits = np.arange(1 << few) >> np.arange(few)[:, None] & 1
    value = np.broadcast_to(satisfied[:, few, None], (len(query), 1 << few))
    for place in range(few - 1, -1, -1):
        item = order[:, place]
        stop = terms[0] * bits[item]
        rank = tried[np.arange(len(query)), item]
        value = stop / rank[:, None] + (1 - stop) * value
        value = satisfied[:, place, None] + passing[:, place, None] * value
    return value


def _stretches(
    lists: Ranked, query: Ints, tried: Ints, relevant: Ints, terms: tuple[float, float, Ints]
) -> tuple[Values, Values]:
    """Before, between and after the tried items: what is satisfied there, and how many pass."""
    owner, rank, stop = _settled(lists, query, relevant, terms)
    stretch = (tried[owner] < rank[:, None]).sum(axis=1)
    shape = (len(query), tried.shape[1] + 1)
    place = owner * shape[1] + stretch
    log = np.log1p(-stop)
    size = shape[0] * shape[1]
    passing = add_up(place, log, size)
    first = np.searchsorted(place, np.arange(size))
    so_far = np.cumsum(log) - log
    start = np.append(so_far, [0.0])[np.minimum(first, len(log))]
    satisfied = add_up(place, stop * np.exp(so_far - start[place]) / rank, size)
    return satisfied.reshape(shape), np.exp(passing).reshape(shape)


def _settled(
    lists: Ranked, query: Ints, relevant: Ints, terms: tuple[float, float, Ints]
) -> tuple[Ints, Ints, Values]:
    """Every item whose grade is known or taken for known: its row, its rank, and who stops."""
    top, highest, limit = terms
    row = np.full(lists.n, -1)
    row[query] = np.arange(len(query))
    hits = lists.hits
    mine = (row[hits.query] >= 0) & (hits.gain > 0) & (hits.rank <= limit[hits.query])
    at, place = np.nonzero(relevant <= limit[query][:, None])
    owner = np.concatenate((row[hits.query[mine]], at))
    rank = np.concatenate((hits.rank[mine], relevant[at, place]))
    stop = np.concatenate(((2.0 ** hits.gain[mine] - 1) / highest, np.full(len(at), top)))
    order = np.lexsort((rank, owner))
    return owner[order], rank[order], stop[order]
