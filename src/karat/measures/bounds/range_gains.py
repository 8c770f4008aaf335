"""Gains by level: the ideal list as labels are added to it, and the labels that nDCG likes best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from karat.measures.bounds.range_slots import Slots, rows_of, slots_of, sums_from_top
from karat.measures.bounds.unjudged import Listed
from karat.measures.gains import Gain
from karat.measures.kernels.ranks import best_first, gains
from karat.measures.numbers import Values
from karat.measures.ranked import Cut, Entries, Ints, Target, ratio, table_of

# Each step of the search more than doubles the correct digits; a handful is enough.
_STEPS = 100


def worth_of(grades: Values, gain: Gain) -> Values:
    """What grades are worth by themselves."""
    none = np.zeros(len(grades), dtype=np.int64)
    return gains(Entries(1, none, none, grades), gain)


def best_grade(grades: Values, gain: Gain) -> tuple[float, float]:
    """The grade that is worth most, and what it is worth; the highest of several."""
    worth = worth_of(grades, gain)
    (most,) = np.nonzero(worth == worth.max())
    return float(grades[most[-1]]), float(worth[most[-1]])


@dataclass(frozen=True, eq=False)
class Levels:
    """The gains that a query's ideal list falls through, from the best possible down to 0.

    Flat, sorted by query: the ``grade`` of a level, by how much it is worth more than the next
    one (``step``), and how many gold items are worth at least as much (``count``).
    """

    query: Ints
    grade: Values
    step: Values
    count: Ints

    @classmethod
    def of(cls, target: Target, grades: Values, gain: Gain) -> Levels:
        """The levels of some gold, under the best grade that a label could bring."""
        entries, worth = best_first(target.ideal, gain)
        grade, most = best_grade(grades, gain)
        everyone = np.arange(target.n)
        query = np.concatenate((everyone, entries.query))
        order = np.argsort(query, kind="stable")
        query = query[order]
        # Before all gold of a query stands the best possible label.
        grade_of = np.concatenate((np.full(target.n, grade), entries.grade))[order]
        worth = np.concatenate((np.full(target.n, most), worth))[order]
        count = np.concatenate((np.zeros_like(everyone), entries.rank))[order]
        last = np.append(query[1:] != query[:-1], True)
        step = worth - np.where(last, 0.0, np.append(worth[1:], 0.0))
        kept = step > 0
        return cls(query[kept], grade_of[kept], step[kept], count[kept])

    def rows(self, query: Ints) -> tuple[Values, Values, Ints]:
        """Grades, steps and counts of some queries; a step of 0 stands for no level."""
        return (
            rows_of(self.query, self.grade, query, 0.0),
            rows_of(self.query, self.step, query, 0.0),
            rows_of(self.query, self.count, query, 0),
        )

    def ideal(self, query: Ints, more: Ints, limit: Ints) -> Values:
        """The DCG of the ideal list with so many further items of the best grade."""
        _, steps, counts = self.rows(query)
        best = np.zeros(np.broadcast_shapes(more.shape, (len(query), 1)))
        for step, count in zip(steps.T, counts.T, strict=True):
            best += step[:, None] * _discounts(count[:, None] + more, limit[query, None])
        return best


def _discounts(count: Ints, limit: Ints) -> Values:
    """The sum of the discounts of so many first ranks, at most those up to the limit."""
    count = np.minimum(count, limit)
    table = table_of("log2", int(count.max(initial=0)))
    return np.concatenate(([0.0], np.cumsum(1.0 / table[1:])))[count]


def best_labels(one: Listed, k: Cut, now: Values, levels: Levels) -> Values:
    """The grade of each unjudged item for the highest nDCG that there can be.

    The best value v is where DCG - v × ideal DCG can at most be 0 (Dinkelbach). This difference
    falls apart by levels of gain: each wants some number of the first slots, and a higher level
    never wants more of them than a lower one.
    """
    limit = one.ranked.ideal_limit(k)
    grade = np.zeros(len(one.unjudged.query))
    begin = np.searchsorted(one.unjudged.query, np.arange(one.ranked.n))
    for slots in slots_of(one, limit):
        grades, _, _ = levels.rows(slots.query)
        wanted = _wanted(slots, limit, now[slots.query], levels)
        # From the lowest level up, so that the highest has the last word.
        table = np.zeros(slots.rank.shape)
        for own, count in zip(grades.T[::-1], wanted.T[::-1], strict=True):
            table = np.where(slots.first[:, :-1] < count[:, None], own[:, None], table)
        at = begin[slots.query, None] + slots.first[:, :-1]
        grade[at[slots.real]] = table[slots.real]
    return grade


def _wanted(slots: Slots, limit: Ints, now: Values, levels: Levels) -> Ints:
    """How many of the first slots reach each level, at the best value that can be had."""
    _, steps, counts = levels.rows(slots.query)
    ranks = np.where(slots.real, slots.rank, 1)
    discounts = np.where(slots.real, 1.0 / table_of("log2", int(ranks.max()))[ranks], 0.0)
    found = sums_from_top(discounts)
    ideal = [
        _discounts(count[:, None] + slots.first, limit[slots.query, None]) for count in counts.T
    ]
    base = now * sum(s * i[:, 0] for s, i in zip(steps.T, ideal, strict=True))
    value, rows = now, np.arange(len(now))
    wanted = np.zeros(steps.shape, dtype=np.int64)
    for _ in range(_STEPS):
        each = [np.argmax(found - value[:, None] * one, axis=1) for one in ideal]
        tried = np.maximum.accumulate(np.stack(each, axis=1), axis=1)
        top, bottom = base.copy(), np.zeros(len(base))
        for step, one, count in zip(steps.T, ideal, tried.T, strict=True):
            top += step * found[rows, count]
            bottom += step * one[rows, count]
        reached = ratio(top, bottom)
        better = reached > value
        if not better.any():
            break
        wanted = np.where(better[:, None], tried, wanted)
        value = np.where(better, reached, value)
    return wanted
