"""Difference ranges: how far apart two systems could be if their unjudged items were judged.

One labelling holds for both: an item that both returned has one grade, and an item of one
system grows the gold and the ideal of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from karat.errors import UsageError
from karat.measures.bounds.difference_cascade import highest_err
from karat.measures.bounds.difference_ideal import highest_ndcg
from karat.measures.bounds.difference_pairs import Pair, pair_of
from karat.measures.bounds.difference_precisions import highest_ap
from karat.measures.bounds.difference_sums import (
    best_worth,
    highest_all,
    highest_first,
    highest_over_gold,
    highest_plain,
    highest_r_precision,
    highest_set_f,
    nodes_of,
)
from karat.measures.bounds.difference_trials import highest_by_number, tried_out
from karat.measures.bounds.ranges import Range, why_unbounded
from karat.measures.bounds.unjudged import Listed, possible_grades
from karat.measures.kernels.trec import EPSILON
from karat.measures.names import Measure
from karat.measures.numbers import Values
from karat.measures.prepare import Prepared
from karat.measures.ranked import Mask

# An item that is judged and not relevant counts for these, where an unjudged one does not.
_COUNT_JUDGED = ("Bpref", "infAP")
_PRECISIONS = ("AP", "GMAP", "infAP")
_BY_NUMBER = ("Bpref", "IPrec")


def _highest_miss(measure: Measure, pair: Pair, gold: Prepared) -> Values:
    """A miss is no hit."""
    return highest_first(Measure("Hit", measure.k, measure.params), pair.swapped, gold)


def _no_difference(measure: Measure, pair: Pair, gold: Prepared) -> Values:
    """All gold there is, whoever found it."""
    return np.zeros(pair.n)


_REACHED: Mapping[str, Callable[[Measure, Pair, Prepared], Values]] = {
    **dict.fromkeys(("P", "DCG", "CG", "RBP", "SetP", "NumRelRet"), highest_plain),
    **dict.fromkeys(("R", "SetR", "WR", "F"), highest_over_gold),
    **dict.fromkeys(("RR", "Hit"), highest_first),
    "All": highest_all,
    "FPR": _highest_miss,
    "NumRel": _no_difference,
    "nDCG": highest_ndcg,
    "Rprec": highest_r_precision,
    "SetF": highest_set_f,
}
# An area under these is again a sum of weights, over one and the same number.
_AREAS = {"P", "DCG", "CG", "RBP", "R", "WR", "RR", "Hit"}


def difference_range(measure: Measure, first: Listed, second: Listed, gold: Prepared) -> Range:
    """The lowest and highest value of second - first, query by query, over all common labellings.

    NaN where either has no value. Not ``exact`` means that the range is safe, and may be wider
    than any labelling makes it.
    """
    why = why_unbounded(measure, gold)
    if why is not None:
        raise UsageError(f"there are no bounds: {why}")
    pair = pair_of(first, second)
    now = second.values(str(measure)) - first.values(str(measure))
    low, high, exact = _ends(measure, pair, gold)
    if measure.name not in _COUNT_JUDGED:
        # Sums in another order may differ in the last bit; as things stand is a labelling too.
        low, high = np.fmin(low, now), np.fmax(high, now)
    unknown, settled = np.isnan(now), (pair.sizes == 0) | pair.alike
    low, high = (np.where(unknown | settled, now, side) + 0.0 for side in (low, high))
    return Range(low, high, bool((exact | unknown | settled).all()))


def _ends(measure: Measure, pair: Pair, gold: Prepared) -> tuple[Values, Values, Mask]:
    """The ends of the range, and for which queries both are reached."""
    high, exact = _highest(measure, pair, gold)
    low, reached = _highest(measure, pair.swapped, gold)
    low, exact = -low, exact & reached
    if exact.all():
        return low, high, exact
    left = pair.of(np.flatnonzero(~exact & ~pair.alike))
    lowest, highest, done = tried_out(measure, left, gold, _grades(measure, gold))
    low, high = np.where(done, lowest, low), np.where(done, highest, high)
    return low, high, exact | done


def _highest(measure: Measure, pair: Pair, gold: Prepared) -> tuple[Values, Mask]:
    """The highest difference, or what it cannot exceed, and where it is reached."""
    everywhere = np.ones(pair.n, dtype=bool)
    nodes = nodes_of(measure, gold)
    name = nodes[0][1].name
    if name in _BY_NUMBER:
        most, done = highest_by_number(measure, pair, gold, possible_grades(gold).max())
        return np.where(done, most, 1.0), ~everywhere
    if best_worth(measure, gold) == 0:
        pair = pair.settled
    if len(nodes) > 1 and name not in _AREAS:
        # No labelling is better than the best one of each point by itself.
        parts = [share * _highest(node, pair, gold)[0] for share, node in nodes]
        return np.asarray(sum(parts)), ~everywhere
    if name in _REACHED:
        return _REACHED[name](measure, pair, gold), everywhere
    if name == "ERR":
        return highest_err(measure, pair, possible_grades(gold).max())
    return _of_precisions(measure, pair, gold)


def _of_precisions(measure: Measure, pair: Pair, gold: Prepared) -> tuple[Values, Mask]:
    """The same for the measures that add up precisions."""
    if measure.name not in _PRECISIONS:
        raise UsageError(f"there are no bounds: no bounds of a difference are known for {measure}")
    highest, exact = highest_ap(measure, pair, gold)
    if measure.name == "infAP":
        # Where all is judged, infAP lies between AP - 2 EPSILON and AP + EPSILON.
        highest, exact = highest + 3 * EPSILON, np.zeros(pair.n, dtype=bool)
    return np.minimum(highest, 1.0), exact


def _grades(measure: Measure, gold: Prepared) -> Values:
    """The grades that need to be tried: where gains do not count, relevant or not."""
    grades = possible_grades(gold)
    if nodes_of(measure, gold)[0][1].name == "nDCG":
        return grades
    return np.array([0.0, grades.max()]) if best_worth(measure, gold) else np.zeros(1)
