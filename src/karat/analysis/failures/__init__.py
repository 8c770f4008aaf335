"""Why queries miss: classes with their evidence, and the loss from the ceiling to the value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from karat.analysis.failures.case import Case
from karat.analysis.failures.gold_ranks import ranked_of
from karat.analysis.failures.rules import CLASSES, UNANSWERED, classes_of, evidence_of, unchecked
from karat.data.tables import Queries
from karat.evaluation.stages import Staged
from karat.evaluation.thresholds import Thresholds

__all__ = ["CLASSES", "FIVE", "LISTED", "NOT_COUNTED", "Failure", "Failures", "classify"]

# The five categories that others report, and what of ours each of them holds.
FIVE: Mapping[str, tuple[str, ...]] = {
    "complete_miss": ("complete_miss", "not_in_index", "routed_away", "rewritten_away"),
    "low_rank": ("low_rank", "rerank_demotion", "cut_by_k"),
    "false_positive_dominance": ("false_positive_dominance",),
    "threshold_exclusion": ("threshold_exclusion", "freshness_filtered", "filtered_out"),
    "embedding_mismatch": ("embedding_mismatch",),
}
BEYOND = "beyond_depth"
NOT_COUNTED = (*UNANSWERED, BEYOND)
# Where gold below the end of the lists would belong, if one could see it.
NEED_DEPTH = ("complete_miss", "embedding_mismatch", "false_positive_dominance", "low_rank")
# So many misses a document lists with their gold; it says how many more there are.
LISTED = 1_000
_MOST = 20


@dataclass(frozen=True, slots=True)
class Failure:
    """A query that misses: its row in the score table, its class, and what puts it there."""

    query_id: str
    row: int
    kind: str
    because: str
    evidence: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the miss as plain data."""
        return {
            "query_id": self.query_id,
            "class": self.kind,
            "because": self.because,
            "evidence": dict(self.evidence),
        }


@dataclass(frozen=True, eq=False)
class Failures:
    """Every query that misses, in the order of the score table.

    ``assessed`` counts the queries whose gold is not empty. ``dominant`` are the items that
    crowd out the gold of many queries, with the number of these. ``unchecked`` says of a class
    what would have been needed to tell it. ``miss_at`` is the rank up to which gold is looked
    for; where lists were cut before the one wanted, it is where they end, ``ends_at``. ``gold``
    holds what the first ``LISTED``
    misses should have found, best grade first.
    """

    queries: tuple[Failure, ...]
    assessed: int
    thresholds: Thresholds
    dominant: tuple[tuple[str, int], ...] = ()
    unchecked: Mapping[str, str] = field(default_factory=dict)
    miss_at: int = 0
    ends_at: int | None = None
    gold: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def misses(self) -> int:
        """How many queries miss."""
        return len(self.queries)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """How many queries are in each class; what only lists that were cut leave open, if any."""
        kinds = [query.kind for query in self.queries]
        counts = {name: kinds.count(name) for name in CLASSES}
        return {name: n for name, n in counts.items() if n or name != BEYOND}

    @cached_property
    def by_query(self) -> Mapping[str, Failure]:
        """Each miss by its query's id."""
        return {query.query_id: query for query in self.queries}

    def to_dict(self, *, queries: bool = True) -> dict[str, Any]:
        """Return the failures as plain data, with or without every query."""
        found: dict[str, Any] = {
            "assessed": self.assessed,
            "misses": self.misses,
            "miss_at": self.miss_at,
            "ends_at": self.ends_at,
            "classes": told_of(self.counts),
            "failures_by_category": {name: self._sum(kinds) for name, kinds in FIVE.items()},
            "not_counted": {name: n for name, n in self.counts.items() if name in NOT_COUNTED},
            "missed": [
                {
                    "query_id": query.query_id,
                    "class": query.kind,
                    "gold": list(self.gold[query.query_id]),
                }
                for query in self.queries[:LISTED]
            ],
            "missed_left_out": max(self.misses - LISTED, 0),
            "dominant": [{"item_id": item, "queries": n} for item, n in self.dominant],
            "unchecked": dict(self.unchecked),
            "lines": self.thresholds.document(),
        }
        if queries:
            found["queries"] = [query.to_dict() for query in self.queries]
        return found

    def _sum(self, kinds: Sequence[str]) -> int | None:
        told = told_of(self.counts)
        known = [n for n in (told[kind] for kind in kinds) if n is not None]
        return sum(known) if len(known) == len(kinds) else None


def told_of(counts: Mapping[str, int]) -> dict[str, int | None]:
    """Return the counts by class, None for those that longer lists could change.

    >>> told_of({"beyond_depth": 3, "low_rank": 0, "cut_by_k": 1})
    {'beyond_depth': 3, 'low_rank': None, 'cut_by_k': 1}
    """
    untold = NEED_DEPTH if counts.get(BEYOND) else ()
    return {name: None if name in untold else n for name, n in counts.items()}


def classify(staged: Staged, queries: Queries | None, *, thresholds: Thresholds) -> Failures:
    """Find out why each query without gold in the top ``thresholds.miss`` has none.

    The run must have been scored with ``keep`` at least ``thresholds.miss`` for all classes to be
    told. ``queries`` brings the right source and the least similarity of each query. Where the
    final lists were cut before that rank, queries without gold up to there miss.
    """
    ranked_of(staged.final)  # raises UsageError if only means were stored
    ends_at = staged.ends_above(thresholds.miss)
    miss_at = thresholds.miss if ends_at is None else ends_at
    case = Case(staged, queries, replace(thresholds, miss=miss_at))
    kinds = classes_of(case)
    found: list[Failure] = []
    for at, name in enumerate(CLASSES):
        rows: list[int] = np.flatnonzero(kinds == at).tolist()
        if rows:
            told = evidence_of(case, name, rows)
            for row, (facts, because) in zip(rows, told, strict=True):
                found.append(Failure(staged.gold.query_ids[row], row, name, because, facts))
    items = () if case.dominance is None else case.dominance.items.head(_MOST).rows()
    found.sort(key=lambda one: one.row)
    return Failures(
        tuple(found),
        assessed=int(case.assessed.sum()),
        thresholds=thresholds,
        dominant=tuple((item, n) for item, n in items),
        unchecked=unchecked(case),
        miss_at=miss_at,
        ends_at=ends_at,
        gold=_gold_of(staged, found[:LISTED]),
    )


def _gold_of(staged: Staged, misses: Sequence[Failure]) -> dict[str, list[str]]:
    """Return the ids of the relevant gold of each miss; of a span also its place."""
    gold = staged.gold
    rows, place = gold.rows_of(np.array([miss.row for miss in misses], dtype=np.int64))
    relevant = gold.grade[rows] >= gold.conventions.rel
    rows, place = rows[relevant], place[relevant]
    spans = gold.conventions.level == "span"
    found: dict[str, list[str]] = {miss.query_id: [] for miss in misses}
    for at, judged in zip(place.tolist(), gold.rows[rows].iter_rows(named=True), strict=True):
        name = "{item_id}:{start}-{end}" if spans else "{item_id}"
        found[misses[at].query_id].append(name.format(**judged))
    return found
