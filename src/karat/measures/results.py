"""What an evaluation gives: one row a query, one column a measure, and their summaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.abreast import go_on
from karat.columns import Source
from karat.measures import numbers
from karat.measures.conventions import Conventions
from karat.measures.depth import CutDepth
from karat.measures.intervals import Column, Interval, intervals_of, range_of_values
from karat.measures.names import Measure
from karat.measures.numbers import NOTHING, Evidence, Values
from karat.measures.overall import Number, number_of
from karat.measures.traces import Trace
from karat.stats.means import Range

# Quartiles of the queries' values would stand beside a number that is no middle of them.
_OF_THE_SET = (numbers.share_of_keys, numbers.geometric_mean)


@dataclass(frozen=True, slots=True)
class Counts:
    """What happened to the queries and hits; nothing is dropped without being counted here."""

    queries: int = 0
    scored: int = 0
    missing: int = 0
    empty_gold: int = 0
    no_answer: int = 0
    not_in_gold: int = 0
    not_in_queries: int = 0
    repeats: int = 0
    order_conflicts: int = 0
    failed_calls: int = 0
    versions_unknown: int = 0

    def document(self) -> dict[str, int]:
        """The counts as they stand in a report."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Summary:
    """One measure over all queries.

    ``mean`` is what the measure reports for the set: a mean, a percentile for latencies,
    one number for set-level measures; None where nothing could be measured. ``ci`` is its
    interval over queries, None where there are fewer than two. ``ties`` is
    the range of the mean over all orders of tied hits, where that changes it. ``lacks``
    says what a profile's measure would have needed and did not get. ``quantiles`` are those of
    the queries' values, None where the number is one of the whole set.
    """

    mean: float | None
    n: int
    better: Literal["higher", "lower", "none"]
    ci: tuple[float, float] | None = None
    ceiling: float | None = None
    quantiles: tuple[float, ...] | None = None
    ties: tuple[float, float] | None = None
    lacks: str | None = None


@dataclass(frozen=True, eq=False)
class Scores:
    """The values of one system: ``table`` has one row a query and one column a measure.

    A null was not scored: ``status`` says why (in the table's order), and ``counts`` how often.
    ``cut`` is the depth at which all lists were cut, None where they are complete.
    ``fingerprint`` tells the gold and queries from others. ``groups`` numbers the conversation
    of each query, where queries belong to some. ``lists`` holds the top items of each (``row``,
    ``rank``, ``item_id``, and what the run and the gold say of them), where they were asked for.
    ``calls`` is then what the log says was asked and what went wrong (``query_id``, ``query``,
    ``error``). ``nothing_found`` is the number of queries with gold where no relevant item was
    found for any of them, else 0. ``trace`` is where the judged hits stood; scores that come
    from a store have none.
    """

    system: str
    source: Source
    measures: tuple[Measure, ...]
    table: pl.DataFrame
    status: pl.Series
    counts: Counts
    conventions: Conventions
    meta: Mapping[str, Any]
    ceilings: Mapping[str, tuple[Values, Evidence]] = field(default_factory=dict, repr=False)
    tied: Mapping[str, tuple[Values, Values]] = field(default_factory=dict, repr=False)
    evidence: Mapping[str, Evidence] = field(default_factory=dict, repr=False)
    lacks: Mapping[str, str] = field(default_factory=dict)
    cut: CutDepth | None = None
    fingerprint: str = ""
    groups: NDArray[np.int64] | None = field(default=None, repr=False)
    lists: pl.DataFrame | None = field(default=None, repr=False)
    calls: pl.DataFrame | None = field(default=None, repr=False)
    nothing_found: int = 0
    trace: Trace | None = field(default=None, repr=False)

    @property
    def partial(self) -> bool:
        """Whether a larger share of calls failed than the log itself says may fail."""
        most = self.meta.get("max_failures")
        return isinstance(most, (int, float)) and (
            self.counts.failed_calls > most * self.counts.queries
        )

    def means(self) -> dict[str, float | None]:
        """Each measure's value over the set."""
        everyone = np.ones(self.table.height, dtype=bool)
        return {str(measure): self.number(measure, everyone) for measure in self.measures}

    def values(self, measure: str) -> Values:
        """One measure's value for each query, NaN where it was not scored."""
        return self.table[measure].to_numpy()

    @property
    def summaries(self) -> dict[str, Summary]:
        """Each measure over all queries."""
        return self.summarise(np.ones(self.table.height, dtype=bool))

    def summarise(self, mask: NDArray[np.bool_]) -> dict[str, Summary]:
        """Each measure over the marked queries (in the table's order)."""
        go_on()
        intervals = intervals_of(self._columns(mask), self.conventions, self.groups)
        return {
            str(measure): self._summary(measure, mask, intervals[str(measure)])
            for measure in self.measures
        }

    def _columns(self, mask: NDArray[np.bool_]) -> list[Column]:
        """The measures' values over the marked queries, for their intervals."""
        columns = []
        for measure in self.measures:
            name = str(measure)
            rows = mask & ~np.isnan(self.values(name))
            evidence = self.evidence.get(name, NOTHING).of(rows)
            columns.append(
                Column(
                    name, measure, self.values(name), rows, self.range_of(measure, rows), evidence
                )
            )
        return columns

    def range_of(self, measure: Measure, rows: NDArray[np.bool_]) -> Range | None:
        """The least and greatest value that any ranking could give one of these queries."""
        name = str(measure)
        ceilings = self.ceilings[name][0][rows] if name in self.ceilings else None
        return range_of_values(measure, self.values(name)[rows], ceilings)

    def number(self, measure: Measure, rows: NDArray[np.bool_]) -> float | None:
        """One measure's number over the marked queries."""
        name = str(measure)
        rows = rows & ~np.isnan(self.values(name))
        return number_of(measure)(
            self.values(name)[rows], self.evidence.get(name, NOTHING).of(rows)
        )

    def _summary(self, measure: Measure, mask: NDArray[np.bool_], ci: Interval) -> Summary:
        name = str(measure)
        values = self.values(name)
        taking_part = mask & ~np.isnan(values)
        known = values[taking_part]
        return Summary(
            mean=self.number(measure, mask),
            n=int(taking_part.sum()),
            better=measure.definition.better,
            ci=ci,
            ceiling=self._ceiling(measure, taking_part),
            quantiles=None if number_of(measure) in _OF_THE_SET else numbers.quantiles(known),
            ties=self._tie_range(name, taking_part, number_of(measure)),
            lacks=self.lacks.get(name),
        )

    def _ceiling(self, measure: Measure, mask: NDArray[np.bool_]) -> float | None:
        """The best that any ranking could reach on the gold of these queries."""
        ceiling = measure.definition.ceiling
        if not mask.any() or ceiling is None:
            return None
        if ceiling == "k":
            return float(measure.k) if isinstance(measure.k, int) else None
        if ceiling != "ideal":
            return ceiling
        if str(measure) not in self.ceilings:
            return None
        values, evidence = self.ceilings[str(measure)]
        return number_of(measure)(values[mask], evidence.of(mask))

    def _tie_range(
        self, name: str, mask: NDArray[np.bool_], number: Number
    ) -> tuple[float, float] | None:
        if name not in self.tied:
            return None
        ends = [number(side[mask], NOTHING) for side in self.tied[name]]
        low, high = ends
        if low is None or high is None or low == high:
            return None
        return (low, high) if low < high else (high, low)
