"""What a measure makes of its values over many queries: a mean, a sum, a percentile, a share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from karat.measures import numbers
from karat.measures.names import Measure
from karat.measures.numbers import Evidence, Values

Number = Callable[[Values, Evidence], float | None]

_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def number_of(measure: Measure) -> Number:
    """What makes one number of the queries' values."""
    share = percentile_of(measure)
    if share is not None:
        return partial(_percentile, share)
    ending = str(measure.arguments.get("path", "")).rpartition(".")[2]
    return numbers.total if ending == "sum" else measure.definition.number


def percentile_of(measure: Measure) -> float | None:
    """The percentile that a latency reports, as a share; None for other measures."""
    ending = str(measure.arguments.get("path", "")).rpartition(".")[2]
    return _PERCENTILES.get(ending) if measure.name == "latency" else None


def _percentile(share: float, values: Values, evidence: Evidence) -> float | None:
    return numbers.percentile(values, share)
