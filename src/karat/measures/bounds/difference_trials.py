"""Differences found by trying labellings out, for measures that give no shorter way."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from karat.measures.bounds.difference_pairs import Block, Pair
from karat.measures.bounds.unjudged import judged_more
from karat.measures.names import Measure
from karat.measures.numbers import Values
from karat.measures.prepare import Prepared
from karat.measures.ranked import Ints, Mask
from karat.measures.valuing import values_of

# At most so many labellings of one query, so many judgments at once, and in all.
_MOST, _AT_ONCE, _IN_ALL = 4096, 400_000, 1_000_000


def tried_out(
    measure: Measure, pair: Pair, gold: Prepared, grades: Values
) -> tuple[Values, Values, Mask]:
    """The lowest and highest difference over all labellings, and for which queries all were tried.

    Queries with few labellings come first, until there has been enough.
    """
    low, high, done = np.zeros(pair.n), np.zeros(pair.n), np.zeros(pair.n, dtype=bool)
    with np.errstate(over="ignore"):
        ways = float(len(grades)) ** pair.sizes
    affordable = _affordable(pair, np.where(ways <= _MOST, ways, np.inf))
    for block in pair.of(np.flatnonzero(affordable)).blocks:
        for part in _of_one_size(block, len(grades)):
            size = part.first.shape[1]
            digits = np.arange(len(grades) ** size)[:, None] // len(grades) ** np.arange(size)
            labels = grades[digits % len(grades)]
            each = np.broadcast_to(labels, (len(part.query), *labels.shape))
            gap = _labelled(measure, pair, gold, part, each, each)
            low[part.query], high[part.query] = gap.min(axis=1), gap.max(axis=1)
            done[part.query] = True
    return low, high, done


def highest_by_number(
    measure: Measure, pair: Pair, gold: Prepared, top: float
) -> tuple[Values, Mask]:
    """What a difference cannot exceed, and for which queries that was affordable.

    With n relevant items the second list is at its best if they stand at its top, and the
    first at its worst if they stand at its end or are not in it.
    """
    highest, done = np.zeros(pair.n), np.zeros(pair.n, dtype=bool)
    affordable = _affordable(pair, (pair.sizes + 1).astype(np.float64))
    for block in pair.of(np.flatnonzero(affordable)).blocks:
        for part in _of_one_size(block, 0):
            size = part.first.shape[1]
            number = np.arange(size + 1)[:, None]
            from_top, from_end = (
                np.argsort(np.argsort(ranks, axis=1, kind="stable"), axis=1)[:, None]
                for ranks in (part.second, part.first)
            )
            best = np.where(from_top < number, top, 0.0)
            worst = np.where(from_end >= size - number, top, 0.0)
            gap = _labelled(measure, pair, gold, part, worst, best)
            highest[part.query], done[part.query] = gap.max(axis=1), True
    return highest, done


def _affordable(pair: Pair, ways: Values) -> Mask:
    """Which queries can be tried, the cheapest first, for so many judgments in all."""
    judged = np.bincount(pair.first.target.query, minlength=pair.n)
    cost = ways * (pair.sizes + judged + 1)
    order = np.argsort(cost, kind="stable")
    mask = np.zeros(pair.n, dtype=bool)
    mask[order] = np.cumsum(cost[order]) <= _IN_ALL
    return mask


def _of_one_size(block: Block, grades: int) -> Iterator[Block]:
    """The rows of a block by their number of items, a part at a time."""
    for size in np.unique(block.size).tolist():
        rows = np.flatnonzero(block.size == size)
        ways = grades**size if grades else size + 1
        step = max(_AT_ONCE // (ways * (size + 1)), 1)
        for at in range(0, len(rows), step):
            part = rows[at : at + step]
            yield Block(
                block.query[part],
                block.size[part],
                block.first[part][:, :size],
                block.second[part][:, :size],
            )


def _labelled(
    measure: Measure, pair: Pair, gold: Prepared, part: Block, first: Values, second: Values
) -> Values:
    """The differences when each list is labelled as told: rows by labellings by items."""
    rows, ways, size = first.shape
    of = np.repeat(part.query, ways)
    owner = np.repeat(np.arange(rows * ways), size)
    one, other = (
        values_of(measure, judged_more(lists, of, owner, _each(ranks, ways), labels.ravel()), gold)
        for lists, ranks, labels in (
            (pair.first, part.first, first),
            (pair.second, part.second, second),
        )
    )
    return np.asarray((other - one).reshape(rows, ways))


def _each(ranks: Ints, ways: int) -> Ints:
    """The ranks of each row, again for every labelling."""
    return np.repeat(ranks[:, None], ways, axis=1).ravel()
