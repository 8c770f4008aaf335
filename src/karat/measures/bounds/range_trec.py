"""Where Rprec, Bpref and interpolated precision are lowest and highest: which items are relevant.

Each function gives, for each query, how many of the first slots to leave so that the others are
relevant and the value is lowest, and how many of the first to fill so that it is highest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from karat.measures.bounds.range_slots import Places, Slots, slots_of, sums_from_top
from karat.measures.bounds.unjudged import ABSENT, Listed
from karat.measures.numbers import Values
from karat.measures.ranked import Ints, Repeats, ratio


@dataclass(frozen=True, eq=False)
class Judged:
    """What is known of some lists: relevant hits, others, and how many of each the gold has."""

    one: Listed
    relevant: Places
    others: Places
    gold: Ints
    gold_others: Ints

    @classmethod
    def of(cls, one: Listed, rel: float) -> Judged:
        """The judged hits of a system by a threshold."""
        hits, target = one.ranked.hits, one.ranked.target
        yes, no = hits.relevant(rel), hits.judged_nonrelevant(rel)
        return cls(
            one,
            Places(hits.query[yes], hits.rank[yes]),
            Places(hits.query[no], hits.rank[no]),
            target.relevant(rel).astype(np.int64),
            target.judged_nonrelevant(rel).astype(np.int64),
        )

    @property
    def unjudged(self) -> Places:
        """The slots of the lists."""
        return Places(self.one.unjudged.query, self.one.unjudged.rank)

    def searched(
        self, low: Callable[[Slots], Values], high: Callable[[Slots], Values]
    ) -> tuple[Ints, Ints]:
        """The states of the lowest and the highest of these values."""
        keep = self.one.unjudged.counts(self.one.ranked.n)
        fill = np.zeros_like(keep)
        for slots in slots_of(self.one):
            keep[slots.query] = slots.worst(low(slots))
            fill[slots.query] = slots.best(high(slots))
        return keep, fill


def r_precision(judged: Judged) -> tuple[Ints, Ints]:
    """Rprec: the rank up to which relevant items count is their number."""

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

    return judged.searched(low, high)


def binary_preference(judged: Judged) -> tuple[Ints, Ints]:
    """Bpref: every unjudged item becomes a judged one, not relevant where it is not relevant."""

    def value(slots: Slots, more: Ints, last: bool) -> Values:
        gold = judged.gold[slots.query, None] + more
        rejected = judged.gold_others[slots.query, None] + slots.size[:, None] - more
        above, count = _rejected_above(judged, slots, gold, last=last)
        return ratio(count + more - ratio(above, np.minimum(rejected, gold)), gold)

    return judged.searched(
        lambda slots: value(slots, slots.last, last=True),
        lambda slots: value(slots, np.minimum(slots.first, slots.size[:, None]), last=False),
    )


def _rejected_above(
    judged: Judged, slots: Slots, gold: Ints, *, last: bool
) -> tuple[Values, Values]:
    """Σ min(rejected above, |G|) over the relevant items of each state, and how many were known."""
    above = np.zeros(gold.shape)
    query = slots.query[:, None]
    ranks = judged.relevant.rows(slots.query)
    known, places = judged.others.up_to(query, ranks), judged.unjudged.up_to(query, ranks)
    for rank, before, under in zip(ranks.T, known.T, places.T, strict=True):
        free = under[:, None]
        new = np.minimum(free, slots.first) if last else np.maximum(free - slots.first, 0)
        each = np.minimum(before[:, None] + new, gold)
        above += np.where(rank[:, None] < ABSENT, each, 0)
    before = judged.others.up_to(query, slots.rank)
    count = np.count_nonzero(ranks < ABSENT, axis=1, keepdims=True).astype(np.float64)
    return above + _among_slots(slots, before, gold, last=last), count


def _among_slots(slots: Slots, before: Ints, gold: Ints, *, last: bool) -> Values:
    """The same sum over the slots that are relevant in each state."""
    size = np.broadcast_to(slots.size[:, None], gold.shape)
    first = np.broadcast_to(np.minimum(slots.first, slots.size[:, None]), gold.shape)
    start, stop, added = (first, size, first) if last else (np.zeros_like(first), first, 0)
    sums = sums_from_top(np.where(slots.real, before, 0).astype(np.float64))
    row = np.broadcast_to(np.arange(len(first))[:, None], first.shape)
    cells = Places(row[:, :-1][slots.real], before[slots.real])
    # Those before grow down the list, so the ones above |G| come last.
    below = cells.up_to(row, np.maximum(gold - added, -1)) * (gold >= added)
    cut = np.clip(below, start, stop)
    total = np.take_along_axis(sums, cut, axis=1) - np.take_along_axis(sums, start, axis=1)
    return np.asarray(total + (cut - start) * added + (stop - cut) * gold)


def interpolated(judged: Judged, needed: Callable[[Ints], Values]) -> tuple[Ints, Ints]:
    """IPrec: the best precision at any rank that has found as much of the gold as needed."""
    return _lowest_interpolated(judged, needed), _highest_interpolated(judged, needed)


def _highest_interpolated(judged: Judged, needed: Callable[[Ints], Values]) -> Ints:
    """With everything relevant down to some rank: |G| never grows faster than what is found."""
    sides = (judged.relevant, judged.unjudged)
    query = np.concatenate([side.query for side in sides])
    rank = np.concatenate([side.rank for side in sides])
    new = judged.unjudged.up_to(query, rank)
    found = new + judged.relevant.up_to(query, rank)
    value = np.where(found >= needed(judged.gold[query] + new), found / rank, 0.0)
    fill = np.zeros(judged.one.ranked.n, dtype=np.int64)
    # By falling value, and the fewest items where values are equal; the last to be written wins.
    order = np.lexsort((-new, value))
    fill[query[order]] = new[order]
    return fill


def _lowest_interpolated(judged: Judged, needed: Callable[[Ints], Values]) -> Ints:
    """Precision peaks at a relevant hit, before an item that cannot be one, or at the end."""
    one, others = judged.one, judged.others
    hits = one.ranked.hits
    again = one.ranked.repeats or Repeats(hits.query[:0], hits.rank[:0])
    query = np.concatenate((hits.query, others.query, again.query, np.arange(one.ranked.n)))
    rank = np.concatenate((hits.rank, others.rank - 1, again.rank - 1, one.ranked.returned))
    order = np.lexsort((rank, query))
    peaks = Places(query[order], np.maximum(rank[order], 1))
    keep = one.unjudged.counts(one.ranked.n)
    for slots in slots_of(one):
        query = slots.query[:, None]
        ranks = peaks.rows(slots.query)
        known, places = judged.relevant.up_to(query, ranks), judged.unjudged.up_to(query, ranks)
        enough = needed(judged.gold[query] + slots.last)
        highest = np.zeros(enough.shape)
        for rank, own, new in zip(ranks.T, known.T, places.T, strict=True):
            found = own[:, None] + np.maximum(new[:, None] - slots.first, 0)
            highest = np.where(found >= enough, np.maximum(highest, found / rank[:, None]), highest)
        keep[slots.query] = slots.worst(highest)
    return keep
