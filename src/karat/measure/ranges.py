"""Bounds over unjudged items: how low and high a query's value could be, and what one label does.

Every labelling counts: each unjudged item that a system returned may get any possible grade. How
a measure behaves is declared with it (see ``unjudged``); ranges of differences between two
systems are in ``differences``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from karat.errors import UsageError
from karat.measure.aggregates import Values
from karat.measure.evaluate_measure import arguments_of, values_of
from karat.measure.lists import without_repeats
from karat.measure.names import Measure
from karat.measure.prepare import Prepared
from karat.measure.ranked import Entries, Ints, Ranked, is_budget
from karat.measure.scores import Scores
from karat.measure.unjudged import ABSENT, Area, PartlyJudged, judged_more

# A scale with more steps than this is no scale of raters.
_MOST_STEPS = 100.0
# Lists that are held at one time, each with all of its judged items.
_LISTS = 20_000
_PAIR = ("query", "item_id")


@dataclass(frozen=True, eq=False)
class Unjudged:
    """Items that nobody judged, each once per query, by query and then by rank.

    ``query`` is the query's row in the score table. An item whose grade is below 0 was pooled
    and not judged, so it is one of them.
    """

    query: Ints
    rank: Ints
    item_id: pl.Series

    def counts(self, n: int) -> Ints:
        """Return the number of items of each of n queries."""
        return np.bincount(self.query, minlength=n)


@dataclass(frozen=True, eq=False)
class Listed:
    """What one system returned: where judged items stand, where unjudged ones, and its values.

    ``ranked`` has no grade below 0: what was pooled and not judged is unjudged.
    """

    ranked: Ranked
    unjudged: Unjudged
    scores: Scores

    def values(self, measure: str) -> Values:
        """Return each query's value of a measure as things stand; NaN where it has none."""
        return self.scores.values(measure)

    def partly_judged(self, gold: Prepared) -> PartlyJudged:
        """Return the lists with the grades that their unjudged items may get."""
        return PartlyJudged(
            self.ranked, self.unjudged.query, self.unjudged.rank, possible_grades(gold)
        )


def listed(scores: Scores) -> Listed:
    """Return a system's lists, of which all items were kept when it was scored."""
    if scores.trace is None or scores.lists is None:
        raise UsageError(f"the scores of {scores.system} come without whole lists; score it again")
    grade = pl.col("grade")
    once = without_repeats(scores.lists)
    rows = once.filter(grade.is_null() | (grade < 0)).sort("row", "rank")
    unjudged = Unjudged(
        rows["row"].cast(pl.Int64).to_numpy(),
        rows["rank"].cast(pl.Int64).to_numpy(),
        rows["item_id"],
    )
    return Listed(_without_pooled(scores.trace.ranked), unjudged, scores)


def _without_pooled(ranked: Ranked) -> Ranked:
    """Return the lists without what was pooled and not judged."""
    target = ranked.target
    kept = target.grade >= 0
    if kept.all():
        return ranked
    target = replace(
        target, query=target.query[kept], grade=target.grade[kept], unit=target.unit[kept]
    )
    hits = replace(ranked.hits.where(ranked.hits.grade >= 0), row=None)
    return replace(ranked, target=target, hits=hits, found=hits)


def possible_grades(gold: Prepared) -> Values:
    """Return what an item may be judged: whole grades up to the highest, and any in use.

    The gold of every query counts, since raters judge all of them on one scale. Of a scale with
    more than 100 steps only grades in use are possible.
    """
    used = gold.grade[gold.grade > 0]
    top = used.max(initial=max(1.0, gold.top_grade))
    whole = np.arange(0.0, np.floor(min(top, _MOST_STEPS)) + 1)
    return np.unique(np.concatenate((whole, used, [top])))


@dataclass(frozen=True, eq=False)
class Range:
    """The lowest and highest value of each query, NaN where a query has none.

    ``exact`` says that both are reached by some labelling; otherwise they are safe: no labelling
    leads beyond them.
    """

    low: Values
    high: Values
    exact: bool


def why_unbounded(measure: Measure, gold: Prepared) -> str | None:
    """Return why a measure has no range, as a sentence; None where it has one."""
    conventions = gold.conventions
    if conventions.level != "item":
        return f"bounds need judgments of items; these are of level {conventions.level}"
    definition, arguments = measure.definition, arguments_of(measure, conventions)
    declared, parameters = definition.unjudged, dict(definition.parameters)
    if isinstance(declared, Area):
        node = declared.nodes(measure.k, **arguments)[0]
        declared, arguments = node.definition.unjudged, dict(node.arguments)
        parameters = dict(node.definition.parameters)
    if isinstance(declared, str):
        return declared.format(measure)
    if is_budget(measure.k):
        return f"{measure} cuts lists by tokens; bounds need a cut-off that counts items"
    # A label that the measure itself would refuse.
    settings = parameters | arguments
    highest, top = settings.get("max"), possible_grades(gold).max()
    if highest is not None and settings.get("gain", "linear") == "linear" and top > highest:
        return f"an unjudged item could be of grade {top:g}, above the max={highest:g} of {measure}"
    return None


def range_of(measure: Measure, lists: Listed, gold: Prepared) -> Range:
    """Return the lowest and highest value of each query over all labels of its unjudged items."""
    low, high, exact = _ends(measure, lists, gold)
    now = lists.values(str(measure))
    low, high = np.minimum(low, high), np.maximum(low, high)
    # Sums in another order may differ in the last bit; as things stand is a labelling too.
    low, high = np.minimum(low, now), np.maximum(high, now)
    settled = np.isnan(now) | (lists.unjudged.counts(lists.ranked.n) == 0)
    return Range(np.where(settled, now, low), np.where(settled, now, high), exact)


def _ends(measure: Measure, lists: Listed, gold: Prepared) -> tuple[Values, Values, bool]:
    declared = measure.definition.unjudged
    why = why_unbounded(measure, gold)
    if why is not None or isinstance(declared, str):
        raise UsageError(f"there are no bounds: {why}")
    function, arguments = measure.definition.function, arguments_of(measure, gold.conventions)
    return declared.range(function, lists.partly_judged(gold), measure.k, **arguments)


# --- The effect of one more judgment -----------------------------------------------------------


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
        pl.DataFrame({"query": items.query, "item_id": items.item_id, name: items.rank})
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


@dataclass(frozen=True, eq=False)
class Effects:
    """The unjudged pairs of one or two systems, and what judging each of them would change.

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
        return Effects(
            self.query[rows],
            self.first[rows],
            self.second[rows],
            self.item_id.gather(rows),
            self.top[rows],
            self.least[rows],
            self.alone[rows],
        )


def effects_on_value(measure: Measure, lists: Listed, gold: Prepared) -> Effects:
    """Return what judging each unjudged item of a system changes."""
    unjudged = lists.unjudged
    absent = np.full(len(unjudged.query), ABSENT)
    pairs = Common(unjudged.query, unjudged.rank, absent, unjudged.item_id)
    return _effects(measure, [(lists, 1.0)], pairs, gold)


def effects_on_difference(
    measure: Measure, first: Listed, second: Listed, gold: Prepared
) -> Effects:
    """Return what judging each item that is unjudged in either system changes in the difference."""
    return _effects(measure, [(first, -1.0), (second, 1.0)], in_common(first, second), gold)


def relevant_grades(measure: Measure, gold: Prepared) -> tuple[float, float]:
    """Return the highest grade that an item may be judged, and the lowest that is relevant."""
    grades = possible_grades(gold)
    rel = float(measure.arguments.get("rel", gold.conventions.rel))
    relevant = grades[(grades >= rel) & (grades > 0)]
    return float(grades.max()), float(relevant.min(initial=grades.max()))


def _effects(
    measure: Measure, systems: list[tuple[Listed, float]], pairs: Common, gold: Prepared
) -> Effects:
    top, least = relevant_grades(measure, gold)
    found = np.zeros((3, len(pairs.query)))
    for (lists, sign), ranks in zip(systems, (pairs.first, pairs.second), strict=False):
        for row, grade in enumerate((top, least)):
            found[row] += sign * changes(measure, lists, gold, pairs.query, ranks, grade)
        found[2] += sign * _alone(measure, lists.ranked, gold, pairs.query, ranks, top)
    return Effects(pairs.query, pairs.first, pairs.second, pairs.item_id, *found)


def changes(
    measure: Measure, lists: Listed, gold: Prepared, query: Ints, rank: Ints, grade: float
) -> Values:
    """Return what each item changes in the value of its query if it alone gets this grade.

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
    """Return what each item would change in its query's value if nothing else were judged."""
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
