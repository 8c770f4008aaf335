"""Aggregate functions: how the values of many queries become one number.

A value that is NaN was not measured and is left out. Sums are exact (``math.fsum``), so the
order of adding changes no bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Facts of each query that a set-level measure needs besides values, one row each.

    ``query`` is the query's place, ``key`` its subject (a gold unit, an item), ``value`` its
    value. ``total`` is the size of the whole, where the facts are a part.
    """

    query: NDArray[np.int64]
    key: NDArray[np.int64]
    value: Values
    total: int | None = None

    def of(self, mask: NDArray[np.bool_]) -> Evidence:
        """Return the facts about the marked queries."""
        keep = mask[self.query]
        return Evidence(self.query[keep], self.key[keep], self.value[keep], self.total)


# What a value of 0 counts as in a geometric mean, as in trec_eval.
SMALLEST = 1e-5

NOTHING = Evidence(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


def gather(parts: list[Evidence]) -> Evidence:
    """Return the facts of all blocks together."""
    return Evidence(
        np.concatenate([part.query for part in parts]),
        np.concatenate([part.key for part in parts]),
        np.concatenate([part.value for part in parts]),
        next((part.total for part in parts if part.total is not None), None),
    )


def mean(values: Values, evidence: Evidence = NOTHING) -> float | None:
    """Return the exact mean."""
    measured = values[~np.isnan(values)]
    return math.fsum(measured.tolist()) / len(measured) if len(measured) else None


def total(values: Values, evidence: Evidence = NOTHING) -> float | None:
    """Return the exact sum."""
    measured = values[~np.isnan(values)]
    return math.fsum(measured.tolist()) if len(measured) else None


def geometric_mean(values: Values, evidence: Evidence = NOTHING) -> float | None:
    """Return exp(mean of ln max(value, 1e-5))."""
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    return math.exp(math.fsum(math.log(max(v, SMALLEST)) for v in known.tolist()) / len(known))


def share_of_keys(values: Values, evidence: Evidence) -> float | None:
    """Return the share of distinct keys for which any fact holds; None without a query."""
    if not len(values):
        return None
    whole = evidence.total if evidence.total is not None else len(np.unique(evidence.key))
    return len(np.unique(evidence.key[evidence.value > 0])) / whole if whole else None


def independent_keys(evidence: Evidence) -> int:
    """Return how many things a share of keys rests on: its keys, or the queries if those are fewer.

    The keys of one query may be found or missed together.
    """
    if evidence.total is not None:
        return evidence.total
    return min(len(np.unique(evidence.key)), len(np.unique(evidence.query)))


def percentile(values: Values, evidence: Evidence = NOTHING, *, share: float) -> float | None:
    """Return a percentile by linear interpolation."""
    measured = values[~np.isnan(values)]
    return float(np.percentile(measured, 100 * share)) if len(measured) else None


def quartiles(values: Values) -> tuple[float, ...]:
    """Return the least value, the quartiles and the greatest, as np.percentile interpolates.

    That function loads NumPy's masked arrays, which takes longer than this.
    """
    places = np.arange(5) / 4 * (len(values) - 1)
    below = np.floor(places).astype(np.int64)
    share: Values = places - below
    ordered = np.sort(values)
    low, high = ordered[below], ordered[np.minimum(below + 1, len(values) - 1)]
    up, down = low + (high - low) * share, high - (high - low) * (1.0 - share)
    return tuple(np.where(share < 0.5, up, down).tolist())
