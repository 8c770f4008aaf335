"""Measures that trec_eval made standard: Rprec, Bpref, infAP, interpolated precision, sets."""

from __future__ import annotations

import numpy as np

from karat.measure.aggregates import Values, total
from karat.measure.ranked import Cut, Ranked, ratio
from karat.measure.registry import IGNORES_RELEVANCE, measure

EPSILON = 1e-5
RANK_OF_GOLD = "{} looks at the rank that the number of relevant items sets"
FOR_INCOMPLETE_GOLD = "{} is made for incomplete judgments, and looks at judged items only"


@measure(
    "Rprec",
    cutoff="none",
    aliases=("r_precision", "r-precision"),
    unjudged=RANK_OF_GOLD,
)
def r_precision(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """Precision at |G|, where precision and recall are equal."""
    gold = r.target.relevant(rel)
    mask = r.hits.relevant(rel) & (r.hits.rank <= gold[r.hits.query])
    return ratio(r.hits.count(mask), gold)


@measure("Bpref", cutoff="none", unjudged=FOR_INCOMPLETE_GOLD)
def bpref(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """How rarely judged non-relevant items stand above relevant ones; unjudged items are ignored.

    Σ over the relevant retrieved of 1 - min(n, R) / min(N, R), over R: n judged
    non-relevant above it, N in all, R = |G|.
    """
    above = r.hits.so_far(r.hits.judged_nonrelevant(rel)).astype(np.float64)
    gold = r.target.relevant(rel)
    most = np.minimum(r.target.judged_nonrelevant(rel), gold)[r.hits.query]
    worth = 1.0 - ratio(np.minimum(above, gold[r.hits.query]), most)
    return ratio(r.hits.sum(r.hits.relevant(rel), worth), gold)


@measure("infAP", cutoff="none", unjudged=FOR_INCOMPLETE_GOLD)
def inferred_ap(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """AP inferred from a pool of which only a sample was judged.

    A grade below 0 means pooled but not judged; an item that is not in the gold was not
    pooled. As trec_eval computes it.
    """
    relevant, nonrelevant = r.hits.relevant(rel), r.hits.judged_nonrelevant(rel)
    earlier = (r.hits.so_far(relevant) - 1).astype(np.float64)
    rejected = r.hits.so_far(nonrelevant).astype(np.float64)
    pooled = r.hits.so_far(r.hits.grade < 0).astype(np.float64)
    above = (r.hits.rank - 1).astype(np.float64)
    share = (earlier + EPSILON) / (earlier + rejected + 2 * EPSILON)
    seen = ratio(earlier + rejected + pooled, above)
    expected = 1 / r.hits.rank + (above / r.hits.rank) * seen * share
    return ratio(r.hits.sum(relevant, expected), r.target.relevant(rel))


@measure(
    "IPrec",
    cutoff="recall",
    aliases=("iprec_at_recall",),
    unjudged=RANK_OF_GOLD,
)
def interpolated_precision(
    r: Ranked, k: Cut, *, rel: float = 1, recall_point: str = "trunc"
) -> Values:
    """The best precision at any rank where at least this share of the gold has been found."""
    gold = r.target.relevant(rel)
    needed = _needed_for(float(k or 0), gold, recall_point)
    mask = r.hits.relevant(rel)
    found = r.hits.so_far(mask)
    mask &= found >= needed[r.hits.query]
    values = np.zeros(r.n)
    np.maximum.at(values, r.hits.query[mask], found[mask] / r.hits.rank[mask])
    return values


def _needed_for(point: float, gold: Values, recall_point: str) -> Values:
    """Return how many of so many gold items are so much of them, rounded as trec_eval does."""
    wanted = point * gold
    return np.asarray(np.trunc(wanted + 0.9) if recall_point == "trunc" else _half_up(wanted))


def _half_up(values: Values) -> Values:
    """Halves away from zero, as C's lround; the values are not negative."""
    whole = np.floor(values)
    return whole + (values - whole >= 0.5)


def _retrieved(r: Ranked, rel: float) -> Values:
    return r.hits.count(r.hits.relevant(rel))


@measure("SetP", cutoff="none", aliases=("set_P",), unjudged="sum")
def set_precision(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """The share of everything returned that is relevant."""
    if r.is_ideal:
        return (r.target.relevant(rel) > 0).astype(np.float64)
    return ratio(_retrieved(r, rel), r.returned)


@measure("SetR", cutoff="none", aliases=("set_recall",), unjudged="sum")
def set_recall(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """The share of the gold that was returned at all."""
    return ratio(r.found.count(r.found.relevant(rel)), r.target.relevant(rel))


@measure("SetF", cutoff="none", aliases=("set_F",), unjudged="rising")
def set_f(r: Ranked, k: Cut, *, beta: float = 1, rel: float = 1) -> Values:
    """The weighted harmonic mean of SetP and SetR."""
    p, q = set_precision(r, k, rel=rel), set_recall(r, k, rel=rel)
    return ratio((1 + beta * beta) * p * q, beta * beta * p + q)


@measure(
    "NumRet",
    better="none",
    unjudged=IGNORES_RELEVANCE,
    gold="any",
    ceiling=None,
    number=total,
    aliases=("num_ret",),
    bounded=False,
)
def number_retrieved(r: Ranked, k: Cut) -> Values:
    """How many items were returned; over all queries their sum."""
    return np.minimum(r.returned, r.limit(k)).astype(np.float64)


@measure(
    "NumRel",
    better="none",
    unjudged="gold",
    cutoff="none",
    ceiling=None,
    number=total,
    aliases=("num_rel",),
    bounded=False,
)
def number_relevant(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """How many gold items there are; over all queries their sum."""
    return r.target.relevant(rel)


@measure(
    "NumRelRet",
    better="none",
    unjudged="sum",
    ceiling=None,
    number=total,
    aliases=("num_rel_ret", "hits"),
    bounded=False,
)
def number_relevant_retrieved(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """How many gold items were returned, within the cut-off if there is one; over all their sum."""
    return r.found.count(r.top_found(k) & r.found.relevant(rel))
