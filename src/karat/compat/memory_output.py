"""One system in the reporting format of a memory system: its keys, in its order.

What a run does not tell, such as the similarity of its hits, is null there and never 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.failures import FIVE
from karat.data.tables import Queries
from karat.errors import UsageError
from karat.formats.memory import EDGE_CASES, category_of
from karat.measure.names import parse_measure
from karat.measure.scores import Scores
from karat.reports.document import Report, System

METRICS: Mapping[str, str] = {
    "recall_at_1": "Hit@1",
    "recall_at_3": "Hit@3",
    "recall_at_5": "Hit@5",
    "recall_at_10": "Hit@10",
    "mrr": "RR",
    "ndcg_at_10": "nDCG@10",
    "precision_at_5": "P@5",
    "mean_similarity": "Sim@10",
    "fpr_at_1": "FPR@1",
    "latency_p50_ms": "latency.total.p50",
    "latency_p95_ms": "latency.total.p95",
    "coverage": "Coverage(of='items')@10",
}
CATEGORIES = ("direct", "paraphrased", "technical", "casual", "implicit", EDGE_CASES)
_BY_CATEGORY = ("recall_at_1", "mrr")
_SPELLED = {
    **dict.fromkeys(("edge", "edge_short", "edge_long"), EDGE_CASES),
    "paraphrase": "paraphrased",
}


def to_memory(report: Report) -> bytes:
    """Return the report on its one system; same inputs, same bytes."""
    text = json.dumps(memory_document(report), indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def memory_document(report: Report) -> dict[str, Any]:
    """Return the report on its one system as plain data."""
    (system,) = report.systems
    queries = memories = None
    if report.tables is not None:
        queries, corpus = report.tables.queries, report.tables.corpus
        gold = report.tables.gold.frame["item_id"]
        memories = gold.n_unique() if corpus is None else corpus.frame.height
    return {
        "timestamp": report.timestamp,
        "configuration": system.logged_as or system.name,
        "total_queries": system.summaries[METRICS["recall_at_1"]].n,
        "total_memories": memories,
        "metrics": {key: _mean(system, name) for key, name in METRICS.items()},
        "failures_by_category": _failures(system),
        "query_category_breakdown": _breakdown(system.scores, queries),
    }


def _mean(system: System, name: str) -> float | None:
    summary = system.summaries.get(name)
    if summary is None:
        raise UsageError(
            f"output memory: needs {name}, which was not scored; score by the measures of the "
            "profile memory"
        )
    value = summary.mean
    return None if value is None or math.isnan(value) else value


def _failures(system: System) -> dict[str, int | None]:
    """Return the queries in each of the five categories; null if the run was not diagnosed.

    A category is null, not 0, if none of its classes could be checked.
    """
    failures = system.diagnostics.get("failures", {})
    counts, unchecked = failures.get("failures_by_category", {}), failures.get("unchecked", {})
    unknown = {name for name, kinds in FIVE.items() if unchecked.keys() >= set(kinds)}
    return {
        name: counts.get(name) or (None if name in unknown else counts.get(name)) for name in FIVE
    }


def _breakdown(scores: Scores, queries: Queries | None) -> dict[str, dict[str, float | None]]:
    """Return the six categories first, then the others of the queries, by name."""
    masks = {name: np.zeros(scores.table.height, dtype=np.bool_) for name in CATEGORIES}
    known = {} if queries is None else _categories(queries)
    for row, query_id in enumerate(scores.table["query_id"].to_list()):
        for name in known.get(query_id, ()):
            masks.setdefault(name, np.zeros(scores.table.height, dtype=np.bool_))[row] = True
    others = sorted(name for name in masks if name not in CATEGORIES)
    return {
        name: {key: scores.number(parse_measure(METRICS[key]), masks[name]) for key in _BY_CATEGORY}
        for name in (*CATEGORIES, *others)
    }


def _categories(queries: Queries) -> dict[str, list[str]]:
    """Return the categories of each query: none, one, or several."""
    frame = queries.frame
    if "category" not in frame.columns:
        frame = frame.with_columns(category=pl.lit(None, dtype=pl.String))
    categories = {}
    for query_id, text, labels in frame.select("query_id", "text", "category").iter_rows():
        names = category_of(text or "", None if labels == [] else labels)
        several = names if isinstance(names, list) else [names]
        spelled = (_SPELLED.get(str(name), str(name)) for name in several if name is not None)
        categories[query_id] = list(spelled)
    return categories
