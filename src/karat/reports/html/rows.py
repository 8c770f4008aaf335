"""The rows of a view: one query after the other, column by column, for a table of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.failures.classes import CLASSES
from karat.analysis.failures.gold_ranks import best_in
from karat.analysis.segments import By, segments_by
from karat.analysis.staged import KEEP
from karat.measures.ranked import Ints
from karat.reports.document import Report, System
from karat.reports.html.shown import shown
from karat.tables import Queries

STATUSES = ("scored", "missing", "failed", "no_answer", "empty_gold")


@dataclass(frozen=True, eq=False)
class Asked:
    """The queries of a report in the order of its score tables, each with its own k."""

    ids: Sequence[str]
    texts: Sequence[str | None]
    own_k: Ints
    gold: Sequence[int]
    queries: Queries | None

    @classmethod
    def of(cls, report: Report) -> Asked:
        """Those of a report."""
        first = report.systems[0].scores
        ids = first.table["query_id"].to_list()
        queries = None if report.tables is None else report.tables.queries
        staged = next((one.staged for one in report.systems if one.staged is not None), None)
        if staged is None:
            own_k, gold = np.full(len(ids), first.conventions.k), [0] * len(ids)
        else:
            own_k = staged.gold.own_k
            everyone = staged.gold.target(np.arange(len(ids)))
            gold = everyone.relevant(staged.gold.conventions.rel).astype(int).tolist()
        return cls(ids, texts_of(report.systems, queries, ids), own_k, gold, queries)


@dataclass(frozen=True, slots=True)
class Unjudged:
    """How many of the items in every top k nobody has judged."""

    hits: int
    unjudged: int

    def document(self) -> dict[str, int]:
        """The two counts."""
        return asdict(self)


def texts_of(
    systems: Sequence[System], queries: Queries | None, ids: Sequence[str]
) -> list[str | None]:
    """What each query asks: as the queries say it, else as a log does."""
    texts: dict[str, str] = {}
    for system in reversed(systems):
        calls = system.scores.calls
        if calls is not None and "query" in calls.columns:
            texts |= dict(calls.select("query_id", "query").drop_nulls().iter_rows())
    if queries is not None:
        texts |= dict(queries.frame.select("query_id", "text").drop_nulls().iter_rows())
    found = (texts.get(query_id) for query_id in ids)
    return [shown(text) if isinstance(text, str) and text.strip() else None for text in found]


def rows_of(systems: Sequence[System], asked: Asked) -> dict[str, Any]:
    """Every column of the table, those of systems in their order."""
    names = dict.fromkeys(str(one) for system in systems for one in system.scores.measures)
    return {
        "query_id": list(asked.ids),
        "text": list(asked.texts),
        "gold": list(asked.gold),
        "status": [_statuses(system) for system in systems],
        "values": {name: [_values(system, name) for system in systems] for name in names},
        "rank": [_ranks(system) for system in systems],
        "class": [_classes(system) for system in systems],
        "unjudged": [_unjudged(system, asked)[1].tolist() for system in systems],
        "different": _different(systems, asked),
        "segments": segments_of(systems, asked),
    }


def segments_of(systems: Sequence[System], asked: Asked) -> dict[str, Any]:
    """Which segments each query is in, for every column that the report is split by."""
    columns = dict.fromkeys(name for system in systems for name in system.segments)
    ids = pl.Series("query_id", asked.ids, dtype=pl.String)
    found: dict[str, Any] = {}
    for column in columns:
        segments = list(segments_by(ids, asked.queries, By.parse(column)))
        of: list[list[int]] = [[] for _ in asked.ids]
        for number, segment in enumerate(segments):
            for row in np.flatnonzero(segment.mask).tolist():
                of[row].append(number)
        found[column] = {"names": [segment.name for segment in segments], "of": of}
    return found


def unjudged_of(system: System, asked: Asked) -> Unjudged:
    """The items in the top k of every query that is scored, and how many nobody judged."""
    hits, unjudged = _unjudged(system, asked)
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
    """Where the best-placed gold stands in the final list."""
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


def _unjudged(system: System, asked: Asked) -> tuple[Ints, Ints]:
    """For each query how many items its top k has, and how many of them nobody judged."""
    n = len(asked.ids)
    if system.staged is None or system.scores.trace is None:
        return np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    ranked = system.scores.trace.ranked
    hits = np.minimum(ranked.returned, asked.own_k)
    within = ranked.hits.rank <= asked.own_k[ranked.hits.query]
    # An item that holds several spans is judged once for each of them.
    places = np.stack((ranked.hits.query[within], ranked.hits.rank[within]))
    judged = np.bincount(np.unique(places, axis=1)[0], minlength=n)
    return hits, hits - judged - ranked.repeated("k").astype(np.int64)


def _different(systems: Sequence[System], asked: Asked) -> list[int]:
    """Whether the tops of the systems are different lists; of one system they are not."""
    tops = [_tops(system, asked) for system in systems if system.scores.lists is not None]
    if len(tops) < 2:
        return [0] * len(asked.ids)
    first, *others = tops
    return [
        int(any(first.get(row) != other.get(row) for other in others))
        for row in range(len(asked.ids))
    ]


def _tops(system: System, asked: Asked) -> Mapping[int, list[str]]:
    """The items at the top of each query's list, as far as lists were kept."""
    lists = system.scores.lists
    if lists is None:
        return {}
    last = pl.Series("last", np.minimum(asked.own_k, KEEP))
    top = lists.select("row", "rank", "item_id").sort("row", "rank")
    top = top.filter(top["rank"] <= last.gather(top["row"]))
    grouped = top.group_by("row", maintain_order=True).agg("item_id")
    return dict(grouped.iter_rows())
