"""Reports in the formats of a memory system and of a minimal eval loop: their keys, in their order.

Facts that a run lacks, such as the similarity of its hits, are null and never 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.failures import FIVE
from karat.analysis.triage import misses_of
from karat.data.tables import Corpus, Queries
from karat.errors import UsageError
from karat.evaluation.top_lists import assessed
from karat.formats.memory import EDGE_CASES, category_of
from karat.measure.names import parse_measure
from karat.measure.prepare import prepare
from karat.measure.scores import Scores
from karat.pages.serialize import dumps
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
    return dumps(memory_document(report), sort_keys=False)


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
    """Return the queries in each of five categories; null where no class could be checked."""
    failures = system.diagnostics.get("failures", {})
    counts, unchecked = failures.get("failures_by_category", {}), failures.get("unchecked", {})
    unknown = {name for name, kinds in FIVE.items() if unchecked.keys() >= set(kinds)}
    return {
        name: counts.get(name) or (None if name in unknown else counts.get(name)) for name in FIVE
    }


def _breakdown(scores: Scores, queries: Queries | None) -> dict[str, dict[str, float | None]]:
    """Return the six categories first, then the others of the queries, by name."""
    masks = {name: np.zeros(len(scores.query_ids), dtype=np.bool_) for name in CATEGORIES}
    categories_of = {} if queries is None else _categories(queries)
    for row, query_id in enumerate(scores.query_ids):
        for name in categories_of.get(query_id, ()):
            masks.setdefault(name, np.zeros(len(scores.query_ids), dtype=np.bool_))[row] = True
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


def refuse_short(form: str, scores: Scores, corpus: Corpus | None = None) -> None:
    """Refuse a log with fewer hits per query than are measured, if its lists may go on.

    Only karat's own logs use k in this sense. In other runs a shorter list is complete.
    """
    requested = scores.meta.get("k")
    if not isinstance(requested, int) or "run_digest" not in scores.meta or scores.trace is None:
        return
    if corpus is not None and corpus.frame.height <= requested:
        return
    ranked, conventions = scores.trace.ranked, scores.conventions
    looked = np.minimum(ranked.target.own_k, conventions.depth or ranked.target.own_k)
    # A repeat that was dropped took a place of what was asked for.
    dropped = scores.counts.repeats if conventions.repeats == "drop" else 0
    full = ranked.returned + dropped >= requested
    short = (scores.status == "scored") & full & (looked > requested)
    if short.any():
        row = int(np.argmax(np.where(short, looked, 0)))
        k, query_id = int(looked[row]), scores.query_ids[row]
        whose_k = "" if k == conventions.k else " (the k of the query)"
        raise UsageError(
            f"output {form}: {scores.system} was asked for {requested:,} hits per query, and "
            f"{query_id!r} is measured at {k:,}{whose_k}; set the system's k to {k:,} and search "
            f"again, or measure at {requested:,}: settings: {{k: {requested}}}, --set k={requested}"
        )


# What each key is the mean of, besides recall_at_k.
_MEANS = {"hit_rate": "Hit@k", "precision_at_k": "P@k", "mrr": "RR@k"}


def to_metrics(report: Report) -> bytes:
    """Return the means of one system and their counts as JSON, first those of the loop's script.

    ``recall_at_k`` is the share of relevant chunks found. null means not measured, or for k that
    queries have different ones. A failed call counts as nothing found and is counted; where every
    call failed, nothing was measured.
    """
    (system,) = report.systems
    refuse_short("minimal", system.scores, report.tables and report.tables.corpus)
    scores, counts = system.scores, system.scores.counts
    cutoffs = np.array([scores.conventions.k])
    if scores.trace is not None:
        cutoffs = np.unique(scores.trace.ranked.target.own_k)
    with_gold = assessed(scores)
    means = {name: system.summaries[name].mean for name in ("R@k", *_MEANS.values())}
    if counts.failed_calls and not counts.scored:
        means = dict.fromkeys(means)
    metrics = {
        "recall_at_k": means["R@k"],
        "k": int(cutoffs[0]) if len(cutoffs) == 1 else None,
        **{key: means[name] for key, name in _MEANS.items()},
        "n": system.summaries["R@k"].n,
        # With the queries that have gold but no answer.
        "n_misses": int((with_gold & ~(scores.values("Hit@k") > 0)).sum()),
        "n_failed": counts.failed_calls,
        "n_out_of_kb": counts.no_answer + counts.empty_gold,
    }
    return dumps(metrics, sort_keys=False)


def to_misses(report: Report) -> bytes:
    """Return every query of one system with gold and none of it in its top k, as JSON."""
    scores, tables = report.systems[0].scores, report.tables
    if tables is None:
        raise UsageError("misses are listed beside their gold; build the report from the tables")
    refuse_short("misses", scores, tables.corpus)
    gold = prepare(tables.gold, scores.conventions, queries=tables.queries, corpus=tables.corpus)
    return dumps(misses_of(scores, gold, tables.queries, gold.own_k), sort_keys=False)
