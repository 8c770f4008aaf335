"""The rows of a view: one query after the other, column by column, for a table of all."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.failures import CLASSES
from karat.analysis.failures.gold_ranks import best_in
from karat.data.tables import Queries
from karat.evaluation.segments import By, segments_by
from karat.evaluation.stages import KEEP
from karat.measures.ranked import Ints
from karat.report.document import Report, System

# Everything that steers a device instead of being read, except tab and line feed.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def readable(text: str) -> str:
    r"""Return a text with line feeds as line ends, and a mark for characters that cannot be shown.

    >>> readable("a\r\nb\x07")
    'a\nb�'
    """
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


STATUSES = ("scored", "missing", "failed", "no_answer", "empty_gold")


@dataclass(frozen=True, eq=False)
class ReportQueries:
    """The queries of a report in the order of its score tables, each with its own k."""

    ids: Sequence[str]
    texts: Sequence[str | None]
    own_k: Ints
    gold: Sequence[int]
    queries: Queries | None

    @classmethod
    def of(cls, report: Report) -> ReportQueries:
        """Return the queries of a report."""
        first = report.systems[0].scores
        ids = first.table["query_id"].to_list()
        queries = None if report.tables is None else report.tables.queries
        staged = next(
            (system.staged for system in report.systems if system.staged is not None), None
        )
        if staged is None:
            own_k, gold = np.full(len(ids), first.conventions.k), [0] * len(ids)
        else:
            own_k = staged.gold.own_k
            everyone = staged.gold.target(np.arange(len(ids)))
            gold = everyone.relevant(staged.gold.conventions.rel).astype(int).tolist()
        return cls(ids, texts_of(report.systems, queries, ids), own_k, gold, queries)


@dataclass(frozen=True, slots=True)
class Unjudged:
    """The number of items in the top k, and how many of them are unjudged."""

    hits: int
    unjudged: int

    def document(self) -> dict[str, int]:
        """Return both counts."""
        return asdict(self)


def texts_of(
    systems: Sequence[System], queries: Queries | None, ids: Sequence[str]
) -> list[str | None]:
    """Return the text of each query: from the queries, else from a log."""
    texts: dict[str, str] = {}
    for system in reversed(systems):
        calls = system.scores.calls
        if calls is not None and "query" in calls.columns:
            texts |= dict(calls.select("query_id", "query").drop_nulls().iter_rows())
    if queries is not None:
        texts |= dict(queries.frame.select("query_id", "text").drop_nulls().iter_rows())
    in_order = (texts.get(query_id) for query_id in ids)
    return [readable(text) if isinstance(text, str) and text.strip() else None for text in in_order]


def rows_of(systems: Sequence[System], queries: ReportQueries) -> dict[str, Any]:
    """Return every column of the query table; those of systems are lists in their order."""
    names = dict.fromkeys(str(measure) for system in systems for measure in system.scores.measures)
    return {
        "query_id": list(queries.ids),
        "text": list(queries.texts),
        "gold": list(queries.gold),
        "status": [_statuses(system) for system in systems],
        "values": {name: [_values(system, name) for system in systems] for name in names},
        "rank": [_ranks(system) for system in systems],
        "class": [_classes(system) for system in systems],
        "unjudged": [_unjudged(system, queries)[1].tolist() for system in systems],
        "different": _different(systems, queries),
        "segments": segments_of(systems, queries),
    }


def segments_of(systems: Sequence[System], queries: ReportQueries) -> dict[str, Any]:
    """Return the segments of each query, for every column that the report is split by."""
    columns = dict.fromkeys(name for system in systems for name in system.segments)
    ids = pl.Series("query_id", queries.ids, dtype=pl.String)
    columns_of: dict[str, Any] = {}
    for column in columns:
        segments = list(segments_by(ids, queries.queries, By.parse(column)))
        membership: list[list[int]] = [[] for _ in queries.ids]
        for number, segment in enumerate(segments):
            for row in np.flatnonzero(segment.mask).tolist():
                membership[row].append(number)
        columns_of[column] = {"names": [segment.name for segment in segments], "of": membership}
    return columns_of


def unjudged_of(system: System, queries: ReportQueries) -> Unjudged:
    """Return how many items in the top k of scored queries are unjudged."""
    hits, unjudged = _unjudged(system, queries)
    scored = (system.scores.status == "scored").to_numpy()
    return Unjudged(int(hits[scored].sum()), int(unjudged[scored].sum()))


def _statuses(system: System) -> list[int]:
    places = {status: at for at, status in enumerate(STATUSES)}
    return [places[status] for status in system.scores.status.to_list()]


def _values(system: System, name: str) -> list[float | None]:
    table = system.scores.table
    if name not in table.columns:
        return [None] * table.height
    return table[name].fill_nan(None).to_list()


def _ranks(system: System) -> list[int | None]:
    """Return the rank of the first relevant item in the final list."""
    if system.staged is None:
        return [None] * system.scores.table.height
    ranks = best_in(system.staged.final, system.staged.gold).rank
    return [int(rank) if np.isfinite(rank) else None for rank in ranks.tolist()]


def _classes(system: System) -> list[int]:
    classes = np.full(system.scores.table.height, -1)
    if system.failures is not None:
        for miss in system.failures.queries:
            classes[miss.row] = CLASSES.index(miss.kind)
    return classes.tolist()


def _unjudged(system: System, queries: ReportQueries) -> tuple[Ints, Ints]:
    """Return for each query the number of items in its top k, and of unjudged ones."""
    n = len(queries.ids)
    if system.staged is None or system.scores.trace is None:
        return np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    ranked = system.scores.trace.ranked
    hits = np.minimum(ranked.returned, queries.own_k)
    within = ranked.hits.rank <= queries.own_k[ranked.hits.query]
    # An item that holds several spans is judged once for each of them.
    places = np.stack((ranked.hits.query[within], ranked.hits.rank[within]))
    judged = np.bincount(np.unique(places, axis=1)[0], minlength=n)
    return hits, hits - judged - ranked.repeated("k").astype(np.int64)


def _different(systems: Sequence[System], queries: ReportQueries) -> list[int]:
    """Return for each query whether the top lists of the systems differ."""
    tops = [_tops(system, queries) for system in systems if system.scores.lists is not None]
    if len(tops) < 2:
        return [0] * len(queries.ids)
    first, *others = tops
    return [
        int(any(first.get(row) != other.get(row) for other in others))
        for row in range(len(queries.ids))
    ]


def _tops(system: System, queries: ReportQueries) -> Mapping[int, list[str]]:
    """Return the top items of each query's list, as far as lists were kept."""
    lists = system.scores.lists
    if lists is None:
        return {}
    last = pl.Series("last", np.minimum(queries.own_k, KEEP))
    top = lists.select("row", "rank", "item_id").sort("row", "rank")
    top = top.filter(top["rank"] <= last.gather(top["row"]))
    grouped = top.group_by("row", maintain_order=True).agg("item_id")
    return dict(grouped.iter_rows())


def by_priority(rows: Mapping[str, Any], primary: str, report: Report) -> Ints:
    """Return the queries by priority: misses first, then by how much systems differ.

    Among equals their order in the table decides.
    """
    misses = (np.array(rows["class"]) >= 0).any(axis=0)
    values = np.array(rows["values"][primary], dtype=np.float64)
    spread = _spread(values) if len(report.systems) > 1 else np.zeros(misses.shape)
    return np.lexsort((-spread, ~misses))


def _spread(values: Any) -> Any:
    spread = values.max(axis=0) - values.min(axis=0)
    return np.where(np.isnan(spread), 0.0, spread)


def first_of(worth: Ints, n: int) -> Sequence[int]:
    """Return the n queries of highest priority, in the order of the table."""
    return sorted(worth[:n].tolist())
