"""The misses of a run: what was asked, the top that came back, and what should have."""

from __future__ import annotations

from typing import Any

import numpy as np

from karat.analysis.failures.case import ASSESSED
from karat.analysis.failures.gold_ranks import best_in
from karat.analysis.triage.gold_texts import gold_of
from karat.analysis.triage.lists import listed
from karat.measures.prepare import Prepared
from karat.measures.ranked import Ints
from karat.measures.results import Scores
from karat.tables import Queries

# Why there is no list, where the log gives no reason; an empty answer has none.
_UNANSWERED = {"failed": "the call failed", "missing": "the run has no answer to it"}


def misses_of(
    scores: Scores, gold: Prepared, queries: Queries | None, last: Ints
) -> list[dict[str, Any]]:
    """Every query whose gold is not empty and has none of it up to rank ``last``.

    They stand in the order of the score table, ``last`` is in that order too, and gold is
    listed best grade first. The run must have been scored with ``keep`` at least as deep.
    """
    assessed = scores.status.is_in(ASSESSED).to_numpy()
    rows: list[int] = np.flatnonzero(assessed & (best_in(scores, gold).rank > last)).tolist()
    if not rows:
        return []
    lists = listed(scores, gold, rows, int(last[rows].max()))
    relevant = gold_of(gold, rows, None)
    texts = _texts(scores, queries)
    errors = _told(scores, "error")
    misses = []
    for row in rows:
        query_id, status = gold.query_ids[row], scores.status[row]
        wanted = sorted(relevant[row], key=lambda item: (-item.grade, item.item_id))
        miss: dict[str, Any] = {
            "query": texts.get(query_id, query_id),
            "retrieved": [hit["item_id"] for hit in lists[row] if hit["rank"] <= last[row]],
            "relevant": [item.item_id for item in wanted],
        }
        if status in _UNANSWERED:
            miss["error"] = errors.get(query_id, _UNANSWERED[status])
        misses.append(miss)
    return misses


def _texts(scores: Scores, queries: Queries | None) -> dict[str, str]:
    """What each query asks, by its id: as the queries say it, else as the log does."""
    texts = _told(scores, "query")
    if queries is not None:
        asked = queries.frame.select("query_id", "text").iter_rows()
        texts |= {query_id: text for query_id, text in asked if text}
    return {query_id: text for query_id, text in texts.items() if text.strip()}


def _told(scores: Scores, name: str) -> dict[str, str]:
    """What the log says of each call under a name."""
    calls = scores.calls
    if calls is None or name not in calls.columns:
        return {}
    told = calls.select("query_id", name).iter_rows()
    return {query_id: str(value) for query_id, value in told if str(value or "").strip()}
