"""Differences of nDCG, whose ideal grows with every item that is judged relevant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from karat.measures.bounds.difference_pairs import Block, Pair
from karat.measures.bounds.difference_sums import Weighed, best_of, best_worth, most_added
from karat.measures.names import Measure
from karat.measures.numbers import Values
from karat.measures.prepare import Prepared
from karat.measures.ranked import Ints, Mask, Target, ratio, table_of

# Each round comes much closer; more than a handful are never needed.
_ROUNDS = 50


@dataclass(frozen=True, eq=False)
class Steps:
    """Gains as a staircase: how high each query's steps are, and how much gold stands on them.

    A list of gains is the sum over steps of what stands at least that high, and so is the
    ideal: its share of a step depends on the number of items there alone.
    """

    height: Values
    count: Ints

    def of(self, rows: Ints | Mask) -> Steps:
        """The steps of some queries."""
        return Steps(self.height[rows], self.count[rows])


def steps_of(target: Target, gains: Values, top: float) -> Steps:
    """The distinct gains of each query's gold, and the best gain there is."""
    mine = gains > 0
    query = np.concatenate((target.query[mine], np.arange(target.n)))
    gain = np.concatenate((gains[mine], np.full(target.n, top)))
    order = np.lexsort((-gain, query))
    query, gain = query[order], gain[order]
    last = np.append((query[1:] != query[:-1]) | (gain[1:] != gain[:-1]), [True])
    starts = np.searchsorted(query, np.arange(target.n))
    # Every query brings one entry of the best gain, which is no gold.
    so_far = np.arange(len(query)) - starts[query]
    query, gain, so_far = query[last], gain[last], so_far[last]
    place = np.arange(len(query)) - np.searchsorted(query, np.arange(target.n))[query]
    shape = (target.n, int(place.max(initial=0)) + 1)
    height, count = np.zeros(shape), np.zeros(shape, dtype=np.int64)
    below = np.where(np.append(query[1:] == query[:-1], [False]), np.append(gain[1:], [0.0]), 0.0)
    height[query, place] = gain - below
    count[query, place] = so_far
    return Steps(height, count)


@dataclass(frozen=True, eq=False)
class _Choice:
    """What n items add to the difference of gains at most, and to each step of the ideal."""

    added: Values
    possible: Mask
    steps: Steps
    limit: Ints
    now: Values
    discounts: Values

    def of(self, rows: Mask) -> _Choice:
        return _Choice(
            self.added[rows],
            self.possible[rows],
            self.steps.of(rows),
            self.limit[rows],
            self.now[rows],
            self.discounts,
        )

    def ideal(self, step: int) -> Values:
        """The ideal's share of a step when 0, 1, 2, … items more stand on it."""
        number = np.arange(self.added.shape[1])
        height = np.minimum(self.steps.count[:, step, None] + number, self.limit[:, None])
        return np.asarray(self.discounts[height])

    def all_or_nothing(self, top: float) -> Values:
        """The best difference when items are of the best gain or of none."""
        ideal = np.zeros(self.added.shape)
        for step in range(self.steps.height.shape[1]):
            ideal += self.steps.height[:, step, None] * self.ideal(step)
        return best_of(ratio(self.now[:, None] + top * self.added, ideal), self.possible)

    def finer(self, best: Values) -> Values:
        """A difference that is at least as good, with a number of items chosen step by step."""
        rows = np.arange(len(best))
        above, below = self.now.copy(), np.zeros(len(best))
        for step in range(self.steps.height.shape[1]):
            ideal = self.ideal(step)
            chosen = np.where(self.possible, self.added - best[:, None] * ideal, -np.inf)
            at = chosen.argmax(axis=1)
            above += self.steps.height[:, step] * self.added[rows, at]
            below += self.steps.height[:, step] * ideal[rows, at]
        return np.maximum(ratio(above, below), best)


def highest_ndcg(measure: Measure, pair: Pair, gold: Prepared) -> Values:
    """The highest difference: first with the best grade only, then with those in between.

    Where the second list can be ahead, fewer gains may leave more of it (Dinkelbach's rounds);
    where it cannot, the difference is closest to 0 with the best grade, since the ideal is
    convex in the gains.
    """
    weighed, top = Weighed(measure, pair, gold), best_worth(measure, gold)
    now = weighed.judged(pair.second) - weighed.judged(pair.first)
    target = pair.first.target
    steps = steps_of(target, weighed.grades(target.grade), top)
    deepest = int(steps.count.max(initial=0)) + max(
        (b.first.shape[1] for b in pair.blocks), default=0
    )
    discounts = np.cumsum(np.append(0.0, 1.0 / table_of("log2", deepest)[1 : deepest + 1]))

    def highest(block: Block) -> Values:
        choice = _Choice(
            added=most_added(weighed.gaps(block), block.there),
            possible=block.upto[1],
            steps=steps.of(block.query),
            limit=np.minimum(pair.first.ideal_limit(measure.k)[block.query], deepest),
            now=now[block.query],
            discounts=discounts,
        )
        best = choice.all_or_nothing(top)
        open_rows = (best >= 0) & (block.size > 0) & (choice.steps.height[:, 1:] > 0).any(axis=1)
        for _ in range(_ROUNDS):
            if not open_rows.any():
                break
            better = choice.of(open_rows).finer(best[open_rows])
            grown = better > best[open_rows] + 1e-15
            best[open_rows] = better
            open_rows[open_rows] = grown
        return best

    return pair.each(highest)
