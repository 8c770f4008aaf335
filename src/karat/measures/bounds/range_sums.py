"""Measures that add up what relevant items bring, over what the gold allows: their extremes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from karat.measures.bounds.range_slots import (
    Places,
    Slots,
    between,
    slots_of,
    sums_from_bottom,
    sums_from_top,
)
from karat.measures.bounds.unjudged import ABSENT, Listed
from karat.measures.numbers import Values
from karat.measures.ranked import Ints, Mask, ratio

Bring = Callable[[Values], Values]
Below = Callable[[Ints, Ints], Values | Ints]


@dataclass(frozen=True, eq=False)
class Part:
    """A sum over the relevant items of a list, over a number that knows the gold.

    An item at a rank brings ``own``, and ``shared`` for every relevant item above it; nothing
    beyond the ``limit``. ``now`` is each query's sum as long as nothing more is relevant.
    ``bottom`` is the number below, for queries and how many more items are relevant.
    """

    limit: Ints
    now: Values
    own: Bring
    bottom: Below
    shared: Bring | None = None
    weight: float = 1.0


def extreme_slots(one: Listed, parts: Sequence[Part], relevant: Places) -> tuple[Mask, Mask]:
    """Which unjudged items are relevant where the sum of some parts is lowest, and highest."""
    keep, fill = one.unjudged.counts(one.ranked.n), np.zeros(one.ranked.n, dtype=np.int64)
    size = keep.copy()
    for slots in slots_of(one):
        low, high = (np.zeros(slots.rank.shape + np.array([0, 1])) for _ in range(2))
        for part in parts:
            bottom, top = _sums(part, slots, relevant)
            low += part.weight * ratio(bottom, part.bottom(slots.query, slots.last))
            high += part.weight * ratio(top, part.bottom(slots.query, slots.first))
        keep[slots.query], fill[slots.query] = slots.worst(low), slots.best(high)
    return between(one, keep, size), between(one, np.zeros_like(fill), fill)


def _sums(part: Part, slots: Slots, relevant: Places) -> tuple[Values, Values]:
    """The sum in each state, with the last slots relevant and with the first ones."""
    limit, now = part.limit[slots.query, None], part.now[slots.query, None]
    own = _within(part.own, slots.rank, limit)
    if part.shared is None:
        return now + sums_from_bottom(own), now + sums_from_top(own)
    shared = _within(part.shared, slots.rank, limit)
    above = relevant.up_to(slots.query[:, None], slots.rank)
    # Every relevant item below a slot has one more above it once that slot is relevant.
    below = sums_from_bottom(_within(part.shared, relevant.rows(slots.query), limit))
    step = own + shared * above + np.take_along_axis(below, above, axis=1)
    step = np.where(slots.real, step, 0.0)
    bottom = sums_from_bottom(step + sums_from_bottom(shared)[:, 1:])
    top = sums_from_top(step + shared * slots.first[:, :-1])
    return now + bottom, now + top


def _within(bring: Bring, rank: Ints, limit: Ints) -> Values:
    """What relevant items at some ranks bring, nothing beyond the limit or where there is none."""
    inside = (rank <= limit) & (rank < ABSENT)
    return np.where(inside, bring(np.where(inside, rank, 1).astype(np.float64)), 0.0)
