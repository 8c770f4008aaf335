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
from karat.stats.percentiles import resampled_percentiles
from karat.stats.proportions import wilson

Interval = tuple[float, float] | None

_LOWEST_LOG = math.log(numbers.SMALLEST)


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
            intervals[column.name] = _of_percentile(column, share, conventions, groups)
        elif number is numbers.share_of_keys:
            intervals[column.name] = _of_keys(column, conventions)
        else:
            means.append(column)
    return intervals | _of_means(means, conventions, groups)


def _of_percentile(
    column: Column, share: float, conventions: Conventions, groups: NDArray[np.int64] | None
) -> Interval:
    """Order statistics; where queries belong to conversations, those are resampled."""
    if groups is None:
        return percentile_interval(column.known, share, confidence=conventions.ci)
    own = groups[column.rows]
    units = np.arange(len(np.unique(own)), dtype=np.float64)
    if percentile_interval(units, share, confidence=conventions.ci) is None:
        return None
    drawn = resampled_percentiles(
        column.known[:, None], share, resamples=conventions.boot, seed=conventions.seed, groups=own
    )
    outside = 1 - conventions.ci
    low, high = np.quantile(drawn, [outside / 2, 1 - outside / 2]).tolist()
    return low, high


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
            tops=[1.0 if _is_geometric(column) else column.top for column in some],
            groups=None if groups is None else groups[rows],
        )
        for column, (low, high) in zip(some, ends.tolist(), strict=True):
            found[column.name] = None if math.isnan(low) else _unscaled(column, low, high)
    return found


def _is_geometric(column: Column) -> bool:
    return number_of(column.measure) is numbers.geometric_mean


def _scaled(column: Column) -> Values:
    """Values whose mean tells the number; for a geometric mean their logarithms, from 0 to 1."""
    if _is_geometric(column):
        logs = np.log(np.maximum(column.known, numbers.SMALLEST))
        return np.asarray(np.clip(1 - logs / _LOWEST_LOG, 0.0, 1.0))
    return column.known


def _unscaled(column: Column, low: float, high: float) -> tuple[float, float]:
    if _is_geometric(column):
        return math.exp(_LOWEST_LOG * (1 - low)), math.exp(_LOWEST_LOG * (1 - high))
    if number_of(column.measure) is numbers.total:
        n = len(column.known)
        return low * n, high * n
    return low, high
