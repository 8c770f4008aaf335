"""Difference ranges: how far apart two systems could be if their unjudged items were judged.

One labelling holds for both systems: an item that both returned has one grade, and an item of
one system grows the gold and the ideal of the other. Measures that are sums over relevant items,
or the best hit, have exact ranges. For any other measure all labellings of queries with few
unjudged items are tried; the rest get a safe range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from karat.errors import UsageError
from karat.measure.aggregates import Values
from karat.measure.evaluate_measure import arguments_of, gold_for, values_of
from karat.measure.names import Measure
from karat.measure.prepare import Prepared
from karat.measure.ranges import Listed, Range, in_common, possible_grades, why_unbounded
from karat.measure.ranked import Ints, Mask, Ranked, add_up, ratio
from karat.measure.unjudged import (
    ABSENT,
    RISING,
    Area,
    Behaviour,
    BestHit,
    Extremes,
    Node,
    PartlyJudged,
    SumOverGold,
    Terms,
    discounts_up_to,
    judged_more,
)

# At most this many labellings of one query, judgments at once, and judgments in all.
_MOST, _AT_ONCE, _IN_ALL = 4096, 400_000, 1_000_000
# Each round of the search for the best gains comes much closer; a handful is enough.
_ROUNDS = 50


def difference_range(measure: Measure, first: Listed, second: Listed, gold: Prepared) -> Range:
    """Return the lowest and highest second - first of each query over all common labellings.

    NaN where either has no value. Not ``exact`` means that the range is safe, and may be wider
    than any labelling makes it.
    """
    why = why_unbounded(measure, gold)
    if why is not None:
        raise UsageError(f"there are no bounds: {why}")
    pair = pair_of(first, second)
    now = second.values(str(measure)) - first.values(str(measure))
    high, exact = _highest(measure, pair, gold)
    low, reached = _highest(measure, pair.swapped, gold)
    low, exact = -low, exact & reached
    if not exact.all():
        left = pair.of(np.flatnonzero(~exact & ~pair.alike))
        lowest, highest, done = _tried_out(measure, left, gold)
        low, high = np.where(done, lowest, low), np.where(done, highest, high)
        exact = exact | done
    # Sums in another order may differ in the last bit; as things stand is a labelling too.
    low, high = np.fmin(low, now), np.fmax(high, now)
    unknown, settled = np.isnan(now), (pair.sizes == 0) | pair.alike
    low, high = (np.where(unknown | settled, now, side) + 0.0 for side in (low, high))
    if np.isinf(low).any() or np.isinf(high).any():
        raise UsageError(f"there are no bounds: no bounds of a difference are known for {measure}")
    return Range(low, high, bool((exact | unknown | settled).all()))


def _highest(measure: Measure, pair: Pair, gold: Prepared) -> tuple[Values, Mask]:
    """Return the highest difference, or a value that it cannot exceed, and where it is reached."""
    definition, grades = measure.definition, possible_grades(gold)
    arguments = arguments_of(measure, gold.conventions)
    nodes = [Node(1.0, definition, measure.k, arguments)]
    if isinstance(definition.unjudged, Area):
        nodes = definition.unjudged.nodes(measure.k, **arguments)
    everywhere = np.ones(pair.n, dtype=bool)
    declared = nodes[0].definition.unjudged
    if isinstance(declared, BestHit):
        if declared.sign < 0:
            pair = pair.swapped
        return _highest_hit(_Weights(nodes, pair, grades)), everywhere
    if isinstance(declared, SumOverGold):
        weights = _Weights(nodes, pair, grades)
        terms = weights.terms[0]
        if terms.shared is None and (len(nodes) == 1 or not terms.cut):
            return _highest_sum(weights), everywhere
        if terms.shared is None:
            # No labelling is better than the best one of each cut-off by itself.
            parts = [
                _highest_sum(_Weights([replace(node, weight=1.0)], pair, grades)) for node in nodes
            ]
            total = sum(node.weight * part for node, part in zip(nodes, parts, strict=True))
            return np.asarray(total), ~everywhere
    return _safe_highest(measure, pair, gold), ~everywhere


class _Weights:
    """What items weigh in two systems, judged ones and those that may yet be relevant.

    ``nodes`` are the measures of a weighted sum, which differ in their cut-offs only.
    """

    def __init__(self, nodes: Sequence[Node], pair: Pair, grades: Values) -> None:
        self.terms_first, self.terms_second = (
            [_terms(node, lists, grades) for node in nodes] for lists in (pair.first, pair.second)
        )
        self.terms = self.terms_first
        self.top = self.terms[0].top
        # Where no possible grade counts, there is nothing left to be judged.
        self.pair = pair if self.top else pair.settled

    def of(self, terms: Sequence[Terms], query: Ints, rank: Ints) -> Values:
        """Return the weights of items at some ranks."""
        parts = [one.weight * one.weights(query, rank) for one in terms]
        return np.asarray(sum(parts[1:], parts[0]))

    def hits(self, terms: Sequence[Terms], lists: Ranked) -> Values:
        """Return what each judged hit adds."""
        hits = lists.hits
        return self.of(terms, hits.query, hits.rank) * terms[0].worth(hits.grade)

    @property
    def now(self) -> Values:
        """The difference of the sums as things stand."""
        first, second = (
            add_up(lists.hits.query, self.hits(terms, lists), lists.n)
            for terms, lists in self.systems
        )
        return second - first

    @property
    def systems(self) -> tuple[tuple[Sequence[Terms], Ranked], tuple[Sequence[Terms], Ranked]]:
        """The terms and the lists of both systems."""
        return (self.terms_first, self.pair.first), (self.terms_second, self.pair.second)

    def sides(self, block: Block) -> tuple[Values, Values]:
        """Return the weights of a block's unjudged items in the first and in the second list."""
        query = block.query[:, None]
        return (
            self.of(self.terms_first, query, block.first),
            self.of(self.terms_second, query, block.second),
        )


def _terms(node: Node, ranked: Ranked, grades: Values) -> Terms:
    """Return the terms of a measure for lists whose unjudged items do not matter."""
    declared, none = node.definition.unjudged, np.empty(0, dtype=np.int64)
    if not isinstance(declared, SumOverGold | BestHit):
        raise TypeError(f"{declared} has no terms")
    terms = declared.terms(PartlyJudged(ranked, none, none, grades), node.k, **node.arguments)
    return replace(terms, weight=node.weight)


def _highest_hit(weights: _Weights) -> Values:
    """Return the highest difference: one item at most need be relevant, a first of the second."""
    now = []
    for terms, lists in weights.systems:
        best = np.zeros(lists.n)
        np.maximum.at(best, lists.hits.query, weights.hits(terms, lists))
        now.append(best)

    def highest(block: Block) -> Values:
        first_now, second_now = (best[block.query][:, None] for best in now)
        first, second = weights.sides(block)
        with_one = np.maximum(second_now, second) - np.maximum(first_now, first)
        return np.asarray(np.hstack((second_now - first_now, with_one)).max(axis=1))

    return weights.pair.each(highest)


def _highest_sum(weights: _Weights) -> Values:
    """However many items are relevant, they are those that weigh most in the second list.

    What both sums are divided by grows with each of them, in either list or not.
    """
    terms, now, top = weights.terms[0], weights.now, weights.top

    def highest(block: Block) -> Values:
        first, second = weights.sides(block)
        gaps, of_now = second - first, now[block.query]
        if terms.bottom is None:
            return np.asarray(of_now + top * np.maximum(gaps, 0.0).sum(axis=1))
        number, possible = block.upto
        added = _largest_sums(gaps, block.there)
        bottom = terms.bottom(block.query, number[None, :])
        best = _best_of(ratio(of_now[:, None] + top * added, bottom), possible)
        if terms.levels is None:
            return best
        return _with_gains_in_between(terms, block, added, of_now, best)

    return weights.pair.each(highest)


def _largest_sums(gaps: Values, there: Mask) -> Values:
    """Return the largest sum of 0, 1, 2, … of each row's numbers."""
    ordered = -np.sort(np.where(there, -gaps, np.inf), axis=1)
    sums = np.cumsum(np.where(np.isfinite(ordered), ordered, 0.0), axis=1)
    return np.asarray(np.hstack((np.zeros((len(gaps), 1)), sums)))


def _best_of(values: Values, possible: Mask) -> Values:
    return np.asarray(np.where(possible, values, -np.inf).max(axis=1))


def _with_gains_in_between(
    terms: Terms, block: Block, added: Values, now: Values, best: Values
) -> Values:
    """Return the highest difference of nDCG, ``best`` being that with the best grade only.

    Where the second list can be ahead, smaller gains may leave more of that (Dinkelbach's
    rounds); where it cannot, the difference is closest to 0 with the best grade, since the ideal
    is convex in the gains.
    """
    if terms.levels is None:
        return best
    number, possible = block.upto
    _, steps, counts = terms.levels.rows(block.query)
    limit = terms.limit[block.query]
    open_rows = (best >= 0) & (block.size > 0) & (steps[:, 1:] > 0).any(axis=1)
    for _ in range(_ROUNDS):
        if not open_rows.any():
            break
        rows = np.flatnonzero(open_rows)
        every = np.arange(len(rows))
        above, below = now[rows].copy(), np.zeros(len(rows))
        for step, count in zip(steps[rows].T, counts[rows].T, strict=True):
            ideal = discounts_up_to(count[:, None] + number, limit[rows, None])
            value = np.where(possible[rows], added[rows] - best[rows, None] * ideal, -np.inf)
            at = value.argmax(axis=1)
            above += step * added[rows][every, at]
            below += step * ideal[every, at]
        better = np.maximum(ratio(above, below), best[rows])
        open_rows[rows] = better > best[rows] + 1e-15
        best[rows] = better
    return best


# --- Measures that are no plain sum ------------------------------------------------------------


def _safe_highest(measure: Measure, pair: Pair, gold: Prepared) -> Values:
    """Return a value that no difference exceeds.

    Each list by itself has a range, if every item that is unjudged in either may be relevant.
    Where only relevant or not matters, every number of relevant items is tried too: the second
    list is at its best with them at its top, the first at its worst with them at its end.
    """
    most = np.full(pair.n, 1.0 if measure.definition.bounded else np.inf)
    declared = _declared(measure, gold)
    if declared is RISING or isinstance(declared, SumOverGold):
        most = _range_in(measure, pair, gold)[1] - _range_in(measure, pair.swapped, gold)[0]
    if not isinstance(declared, Extremes) or declared.binary:
        highest, done = _highest_by_number(measure, pair, gold)
        most = np.where(done, np.minimum(most, highest), most)
    return most


def _declared(measure: Measure, gold: Prepared) -> Behaviour | str:
    """Return what a measure declares, or for an area the measure under which it lies."""
    declared = measure.definition.unjudged
    if isinstance(declared, Area):
        arguments = arguments_of(measure, gold.conventions)
        return declared.nodes(measure.k, **arguments)[0].definition.unjudged
    return declared


def _range_in(measure: Measure, pair: Pair, gold: Prepared) -> tuple[Values, Values]:
    """Return the range of the second system over labels of the items of both."""
    declared = measure.definition.unjudged
    if isinstance(declared, str):
        raise TypeError(declared)
    query, rank = pair.items
    order = np.lexsort((rank, query))
    lists = PartlyJudged(pair.second, query[order], rank[order], possible_grades(gold))
    arguments = arguments_of(measure, gold.conventions)
    low, high, _ = declared.range(measure.definition.function, lists, measure.k, **arguments)
    return np.minimum(low, high), np.maximum(low, high)


def _tried_out(measure: Measure, pair: Pair, gold: Prepared) -> tuple[Values, Values, Mask]:
    """Return the lowest and highest difference over all labellings, and where all were tried.

    Queries with few labellings come first, until there have been enough judgments.
    """
    low, high, done = np.zeros(pair.n), np.zeros(pair.n), np.zeros(pair.n, dtype=bool)
    grades = _grades_that_matter(measure, gold)
    with np.errstate(over="ignore"):
        ways = float(len(grades)) ** pair.sizes
    affordable = _affordable(pair, np.where(ways <= _MOST, ways, np.inf))
    for block in pair.of(np.flatnonzero(affordable)).blocks:
        for part in _of_one_size(block, len(grades)):
            size = part.first.shape[1]
            digits = np.arange(len(grades) ** size)[:, None] // len(grades) ** np.arange(size)
            labels = grades[digits % len(grades)]
            for_each = np.broadcast_to(labels, (len(part.query), *labels.shape))
            gap = _labelled(measure, pair, gold, part, for_each, for_each)
            low[part.query], high[part.query] = gap.min(axis=1), gap.max(axis=1)
            done[part.query] = True
    return low, high, done


def _grades_that_matter(measure: Measure, gold: Prepared) -> Values:
    """Return the grades to try: where only relevant or not matters, 0 and the highest."""
    declared, grades = _declared(measure, gold), possible_grades(gold)
    graded = isinstance(declared, Extremes) and not declared.binary
    graded = graded or gold_for(measure) == "graded"
    return grades if graded else np.array([0.0, grades.max()])


def _highest_by_number(measure: Measure, pair: Pair, gold: Prepared) -> tuple[Values, Mask]:
    """Return a value that no difference exceeds, and for which queries that was affordable.

    With n relevant items the second list is at its best if they stand at its top, and the
    first at its worst if they stand at its end or are not in it.
    """
    top = possible_grades(gold).max()
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
    """Return which queries can be tried, the cheapest first, for so many judgments in all."""
    judged = np.bincount(pair.first.target.query, minlength=pair.n)
    cost = ways * (pair.sizes + judged + 1)
    order = np.argsort(cost, kind="stable")
    mask = np.zeros(pair.n, dtype=bool)
    mask[order] = np.cumsum(cost[order]) <= _IN_ALL
    return mask


def _of_one_size(block: Block, grades: int) -> Iterator[Block]:
    """Yield the rows of a block by their number of items, a part at a time."""
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
    """Return the differences with labels for each list: rows by labellings by items."""
    rows, ways, size = first.shape
    of = np.repeat(part.query, ways)
    owner = np.repeat(np.arange(rows * ways), size)
    values = []
    for lists, ranks, labels in (
        (pair.first, part.first, first),
        (pair.second, part.second, second),
    ):
        each_way = np.repeat(ranks[:, None], ways, axis=1).ravel()
        more = judged_more(lists, of, owner, each_way, labels.ravel())
        values.append(values_of(measure, more, gold))
    return np.asarray((values[1] - values[0]).reshape(rows, ways))


# --- The unjudged items of two systems, side by side --------------------------------------------

# A block has at most so many queries, and so many cells unless one query needs more.
_BLOCK_QUERIES, _PAIR_CELLS = 1024, 1 << 19


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
        ends = np.arange(at, min(at + _BLOCK_QUERIES, len(order)))
        fits = (ends - at + 1) * (sizes[order[ends]] + 1) <= _PAIR_CELLS
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
