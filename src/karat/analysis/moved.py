"""The queries that a change moved most, up and down."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from karat.analysis.comparison import NO_DIFFERENCE, Pair
from karat.tables import Queries

MOST = 5


@dataclass(frozen=True, slots=True)
class Moved:
    """One query that a system answers better or worse than its baseline."""

    baseline: str
    system: str
    measure: str
    query_id: str
    text: str | None
    baseline_value: float
    system_value: float
    change: str

    def document(self) -> dict[str, Any]:
        """The query as it stands in a report."""
        return asdict(self)


def moved_most(pair: Pair, measure: str, queries: Queries | None) -> list[Moved]:
    """The queries with the largest gains, then those with the largest losses."""
    a, b = pair.values(measure)
    scores = pair.scores[0]
    lower = next(m for m in scores.measures if str(m) == measure).definition.better == "lower"
    gain = np.nan_to_num(a - b if lower else b - a)
    up, down = (np.argsort(side, kind="stable")[:MOST] for side in (-gain, gain))
    best = [at for at in up if gain[at] > NO_DIFFERENCE]
    worst = [at for at in down if gain[at] < -NO_DIFFERENCE]
    ids = scores.table["query_id"]
    texts = {} if queries is None else dict(queries.frame.select("query_id", "text").iter_rows())
    return [
        Moved(
            *pair.names,
            measure=measure,
            query_id=ids[int(at)],
            text=texts.get(ids[int(at)]),
            baseline_value=float(a[at]),
            system_value=float(b[at]),
            change="better" if gain[at] > 0 else "worse",
        )
        for at in (*best, *worst)
    ]
