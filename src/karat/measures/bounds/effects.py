"""Effects: what a measure would be if one more item were judged, item by item."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from karat.measures.bounds.unjudged import (
    ABSENT,
    Common,
    Listed,
    in_common,
    judged_more,
    possible_grades,
)
from karat.measures.names import Measure
from karat.measures.numbers import Values
from karat.measures.prepare import Prepared
from karat.measures.ranked import Entries, Ints, Ranked
from karat.measures.valuing import values_of

# Lists that are held at one time, each with all of its judged items.
_LISTS = 20_000


@dataclass(frozen=True, eq=False)
class Effects:
    """The unjudged pairs of one or two systems, and what judging each of them would change.

    ``first`` and ``second`` are ranks, ABSENT where a list lacks the item. ``top`` is what the
    value of its query would change by if the item alone were judged to be of the highest grade,
    ``least`` if of the lowest that is relevant: of two systems what their difference, second
    minus first, would change by. Both are NaN where the query has no value. ``alone`` is what the
    highest grade would change if nothing else of its query were judged: it depends on the ranks
    and on no judgment.
    """

    query: Ints
    first: Ints
    second: Ints
    item_id: pl.Series
    top: Values
    least: Values
    alone: Values

    def at(self, rows: Ints) -> Effects:
        """The pairs in these rows."""
        return Effects(
            self.query[rows],
            self.first[rows],
            self.second[rows],
            self.item_id.gather(rows),
            self.top[rows],
            self.least[rows],
            self.alone[rows],
        )


def effects_on_value(measure: Measure, one: Listed, gold: Prepared) -> Effects:
    """What judging each unjudged item of a system changes."""
    unjudged = one.unjudged
    absent = np.full(len(unjudged.query), ABSENT)
    pairs = Common(unjudged.query, unjudged.rank, absent, unjudged.item_id)
    return _effects(measure, [(one, 1.0)], pairs, gold)


def effects_on_difference(
    measure: Measure, first: Listed, second: Listed, gold: Prepared
) -> Effects:
    """What judging each item that is unjudged in either system changes in their difference."""
    return _effects(measure, [(first, -1.0), (second, 1.0)], in_common(first, second), gold)


def relevant_grades(measure: Measure, gold: Prepared) -> tuple[float, float]:
    """The highest grade that an item may be judged, and the lowest that is relevant."""
    grades = possible_grades(gold)
    rel = float(measure.arguments.get("rel", gold.conventions.rel))
    relevant = grades[(grades >= rel) & (grades > 0)]
    return float(grades.max()), float(relevant.min(initial=grades.max()))


def changes(
    measure: Measure, one: Listed, gold: Prepared, query: Ints, rank: Ints, grade: float
) -> Values:
    """What each of some items changes in the value of its query if it alone gets this grade.

    ``rank`` is ABSENT for an item that the system did not return: it still is one more that
    could have been found. NaN where the query has no value now.
    """
    now = one.values(str(measure))
    return _judged(measure, one.ranked, gold, query, rank, grade) - now[query]


def _judged(
    measure: Measure, ranked: Ranked, gold: Prepared, query: Ints, rank: Ints, grade: float
) -> Values:
    """The value of each item's query if it alone gets this grade."""
    values = np.full(len(query), np.nan)
    for start in range(0, len(query), _LISTS):
        rows = np.arange(start, min(start + _LISTS, len(query)))
        grades = np.full(len(rows), grade)
        more = judged_more(ranked, query[rows], np.arange(len(rows)), rank[rows], grades)
        values[rows] = values_of(measure, more, gold)
    return values


def _effects(
    measure: Measure, systems: list[tuple[Listed, float]], pairs: Common, gold: Prepared
) -> Effects:
    top, least = relevant_grades(measure, gold)
    found = np.zeros((3, len(pairs.query)))
    for (one, sign), ranks in zip(systems, (pairs.first, pairs.second), strict=False):
        for row, grade in enumerate((top, least)):
            found[row] += sign * changes(measure, one, gold, pairs.query, ranks, grade)
        found[2] += sign * _alone(measure, one.ranked, gold, pairs.query, ranks, top)
    return Effects(pairs.query, pairs.first, pairs.second, pairs.item_id, *found)


def _alone(
    measure: Measure, ranked: Ranked, gold: Prepared, query: Ints, rank: Ints, grade: float
) -> Values:
    """What each item would change in the value of its query if nothing else of it were judged."""
    target, none = ranked.target, np.empty(0, dtype=np.int64)
    nothing = Entries(ranked.n, none, none, np.empty(0))
    bare = replace(
        ranked,
        target=replace(target, query=none, grade=np.empty(0), unit=none),
        hits=nothing,
        found=nothing,
    )
    zero = replace(gold, conventions=replace(gold.conventions, empty_gold="zero"))
    before = np.nan_to_num(values_of(measure, bare, zero))
    return np.nan_to_num(_judged(measure, bare, zero, query, rank, grade)) - before[query]
