"""What unjudged items can do to a measure: what a measure declares, and the search behind it.

A measure declares its behaviour with ``@measure(..., unjudged=...)``: one of ``Extremes``,
``SumOverGold``, ``BestHit``, ``Area``, or a sentence that says why it has no range. Ranges of
whole score tables are computed in ``ranges``, those of differences in ``differences``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from karat.measure.aggregates import Values
from karat.measure.ranked import (
    UNLIMITED,
    Cut,
    Entries,
    Ints,
    Mask,
    Ranked,
    Target,
    ratio,
    table_of,
)

# The rank of an item that a list does not hold.
ABSENT = UNLIMITED
# This many cells of a table are worked on at a time.
_CELLS = 1 << 18
_QUERY = np.int64(1) << 32
_Kind = TypeVar("_Kind", np.int64, np.float64)

Kernel = Callable[..., Values]

NO_RANGE = "no bounds are known for {}"
COUNTS_JUDGMENTS = "{} counts which items are judged, so that judging changes what it measures"
IGNORES_RELEVANCE = "{} does not depend on which items are relevant"


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
    here = rank < ABSENT
    owners = np.concatenate((owner, query[here]))
    ranks = np.concatenate((ranked.hits.rank[rows], rank[here]))
    grades = np.concatenate((ranked.hits.grade[rows], grade[here]))
    order = np.lexsort((ranks, owners))
    hits = Entries(len(of), owners[order], ranks[order], grades[order])
    return Ranked(more, hits, hits, ranked.returned[of])


def _copied(query: Ints, n: int, of: Ints) -> tuple[Ints, Ints]:
    """Return the rows of some queries, one after the other, and each row's place in ``of``."""
    counts = np.bincount(query, minlength=n)
    starts = (np.cumsum(counts) - counts)[of]
    sizes = counts[of]
    owner = np.repeat(np.arange(len(of)), sizes)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return starts[owner] + within, owner


@dataclass(frozen=True, eq=False)
class PartlyJudged:
    """Ranked lists, their unjudged items (by query, then rank), and the grades these may get."""

    ranked: Ranked
    query: Ints
    rank: Ints
    grades: Values

    @property
    def n(self) -> int:
        """The number of queries."""
        return self.ranked.n

    @property
    def sizes(self) -> Ints:
        """The number of unjudged items of each query."""
        return np.bincount(self.query, minlength=self.n)

    @property
    def top(self) -> float:
        """The highest grade that an item may get."""
        return float(self.grades.max())

    def labelled(self, labels: Values) -> Ranked:
        """Return the lists once every unjudged item has a label; grade 0 is like no judgment."""
        kept = labels > 0
        everyone = np.arange(self.n)
        return judged_more(self.ranked, everyone, self.query[kept], self.rank[kept], labels[kept])

    def slots_between(self, start: Ints, stop: Ints) -> Mask:
        """Return which unjudged items are number ``start`` to before ``stop`` of their query."""
        sizes = self.sizes
        number = np.arange(len(self.query)) - (np.cumsum(sizes) - sizes)[self.query]
        return np.asarray((number >= start[self.query]) & (number < stop[self.query]))

    def labels_at(self, keep: Ints, fill: Ints, grade: float) -> tuple[Values, Values]:
        """Return labels for the lowest and the highest value.

        Lowest with all but the first ``keep`` items of each list relevant, highest with the
        first ``fill`` relevant.
        """
        last = self.slots_between(keep, self.sizes)
        first = self.slots_between(np.zeros_like(fill), fill)
        return np.where(last, grade, 0.0), np.where(first, grade, 0.0)


# --- What a measure declares -------------------------------------------------------------------


@dataclass(frozen=True)
class Extremes:
    """The labels of unjudged items at which a measure is lowest and highest.

    ``labels(lists, k, **arguments)`` returns both, a grade for each unjudged item. ``binary``
    promises that only relevant or not matters, and that for any number of relevant items the
    value is highest with them at the top of the list and lowest with them at its end.
    """

    labels: Callable[..., tuple[Values, Values]]
    binary: bool = False

    def range(
        self, function: Kernel, lists: PartlyJudged, k: Cut, **arguments: Any
    ) -> tuple[Values, Values, bool]:
        """Return the lowest and highest values, and whether both are reached."""
        low, high = (
            function(lists.labelled(labels), k, **arguments)
            for labels in self.labels(lists, k, **arguments)
        )
        return low, high, True


def _rising_labels(lists: PartlyJudged, k: Cut, **_: Any) -> tuple[Values, Values]:
    within = lists.rank <= lists.ranked.limit(k)[lists.query]
    return np.zeros(len(within)), np.where(within, lists.top, 0.0)


# A better grade within the cut-off never makes the value worse, and one beyond it changes nothing.
RISING = Extremes(_rising_labels)


@dataclass(frozen=True, eq=False)
class Levels:
    """The gains that a query's ideal list falls through, from the best possible down to 0.

    Flat, sorted by query: the ``grade`` of a level, how much more it is worth than the next one
    (``step``), and how many gold items are worth at least as much (``count``).
    """

    query: Ints
    grade: Values
    step: Values
    count: Ints

    def rows(self, query: Ints) -> tuple[Values, Values, Ints]:
        """Return grades, steps and counts of some queries; a step of 0 stands for no level."""
        return (
            table_by_query(self.query, self.grade, query, 0.0),
            table_by_query(self.query, self.step, query, 0.0),
            table_by_query(self.query, self.count, query, 0),
        )

    def ideal(self, query: Ints, more: Ints, limit: Ints) -> Values:
        """Return the DCG of the ideal list with ``more`` further items of the best grade."""
        _, steps, counts = self.rows(query)
        best = np.zeros(np.broadcast_shapes(more.shape, (len(query), 1)))
        for step, count in zip(steps.T, counts.T, strict=True):
            best += step[:, None] * discounts_up_to(count[:, None] + more, limit[query, None])
        return best


def discounts_up_to(count: Ints, limit: Ints) -> Values:
    """Return the sum of the discounts of the first ranks, ``count`` of them or ``limit``."""
    count = np.minimum(count, limit)
    table = table_of("log2", int(count.max(initial=0)))
    return np.concatenate(([0.0], np.cumsum(1.0 / table[1:])))[count]


@dataclass(frozen=True, eq=False)
class Terms:
    """A sum over the relevant items of each list, divided by a number that knows the gold.

    An item at a rank adds ``own(query, rank)`` times ``worth(grade)``, and ``shared(rank)`` for
    every relevant item above it, of which ``relevant`` are those judged so; nothing beyond the
    ``limit``. ``grade`` is the possible grade that is worth most. ``bottom(query, more)`` is the
    number below the sum when ``more`` further items have that grade; None for a plain sum.
    ``cut`` says that it depends on the cut-off. ``levels`` are those of the ideal list, where
    grades in between could make the value higher. ``now`` is each query's sum as things stand.
    """

    limit: Ints
    grade: float
    own: Callable[[Ints, Ints], Values]
    worth: Callable[[Values], Values]
    bottom: Callable[[Ints, Ints], Values | Ints] | None = None
    cut: bool = False
    shared: Callable[[Values], Values] | None = None
    relevant: Places | None = None
    levels: Levels | None = None
    now: Values | None = None
    weight: float = 1.0

    @property
    def top(self) -> float:
        """What a further item may be worth at most; 0 where no possible grade counts."""
        return float(self.worth(np.array([self.grade]))[0])

    def divisor(self, query: Ints, more: Ints) -> Values | Ints:
        """Return what the sum is divided by."""
        if self.bottom is None:
            return np.ones(np.broadcast_shapes((len(query), 1), more.shape))
        return self.bottom(query, more)

    def weights(self, query: Ints, rank: Ints) -> Values:
        """Return what an item of worth 1 at each rank adds; nothing beyond the limit."""
        inside = (rank <= self.limit[query]) & (rank < ABSENT)
        return np.where(inside, self.own(query, np.where(inside, rank, 1)), 0.0)


def best_grade(grades: Values, worth: Callable[[Values], Values]) -> float:
    """Return the grade that is worth most; the highest of several."""
    values = worth(grades)
    return float(grades[np.flatnonzero(values == values.max())[-1]])


def count_terms(
    lists: PartlyJudged,
    k: Cut,
    rel: float,
    own: Callable[[Ints, Ints], Values],
    bottom: Callable[[Ints, Ints], Values | Ints] | None = None,
    **more: Any,
) -> Terms:
    """Return the terms of a measure to which only relevant or not matters."""
    return Terms(
        lists.ranked.limit(k),
        lists.top,
        own,
        lambda grade: (grade >= rel).astype(np.float64),
        bottom,
        **more,
    )


def each(_: Ints, rank: Ints) -> Values:
    """Return 1 for every rank: each item counts alike."""
    return np.ones(rank.shape)


@dataclass(frozen=True)
class BestHit:
    """A measure that is the weight of its best relevant hit: ``weight(rank)`` falls with the rank.

    ``sign`` is -1 for a measure that is 1 minus that weight.
    """

    weight: Callable[[Ints], Values]
    sign: int = 1

    def range(
        self, function: Kernel, lists: PartlyJudged, k: Cut, **arguments: Any
    ) -> tuple[Values, Values, bool]:
        """Return the values with no further hit and with every one, which are both reached."""
        return RISING.range(function, lists, k, **arguments)

    def terms(self, lists: PartlyJudged, k: Cut, *, rel: float = 1, **_: Any) -> Terms:
        """Return the weights of hits, of which the largest counts."""
        return count_terms(lists, k, rel, lambda _, rank: self.weight(rank))


@dataclass(frozen=True)
class SumOverGold:
    """A measure that sums over relevant items and divides by what the gold allows.

    ``terms(lists, k, **arguments)`` describes the sum. ``best_labels(lists, k, terms)`` finds
    the labels of the highest value where grades in between matter.
    """

    terms: Callable[..., Terms]
    best_labels: Callable[[PartlyJudged, Cut, Terms], Values] | None = None

    def terms_of(self, function: Kernel, lists: PartlyJudged, k: Cut, **arguments: Any) -> Terms:
        """Return the terms, with the sums as things stand."""
        terms = self.terms(lists, k, **arguments)
        values = np.nan_to_num(function(lists.ranked, k, **arguments))
        none = np.zeros((lists.n, 1), dtype=np.int64)
        return replace(terms, now=values * terms.divisor(np.arange(lists.n), none)[:, 0])

    def range(
        self, function: Kernel, lists: PartlyJudged, k: Cut, **arguments: Any
    ) -> tuple[Values, Values, bool]:
        """Return the lowest and highest values, and whether both are reached."""
        terms = self.terms_of(function, lists, k, **arguments)
        low, high = extreme_labels(lists, [terms])
        if terms.levels is not None and self.best_labels is not None:
            high = self.best_labels(lists, k, terms)
        lowest, highest = (
            function(lists.labelled(labels), k, **arguments) for labels in (low, high)
        )
        return lowest, highest, True


class Declared(Protocol):
    """What a registered measure declares; see ``registry.Definition``."""

    @property
    def function(self) -> Kernel: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...
    @property
    def unjudged(self) -> Behaviour | str: ...


@dataclass(frozen=True, eq=False)
class Node:
    """A measure at one cut-off as part of a weighted sum of measures."""

    weight: float
    definition: Declared
    k: Cut
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Area:
    """A measure that is a weighted sum of another one at several cut-offs.

    ``nodes(k, **arguments)`` returns the parts of the sum.
    """

    nodes: Callable[..., list[Node]]

    def range(
        self, function: Kernel, lists: PartlyJudged, k: Cut, **arguments: Any
    ) -> tuple[Values, Values, bool]:
        """Return the lowest and highest values, and whether both are reached."""
        nodes = self.nodes(k, **arguments)
        behaviour = nodes[0].definition.unjudged
        if not isinstance(behaviour, SumOverGold):
            if isinstance(behaviour, str):
                raise TypeError(behaviour)  # refused before, see ranges.why_unbounded
            return behaviour.range(function, lists, k, **arguments)
        terms = [
            replace(
                behaviour.terms_of(node.definition.function, lists, node.k, **node.arguments),
                weight=node.weight,
            )
            for node in nodes
        ]
        if terms[0].levels is None:
            lowest, highest = (
                function(lists.labelled(labels), k, **arguments)
                for labels in extreme_labels(lists, terms)
            )
            return lowest, highest, True
        # No one labelling need be the best at every cut-off: this range is safe, not exact.
        low, high = np.zeros(lists.n), np.zeros(lists.n)
        for node in nodes:
            ends = behaviour.range(node.definition.function, lists, node.k, **node.arguments)
            low, high = low + node.weight * ends[0], high + node.weight * ends[1]
        return low, high, False


Behaviour = Extremes | BestHit | SumOverGold | Area


# --- Searching over the number of relevant items -----------------------------------------------


@dataclass(frozen=True, eq=False)
class Slots:
    """The unjudged items of some queries: a row each, from the top, padded on the right.

    Where a number of items is relevant, a measure is highest with them in the first slots of a
    list and lowest with them in the last; so a search tries numbers, and no two places for each.
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
        """The number of first slots of each state: 0, 1, 2, …"""
        return np.arange(self.rank.shape[1] + 1)[None, :]

    @property
    def last(self) -> Ints:
        """The number of slots after the first ones."""
        return np.asarray(np.maximum(self.size[:, None] - self.first, 0))

    def best(self, values: Values) -> Ints:
        """Return how many first slots to fill for the largest value; the fewest that give it."""
        known = np.where(self.first <= self.size[:, None], values, -np.inf)
        return np.asarray(np.argmax(known, axis=1))

    def worst(self, values: Values) -> Ints:
        """Return how many first slots to leave for the smallest value; the most that give it."""
        known = np.where(self.first <= self.size[:, None], values, np.inf)
        return np.asarray(values.shape[1] - 1 - np.argmin(known[:, ::-1], axis=1))


def slots_of(lists: PartlyJudged, limit: Ints | None = None) -> Iterator[Slots]:
    """Yield all queries with slots (up to a last rank for each), similar lengths together."""
    query, rank = lists.query, lists.rank
    if limit is not None:
        query, rank = query[rank <= limit[query]], rank[rank <= limit[query]]
    size = np.bincount(query, minlength=lists.n)
    (some,) = np.nonzero(size)
    some = some[np.argsort(size[some], kind="stable")]
    while len(some):
        width = 2 * int(size[some[0]])
        similar = int(np.searchsorted(size[some], width, side="right"))
        here = np.sort(some[: max(1, min(similar, _CELLS // width))])
        yield Slots(here, table_by_query(query, rank, here, ABSENT), size[here])
        some = some[len(here) :]


@dataclass(frozen=True, eq=False)
class Places:
    """The ranks of some entries of many lists, sorted, to be counted."""

    query: Ints
    rank: Ints

    def up_to(self, query: Ints, rank: Ints) -> Ints:
        """Return the number of entries that each of these queries has up to a rank."""
        keys = self.query * _QUERY + self.rank
        start = query * _QUERY
        last = start + np.minimum(rank, _QUERY - 1)
        return np.searchsorted(keys, last, side="right") - np.searchsorted(keys, start)

    def rows(self, query: Ints) -> Ints:
        """Return the ranks of each of these queries, padded with ABSENT."""
        return table_by_query(self.query, self.rank, query, ABSENT)


def table_by_query(owner: Ints, values: NDArray[_Kind], query: Ints, fill: float) -> NDArray[_Kind]:
    """Return values that belong to queries (and are sorted by them), a row per query asked for."""
    start, stop = np.searchsorted(owner, query), np.searchsorted(owner, query, side="right")
    width = int((stop - start).max(initial=0))
    table = np.full((len(query), width), fill, dtype=values.dtype)
    at = start[:, None] + np.arange(width)
    inside = at < stop[:, None]
    table[inside] = values[at[inside]]
    return table


def sums_from_top(steps: Values) -> Values:
    """Return the sum of each row's first cells: none, one, two, … all of them."""
    return np.concatenate((np.zeros((len(steps), 1)), np.cumsum(steps, axis=1)), axis=1)


def sums_from_bottom(steps: Values) -> Values:
    """Return the sum of the cells that follow each row's first ones: none of these, one, …"""
    return sums_from_top(steps[:, ::-1])[:, ::-1]


def extreme_labels(lists: PartlyJudged, parts: Sequence[Terms]) -> tuple[Values, Values]:
    """Return the labels at which a weighted sum of terms is lowest, and highest."""
    grade = parts[0].grade
    nothing = np.zeros(len(lists.query))
    if not parts[0].top:
        return nothing, nothing
    if all(terms.bottom is None for terms in parts):
        last = np.max([terms.limit for terms in parts], axis=0)
        return nothing, np.where(lists.rank <= last[lists.query], grade, 0.0)
    keep = lists.sizes
    fill = np.zeros_like(keep)
    for slots in slots_of(lists):
        low, high = (np.zeros(slots.rank.shape + np.array([0, 1])) for _ in range(2))
        for terms in parts:
            bottom, top = _sums(terms, slots)
            low += terms.weight * ratio(bottom, terms.divisor(slots.query, slots.last))
            high += terms.weight * ratio(top, terms.divisor(slots.query, slots.first))
        keep[slots.query], fill[slots.query] = slots.worst(low), slots.best(high)
    return lists.labels_at(keep, fill, grade)


def _sums(terms: Terms, slots: Slots) -> tuple[Values, Values]:
    """Return the sum in each state, with the last slots relevant and with the first ones."""
    query = slots.query[:, None]
    now = 0.0 if terms.now is None else terms.now[query]
    own = terms.top * terms.weights(query, slots.rank)
    if terms.shared is None or terms.relevant is None:
        return now + sums_from_bottom(own), now + sums_from_top(own)
    limit = terms.limit[query]
    shared = _within(terms.shared, slots.rank, limit)
    above = terms.relevant.up_to(query, slots.rank)
    # Every relevant item below a slot has one more above it once that slot is relevant.
    below = sums_from_bottom(_within(terms.shared, terms.relevant.rows(slots.query), limit))
    step = own + shared * above + np.take_along_axis(below, above, axis=1)
    step = np.where(slots.real, step, 0.0)
    bottom = sums_from_bottom(step + sums_from_bottom(shared)[:, 1:])
    top = sums_from_top(step + shared * slots.first[:, :-1])
    return now + bottom, now + top


def _within(shared: Callable[[Values], Values], rank: Ints, limit: Ints) -> Values:
    inside = (rank <= limit) & (rank < ABSENT)
    return np.where(inside, shared(np.where(inside, rank, 1).astype(np.float64)), 0.0)
