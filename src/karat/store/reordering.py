"""Stored scores in the order of others: files whose lines were moved hold the same queries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.measures.numbers import Evidence
from karat.measures.results import Scores

Places = NDArray[np.int64]


def in_order_of(scores: Scores, other: Scores) -> Scores:
    """The same scores, query by query as in other ones; unchanged unless both have the same."""
    old, new = scores.table["query_id"].to_list(), other.table["query_id"].to_list()
    places = {query_id: place for place, query_id in enumerate(old)}
    if old == new or places.keys() != set(new):
        return scores
    came_from = np.array([places[query_id] for query_id in new], dtype=np.int64)
    goes_to = np.argsort(came_from)
    return replace(
        scores,
        table=scores.table[came_from],
        status=scores.status[came_from],
        ceilings={
            name: (values[came_from], _moved(evidence, goes_to))
            for name, (values, evidence) in scores.ceilings.items()
        },
        tied={name: (low[came_from], high[came_from]) for name, (low, high) in scores.tied.items()},
        evidence={name: _moved(one, goes_to) for name, one in scores.evidence.items()},
        groups=None if scores.groups is None else _renumbered(scores.groups[came_from]),
        lists=None if scores.lists is None else _relisted(scores.lists, goes_to),
    )


def _moved(evidence: Evidence, goes_to: Places) -> Evidence:
    return Evidence(goes_to[evidence.query], evidence.key, evidence.value, evidence.total)


def _renumbered(groups: Places) -> Places:
    """Conversations get their numbers as they are met."""
    numbers: dict[int, int] = {}
    return np.array([numbers.setdefault(one, len(numbers)) for one in groups.tolist()])


def _relisted(lists: pl.DataFrame, goes_to: Places) -> pl.DataFrame:
    rows = pl.Series("row", goes_to[lists["row"].to_numpy()], dtype=lists["row"].dtype)
    return lists.with_columns(rows).sort("row", "rank")
