"""Which queries are worth most room: those that a reader opens first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from karat.measures.ranked import Ints
from karat.reports.document import Report


def worth_of(rows: Mapping[str, Any], primary: str, report: Report) -> Ints:
    """The numbers of all queries: first those that miss, then by how far systems are apart.

    Among equals their order in the table decides.
    """
    misses = (np.array(rows["class"]) >= 0).any(axis=0)
    values = np.array(rows["values"][primary], dtype=np.float64)
    apart = _apart(values) if len(report.systems) > 1 else np.zeros(misses.shape)
    return np.lexsort((-apart, ~misses))


def _apart(values: Any) -> Any:
    """How far the systems are apart on each query; nothing where one was not measured."""
    spread = values.max(axis=0) - values.min(axis=0)
    return np.where(np.isnan(spread), 0.0, spread)


def first(worth: Ints, n: int) -> Sequence[int]:
    """The numbers of the n queries that are worth most, in the order of the table."""
    return sorted(worth[:n].tolist())
