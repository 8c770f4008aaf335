"""Measures of gains: DCG, nDCG and CG, and which labels of unjudged items nDCG likes best."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from karat.errors import InputError, UsageError
from karat.measure.aggregates import Values
from karat.measure.conventions import Gain
from karat.measure.ranked import Cut, Entries, Ints, Ranked, Target, ratio, table_of
from karat.measure.registry import measure
from karat.measure.unjudged import (
    Levels,
    PartlyJudged,
    Slots,
    SumOverGold,
    Terms,
    best_grade,
    discounts_up_to,
    each,
    slots_of,
    sums_from_top,
)

# 2 to the power of more than this, added up over a list, may overflow a float.
HIGHEST_GRADE = 900
# Each round of the search more than doubles the correct digits; a handful is enough.
_ROUNDS = 100


def gains(entries: Entries, gain: Gain) -> Values:
    """Return what each entry's grade is worth."""
    if gain == "linear":
        return entries.gain
    grades, where = np.unique(entries.gain, return_inverse=True)
    if gain == "exp":
        if grades.max(initial=0.0) > HIGHEST_GRADE:
            raise InputError(
                f"grade {grades.max():g} is too high for gain='exp'; at most {HIGHEST_GRADE}"
            )
        worth = [2.0**grade - 1.0 for grade in grades.tolist()]
    elif isinstance(gain, Mapping):
        worth = [gain.get(grade, grade) if grade > 0 else 0.0 for grade in grades.tolist()]
    else:
        raise UsageError(f"gain is {gain!r}; it can be 'linear', 'exp' or a map of grades")
    return np.array(worth, dtype=np.float64)[where]


def gains_of_grades(grades: Values, gain: Gain) -> Values:
    """Return what grades are worth by themselves."""
    none = np.zeros(len(grades), dtype=np.int64)
    return gains(Entries(1, none, none, grades), gain)


def best_first(entries: Entries, gain: Gain) -> tuple[Entries, Values]:
    """Return entries in the ideal order for a gain, and their gains.

    A map may value a lower grade more.
    """
    worth = gains(entries, gain)
    if not isinstance(gain, Mapping):
        return entries, worth
    order = np.lexsort((-worth, entries.query))
    return Entries(entries.n, entries.query, entries.rank, entries.grade[order]), worth[order]


def _dcg_terms(lists: PartlyJudged, k: Cut, *, gain: Gain = "linear") -> Terms:
    return Terms(
        lists.ranked.limit(k),
        best_grade(lists.grades, lambda grades: gains_of_grades(grades, gain)),
        lambda _, rank: 1.0 / table_of("log2", int(rank.max(initial=1)))[rank],
        lambda grades: gains_of_grades(grades, gain),
    )


@measure("DCG", gold="graded", bounded=False, unjudged=SumOverGold(_dcg_terms))
def dcg(r: Ranked, k: Cut, *, gain: Gain = "linear") -> Values:
    """The sum of gain / log2(rank + 1) over the top k."""
    if r.is_ideal:
        return _ideal_dcg(r, k, gain)
    return r.hits.sum(r.top(k), gains(r.hits, gain) / r.hits.discount)


def _ideal_dcg(r: Ranked, k: Cut, gain: Gain) -> Values:
    entries, worth = best_first(r.target.ideal, gain)
    return entries.sum(entries.rank <= r.ideal_limit(k)[entries.query], worth / entries.discount)


def _ndcg_terms(lists: PartlyJudged, k: Cut, *, gain: Gain = "linear") -> Terms:
    dcg = _dcg_terms(lists, k, gain=gain)
    levels, limit = _levels(lists.ranked.target, dcg, gain), lists.ranked.ideal_limit(k)
    plain = bool(np.isin(gains_of_grades(lists.grades, gain), (0.0, dcg.top)).all())
    return Terms(
        dcg.limit,
        dcg.grade,
        dcg.own,
        dcg.worth,
        lambda query, more: levels.ideal(query, more, limit),
        cut=True,
        levels=None if plain else levels,
    )


def _levels(target: Target, dcg: Terms, gain: Gain) -> Levels:
    """Return the levels of some gold, below the best grade that a label could bring."""
    entries, worth = best_first(target.ideal, gain)
    everyone = np.arange(target.n)
    query = np.concatenate((everyone, entries.query))
    order = np.argsort(query, kind="stable")
    query = query[order]
    # Before all gold of a query stands the best possible label.
    grade = np.concatenate((np.full(target.n, dcg.grade), entries.grade))[order]
    worth = np.concatenate((np.full(target.n, dcg.top), worth))[order]
    count = np.concatenate((np.zeros_like(everyone), entries.rank))[order]
    last = np.append(query[1:] != query[:-1], True)
    step = worth - np.where(last, 0.0, np.append(worth[1:], 0.0))
    kept = step > 0
    return Levels(query[kept], grade[kept], step[kept], count[kept])


def _best_ndcg_labels(lists: PartlyJudged, k: Cut, terms: Terms) -> Values:
    """Return the grade of each unjudged item for the highest nDCG that there can be.

    The best value v is where DCG - v × ideal DCG can at most be 0 (Dinkelbach). This difference
    is a sum over levels of gain: each level has a best number of first slots that reach it, and
    a higher level never has more of them than a lower one.
    """
    limit = lists.ranked.ideal_limit(k)
    labels = np.zeros(len(lists.query))
    begin = np.searchsorted(lists.query, np.arange(lists.n))
    if terms.levels is None or terms.now is None:
        return labels
    for slots in slots_of(lists, limit):
        grades, _, _ = terms.levels.rows(slots.query)
        reach = _slots_per_level(slots, limit, terms.now[slots.query], terms.levels)
        # From the lowest level up, so that the highest decides.
        table = np.zeros(slots.rank.shape)
        for grade, count in zip(grades.T[::-1], reach.T[::-1], strict=True):
            table = np.where(slots.first[:, :-1] < count[:, None], grade[:, None], table)
        at = begin[slots.query, None] + slots.first[:, :-1]
        labels[at[slots.real]] = table[slots.real]
    return labels


def _slots_per_level(slots: Slots, limit: Ints, now: Values, levels: Levels) -> Ints:
    """Return how many of the first slots reach each level at the best value; ``now`` is the DCG."""
    _, steps, counts = levels.rows(slots.query)
    ranks = np.where(slots.real, slots.rank, 1)
    discounts = np.where(slots.real, 1.0 / table_of("log2", int(ranks.max()))[ranks], 0.0)
    found = sums_from_top(discounts)
    ideal = [
        discounts_up_to(count[:, None] + slots.first, limit[slots.query, None])
        for count in counts.T
    ]
    value = ratio(now, sum(step * sums[:, 0] for step, sums in zip(steps.T, ideal, strict=True)))
    rows = np.arange(len(now))
    best = np.zeros(steps.shape, dtype=np.int64)
    for _ in range(_ROUNDS):
        chosen = [np.argmax(found - value[:, None] * sums, axis=1) for sums in ideal]
        tried = np.maximum.accumulate(np.stack(chosen, axis=1), axis=1)
        top, bottom = now.copy(), np.zeros(len(now))
        for step, sums, count in zip(steps.T, ideal, tried.T, strict=True):
            top += step * found[rows, count]
            bottom += step * sums[rows, count]
        reached = ratio(top, bottom)
        better = reached > value
        if not better.any():
            break
        best = np.where(better[:, None], tried, best)
        value = np.where(better, reached, value)
    return best


@measure(
    "nDCG",
    gold="graded",
    aliases=("ndcg_cut",),
    unjudged=SumOverGold(_ndcg_terms, best_labels=_best_ndcg_labels),
)
def ndcg(r: Ranked, k: Cut, *, gain: Gain = "linear") -> Values:
    """DCG over that of the ideal list, which comes from all gold, cut at k.

    ``gain`` is ``linear`` (the grade), ``exp`` (2^grade - 1) or a map such as {1: 1, 2: 5}, in
    which a grade that is left out is its own gain. Unless written it is that of the profile.
    """
    return ratio(dcg(r, k, gain=gain), _ideal_dcg(r, k, gain))


def _cg_terms(lists: PartlyJudged, k: Cut, *, gain: Gain = "linear") -> Terms:
    dcg = _dcg_terms(lists, k, gain=gain)
    return Terms(dcg.limit, dcg.grade, each, dcg.worth)


@measure("CG", gold="graded", bounded=False, unjudged=SumOverGold(_cg_terms))
def cumulated_gain(r: Ranked, k: Cut, *, gain: Gain = "linear") -> Values:
    """The sum of the gains in the top k."""
    if r.is_ideal:
        entries, worth = best_first(r.target.ideal, gain)
        return entries.sum(entries.rank <= r.ideal_limit(k)[entries.query], worth)
    return r.hits.sum(r.top(k), gains(r.hits, gain))
