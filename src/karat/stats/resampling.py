"""Resampling whole rows, or whole groups of rows that belong together, with replacement.

All sums over resamples are exact, so the same values, seed and plan give the same bits on any
number of threads, however many other columns are resampled with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from karat.errors import UsageError
from karat.stats.distributions import tail

Values = NDArray[np.float64]
Places = NDArray[np.int64]


def rows_of(columns: Values) -> Values:
    """Return one contiguous row per column: sums along it do not depend on the other columns."""
    rows = np.ascontiguousarray(columns.T, dtype=np.float64)
    if not np.isfinite(rows).all():
        raise UsageError("a column holds NaN or infinity; leave out the rows without a value")
    return rows


def sums_by(member: Places, rows: Values) -> Values:
    """Return each row's sums over the entries with the same member number, 0 up to the largest."""
    count = int(member.max(initial=-1)) + 1
    sums = [np.bincount(member, weights=row, minlength=count) for row in rows]
    return np.array(sums, dtype=np.float64).reshape(len(rows), count)


def on_grid(rows: Values, terms: int | None = None) -> tuple[Values, Values]:
    """Return each row in whole multiples of its grid, and the grid of each row.

    Any sum of ``terms`` entries of a row (as many as it has, unless said) stays below 2^53
    multiples, so that a matrix product gives the same bits on any number of threads. What
    rounding loses is at most 2^-51 of the largest value times the number of terms.
    """
    terms = rows.shape[-1] if terms is None else terms
    largest = np.abs(rows).max(axis=-1, initial=0.0)
    exponent = np.frexp(largest)[1] + terms.bit_length() - 52
    # Not below the smallest normal number: beneath it there is no grid to speak of.
    grid = np.ldexp(1.0, np.maximum(exponent, -1022))
    return np.rint(rows / grid[..., None]), grid


# Drawing from a million rows would take minutes; drawing bundles of them does not.
_MANY_ROWS, _BUNDLES = 20_000, 10_000

# Cells of the table of counts that are held at one time, 8 MB a table.
_CELLS = 1_000_000


@dataclass(frozen=True, slots=True)
class Resampling:
    """How often to draw, from which seed, and how the draws become the interval of a mean."""

    confidence: float = 0.95
    resamples: int = 2000
    seed: int = 0
    method: Literal["gaffke", "percentile"] = "gaffke"

    def __post_init__(self) -> None:
        tail(self.confidence)
        if self.resamples < 1:
            raise UsageError(f"resamples is {self.resamples}; it is at least 1")
        if self.seed < 0:
            raise UsageError(f"seed is {self.seed}; it is at least 0")
        if self.method not in ("gaffke", "percentile"):
            raise UsageError(f"unknown method {self.method!r}; known: gaffke, percentile")


def percentile_intervals(
    columns: Values,
    plan: Resampling,
    *,
    confidences: Sequence[float] | None = None,
    groups: Places | None = None,
) -> list[Values]:
    """Return (low, high) of each column's mean at each confidence: quantiles of resampled means.

    The plain recipe: the sorted means at alpha/2 and 1 - alpha/2. With fixed draws no end falls
    when a value rises. Rows of NaN where there are fewer than two rows (or groups).
    """
    rows = rows_of(columns)
    asked = (plan.confidence,) if confidences is None else confidences
    if count_of_units(rows.shape[1], groups) < 2:
        return [np.full((len(rows), 2), np.nan) for _ in asked]
    means = np.sort(np.vstack(list(resampled_means(columns, plan, groups=groups))).T, axis=1)
    # A mean on the grid may differ from the true one in its last bits.
    lowest, highest = rows.min(axis=1, keepdims=True), rows.max(axis=1, keepdims=True)
    found = []
    for confidence in asked:
        each_side = tail(confidence)
        places = [int(share * plan.resamples) for share in (each_side, 1 - each_side)]
        ends = means[:, np.minimum(places, plan.resamples - 1)]
        found.append(np.clip(ends, lowest, highest))
    return found


def resampled_means(
    columns: Values, plan: Resampling, *, groups: Places | None = None
) -> Iterator[Values]:
    """Yield the means of the resamples, in chunks of (resamples, columns).

    Every column sees the same draws, so a chunk's rows are joint over the columns. The draws
    depend only on the seed and the number of rows (or groups). More than 20,000 rows are drawn
    as about 10,000 bundles made at random, which for independent rows is as good: the spread of
    a sum of bundles is the spread of the sum of their rows.
    """
    rows = rows_of(columns)
    member = members(rows.shape[1], groups, plan.seed)
    if member is not None:
        rows, sizes = sums_by(member, rows), np.bincount(member).astype(np.float64)
    else:
        sizes = np.ones(rows.shape[1])
    sums, grid = on_grid(rows)
    n = len(sizes)
    rng = np.random.default_rng([plan.seed, n])
    table = np.vstack([sums, sizes]).T
    at_once = max(1, _CELLS // max(n, 1))
    for start in range(0, plan.resamples if n else 0, at_once):
        size = min(at_once, plan.resamples - start)
        drawn = rng.integers(0, n, size=(size, n))
        drawn += np.arange(size)[:, None] * n
        counts = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n)
        totals = counts.astype(np.float64) @ table
        yield totals[:, :-1] / totals[:, -1:] * grid


def members(n: int, groups: Places | None, seed: int) -> Places | None:
    """Return the number of the group, or of the bundle, of each row; None where rows stand alone.

    Bundles are made at random, since neighbours in a file may be alike.
    """
    if groups is not None:
        return np.unique(groups, return_inverse=True)[1]
    if n <= _MANY_ROWS:
        return None
    places = np.random.default_rng([seed, n, n]).permutation(n)
    return np.asarray(places // math.ceil(n / _BUNDLES))


def count_of_units(n: int, groups: Places | None) -> int:
    """Return how many things can be drawn by themselves: rows, or groups of them."""
    return n if groups is None else len(np.unique(groups))
