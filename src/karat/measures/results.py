"""What an evaluation gives: one row a query, one column a measure, and their summaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.columns import Source
from karat.measures import numbers
from karat.measures.conventions import Conventions
from karat.measures.names import Measure
from karat.measures.numbers import NOTHING, Evidence, Values


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
    duplicates_dropped: int = 0
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
    one number for set-level measures; None where nothing could be measured. ``ties`` is
    the range of the mean over all orders of tied hits, where that changes it. ``lacks``
    says what a profile's measure would have needed and did not get.
    """

    mean: float | None
    n: int
    better: Literal["higher", "lower", "none"]
    ceiling: float | None = None
    quantiles: tuple[float, ...] | None = None
    ties: tuple[float, float] | None = None
    lacks: str | None = None


@dataclass(frozen=True, eq=False)
class Scores:
    """The values of one system: ``table`` has one row a query and one column a measure.

    A null was not scored: ``status`` says why (in the table's order), and ``counts`` how often.
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

    def means(self) -> dict[str, float | None]:
        """Each measure's value over the set."""
        return {name: summary.mean for name, summary in self.summaries.items()}

    @property
    def summaries(self) -> dict[str, Summary]:
        """Each measure over all queries."""
        return self.summarise(np.ones(self.table.height, dtype=bool))

    def summarise(self, mask: NDArray[np.bool_]) -> dict[str, Summary]:
        """Each measure over the marked queries (in the table's order)."""
        return {str(measure): self._summary(measure, mask) for measure in self.measures}

    def _summary(self, measure: Measure, mask: NDArray[np.bool_]) -> Summary:
        name, number = str(measure), number_of(measure)
        values = self.table[name].to_numpy()
        taking_part = mask & ~np.isnan(values)
        return Summary(
            mean=number(values[taking_part], self.evidence.get(name, NOTHING).of(taking_part)),
            n=int(taking_part.sum()),
            better=measure.definition.better,
            ceiling=self._ceiling(measure, taking_part),
            quantiles=numbers.quantiles(values[taking_part]),
            ties=self._tie_range(name, taking_part, number),
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


Number = Callable[[Values, Evidence], float | None]

_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def number_of(measure: Measure) -> Number:
    """What makes one number of the queries' values: a mean, a sum, a percentile."""
    ending = str(measure.arguments.get("path", "")).rpartition(".")[2]
    if measure.name == "latency" and ending in _PERCENTILES:
        return partial(_percentile, _PERCENTILES[ending])
    if measure.name == "cost" and ending == "sum":
        return numbers.total
    return measure.definition.number


def _percentile(share: float, values: Values, evidence: Evidence) -> float | None:
    return numbers.percentile(values, share)
