"""Ranges: how low and how high a query's value could be if its unjudged items were judged.

Every labelling counts: each unjudged item that a system returned may get any possible grade. What
is found by search is computed again by the measure itself, on the labels that reach it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from karat.errors import UsageError
from karat.measures.bounds import range_trec
from karat.measures.bounds.range_gains import Levels, best_grade, best_labels, worth_of
from karat.measures.bounds.range_parts import (
    area_of,
    argument,
    counts_judging,
    labelled,
    parts_of,
)
from karat.measures.bounds.range_slots import Places, between
from karat.measures.bounds.range_sums import extreme_slots
from karat.measures.bounds.unjudged import Listed, possible_grades
from karat.measures.kernels.trec import needed_for
from karat.measures.names import Measure, follows_gain
from karat.measures.numbers import Values
from karat.measures.prepare import Prepared
from karat.measures.ranked import Ints, Mask, is_budget
from karat.measures.registry import MEASURES
from karat.measures.valuing import gain_of, gold_for, values_of

# A further relevant item within the cut-off never lowers these, and one beyond it changes nothing.
_RISING = {
    *("Hit", "P", "RR", "DCG", "CG", "ERR", "RBP", "FPR"),
    *("SetP", "SetR", "SetF", "NumRel", "NumRelRet"),
}
# Within the cut-off it raises these too, and beyond it lowers them: the gold has grown.
_SHARES = {"R", "F", "WR"}
_SEARCHED = {"AP", "GMAP", "nDCG", "AUC", "Rprec", "Bpref", "infAP", "IPrec"}

_ABOUT_JUDGING = "{} counts which items are judged, so that judging changes what it measures"
_ABOUT_LISTS = "{} does not depend on which items are relevant"
_WHY_NOT = {
    **dict.fromkeys(("Judged", "Hole", "RBPres"), _ABOUT_JUDGING),
    **dict.fromkeys(("NumRet", "DistinctDocs", "Redundancy", "Novelty", "Fresh"), _ABOUT_LISTS),
    **dict.fromkeys(("latency", "cost", "EL_F1"), _ABOUT_LISTS),
    "Sim": "{} is a description of lists, and neither high nor low is better",
    "FalseEvidence": "{} is about queries without an answer, which no label gives them",
    "Coverage": "{} is one number of the whole set, in which queries share their items",
}


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
    """Why a measure has no range, as a sentence; None where it has one."""
    if gold.conventions.level != "item":
        level = gold.conventions.level
        return f"bounds need judgments of items; these are of level {level}"
    name = str(measure.arguments.get("of", measure.name)) if measure.name == "AUC" else measure.name
    if name == "Coverage" and measure.arguments.get("of") == "corpus":
        return _ABOUT_LISTS.format(measure)
    if name in _WHY_NOT:
        return _WHY_NOT[name].format(measure)
    if name not in _RISING | _SHARES | _SEARCHED | {"All"}:
        return f"no bounds are known for {measure}"
    if is_budget(measure.k):
        return f"{measure} cuts lists by tokens; bounds need a cut-off that counts items"
    return _out_of_scale(measure, name, gold)


def _out_of_scale(measure: Measure, name: str, gold: Prepared) -> str | None:
    """A label that the measure itself would refuse."""
    if name != "ERR" and argument(measure, "gain", gold) != "linear":
        return None
    most = MEASURES[name].parameters.get("max")
    if most is None:
        return None
    most = measure.arguments.get("max", most)
    top = possible_grades(gold).max()
    if top <= most:
        return None
    return f"an unjudged item could be of grade {top:g}, above the max={most:g} of {measure}"


def range_of(measure: Measure, one: Listed, gold: Prepared) -> Range:
    """The lowest and highest value of each query over all labellings of its unjudged items.

    Bpref and infAP take notice of items that are judged and not relevant, so what they are now
    may lie outside of their range.
    """
    why = why_unbounded(measure, gold)
    if why is not None:
        raise UsageError(f"there are no bounds: {why}")
    now = one.values(str(measure))
    low, high, exact = _ends(measure, one, gold)
    if not counts_judging(measure):
        # Sums in another order may differ in the last bit; as things stand is a labelling too.
        low, high = np.minimum(low, now), np.maximum(high, now)
    settled = np.isnan(now) | (one.unjudged.counts(one.ranked.n) == 0)
    return Range(np.where(settled, now, low), np.where(settled, now, high), exact)


def _ends(measure: Measure, one: Listed, gold: Prepared) -> tuple[Values, Values, bool]:
    """The range of the queries that have unjudged items."""
    of = argument(measure, "of", gold) if measure.name == "AUC" else measure.name
    if of in _RISING or (of in _SHARES and measure.name != "AUC"):
        ends = _at_cutoff(measure, one, gold)
        if measure.definition.better == "lower":
            ends = ends[::-1]
        return *ends, True
    if of == "All":
        return *_of_all(measure, one, gold), True
    if of == "nDCG":
        return _of_gains(measure, one, gold)
    low, high = _searched(measure, one, gold)
    return low, high, True


def _at_cutoff(measure: Measure, one: Listed, gold: Prepared) -> tuple[Values, Values]:
    """The values with the best labels beyond the cut-off only, and within it only."""
    gains = gain_of(measure, gold.conventions) if follows_gain(measure) else "linear"
    top, _ = best_grade(possible_grades(gold), gains)
    within = one.unjudged.rank <= one.ranked.limit(measure.k)[one.unjudged.query]
    high = labelled(measure, one, gold, np.where(within, top, 0.0))
    if measure.name not in _SHARES:
        return values_of(measure, one.ranked, gold), high
    return labelled(measure, one, gold, np.where(within, 0.0, top)), high


def _of_all(measure: Measure, one: Listed, gold: Prepared) -> tuple[Values, Values]:
    """Lowest if the last unjudged item is relevant; a first one counts where there is no gold."""
    top = possible_grades(gold).max()
    size, none = one.unjudged.counts(one.ranked.n), np.zeros(one.ranked.n, dtype=np.int64)
    last = between(one, np.maximum(size - 1, 0), size)
    first = between(one, none, np.minimum(size, 1))
    return (
        labelled(measure, one, gold, np.where(last, top, 0.0)),
        labelled(measure, one, gold, np.where(first, top, 0.0)),
    )


def _searched(measure: Measure, one: Listed, gold: Prepared) -> tuple[Values, Values]:
    """The values where a search over the number of relevant items found the ends."""
    top = possible_grades(gold).max()
    rel = argument(measure, "rel", gold)
    if top < rel and gold_for(measure) == "relevant":
        only = labelled(measure, one, gold, np.zeros(len(one.unjudged.query)))
        return only, only
    last, first = _marks(measure, one, gold, range_trec.Judged.of(one, rel))
    return (
        labelled(measure, one, gold, np.where(last, top, 0.0)),
        labelled(measure, one, gold, np.where(first, top, 0.0)),
    )


def _marks(
    measure: Measure, one: Listed, gold: Prepared, judged: range_trec.Judged
) -> tuple[Mask, Mask]:
    """Which unjudged items are relevant where a measure is lowest, and where it is highest."""
    if measure.name == "Rprec":
        keep, fill = range_trec.r_precision(judged)
    elif measure.name == "Bpref":
        keep, fill = range_trec.binary_preference(judged)
    elif measure.name == "IPrec":
        keep, fill = range_trec.interpolated(judged, lambda count: _needed(measure, count, gold))
    else:
        return extreme_slots(one, parts_of(measure, one, gold), judged.relevant)
    size = one.unjudged.counts(one.ranked.n)
    return between(one, keep, size), between(one, np.zeros_like(fill), fill)


def _needed(measure: Measure, count: Ints, gold: Prepared) -> Values:
    """How much of so many gold items IPrec asks for; the rounding is trec_eval's."""
    point, rounding = float(measure.k or 0), gold.conventions.recall_point
    return needed_for(point, count.astype(np.float64), rounding)


def _of_gains(measure: Measure, one: Listed, gold: Prepared) -> tuple[Values, Values, bool]:
    """nDCG: lowest with labels of the best gain at the bottom, highest with gains by level."""
    grades = possible_grades(gold)
    gain = gain_of(measure, gold.conventions)
    top, worth = best_grade(grades, gain)
    plain = bool(np.isin(worth_of(grades, gain), (0.0, worth)).all())
    if measure.name == "AUC" and not plain:
        return _area_at_most(measure, one, gold)
    no_hits = Places(*(np.empty(0, dtype=np.int64),) * 2)
    last, first = extreme_slots(one, parts_of(measure, one, gold), no_hits)
    best = np.where(first, top, 0.0)
    if not plain:
        now = np.nan_to_num(values_of(measure, one.ranked, gold))
        best = best_labels(one, measure.k, now, Levels.of(one.ranked.target, grades, gain))
    low = labelled(measure, one, gold, np.where(last, top, 0.0))
    return low, labelled(measure, one, gold, best), True


def _area_at_most(measure: Measure, one: Listed, gold: Prepared) -> tuple[Values, Values, bool]:
    """A safe range of an area under nDCG: no one labelling need be the best at every cut-off."""
    low, high = np.zeros(one.ranked.n), np.zeros(one.ranked.n)
    for node, weight in area_of(measure, gold):
        ends = _of_gains(node, one, gold)
        low, high = low + weight * ends[0], high + weight * ends[1]
    return low, high, False
