"""Measures of gains: DCG, nDCG and CG."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from karat.errors import InputError, UsageError
from karat.measure.aggregates import Values
from karat.measure.conventions import Gain
from karat.measure.ranked import Cut, Entries, Ranked, ratio
from karat.measure.registry import measure

# 2 to the power of more than this, added up over a list, may overflow a float.
HIGHEST_GRADE = 900


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


@measure("DCG", gold="graded", bounded=False, unjudged="sum")
def dcg(r: Ranked, k: Cut, *, gain: Gain = "linear") -> Values:
    """The sum of gain / log2(rank + 1) over the top k."""
    if r.is_ideal:
        return _ideal_dcg(r, k, gain)
    return r.hits.sum(r.top(k), gains(r.hits, gain) / r.hits.discount)


def _ideal_dcg(r: Ranked, k: Cut, gain: Gain) -> Values:
    entries, worth = best_first(r.target.ideal, gain)
    return entries.sum(entries.rank <= r.ideal_limit(k)[entries.query], worth / entries.discount)


@measure("nDCG", gold="graded", aliases=("ndcg_cut",), unjudged="ndcg")
def ndcg(r: Ranked, k: Cut, *, gain: Gain = "linear") -> Values:
    """DCG over that of the ideal list, which comes from all gold, cut at k.

    ``gain`` is ``linear`` (the grade), ``exp`` (2^grade - 1) or a map such as {1: 1, 2: 5}, in
    which a grade that is left out is its own gain. Unless written it is that of the profile.
    """
    return ratio(dcg(r, k, gain=gain), _ideal_dcg(r, k, gain))


@measure("CG", gold="graded", bounded=False, unjudged="sum")
def cumulated_gain(r: Ranked, k: Cut, *, gain: Gain = "linear") -> Values:
    """The sum of the gains in the top k."""
    if r.is_ideal:
        entries, worth = best_first(r.target.ideal, gain)
        return entries.sum(entries.rank <= r.ideal_limit(k)[entries.query], worth)
    return r.hits.sum(r.top(k), gains(r.hits, gain))
