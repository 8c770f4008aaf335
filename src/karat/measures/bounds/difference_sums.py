"""Differences of measures that add up a weight for each relevant item, whatever divides them."""

from __future__ import annotations

import numpy as np

from karat.measures.bounds.difference_pairs import Block, Pair, hits_so_far, so_far
from karat.measures.bounds.range_parts import area_of
from karat.measures.bounds.unjudged import ABSENT, possible_grades
from karat.measures.kernels.ranks import gains
from karat.measures.names import Measure
from karat.measures.numbers import Values
from karat.measures.prepare import Prepared
from karat.measures.ranked import Entries, Ints, Mask, Ranked, add_up, ratio, table_of
from karat.measures.valuing import gain_of


def rel_of(measure: Measure, gold: Prepared) -> float:
    """The grade from which on an item is relevant."""
    return float(measure.arguments.get("rel", gold.conventions.rel))


def nodes_of(measure: Measure, gold: Prepared) -> list[tuple[float, Measure]]:
    """A measure as a weighted sum of others: the points of an area, or itself alone."""
    if measure.name != "AUC" or not isinstance(measure.k, int):
        return [(1.0, measure)]
    return [(weight, node) for node, weight in area_of(measure, gold)]


def worth(measure: Measure, gold: Prepared, grade: Values) -> Values:
    """What each grade counts: 1 if relevant, or a gain."""
    arguments = measure.arguments
    if measure.name in {"DCG", "nDCG", "CG"}:
        nowhere = np.zeros(len(grade), dtype=np.int64)
        gain = gain_of(measure, gold.conventions)
        return gains(Entries(1, nowhere, nowhere, grade), gain)
    if measure.name in {"WR", "ERR"}:
        return np.maximum(grade, 0.0)
    if measure.name == "RBP" and arguments.get("gain") == "linear":
        return np.maximum(grade, 0.0) / float(arguments.get("max", 4))
    return (grade >= rel_of(measure, gold)).astype(np.float64)


def best_worth(measure: Measure, gold: Prepared) -> float:
    """What an unjudged item may count at most; 0 where no possible grade counts."""
    node = nodes_of(measure, gold)[0][1]
    return float(worth(node, gold, possible_grades(gold)).max())


def weight(measure: Measure, lists: Ranked, query: Ints, rank: Ints) -> Values:
    """What an item of worth 1 at a rank adds to a list's sum; nothing beyond the cut-off."""
    inside = (rank < ABSENT) & (rank <= lists.limit(measure.k)[query])
    seen = np.where(inside, rank, 1)
    deepest = int(seen.max(initial=1))
    each: Values | float = 1.0
    if measure.name in {"DCG", "nDCG"}:
        each = 1.0 / table_of("log2", deepest)[seen]
    elif measure.name == "RBP":
        p = float(measure.arguments.get("p", 0.8))
        each = (1 - p) * table_of(p, deepest)[seen]
    elif measure.name == "P":
        each = 1.0 / lists.limit(measure.k)[query]
    elif measure.name == "SetP":
        each = 1.0 / np.maximum(lists.returned, 1)[query]
    elif measure.name == "RR":
        each = 1.0 / seen
    return np.where(inside, each, 0.0)


class Weighed:
    """A measure's weights in two systems: of what is judged, and of what may yet be relevant."""

    def __init__(self, measure: Measure, pair: Pair, gold: Prepared) -> None:
        self.nodes, self.gold, self.pair = nodes_of(measure, gold), gold, pair

    def of(self, lists: Ranked, query: Ints, rank: Ints) -> Values:
        """The weights of items at some ranks."""
        parts = [share * weight(node, lists, query, rank) for share, node in self.nodes]
        return np.asarray(sum(parts[1:], parts[0]))

    def grades(self, grade: Values) -> Values:
        """What each grade counts."""
        return worth(self.nodes[0][1], self.gold, grade)

    def judged(self, lists: Ranked) -> Values:
        """What the judged items add up to, for each query."""
        hits = lists.hits
        each = self.of(lists, hits.query, hits.rank) * self.grades(hits.grade)
        return add_up(hits.query, each, lists.n)

    def best_judged(self, lists: Ranked) -> Values:
        """The weight of the first relevant item among the judged ones."""
        best = np.zeros(lists.n)
        hits = lists.hits
        each = self.of(lists, hits.query, hits.rank) * self.grades(hits.grade)
        np.maximum.at(best, hits.query, each)
        return best

    def gold_mass(self) -> Values:
        """What all of the gold counts, for each query."""
        target = self.pair.first.target
        return add_up(target.query, self.grades(target.grade), target.n)

    def sides(self, block: Block) -> tuple[Values, Values]:
        """The weights of a block's unjudged items in the first and in the second list."""
        query = block.query[:, None]
        return (
            self.of(self.pair.first, query, block.first),
            self.of(self.pair.second, query, block.second),
        )

    def gaps(self, block: Block) -> Values:
        """By how much each unjudged item weighs more in the second list."""
        first, second = self.sides(block)
        return second - first


def highest_plain(measure: Measure, pair: Pair, gold: Prepared) -> Values:
    """Whatever weighs more in the second list is of the best grade, and nothing else."""
    top = best_worth(measure, gold)
    weighed = Weighed(measure, pair, gold)
    now = weighed.judged(pair.second) - weighed.judged(pair.first)
    return now + pair.each(lambda block: top * np.maximum(weighed.gaps(block), 0.0).sum(axis=1))


def highest_first(measure: Measure, pair: Pair, gold: Prepared) -> Values:
    """One item at most need be relevant: the one that comes first in the second list."""
    weighed = Weighed(measure, pair, gold)
    now = [weighed.best_judged(lists) for lists in (pair.first, pair.second)]

    def highest(block: Block) -> Values:
        one, other = (own[block.query][:, None] for own in now)
        first, second = weighed.sides(block)
        some = np.maximum(other, second) - np.maximum(one, first)
        return np.asarray(np.hstack((other - one, some)).max(axis=1))

    return pair.each(highest)


def highest_all(measure: Measure, pair: Pair, gold: Prepared) -> Values:
    """One item at most need be relevant: one that the first list lacks within the cut-off."""
    rel = rel_of(measure, gold)
    total = pair.first.target.relevant(rel)
    sides = (pair.first, pair.second)
    whole = [lists.hits.count(lists.top(measure.k) & lists.hits.relevant(rel)) for lists in sides]
    complete = [found == total for found in whole]
    limits = [lists.limit(measure.k) for lists in sides]

    def highest(block: Block) -> Values:
        query = block.query
        now = [(all_found & (total > 0))[query][:, None] * 1.0 for all_found in complete]
        with_one = [
            complete[side][query][:, None] & (ranks <= limits[side][query][:, None])
            for side, ranks in enumerate((block.first, block.second))
        ]
        some = with_one[1] * 1.0 - with_one[0]
        return best_of(
            np.hstack((now[1] - now[0], some)),
            np.hstack((np.ones((len(query), 1), dtype=bool), block.there)),
        )

    return pair.each(highest)


def most_added(gaps: Values, there: Mask) -> Values:
    """The largest sum of 0, 1, 2, … of each row's numbers."""
    ordered = -np.sort(np.where(there, -gaps, np.inf), axis=1)
    sums = np.cumsum(np.where(np.isfinite(ordered), ordered, 0.0), axis=1)
    return np.asarray(np.hstack((np.zeros((len(gaps), 1)), sums)))


def best_of(values: Values, possible: Mask) -> Values:
    """The highest of each row's possible values."""
    return np.asarray(np.where(possible, values, -np.inf).max(axis=1))


def highest_over_gold(measure: Measure, pair: Pair, gold: Prepared) -> Values:
    """However many items are relevant, they are those that weigh most in the second list.

    The gold that both are divided by grows with each, in either list or not.
    """
    weighed, top = Weighed(measure, pair, gold), best_worth(measure, gold)
    now = weighed.judged(pair.second) - weighed.judged(pair.first)
    mass = weighed.gold_mass()
    slope, base = 1.0, np.zeros(pair.n)
    if measure.name == "F":
        square = float(measure.arguments.get("beta", 1)) ** 2
        slope, base = square / (1 + square), pair.first.limit(measure.k) / (1 + square)

    def highest(block: Block) -> Values:
        number, possible = block.upto
        added = top * most_added(weighed.gaps(block), block.there)
        share = slope * (mass[block.query][:, None] + top * number) + base[block.query][:, None]
        return best_of(ratio(now[block.query][:, None] + added, share), possible)

    return pair.each(highest)


def highest_r_precision(measure: Measure, pair: Pair, gold: Prepared) -> Values:
    """With n more relevant items the cut-off is |G| + n, and it is known who is above it."""
    rel = rel_of(measure, gold)
    total = pair.first.target.relevant(rel).astype(np.int64)
    hits = [lists.hits.where(lists.hits.relevant(rel)) for lists in (pair.first, pair.second)]

    def highest(block: Block) -> Values:
        number, possible = block.upto
        cut = total[block.query][:, None] + number
        deepest = int(cut.max(initial=0))

        def within(counts: Ints) -> Ints:
            return np.take_along_axis(counts, cut, axis=1)

        one, other = (within(hits_so_far(own, block.query, deepest)) for own in hits)
        both = within(so_far(np.maximum(block.first, block.second), deepest))
        only_first = within(so_far(block.first, deepest)) - both
        only_second = within(so_far(block.second, deepest)) - both
        gained = np.minimum(number, only_second)
        lost = np.maximum(number - (block.size[:, None] - only_first), 0)
        return best_of(ratio((other - one + gained - lost).astype(np.float64), cut), possible)

    return pair.each(highest)


def highest_set_f(measure: Measure, pair: Pair, gold: Prepared) -> Values:
    """With n more relevant items, those of the second list alone come first, then shared ones."""
    rel, square = rel_of(measure, gold), float(measure.arguments.get("beta", 1)) ** 2
    total = square * pair.first.target.relevant(rel)
    found = [lists.hits.count(lists.hits.relevant(rel)) for lists in (pair.first, pair.second)]

    def highest(block: Block) -> Values:
        number, possible = block.upto
        own = (block.second < ABSENT) & (block.first == ABSENT)
        shared = (block.second < ABSENT) & (block.first < ABSENT)
        second = np.minimum(number, own.sum(axis=1)[:, None])
        both = np.minimum(number - second, shared.sum(axis=1)[:, None])
        gold_now = total[block.query][:, None] + square * number
        one, other = (
            ratio(
                (1 + square) * (counts[block.query][:, None] + more),
                gold_now + lists.returned[block.query][:, None],
            )
            for counts, more, lists in (
                (found[0], number - second, pair.first),
                (found[1], second + both, pair.second),
            )
        )
        return best_of(other - one, possible)

    return pair.each(highest)
