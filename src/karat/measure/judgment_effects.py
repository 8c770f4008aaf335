"""The effect of one more judgment on the values of one system, or on the difference of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import polars as pl

from karat.measure.aggregates import Values
from karat.measure.evaluate_measure import possible_grades, values_of
from karat.measure.names import Measure
from karat.measure.prepare import Prepared
from karat.measure.ranges import (
    ABSENT,
    Common,
    Listed,
    in_common,
    judged_more,
    without_judgments,
)
from karat.measure.ranked import Ints, Ranked

# Lists that are held at one time, each with all of its judged items.
_LISTS = 20_000


@dataclass(frozen=True, eq=False)
class Effects:
    """The unjudged pairs of one or two systems, and the effect of judging each.

    ``first`` and ``second`` are ranks, ABSENT where a list lacks the item. ``top`` is the change
    of its query's value if the item alone were judged to be of the highest grade, ``least`` if
    of the lowest that is relevant; with two systems, the change of their difference (second
    minus first). Both are NaN where the query has no value. ``alone`` is what the highest grade
    would change if nothing else of its query were judged: it depends on the ranks only.
    """

    query: Ints
    first: Ints
    second: Ints
    item_id: pl.Series
    top: Values
    least: Values
    alone: Values

    def at(self, rows: Ints) -> Effects:
        """Return the pairs in these rows."""
        return Effects(*(getattr(self, field.name)[rows] for field in fields(self)))


def effects(measure: Measure, systems: Sequence[Listed], gold: Prepared) -> Effects:
    """Return the effect of judging each unjudged item of one system, or of two."""
    if len(systems) == 2:
        pairs, signs = in_common(*systems), (-1.0, 1.0)
    else:
        unjudged = systems[0].unjudged
        absent = np.full(len(unjudged.query), ABSENT)
        pairs = Common(unjudged.query, unjudged.rank, absent, unjudged.named)
        signs = (1.0, 0.0)
    top, least = relevant_grades(measure, gold)
    sums = np.zeros((3, len(pairs.query)))
    for lists, sign, ranks in zip(systems, signs, (pairs.first, pairs.second), strict=False):
        for row, grade in enumerate((top, least)):
            sums[row] += sign * changes(measure, lists, gold, pairs.query, ranks, grade)
        sums[2] += sign * _alone(measure, lists.ranked, gold, pairs.query, ranks, top)
    return Effects(pairs.query, pairs.first, pairs.second, pairs.item_id, *sums)


def relevant_grades(measure: Measure, gold: Prepared) -> tuple[float, float]:
    """Return the highest grade that an item may be judged, and the lowest that is relevant."""
    grades = possible_grades(gold)
    rel = float(measure.arguments.get("rel", gold.conventions.rel))
    relevant = grades[(grades >= rel) & (grades > 0)]
    return float(grades.max()), float(relevant.min(initial=grades.max()))


def changes(
    measure: Measure, lists: Listed, gold: Prepared, query: Ints, rank: Ints, grade: float
) -> Values:
    """Return each item's effect on its query's value if it alone gets this grade.

    ``rank`` is ABSENT for an item that the system did not return: it still is one more that
    could have been found. NaN where the query has no value now.
    """
    now = lists.values(str(measure))
    return _judged(measure, lists.ranked, gold, query, rank, grade) - now[query]


def _judged(
    measure: Measure, ranked: Ranked, gold: Prepared, query: Ints, rank: Ints, grade: float
) -> Values:
    """Return the value of each item's query if that item alone gets this grade."""
    values = np.full(len(query), np.nan)
    for start in range(0, len(query), _LISTS):
        rows = np.arange(start, min(start + _LISTS, len(query)))
        grades = np.full(len(rows), grade)
        more = judged_more(ranked, query[rows], np.arange(len(rows)), rank[rows], grades)
        values[rows] = values_of(measure, more, gold)
    return values


def _alone(
    measure: Measure, ranked: Ranked, gold: Prepared, query: Ints, rank: Ints, grade: float
) -> Values:
    """Return each item's effect on its query's value if nothing else were judged."""
    bare = without_judgments(ranked)
    zero = replace(gold, conventions=replace(gold.conventions, empty_gold="zero"))
    before = np.nan_to_num(values_of(measure, bare, zero))
    return np.nan_to_num(_judged(measure, bare, zero, query, rank, grade)) - before[query]
