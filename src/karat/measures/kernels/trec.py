"""Measures that trec_eval made standard: Rprec, Bpref, infAP, interpolated precision, sets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from karat.measures.aggregates import Values, total
from karat.measures.kernels.ranks import gold_and_more
from karat.measures.ranked import Cut, Ints, Ranked, Repeats, ratio
from karat.measures.registry import measure
from karat.measures.unjudged import (
    ABSENT,
    IGNORES_RELEVANCE,
    RISING,
    Extremes,
    PartlyJudged,
    Places,
    Slots,
    SumOverGold,
    Terms,
    count_terms,
    each,
    search_slots,
    slots_of,
    sums_from_top,
)

EPSILON = 1e-5


class _Judged:
    """What is known of some lists: relevant hits, others, and how many of each the gold has."""

    def __init__(self, lists: PartlyJudged, rel: float) -> None:
        hits, target = lists.ranked.hits, lists.ranked.target
        yes, no = hits.relevant(rel), hits.judged_nonrelevant(rel)
        self.relevant = Places(hits.query[yes], hits.rank[yes])
        self.others = Places(hits.query[no], hits.rank[no])
        self.unjudged = Places(lists.query, lists.rank)
        self.gold = target.relevant(rel).astype(np.int64)
        self.gold_others = target.judged_nonrelevant(rel).astype(np.int64)


def _r_precision_labels(lists: PartlyJudged, k: Cut, *, rel: float = 1) -> tuple[Values, Values]:
    """Return the rank up to which relevant items count is their number."""
    judged = _Judged(lists, rel)

    def found(slots: Slots, more: Ints) -> tuple[Values, Ints, Ints]:
        query = np.broadcast_to(slots.query[:, None], more.shape)
        gold = judged.gold[query] + more
        known = judged.relevant.up_to(query, gold).astype(np.float64)
        return known, judged.unjudged.up_to(query, gold), gold

    def low(slots: Slots) -> Values:
        known, places, gold = found(slots, slots.last)
        return ratio(known + np.maximum(places - slots.first, 0), gold)

    def high(slots: Slots) -> Values:
        known, places, gold = found(slots, slots.first + np.zeros_like(slots.size[:, None]))
        return ratio(known + np.minimum(places, slots.first), gold)

    return _reached(lists, rel, *search_slots(lists, low, high))


def _reached(lists: PartlyJudged, rel: float, keep: Ints, fill: Ints) -> tuple[Values, Values]:
    """Return the labels of a search, or none at all where no grade reaches the threshold."""
    return lists.labels_at(keep, fill, lists.top if lists.top >= rel else 0.0)


@measure(
    "Rprec",
    cutoff="none",
    aliases=("r_precision", "r-precision"),
    unjudged=Extremes(_r_precision_labels, binary=True),
)
def r_precision(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """Precision at |G|, where precision and recall are equal."""
    gold = r.target.relevant(rel)
    mask = r.hits.relevant(rel) & (r.hits.rank <= gold[r.hits.query])
    return ratio(r.hits.count(mask), gold)


def _bpref_labels(lists: PartlyJudged, k: Cut, *, rel: float = 1) -> tuple[Values, Values]:
    """Return every unjudged item becomes a judged one, relevant or not."""
    judged = _Judged(lists, rel)

    def value(slots: Slots, more: Ints, *, last: bool) -> Values:
        gold = judged.gold[slots.query, None] + more
        rejected = judged.gold_others[slots.query, None] + slots.size[:, None] - more
        above, count = _rejected_above(judged, slots, gold, last=last)
        return ratio(count + more - ratio(above, np.minimum(rejected, gold)), gold)

    keep, fill = search_slots(
        lists,
        lambda slots: value(slots, slots.last, last=True),
        lambda slots: value(slots, np.minimum(slots.first, slots.size[:, None]), last=False),
    )
    return _reached(lists, rel, keep, fill)


def _rejected_above(
    judged: _Judged, slots: Slots, gold: Ints, *, last: bool
) -> tuple[Values, Values]:
    """Return Σ min(rejected above, |G|) over the relevant items of each state, and how many of
    these are judged already.
    """
    above = np.zeros(gold.shape)
    query = slots.query[:, None]
    ranks = judged.relevant.rows(slots.query)
    known, places = judged.others.up_to(query, ranks), judged.unjudged.up_to(query, ranks)
    for rank, before, under in zip(ranks.T, known.T, places.T, strict=True):
        free = under[:, None]
        new = np.minimum(free, slots.first) if last else np.maximum(free - slots.first, 0)
        rejected = np.minimum(before[:, None] + new, gold)
        above += np.where(rank[:, None] < ABSENT, rejected, 0)
    before = judged.others.up_to(query, slots.rank)
    count = np.count_nonzero(ranks < ABSENT, axis=1, keepdims=True).astype(np.float64)
    return above + _rejected_above_slots(slots, before, gold, last=last), count


def _rejected_above_slots(slots: Slots, before: Ints, gold: Ints, *, last: bool) -> Values:
    """Return the same sum over the slots that are relevant in each state."""
    size = np.broadcast_to(slots.size[:, None], gold.shape)
    first = np.broadcast_to(np.minimum(slots.first, slots.size[:, None]), gold.shape)
    start, stop, added = (first, size, first) if last else (np.zeros_like(first), first, 0)
    sums = sums_from_top(np.where(slots.real, before, 0).astype(np.float64))
    row = np.broadcast_to(np.arange(len(first))[:, None], first.shape)
    cells = Places(row[:, :-1][slots.real], before[slots.real])
    # The number before grows down the list, so the slots above |G| come last.
    below = cells.up_to(row, np.maximum(gold - added, -1)) * (gold >= added)
    cut = np.clip(below, start, stop)
    total = np.take_along_axis(sums, cut, axis=1) - np.take_along_axis(sums, start, axis=1)
    return np.asarray(total + (cut - start) * added + (stop - cut) * gold)


@measure(
    "Bpref",
    cutoff="none",
    unjudged=Extremes(_bpref_labels, binary=True, counts_judged=True),
)
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


def _inferred_terms(lists: PartlyJudged, k: Cut, *, rel: float = 1) -> Terms:
    hits = lists.ranked.hits
    relevant = hits.relevant(rel)
    return count_terms(
        lists,
        k,
        rel,
        lambda _, rank: 1 / rank + EPSILON * _inferred(rank),
        gold_and_more(lists, rel),
        shared=_inferred,
        relevant=Places(hits.query[relevant], hits.rank[relevant]),
    )


def _inferred(rank: Values | Ints) -> Values:
    """Return what a relevant item above adds to the expected precision, if all is judged."""
    return np.asarray((rank - 1) / (rank * (rank - 1 + 2 * EPSILON)))


@measure("infAP", cutoff="none", unjudged=SumOverGold(_inferred_terms, counts_judged=True))
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


def _interpolated_labels(
    lists: PartlyJudged, k: Cut, *, rel: float = 1, recall_point: str = "trunc"
) -> tuple[Values, Values]:
    """Return the best precision at any rank that has found as much of the gold as needed."""
    judged = _Judged(lists, rel)

    def needed(count: Ints) -> Values:
        return _needed_for(float(k or 0), count.astype(np.float64), recall_point)

    keep = _lowest_interpolated(lists, judged, needed)
    return _reached(lists, rel, keep, _highest_interpolated(lists, judged, needed))


def _highest_interpolated(
    lists: PartlyJudged, judged: _Judged, needed: Callable[[Ints], Values]
) -> Ints:
    """With everything relevant down to some rank: |G| never grows faster than what is found."""
    sides = (judged.relevant, judged.unjudged)
    query = np.concatenate([side.query for side in sides])
    rank = np.concatenate([side.rank for side in sides])
    new = judged.unjudged.up_to(query, rank)
    found = new + judged.relevant.up_to(query, rank)
    value = np.where(found >= needed(judged.gold[query] + new), found / rank, 0.0)
    fill = np.zeros(lists.n, dtype=np.int64)
    # By falling value, and the fewest items where values are equal; the last written stays.
    order = np.lexsort((-new, value))
    fill[query[order]] = new[order]
    return fill


def _lowest_interpolated(
    lists: PartlyJudged, judged: _Judged, needed: Callable[[Ints], Values]
) -> Ints:
    """Precision peaks at a relevant hit, before an item that cannot be one, or at the end."""
    hits, others = lists.ranked.hits, judged.others
    repeats = lists.ranked.repeats or Repeats(hits.query[:0], hits.rank[:0])
    query = np.concatenate((hits.query, others.query, repeats.query, np.arange(lists.n)))
    rank = np.concatenate((hits.rank, others.rank - 1, repeats.rank - 1, lists.ranked.returned))
    order = np.lexsort((rank, query))
    peaks = Places(query[order], np.maximum(rank[order], 1))
    keep = lists.sizes
    for slots in slots_of(lists):
        query = slots.query[:, None]
        ranks = peaks.rows(slots.query)
        known, places = judged.relevant.up_to(query, ranks), judged.unjudged.up_to(query, ranks)
        enough = needed(judged.gold[query] + slots.last)
        highest = np.zeros(enough.shape)
        for rank, count, new in zip(ranks.T, known.T, places.T, strict=True):
            found = count[:, None] + np.maximum(new[:, None] - slots.first, 0)
            highest = np.where(found >= enough, np.maximum(highest, found / rank[:, None]), highest)
        keep[slots.query] = slots.worst(highest)
    return keep


@measure(
    "IPrec",
    cutoff="recall",
    aliases=("iprec_at_recall",),
    unjudged=Extremes(_interpolated_labels, binary=True),
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


def _set_precision_terms(lists: PartlyJudged, k: Cut, *, rel: float = 1) -> Terms:
    returned = np.maximum(lists.ranked.returned, 1)
    return count_terms(lists, k, rel, lambda query, _: 1.0 / returned[query])


@measure("SetP", cutoff="none", aliases=("set_P",), unjudged=SumOverGold(_set_precision_terms))
def set_precision(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """The share of everything returned that is relevant."""
    if r.is_ideal:
        return (r.target.relevant(rel) > 0).astype(np.float64)
    return ratio(_retrieved(r, rel), r.returned)


def _set_recall_terms(lists: PartlyJudged, k: Cut, *, rel: float = 1) -> Terms:
    return count_terms(lists, k, rel, each, gold_and_more(lists, rel))


@measure("SetR", cutoff="none", aliases=("set_recall",), unjudged=SumOverGold(_set_recall_terms))
def set_recall(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """The share of the gold that was returned at all."""
    return ratio(r.found.count(r.found.relevant(rel)), r.target.relevant(rel))


@measure("SetF", cutoff="none", aliases=("set_F",), unjudged=Extremes(RISING.labels, binary=True))
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
    unjudged=RISING,
    cutoff="none",
    ceiling=None,
    number=total,
    aliases=("num_rel",),
    bounded=False,
)
def number_relevant(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """How many gold items there are; over all queries their sum."""
    return r.target.relevant(rel)


def _found_terms(lists: PartlyJudged, k: Cut, *, rel: float = 1) -> Terms:
    return count_terms(lists, k, rel, each)


@measure(
    "NumRelRet",
    better="none",
    unjudged=SumOverGold(_found_terms),
    ceiling=None,
    number=total,
    aliases=("num_rel_ret", "hits"),
    bounded=False,
)
def number_relevant_retrieved(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """How many gold items were returned, within the cut-off if there is one; over all their sum."""
    return r.found.count(r.top_found(k) & r.found.relevant(rel))
