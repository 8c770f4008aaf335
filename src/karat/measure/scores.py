"""Scores: one system's values, a row per query and a column per measure; means and intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.data.columns import Source
from karat.measure import aggregates
from karat.measure.aggregates import NOTHING, Evidence, Values
from karat.measure.conventions import Conventions
from karat.measure.evaluate_measure import CutDepth
from karat.measure.names import Measure
from karat.measure.prepare import Prepared
from karat.measure.rank import Block, Trace, trace_of
from karat.pages.formatting import label, measured
from karat.pages.page import Page, Section
from karat.pages.result import ENVELOPE, Result
from karat.pages.serialize import plain
from karat.parallel import stop_if_cancelled
from karat.stats.distributions import share_interval
from karat.stats.means import Resampling, mean_intervals, percentile_interval, resampled_percentiles
from karat.stats.means import ValueRange as Range

Number = Callable[[Values, Evidence], float | None]
Interval = tuple[float, float] | None
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
# Quartiles of the queries' values do not describe a number that is not an average of them.
_OF_THE_SET = (aggregates.share_of_keys, aggregates.geometric_mean)


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of queries and hits; everything dropped is counted here."""

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


@dataclass(frozen=True, eq=False, repr=False)
class Scores(Result):
    """The values of one system: for each measure a column with a value for each query.

    NaN was not scored: ``status`` says why (for each query), and ``counts`` how often.
    ``cut`` is the depth at which all lists were cut, None where they are complete.
    ``fingerprint`` tells the gold and queries from others. ``groups`` numbers the conversation
    of each query, where queries belong to some. ``lists`` holds the top items of each (``row``,
    ``rank``, ``item_id``, and what the run and the gold say of them), where they were asked for.
    ``calls`` then has the logged queries and errors (``query_id``, ``query``,
    ``error``). ``nothing_found`` is the number of queries with gold where no relevant item was
    found for any of them, else 0. ``blocks`` are the ranked lists and their gold; scores that come
    from a store have none. ``run`` is what was scored, for analyses; None if it cannot be read
    again.

    >>> scores = karat.evaluate("dense.jsonl", "qrels.txt", ["nDCG@5"])
    >>> scores.system, round(scores.means()["nDCG@5"], 3)
    ('dense', 0.775)
    """

    system: str
    source: Source
    measures: tuple[Measure, ...]
    query_ids: Sequence[str]
    columns: Mapping[str, Values] = field(repr=False)
    status: NDArray[np.object_] = field(repr=False)
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
    blocks: tuple[Sequence[Block], Prepared] | None = field(default=None, repr=False)
    run: Any = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return each measure over all queries, what happened to the queries, and conventions."""
        return {
            **ENVELOPE,
            "system": self.system,
            "measures": {name: plain(asdict(s)) for name, s in self.summaries.items()},
            "counts": asdict(self.counts),
            "conventions": self.conventions.document(),
        }

    def to_frame(self) -> pl.DataFrame:
        """Return one row per query, one column per measure; null if not measured."""
        status = pl.Series("status", self.status.tolist(), dtype=pl.String)
        names = list(map(str, self.measures))
        return self.table.select(pl.lit(self.system).alias("system"), "query_id", status, *names)

    def page(self) -> Page:
        """Return the page that people read: each measure with its interval."""
        summaries = {name: asdict(summary) for name, summary in self.summaries.items()}
        rows = [[name, measured(cell), str(cell["n"])] for name, cell in summaries.items()]
        counts = f"{self.counts.scored:,} of {self.counts.queries:,} queries scored"
        return Page(label(self.system), [counts], [Section("", [["measure", "mean", "n"], *rows])])

    @cached_property
    def table(self) -> pl.DataFrame:
        """A row per query and a column per measure; null where it was not scored."""
        series = [
            pl.Series(name, values, dtype=pl.Float64, nan_to_null=True)
            for name, values in self.columns.items()
        ]
        return pl.DataFrame([pl.Series("query_id", self.query_ids, dtype=pl.String), *series])

    @property
    def everyone(self) -> NDArray[np.bool_]:
        """A mask of all queries."""
        return np.ones(len(self.query_ids), dtype=bool)

    @cached_property
    def trace(self) -> Trace | None:
        """The ranks of the judged hits; None for scores from a store."""
        return None if self.blocks is None else trace_of(*self.blocks)

    @property
    def partial(self) -> bool:
        """Whether more calls failed than the log's own limit allows."""
        most = self.meta.get("max_failures")
        return isinstance(most, (int, float)) and (
            self.counts.failed_calls > most * self.counts.queries
        )

    def means(self) -> dict[str, float | None]:
        """Return each measure's value over the set."""
        return {str(measure): self.number(measure, self.everyone) for measure in self.measures}

    def ids(self, mask: NDArray[np.bool_]) -> list[str]:
        """Return the ids of the marked queries."""
        return [self.query_ids[row] for row in np.flatnonzero(mask).tolist()]

    def values(self, measure: str) -> Values:
        """Return one measure's value for each query, NaN where it was not scored."""
        return self.columns[measure]

    @property
    def summaries(self) -> dict[str, Summary]:
        """Each measure over all queries."""
        return self.summarise(self.everyone)

    def summarise(self, mask: NDArray[np.bool_]) -> dict[str, Summary]:
        """Return each measure over the marked queries."""
        stop_if_cancelled()
        columns = [self._column(measure, mask) for measure in self.measures]
        intervals: dict[str, Interval] = {}
        resampled: dict[bytes, list[_Column]] = {}
        for column in columns if self.conventions.interval != "none" else ():
            # A sum of counts is a fact about these queries, and no estimate.
            if column.measure.definition.number is aggregates.total:
                continue
            if isinstance(column.aggregate, partial):
                intervals[column.name] = self._of_percentile(column, **column.aggregate.keywords)
            elif column.aggregate is aggregates.share_of_keys:
                intervals[column.name] = self._of_keys(column)
            else:
                resampled.setdefault(np.packbits(column.rows).tobytes(), []).append(column)
        for of_the_same_rows in resampled.values():
            intervals |= self._of_means(of_the_same_rows)
        return {column.name: self._summary(column, intervals) for column in columns}

    def number(self, measure: Measure, rows: NDArray[np.bool_]) -> float | None:
        """Return one measure's number over the marked queries."""
        return self._column(measure, rows).number

    def range_of(self, measure: Measure, rows: NDArray[np.bool_]) -> Range | None:
        """Return the least and greatest value that any ranking could give one of these queries.

        Queries differ in their ceilings, and other queries like them could have any of these: so
        the greatest is the largest ceiling among the queries. None where no ranking sets a bound.
        """
        name, definition = str(measure), measure.definition
        top = 1.0 if definition.bounded else None
        if definition.ceiling == "k":
            top = float(measure.k) if isinstance(measure.k, int) else None
        elif definition.ceiling == "ideal" and name in self.ceilings:
            top = float(np.nanmax(self.ceilings[name][0][rows], initial=0.0)) or 1.0
        if top is None:
            return None
        values = self.values(name)[rows]
        # A token budget may let a list do better than the ideal one, which it does not cut.
        return min(0.0, float(values.min(initial=0.0))), float(values.max(initial=top))

    def _column(self, measure: Measure, mask: NDArray[np.bool_]) -> _Column:
        name = str(measure)
        values = self.values(name)
        rows = mask & ~np.isnan(values)
        evidence = self.evidence[name].of(rows) if name in self.evidence else NOTHING
        aggregate = number_of(measure)
        known = values[rows]
        return _Column(name, measure, rows, known, evidence, aggregate, aggregate(known, evidence))

    def _summary(self, column: _Column, intervals: Mapping[str, Interval]) -> Summary:
        name, rows, aggregate = column.name, column.rows, column.aggregate
        definition = column.measure.definition
        # The best that any ranking could reach on the gold of these queries.
        ceiling = definition.ceiling if isinstance(definition.ceiling, float | int) else None
        if definition.ceiling == "k" and isinstance(column.measure.k, int):
            ceiling = float(column.measure.k)
        elif definition.ceiling == "ideal" and name in self.ceilings:
            values, evidence = self.ceilings[name]
            facts = evidence.of(rows) if name in self.evidence else NOTHING
            ceiling = aggregate(values[rows], facts)
        ties = None
        if name in self.tied:
            low, high = (aggregate(side[rows], NOTHING) for side in self.tied[name])
            if low is not None and high is not None and low != high:
                ties = min(low, high), max(low, high)
        quantiles = None
        if len(column.known) and aggregate not in _OF_THE_SET:
            quantiles = aggregates.quartiles(column.known)
        return Summary(
            mean=column.number,
            n=len(column.known),
            better=definition.better,
            ci=intervals.get(name),
            ceiling=ceiling if len(column.known) else None,
            quantiles=quantiles,
            ties=ties,
            lacks=self.lacks.get(name),
        )

    def _of_percentile(self, column: _Column, share: float) -> Interval:
        """Order statistics; where queries belong to conversations, those are resampled."""
        conventions = self.conventions
        if self.groups is None:
            return percentile_interval(column.known, share, confidence=conventions.ci)
        groups = self.groups[column.rows]
        units = np.arange(len(np.unique(groups)), dtype=np.float64)
        if percentile_interval(units, share, confidence=conventions.ci) is None:
            return None
        drawn = resampled_percentiles(
            column.known[:, None],
            share,
            resamples=conventions.boot,
            seed=conventions.seed,
            groups=groups,
        )
        outside = 1 - conventions.ci
        low, high = np.quantile(drawn, [outside / 2, 1 - outside / 2]).tolist()
        return low, high

    def _of_keys(self, column: _Column) -> Interval:
        """A share of items: its items are what was drawn, or the queries if those are fewer."""
        total = column.evidence.total
        n = len(np.unique(column.evidence.key)) if total is None else total
        if column.number is None or n < 2 or len(column.known) < 2:
            return None
        independent = aggregates.independent_keys(column.evidence)
        successes = round(column.number * n)
        return share_interval(successes, n, independent, confidence=self.conventions.ci)

    def _of_means(self, columns: Sequence[_Column]) -> dict[str, Interval]:
        """Means, sums and geometric means of columns over the same queries, resampled together."""
        values, ranges = [], []
        for column in columns:
            # The logarithms of a geometric mean have no range.
            log = column.aggregate is aggregates.geometric_mean
            known = column.known
            values.append(np.log(np.maximum(known, aggregates.SMALLEST)) if log else known)
            ranges.append(None if log else self.range_of(column.measure, column.rows))
        groups = None if self.groups is None else self.groups[columns[0].rows]
        plan = plan_of(self.conventions)
        ends = mean_intervals(np.stack(values, axis=1), plan, ranges=ranges, groups=groups)
        intervals: dict[str, Interval] = {}
        for column, (low, high) in zip(columns, ends.tolist(), strict=True):
            if math.isnan(low):
                continue
            if column.aggregate is aggregates.geometric_mean:
                low, high = math.exp(low), math.exp(high)
            elif column.aggregate is aggregates.total:
                low, high = low * len(column.known), high * len(column.known)
            intervals[column.name] = low, high
        return intervals


@dataclass(frozen=True, eq=False)
class _Column:
    """One measure over some queries: the rows with a value, their values, and the number made."""

    name: str
    measure: Measure
    rows: NDArray[np.bool_]
    known: Values
    evidence: Evidence
    aggregate: Number
    number: float | None


def number_of(measure: Measure) -> Number:
    """Return what makes one number of the queries' values."""
    if measure.definition.cutoff != "path":
        return measure.definition.number
    if (share := percentile_of(measure)) is not None:
        return partial(aggregates.percentile, share=share)
    return aggregates.total if str(measure).endswith(".sum") else measure.definition.number


def percentile_of(measure: Measure) -> float | None:
    """Return the percentile that a latency reports, as a share; None for other measures."""
    ending = str(measure.arguments.get("path", "")).rpartition(".")[2]
    return _PERCENTILES.get(ending) if measure.name == "latency" else None


def plan_of(conventions: Conventions, confidence: float | None = None) -> Resampling:
    """Return how to resample under these conventions."""
    return Resampling(
        confidence=conventions.ci if confidence is None else confidence,
        resamples=conventions.boot,
        seed=conventions.seed,
        method="percentile" if conventions.interval == "percentile" else "gaffke",
    )


def has_interval(measure: Measure) -> bool:
    """Return whether a measure's number is an estimate, with an interval.

    A sum of counts is a fact about these queries.
    """
    return measure.definition.number is not aggregates.total
