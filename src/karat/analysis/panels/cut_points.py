"""Where to cut between two kinds of values: the threshold, and how far it can be trusted.

Of values that should stay and values that should go, a threshold keeps those at or above it.
The best one keeps the largest share of the first less the share of the second (Youden's J).
All thresholds in a gap between two values do the same; the middle of it is the one to take.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from karat.analysis.panels.top_lists import Ints, Mask
from karat.measures.numbers import Values

# Cells of a table of draws that are held at one time: few enough for the processor's cache.
_CELLS = 100_000


@dataclass(frozen=True, eq=False)
class Kinds:
    """Values that should stay (``wanted``, all finite), and values that should go (``unwanted``).

    The units say what is drawn at random: the query of each value, or its conversation.
    """

    wanted: Values
    unwanted: Values
    wanted_unit: Ints
    unwanted_unit: Ints

    def kept(self, threshold: float) -> tuple[Mask, Mask]:
        """Which values of both kinds a threshold keeps."""
        return self.wanted >= threshold, self.unwanted >= threshold

    @property
    def area(self) -> float:
        """The chance that a wanted value lies above an unwanted one; equal ones count half."""
        ordered = np.sort(self.unwanted)
        below = np.searchsorted(ordered, self.wanted, "left").sum()
        up_to = np.searchsorted(ordered, self.wanted, "right").sum()
        return float(below + up_to) / (2 * len(self.wanted) * len(self.unwanted))


@dataclass(frozen=True)
class Cut:
    """A threshold, and the gap it lies in: all above ``above`` and up to ``up_to`` do the same.

    ``above`` is None where no value lies below the gap.
    """

    threshold: float
    above: float | None
    up_to: float


@dataclass(frozen=True, eq=False)
class Redrawn:
    """What happens when units are drawn again: one entry a resample.

    ``threshold`` is chosen anew, ``new_wanted`` and ``new_unwanted`` are the shares that it keeps
    of the units that were not drawn, hence had no part in its choice; NaN where every unit of
    the kind was drawn.
    """

    threshold: Values
    new_wanted: Values
    new_unwanted: Values


def best_cut(kinds: Kinds) -> Cut:
    """The middle of the gap with the highest J, of several such gaps the lowest.

    Where nothing lies below the gap, the threshold is its upper end, a wanted value.

    >>> none = np.arange(3)
    >>> best_cut(Kinds(np.array([9.0, 8.0, 3.0]), np.array([5.0, 1.0, 4.0]), none, none))
    Cut(threshold=6.5, above=5.0, up_to=8.0)
    """
    line = _Line(kinds)
    once = [np.ones((1, len(one)), dtype=np.int64) for one in line.units]
    above, up_to = (float(ends[0]) for ends in line.gaps(*once))
    threshold = float(_middle(np.array([above]), np.array([up_to]))[0])
    return Cut(threshold, above if np.isfinite(above) else None, up_to)


def redraw(kinds: Kinds, *, resamples: int, seed: int) -> Redrawn:
    """Draw the units again and choose the threshold anew, each time.

    Units that bring only wanted values, only unwanted ones and both are drawn apart, so that
    every resample has as many of each as the sample.
    """
    line = _Line(kinds)
    parts = []
    for counts in _drawn(kinds, resamples, seed):
        weights = [counts[:, unit] for unit in line.units]
        threshold = _middle(*line.gaps(*weights))
        kept = [one >= threshold[:, None] for one in (line.wanted, line.unwanted)]
        left = [_share(own == 0, stay) for own, stay in zip(weights, kept, strict=True)]
        parts.append((threshold, *left))
    return Redrawn(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _middle(above: Values, up_to: Values) -> Values:
    """The middle of each gap; its upper end where the gap has no lower one or no room."""
    middle = above / 2 + up_to / 2
    return np.where(np.isfinite(above) & (middle > above) & (middle <= up_to), middle, up_to)


class _Line:
    """Both kinds of values from the highest to the lowest, and the thresholds among them."""

    def __init__(self, kinds: Kinds) -> None:
        orders = [np.argsort(-one, kind="stable") for one in (kinds.wanted, kinds.unwanted)]
        self.wanted, self.unwanted = kinds.wanted[orders[0]], kinds.unwanted[orders[1]]
        _, unit = np.unique(
            np.concatenate((kinds.wanted_unit, kinds.unwanted_unit)), return_inverse=True
        )
        split = len(kinds.wanted)
        self.units = unit[:split][orders[0]], unit[split:][orders[1]]
        # J falls when a threshold goes down past unwanted values only: these need not be tried.
        self.values = np.unique(self.wanted)[::-1]
        self.reach = [
            np.searchsorted(-one, -self.values, side="right")
            for one in (self.wanted, self.unwanted)
        ]

    def gaps(self, wanted: Ints, unwanted: Ints) -> tuple[Values, Values]:
        """For each row of weights both ends of the best gap; the lower is -inf if there is none."""
        chosen = self.choose(wanted, unwanted)
        below = [
            _highest_drawn(values, weights, reach[chosen])
            for values, weights, reach in zip(
                (self.wanted, self.unwanted), (wanted, unwanted), self.reach, strict=True
            )
        ]
        return np.maximum(*below), self.values[chosen]

    def choose(self, wanted: Ints, unwanted: Ints) -> Ints:
        """For each row of weights the place of the best threshold, in whole numbers."""
        kept, false = (
            _from_the_top(weights)[:, reach]
            for weights, reach in zip((wanted, unwanted), self.reach, strict=True)
        )
        gain = kept * unwanted.sum(axis=1)[:, None] - false * wanted.sum(axis=1)[:, None]
        # A value that was not drawn is no threshold.
        gain[np.diff(kept, axis=1, prepend=0) == 0] = np.iinfo(np.int64).min
        lowest: Ints = len(self.values) - 1 - np.argmax(gain[:, ::-1], axis=1)
        return lowest


def _highest_drawn(values: Values, weights: Ints, start: Ints) -> Values:
    """For each row the first value from ``start`` on that has a weight; -inf if none has."""
    there = (weights > 0) & (np.arange(len(values)) >= start[:, None])
    highest: Values = np.where(there.any(axis=1), values[there.argmax(axis=1)], -np.inf)
    return highest


def _from_the_top(weights: Ints) -> Ints:
    """For each row the weight of the first 0, 1, 2, … values."""
    sums = np.zeros((len(weights), weights.shape[1] + 1), dtype=np.int64)
    np.cumsum(weights, axis=1, out=sums[:, 1:])
    return sums


def _share(weights: Ints | Mask, kept: Mask) -> Values:
    total = weights.sum(axis=1)
    share = np.full(len(total), np.nan)
    some = total > 0
    share[some] = (weights * kept).sum(axis=1)[some] / total[some]
    return share


def _drawn(kinds: Kinds, resamples: int, seed: int) -> Iterator[Ints]:
    """How often each unit is drawn, in chunks of (resamples, units)."""
    units, member = np.unique(
        np.concatenate((kinds.wanted_unit, kinds.unwanted_unit)), return_inverse=True
    )
    n, split = len(units), len(kinds.wanted)
    has = [np.bincount(part, minlength=n) > 0 for part in (member[:split], member[split:])]
    strata = [np.flatnonzero(one) for one in (has[0] & ~has[1], ~has[0] & has[1], has[0] & has[1])]
    rng = np.random.default_rng([seed, n])
    at_once = max(1, _CELLS // n)
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        counts = np.zeros((size, n), dtype=np.int64)
        for stratum in strata:
            m = len(stratum)
            if m:
                drawn = rng.integers(0, m, size=(size, m)) + np.arange(size)[:, None] * m
                tally = np.bincount(drawn.ravel(), minlength=size * m)
                counts[:, stratum] = tally.reshape(size, m)
        yield counts
