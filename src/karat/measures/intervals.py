"""Which interval belongs to which number: by the kind of number, and by what its values are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from karat.measures import numbers
from karat.measures.conventions import Conventions
from karat.measures.names import Measure
from karat.measures.numbers import Evidence, Values
from karat.measures.overall import number_of, percentile_of
from karat.stats.bootstrap import Resampling, mean_intervals
from karat.stats.order import percentile_interval
from karat.stats.proportions import wilson

Interval = tuple[float, float] | None


@dataclass(frozen=True, eq=False)
class Column:
    """One measure's values: the rows that take part, and the highest value they could have."""

    name: str
    measure: Measure
    values: Values
    rows: NDArray[np.bool_]
    top: float | None
    evidence: Evidence

    @property
    def known(self) -> Values:
        """The values that take part."""
        return self.values[self.rows]


def plan_of(conventions: Conventions, confidence: float | None = None) -> Resampling:
    """How to resample under these conventions."""
    return Resampling(
        confidence=conventions.ci if confidence is None else confidence,
        resamples=conventions.boot,
        seed=conventions.seed,
        method="percentile" if conventions.interval == "percentile" else "bca",
    )


def intervals_of(
    columns: Sequence[Column], conventions: Conventions, groups: NDArray[np.int64] | None
) -> dict[str, Interval]:
    """The interval of each column's number; None where there are fewer than two queries."""
    intervals: dict[str, Interval] = {column.name: None for column in columns}
    if conventions.interval == "none":
        return intervals
    means = []
    for column in columns:
        number = number_of(column.measure)
        if (share := percentile_of(column.measure)) is not None:
            known = column.known
            intervals[column.name] = percentile_interval(known, share, confidence=conventions.ci)
        elif number is numbers.share_of_keys:
            intervals[column.name] = _of_keys(column, conventions)
        else:
            means.append(column)
    return intervals | _of_means(means, conventions, groups)


def _of_keys(column: Column, conventions: Conventions) -> Interval:
    """A share of items is a share: its items are what was drawn."""
    share = numbers.share_of_keys(column.known, column.evidence)
    total = column.evidence.total
    n = len(np.unique(column.evidence.key)) if total is None else total
    if share is None or n < 2 or column.rows.sum() < 2:
        return None
    return wilson(share, n, confidence=conventions.ci)


def _of_means(
    columns: Iterable[Column], conventions: Conventions, groups: NDArray[np.int64] | None
) -> dict[str, Interval]:
    """Means, sums and geometric means; columns over the same queries are resampled together."""
    together: dict[bytes, list[Column]] = {}
    for column in columns:
        together.setdefault(np.packbits(column.rows).tobytes(), []).append(column)
    found: dict[str, Interval] = {}
    for some in together.values():
        rows = some[0].rows
        ends = mean_intervals(
            np.stack([_scaled(column) for column in some], axis=1),
            plan_of(conventions),
            tops=[None if _is_geometric(column) else column.top for column in some],
            groups=None if groups is None else groups[rows],
        )
        for column, (low, high) in zip(some, ends.tolist(), strict=True):
            found[column.name] = None if math.isnan(low) else _unscaled(column, low, high)
    return found


def _is_geometric(column: Column) -> bool:
    return number_of(column.measure) is numbers.geometric_mean


def _scaled(column: Column) -> Values:
    """Values whose mean tells the number: their logarithms for a geometric mean."""
    if _is_geometric(column):
        return np.log(np.maximum(column.known, numbers.SMALLEST))
    return column.known


def _unscaled(column: Column, low: float, high: float) -> tuple[float, float]:
    if _is_geometric(column):
        return math.exp(low), math.exp(high)
    if number_of(column.measure) is numbers.total:
        n = len(column.known)
        return low * n, high * n
    return low, high
