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
from karat.stats.bootstrap import Resampling
from karat.stats.means import Range, mean_intervals
from karat.stats.order import percentile_interval
from karat.stats.percentiles import resampled_percentiles
from karat.stats.proportions import share_interval

Interval = tuple[float, float] | None

# Counts of what was returned are facts about these queries, not estimates of anything.
_COUNTS = frozenset({"NumRet", "NumRel", "NumRelRet"})


@dataclass(frozen=True, eq=False)
class Column:
    """One measure's values: the rows that take part, and the least and greatest possible value."""

    name: str
    measure: Measure
    values: Values
    rows: NDArray[np.bool_]
    range: Range | None
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
        method="percentile" if conventions.interval == "percentile" else "gaffke",
    )


def has_interval(measure: Measure) -> bool:
    """Return whether a measure's number is an estimate, with an interval; counts are none."""
    return measure.name not in _COUNTS


def range_of_values(
    measure: Measure, values: Values, ceilings: Values | None = None
) -> Range | None:
    """Return the least and greatest value that any ranking could give one of these queries.

    Queries differ in their ceilings, and other queries like them could have any of these: so
    the greatest is the largest ceiling among the queries. None where no ranking sets a bound.
    """
    definition = measure.definition
    if definition.ceiling == "k":
        top = float(measure.k) if isinstance(measure.k, int) else None
    elif definition.ceiling == "ideal" and ceilings is not None:
        top = float(np.nanmax(ceilings, initial=0.0)) or 1.0
    else:
        top = 1.0 if definition.bounded else None
    if top is None:
        return None
    # A token budget may let a list do better than the ideal one, which it does not cut.
    return min(0.0, float(values.min(initial=0.0))), float(values.max(initial=top))


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
        if not has_interval(column.measure):
            continue
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
    """A share of items is a share: its items are what was drawn, or the queries if fewer."""
    share = numbers.share_of_keys(column.known, column.evidence)
    total = column.evidence.total
    n = len(np.unique(column.evidence.key)) if total is None else total
    if share is None or n < 2 or column.rows.sum() < 2:
        return None
    independent = numbers.independent_keys(column.evidence)
    return share_interval(round(share * n), n, independent, confidence=conventions.ci)


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
            ranges=[None if _is_geometric(column) else column.range for column in some],
            groups=None if groups is None else groups[rows],
        )
        for column, (low, high) in zip(some, ends.tolist(), strict=True):
            found[column.name] = None if math.isnan(low) else _unscaled(column, low, high)
    return found


def _is_geometric(column: Column) -> bool:
    return number_of(column.measure) is numbers.geometric_mean


def _scaled(column: Column) -> Values:
    """Values whose mean tells the number; for a geometric mean their logarithms."""
    if _is_geometric(column):
        return np.asarray(np.log(np.maximum(column.known, numbers.SMALLEST)))
    return column.known


def _unscaled(column: Column, low: float, high: float) -> tuple[float, float]:
    if _is_geometric(column):
        return math.exp(low), math.exp(high)
    if number_of(column.measure) is numbers.total:
        n = len(column.known)
        return low * n, high * n
    return low, high
