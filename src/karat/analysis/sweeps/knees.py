"""Where a curve over cut-offs flattens, and the area under it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from karat.measures.numbers import Values

# What a larger k may still add, as a share of the curve's highest value.
FLAT = 0.02
# Two points are a line: whether it has flattened takes a third.
FEWEST = 3
# Sums of the same values may differ in their last bits.
_ROUNDING = 1e-12

Better = Literal["higher", "lower", "none"]


@dataclass(frozen=True, slots=True)
class Knee:
    """The place (from 0) from which a curve is flat; None ``because`` of what it says."""

    at: int | None
    because: str | None = None


def knee_of(values: Sequence[float], *, better: Better = "higher", flat: float = FLAT) -> Knee:
    """The first value that none of those after it betters by more than ``flat`` of the highest.

    Where only the last value is such, the curve has not flattened yet.

    >>> knee_of([0.40, 0.60, 0.70, 0.71]).at, knee_of([0.4, 0.5, 0.6]).because
    (2, 'it has not flattened yet')
    """
    if better == "none":
        return Knee(None, "neither high nor low is better")
    if len(values) < FEWEST:
        many = "1 cut-off was" if len(values) == 1 else f"{len(values) or 'no'} cut-offs were"
        return Knee(None, f"{many} measured, and it takes {FEWEST} to see a curve flatten")
    highest = max(map(abs, values))
    if not highest:
        return Knee(None, "it is 0 throughout")
    good = np.array(values) if better == "higher" else -np.array(values)
    best_after = np.maximum.accumulate(good[::-1])[::-1]
    flat_from = best_after - good <= flat * highest + _ROUNDING
    first = int(np.argmax(flat_from))
    if first == len(values) - 1:
        return Knee(None, "it has not flattened yet")
    return Knee(first)


def area_under(heights: Sequence[Values], places: Sequence[int]) -> Values:
    """The area of each query's curve by trapezoids, over the width; NaN where a value is missing.

    >>> area_under([np.array([0.0]), np.array([1.0]), np.array([1.0])], [1, 3, 5])
    array([0.75])
    """
    total = np.zeros(len(heights[0]))
    sides = zip(places, places[1:], heights, heights[1:], strict=False)
    for low, high, left, right in sides:
        total = total + (high - low) * (left + right) / 2
    return np.asarray(total / (places[-1] - places[0]))
