"""Ranges over unjudged items: bounds of values and differences.

Every labelling counts: each unjudged item that a system returned may get any possible grade. The
effect of judgments is declared with each measure (``unjudged=`` in ``registry.measure``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from karat.errors import UsageError
from karat.measure.aggregates import Values
from karat.measure.evaluate_measure import (
    arguments_of,
    possible_grades,
    why_unbounded,
)
from karat.measure.kernels.ranks import best_first, dcg, gains_of_grades, nodes_of_area
from karat.measure.lists import without_repeats
from karat.measure.names import Measure
from karat.measure.prepare import Prepared
from karat.measure.rank import Trace
from karat.measure.ranked import (
    UNLIMITED,
    Cut,
    Entries,
    Ints,
    Mask,
    Ranked,
    Target,
    add_up,
    at_ranks,
    ratio,
)
from karat.measure.registry import Definition
from karat.measure.scores import Scores

# The rank of an item that a list does not hold.
ABSENT = UNLIMITED
# Each round of the search for the best gains more than doubles the correct digits.
_ROUNDS = 100
_QUERY = np.int64(1) << 32
_PAIR = ("query", "item_id")


@dataclass(frozen=True, eq=False)
class Unjudged:
    """Items that nobody judged, each once per query, by query and then by rank.

    ``query`` is the query's row in the score table. An item whose grade is below 0 was pooled
    and not judged, so it is one of them. ``item_id`` is None unless the lists were kept whole.
    """

    query: Ints
    rank: Ints
    item_id: pl.Series | None

    @classmethod
    def of(cls, scores: Scores) -> Unjudged:
        """Return the unjudged items in the lists of a system."""
        query, rank = _trace_of(scores).unjudged
        items = None
        if scores.lists is not None:
            grade = pl.col("grade")
            once = without_repeats(scores.lists).filter(grade.is_null() | (grade < 0))
            items = once.sort("row", "rank")["item_id"]
            items = items if len(items) == len(query) else None
        return cls(query, rank, items)

    @property
    def named(self) -> pl.Series:
        """The items by name."""
        if self.item_id is None:
            raise UsageError("the lists were not kept whole; score the runs again")
        return self.item_id

    def counts(self, n: int) -> Ints:
        """Return the number of items of each of n queries."""
        return np.bincount(self.query, minlength=n)


@dataclass(frozen=True, eq=False)
class Listed:
    """The lists of one system: ranks of judged and unjudged items, and its values.

    ``ranked`` has no grade below 0: pooled items without a judgment are unjudged.
    """

    ranked: Ranked
    unjudged: Unjudged
    scores: Scores

    def values(self, measure: str) -> Values:
        """Return each query's current value of a measure; NaN where it has none."""
        return self.scores.values(measure)


def _trace_of(scores: Scores) -> Trace:
    if scores.trace is None:
        raise UsageError(f"the scores of {scores.system} come without lists; score it again")
    return scores.trace


def listed(scores: Scores) -> Listed:
    """Return a system's lists as they were scored."""
    unjudged = Unjudged.of(scores)
    ranked = _trace_of(scores).ranked
    judged = ranked.target.grade >= 0
    if not judged.all():
        target = replace(
            ranked.target,
            query=ranked.target.query[judged],
            grade=ranked.target.grade[judged],
            unit=ranked.target.unit[judged],
        )
        hits = replace(ranked.hits.where(ranked.hits.grade >= 0), row=None)
        ranked = replace(ranked, target=target, hits=hits, found=hits)
    return Listed(ranked, unjudged, scores)


def judged_more(ranked: Ranked, of: Ints, query: Ints, rank: Ints, grade: Values) -> Ranked:
    """Return copies of lists with further judgments, as many lists as ``of`` has entries.

    List v is a copy of the one of query ``of[v]``. Each further judgment is an entry of
    ``query`` (which list, a number into ``of``), ``rank`` (ABSENT where the list lacks the item)
    and ``grade``.

    >>> target = Target(1, np.array([0]), np.array([1.0]), np.array([1]), np.array([5]),
    ...     np.array([False]))
    >>> hits = Entries(1, np.array([0]), np.array([2]), np.array([1.0]))
    >>> lists = Ranked(target, hits, hits, np.array([3]))
    >>> more = judged_more(lists, np.array([0, 0]), np.array([1]), np.array([1]), np.array([2.0]))
    >>> more.hits.rank.tolist(), more.hits.query.tolist(), more.target.grade.tolist()
    ([2, 1, 2], [0, 1, 1], [1.0, 2.0, 1.0])
    """
    target = ranked.target
    rows, owner = _copied(target.query, target.n, of)
    owners = np.concatenate((owner, query))
    grades = np.concatenate((target.grade[rows], grade))
    order = np.lexsort((-grades, owners))
    more = Target(
        n=len(of),
        query=owners[order],
        grade=grades[order],
        # A new judgment is of no unit of the gold; no measure of one query asks further.
        unit=np.concatenate((target.unit[rows], -np.arange(1, len(query) + 1)))[order],
        own_k=target.own_k[of],
        no_answer=target.no_answer[of],
    )
    rows, owner = _copied(ranked.hits.query, ranked.n, of)
    present = rank < ABSENT
    owners = np.concatenate((owner, query[present]))
    ranks = np.concatenate((ranked.hits.rank[rows], rank[present]))
    grades = np.concatenate((ranked.hits.grade[rows], grade[present]))
    # Both are in order already, which this sort makes use of.
    order = np.argsort(owners * _QUERY + ranks, kind="stable")
    hits = Entries(len(of), owners[order], ranks[order], grades[order])
    return Ranked(more, hits, hits, ranked.returned[of])


def _copied(query: Ints, n: int, of: Ints) -> tuple[Ints, Ints]:
    """Return the rows of some queries, one after the other, and each row's place in ``of``."""
    counts = np.bincount(query, minlength=n)
    starts = (np.cumsum(counts) - counts)[of]
    owner, number = _numbered(counts[of])
    return starts[owner] + number, owner


def _numbered(sizes: Ints) -> tuple[Ints, Ints]:
    """Return the owner of each of so many things per owner, and its number: 0, 1, 2, …"""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return owner, np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner]


# --- The range of a value ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Range:
    """The lowest and highest value of each query, NaN where a query has none.

    ``exact`` says that both are reached by some labelling; otherwise they are safe: no labelling
    leads beyond them.
    """

    low: Values
    high: Values
    exact: bool


def range_of(measure: Measure, lists: Listed, gold: Prepared) -> Range:
    """Return the lowest and highest value of each query over all labels of its unjudged items."""
    _refuse_unbounded(measure, gold)
    unjudged = lists.unjudged
    now = lists.values(str(measure))
    slots = _Slots(lists.ranked, unjudged.query, unjudged.rank, possible_grades(gold))
    arguments = arguments_of(measure, gold.conventions)
    low, high, exact = _ends(measure.definition, slots, measure.k, arguments)
    # Sums in another order may differ in the last bit; the current state is a labelling too.
    low, high = np.minimum(low, now), np.maximum(high, now)
    settled = np.isnan(now) | (unjudged.counts(lists.ranked.n) == 0)
    return Range(np.where(settled, now, low), np.where(settled, now, high), exact)


def _refuse_unbounded(measure: Measure, gold: Prepared) -> None:
    why = why_unbounded(measure, gold)
    if why is not None:
        raise UsageError(f"there are no bounds: {why}")


@dataclass(frozen=True, eq=False)
class _Slots:
    """Lists, the places of their unjudged items (by query, then rank), and the possible grades."""

    ranked: Ranked
    query: Ints
    rank: Ints
    grades: Values

    @cached_property
    def relevant(self) -> dict[float, _Relevant]:
        """The lists once all items have some grade, by the grades that were asked for."""
        return {}

    def all_of(self, grade: float) -> _Relevant:
        """Return the lists once all items have this grade, which many measures ask for."""
        if grade not in self.relevant:
            self.relevant[grade] = _Relevant.of(self, grade)
        return self.relevant[grade]

    def labelled(self, labels: Values) -> Ranked:
        """Return the lists once every unjudged item has a label; grade 0 is like no judgment."""
        labelled = labels > 0
        everyone = np.arange(self.ranked.n)
        return judged_more(
            self.ranked, everyone, self.query[labelled], self.rank[labelled], labels[labelled]
        )

    def inside(self, k: Cut) -> Mask:
        """Return which items a list holds within its cut-off."""
        return np.asarray((self.rank <= self.ranked.limit(k)[self.query]) & (self.rank < ABSENT))

    def best_grade(self, arguments: Mapping[str, Any]) -> float:
        """Return the grade that is worth most; the highest of several."""
        gain = arguments.get("gain")
        worth = gains_of_grades(self.grades, gain) if isinstance(gain, Mapping) else self.grades
        return float(self.grades[np.flatnonzero(worth == worth.max())[-1]])


@dataclass(frozen=True, eq=False)
class _Relevant:
    """What lists become with all their unjudged items relevant, whatever the measure.

    ``target`` is all that is then relevant. In ``alone`` each item that a list holds, in the row
    ``present``, is the only relevant one of a list of its own; in ``first`` it has rank 1.
    """

    target: Target
    present: Ints
    alone: Ranked
    first: Ranked

    @classmethod
    def of(cls, slots: _Slots, grade: float) -> _Relevant:
        (present,) = np.nonzero(slots.rank < ABSENT)
        query, n, bare = slots.query[present], slots.ranked.n, without_judgments(slots.ranked)
        one, every = np.full(len(query), grade), np.arange(n)
        top = np.ones(n, dtype=np.int64)
        return cls(
            slots.labelled(np.full(len(slots.query), grade)).target,
            present,
            judged_more(bare, query, np.arange(len(query)), slots.rank[present], one),
            judged_more(bare, every, every, top, np.full(n, grade)),
        )


def _ends(
    definition: Definition, slots: _Slots, k: Cut, arguments: Mapping[str, Any]
) -> tuple[Values, Values, bool]:
    """Return the lowest and highest values, and whether both are reached."""
    if definition.unjudged == "area":
        return _ends_of_area(definition, slots, k, arguments)
    if definition.unjudged == "ndcg":
        labels = _ndcg_labels(slots, k, **arguments)
    elif definition.unjudged == "ap":
        labels = _ap_labels(slots, k, **arguments)
    else:
        # Relevant items within the cut-off never make the value worse, others never better.
        grade, inside = slots.best_grade(arguments), slots.inside(k)
        labels = np.where(inside, 0.0, grade), np.where(inside, grade, 0.0)
    low, high = (definition.function(slots.labelled(side), k, **arguments) for side in labels)
    return np.minimum(low, high), np.maximum(low, high), True


class _States:
    """How many items of each owner are relevant: a state for 0, 1, … ``sizes`` of them.

    However many are relevant, a measure is highest with them in the first places of a list and
    lowest with them in the last, so that a search tries numbers only.
    """

    def __init__(self, sizes: Ints) -> None:
        self.sizes = sizes
        self.owner, self.number = _numbered(sizes + 1)
        self.start = np.cumsum(sizes + 1) - (sizes + 1)

    def from_top(self, begin: Ints, steps: Values) -> Values:
        """Return the sum of the first steps in each state; an owner's begin at ``begin``."""
        total = np.concatenate(([0.0], np.cumsum(steps)))
        first = begin[self.owner]
        return np.asarray(total[first + self.number] - total[first])

    def from_end(self, begin: Ints, steps: Values) -> Values:
        """Return the sum of the last steps in each state."""
        total = np.concatenate(([0.0], np.cumsum(steps)))
        end = (begin + self.sizes)[self.owner]
        return np.asarray(total[end] - total[end - self.number])

    def best(self, values: Values) -> Ints:
        """Return the number in the state of the largest value of each owner; the least of ties."""
        if not len(values):
            return np.empty(0, dtype=np.int64)
        largest = np.maximum.reduceat(values, self.start)
        states = np.flatnonzero(values == largest[self.owner])
        _, first = np.unique(self.owner[states], return_index=True)
        return self.number[states[first]]


class _Inside(_States):
    """The states of the items within a cut-off; those ``outside`` can only count against a list."""

    def __init__(self, slots: _Slots, k: Cut) -> None:
        self.mask = slots.inside(k)
        self.query, self.rank = slots.query[self.mask], slots.rank[self.mask]
        n = slots.ranked.n
        super().__init__(np.bincount(self.query, minlength=n))
        self.begin = np.cumsum(self.sizes) - self.sizes
        self.place = np.arange(len(self.query)) - self.begin[self.query]
        self.outside = np.bincount(slots.query[~self.mask], minlength=n)

    def first_relevant(self, number: Ints, grade: float) -> Values:
        """Return labels: so many of the first items within are relevant, and no others."""
        labels = np.zeros(len(self.mask))
        labels[self.mask] = np.where(self.place < number[self.query], grade, 0.0)
        return labels

    def last_relevant(self, number: Ints, grade: float) -> Values:
        """Return labels: all items outside are relevant, and the last ones within."""
        labels = np.full(len(self.mask), grade)
        last = self.place >= (self.sizes - number)[self.query]
        labels[self.mask] = np.where(last, grade, 0.0)
        return labels


def _ndcg_labels(slots: _Slots, k: Cut, *, gain: Any = "linear") -> tuple[Values, Values]:
    """Return the labels of the lowest and of the highest nDCG.

    An ideal list falls through levels of gain, from the best possible grade down to 0. For the
    highest value v, DCG - v × ideal DCG is at most 0 (Dinkelbach's search): a sum over levels, each
    of which has a best number of first items that reach it.
    """
    ranked, best = slots.ranked, slots.best_grade({"gain": gain})
    highest = np.zeros(len(slots.query))
    worth = float(gains_of_grades(np.array([best]), gain)[0])
    if not worth:
        return highest, highest
    inside, limit = _Inside(slots, k), ranked.limit(k)
    entries, gold_worth = best_first(ranked.target.ideal, gain)
    # A level: its query and grade, how many gold items are worth as much, its step to the next.
    order = np.argsort(np.concatenate((np.arange(ranked.n), entries.query)), kind="stable")
    owner = np.concatenate((np.arange(ranked.n), entries.query))[order]
    grades = np.concatenate((np.full(ranked.n, best), entries.grade))[order]
    gains = np.concatenate((np.full(ranked.n, worth), gold_worth))[order]
    counts = np.concatenate((np.zeros(ranked.n, dtype=np.int64), entries.rank))[order]
    step = gains - np.where(np.append(owner[1:] != owner[:-1], True), 0.0, np.append(gains[1:], 0))
    owner, grades, counts, step = (column[step > 0] for column in (owner, grades, counts, step))

    now = dcg(ranked, k, gain=gain)
    deepest = int((counts + (inside.outside + inside.sizes)[owner]).max(initial=0))
    logs = at_ranks("log2", np.arange(deepest + 1))
    table = np.concatenate(([0.0], np.cumsum(1.0 / logs[1:])))
    added = 1.0 / at_ranks("log2", inside.rank)
    by_level = _States(inside.sizes[owner])
    query = owner[by_level.owner]

    def ideals(more: Ints) -> Values:
        """Return the sum of the ideal list's discounts at each level with more items."""
        return np.asarray(table[np.minimum(counts[by_level.owner] + more, limit[query])])

    parts = step[by_level.owner] * ideals(inside.outside[query] + by_level.number)
    state = inside.start[query] + by_level.number
    bottom = add_up(state, parts, len(inside.owner))
    top = now[inside.owner] + worth * inside.from_end(inside.begin, added)
    lowest = inside.last_relevant(inside.best(-ratio(top, bottom)), best)

    found, ideal = by_level.from_top(inside.begin[owner], added), ideals(by_level.number)
    value = ratio(now, add_up(owner, step * ideal[by_level.start], ranked.n))
    reach = np.zeros(len(owner), dtype=np.int64)
    for _ in range(_ROUNDS):
        number = by_level.best(found - value[query] * ideal)
        chosen = by_level.start + number
        above = now + add_up(owner, step * found[chosen], ranked.n)
        tried = ratio(above, add_up(owner, step * ideal[chosen], ranked.n))
        better = tried > value
        if not better.any():
            break
        reach, value = np.where(better[owner], number, reach), np.where(better, tried, value)
    # Backwards, so that the highest level that an item reaches is the last to be written.
    reached = np.flatnonzero(by_level.number < reach[by_level.owner])[::-1]
    labels = np.zeros(len(inside.query))
    labels[inside.begin[query[reached]] + by_level.number[reached]] = grades[
        by_level.owner[reached]
    ]
    highest[inside.mask] = labels
    return lowest, highest


def _ap_labels(
    slots: _Slots, k: Cut, *, norm: str = "gold", rel: float = 1
) -> tuple[Values, Values]:
    """Return the labels of the lowest and of the highest AP."""
    ranked, best = slots.ranked, float(slots.grades.max())
    if best < rel:
        nothing = np.zeros(len(slots.query))
        return nothing, nothing
    inside, limit = _Inside(slots, k), ranked.limit(k)
    hits = ranked.hits
    hits = hits.where(hits.relevant(rel) & (hits.rank <= limit[hits.query]))
    keys = hits.query * _QUERY + hits.rank
    before = np.searchsorted(keys, inside.query * _QUERY + inside.rank)
    above = before - np.searchsorted(keys, inside.query * _QUERY)
    # An item that turns out relevant adds its precision, and 1 / rank for each hit below it.
    share = np.concatenate(([0.0], np.cumsum(1.0 / hits.rank)))
    below = share[np.searchsorted(keys, (inside.query + 1) * _QUERY)] - share[before]
    slot_share = np.concatenate(([0.0], np.cumsum(1.0 / inside.rank)))
    end = (inside.begin + inside.sizes)[inside.query]
    below_filled = slot_share[end] - slot_share[np.arange(len(inside.query)) + 1]
    top_steps = (above + inside.place + 1) / inside.rank + below
    end_steps = (above + 1) / inside.rank + below + below_filled

    gold, owner = ranked.target.relevant(rel), inside.owner

    def bottom(more: Ints) -> Values:
        number = (gold + more)[owner] + inside.number
        return np.minimum(number, limit[owner]) if norm == "k" else number

    now = add_up(hits.query, hits.so_far(np.ones(len(keys), dtype=bool)) / hits.rank, ranked.n)
    low = now[owner] + inside.from_end(inside.begin, end_steps)
    high = now[owner] + inside.from_top(inside.begin, top_steps)
    least = inside.best(-ratio(low, bottom(inside.outside)))
    most = inside.best(ratio(high, bottom(np.zeros_like(inside.outside))))
    return inside.last_relevant(least, best), inside.first_relevant(most, best)


def _ends_of_area(
    definition: Definition, slots: _Slots, k: Cut, arguments: Mapping[str, Any]
) -> tuple[Values, Values, bool]:
    """Return the ends of an area, by trying every number of relevant items."""
    nodes = nodes_of_area(k, **arguments)
    best, gain = slots.best_grade(nodes[0].arguments), nodes[0].arguments.get("gain", "linear")
    worth = gains_of_grades(slots.grades, gain)
    if nodes[0].definition.unjudged == "ndcg" and not np.isin(worth, (0.0, worth.max())).all():
        # No one labelling need be the best at every cut-off: this range is safe, not exact.
        ends = [_ends(node.definition, slots, node.k, node.arguments) for node in nodes]
        low, high = (
            np.asarray(sum(node.weight * end[side] for node, end in zip(nodes, ends, strict=True)))
            for side in (0, 1)
        )
        return low, high, False
    inside = _Inside(slots, k)
    low, high = np.full(slots.ranked.n, np.inf), np.full(slots.ranked.n, -np.inf)
    for number in range(int(inside.sizes.max(initial=0)) + 1):
        last = inside.last_relevant(np.minimum(number, inside.sizes), best)
        low = np.minimum(low, definition.function(slots.labelled(last), k, **arguments))
        first = inside.first_relevant(np.full_like(inside.sizes, number), best)
        high = np.maximum(high, definition.function(slots.labelled(first), k, **arguments))
    return low, high, True


# --- The range of a difference -----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Differences:
    """Two systems whose differences have ranges; measures share what does not depend on them."""

    first: Listed
    second: Listed
    gold: Prepared

    @cached_property
    def items(self) -> Common:
        """The unjudged items of both systems."""
        return in_common(self.first, self.second)

    @cached_property
    def slots(self) -> list[tuple[_Slots, _Slots]]:
        """The places of the items in the lists of each system: in common order, and by rank."""
        items, grades, slots = self.items, possible_grades(self.gold), []
        for lists, rank in ((self.first, items.first), (self.second, items.second)):
            order = np.lexsort((rank, items.query))
            in_place = _Slots(lists.ranked, items.query[order], rank[order], grades)
            slots.append((_Slots(lists.ranked, items.query, rank, grades), in_place))
        return slots

    def range_of(self, measure: Measure) -> Range:
        """Return a lowest and highest second - first of each query that no common labelling
        exceeds.

        NaN where either has no value. The range of the second less that of the first is safe;
        for a sum over relevant items, one label of an item in both lists makes it narrower.
        """
        _refuse_unbounded(measure, self.gold)
        first, second, items = self.first, self.second, self.items
        n, arguments = first.ranked.n, arguments_of(measure, self.gold.conventions)
        now = second.values(str(measure)) - first.values(str(measure))
        ends = []
        for lists, (_, ordered) in zip((first, second), self.slots, strict=True):
            low, high, _ = _ends(measure.definition, ordered, measure.k, arguments)
            values = lists.values(str(measure))
            ends.append((np.fmin(low, values), np.fmax(high, values)))
        low, high = ends[1][0] - ends[0][1], ends[1][1] - ends[0][0]
        slots = [in_common_order for in_common_order, _ in self.slots]
        for side in _differences_of_sums(measure.definition, slots, measure.k, arguments):
            low, high = np.fmax(low, side[0]), np.fmin(high, side[1])
        # Sums in another order may differ in the last bit; the current state is a labelling too.
        low, high = np.fmin(low, now), np.fmax(high, now)
        open_items = np.bincount(items.query, minlength=n) > 0
        settled = np.isnan(now) | ~open_items | _alike(first.ranked, second.ranked, items)
        settled |= measure.definition.unjudged == "gold"
        low, high = (np.where(settled, now, side) + 0.0 for side in (low, high))
        return Range(low, high, bool((settled | (low == high)).all()))


def difference_range(measure: Measure, first: Listed, second: Listed, gold: Prepared) -> Range:
    """Return the range of each query's second - first of one measure, as ``Differences`` has it."""
    return Differences(first, second, gold).range_of(measure)


def _alike(first: Ranked, second: Ranked, items: Common) -> Mask:
    """Return which queries have two lists with equal values under every labelling."""
    alike = np.equal(first.returned, second.returned)
    alike[items.query[items.first != items.second]] = False
    old, new = (side.hits.query * _QUERY + side.hits.rank for side in (first, second))
    alike[np.setxor1d(old, new, assume_unique=True) // _QUERY] = False
    _, left, right = np.intersect1d(old, new, assume_unique=True, return_indices=True)
    apart = left[first.hits.grade[left] != second.hits.grade[right]]
    alike[first.hits.query[apart]] = False
    return alike


def _differences_of_sums(
    definition: Definition, slots: list[_Slots], k: Cut, arguments: Mapping[str, Any]
) -> list[tuple[Values, Values]]:
    """Return the range of a difference of sums over relevant items; none for other measures.

    Both sums are divided by the same number, which labels can only raise: from its current value
    to that with every item relevant. Above it each item adds what it weighs in the
    second list less what it weighs in the first, if it is relevant.
    """
    if definition.unjudged == "area":
        total = np.zeros((2, slots[0].ranked.n))
        for node in nodes_of_area(k, **arguments):
            for ends in _differences_of_sums(node.definition, slots, node.k, node.arguments):
                total += node.weight * np.array(ends)
                break
            else:
                return []
        return [(total[0], total[1])]
    if definition.unjudged not in {"sum", "ndcg"}:
        return []
    first, second = slots
    best = first.best_grade(arguments)
    gold = first.ranked.target
    everything = first.all_of(best).target

    def value(ranked: Ranked, target: Target, hits: Entries | None = None) -> Values:
        hits = ranked.hits if hits is None else hits
        lists = replace(ranked, target=target, hits=hits, found=hits)
        return definition.function(lists, k, **arguments)

    n, now, gap = gold.n, [], np.zeros(len(first.query))
    for sign, side in ((-1.0, first), (1.0, second)):
        now.append(value(side.ranked, everything))
        # What an item weighs by itself, and how much less among all others.
        relevant = side.all_of(best)
        alone, single = relevant.alone, relevant.first
        share = ratio(value(single, everything), value(single, single.target))
        weights = value(alone, alone.target) * share[side.query[relevant.present]]
        gap[relevant.present] += sign * weights
    # A gold item weighs less once more items are relevant, by what the sums are divided by.
    ideal = gold.ideal.where(gold.ideal.rank == 1)
    before, after = (value(first.ranked, target, ideal) for target in (gold, everything))
    with np.errstate(divide="ignore", invalid="ignore"):
        shrunk = np.where(after > 0, before / after, np.inf)
        low, high = (
            now[1] - now[0] + add_up(first.query, gaps, n)
            for gaps in (np.minimum(gap, 0.0), np.maximum(gap, 0.0))
        )
        low, high = np.where(low < 0, low * shrunk, low), np.where(high > 0, high * shrunk, high)
    return [(low, high)]


def without_judgments(ranked: Ranked) -> Ranked:
    """Return the lists without any judgment."""
    none = np.empty(0, dtype=np.int64)
    hits = Entries(ranked.n, none, none, np.empty(0))
    target = replace(ranked.target, query=none, grade=np.empty(0), unit=none)
    return replace(ranked, target=target, hits=hits, found=hits)


@dataclass(frozen=True, eq=False)
class Common:
    """The unjudged items of two systems, each pair once; a rank is ABSENT where a list lacks it."""

    query: Ints
    first: Ints
    second: Ints
    item_id: pl.Series


def in_common(first: Listed, second: Listed) -> Common:
    """Return what is unjudged in either of two systems, by query and item."""
    sides = [
        pl.DataFrame({"query": items.query, "item_id": items.named, name: items.rank})
        for name, items in (("first", first.unjudged), ("second", second.unjudged))
    ]
    both = sides[0].join(sides[1], on=_PAIR, how="full", coalesce=True).sort(_PAIR)
    ranks = both.select(pl.col("first", "second").fill_null(ABSENT))
    return Common(
        both["query"].to_numpy(),
        ranks["first"].to_numpy(),
        ranks["second"].to_numpy(),
        both["item_id"],
    )
