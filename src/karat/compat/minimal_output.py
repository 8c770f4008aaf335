"""What a minimal eval loop saves: ``metrics.json`` with its means, ``misses.json`` to look into."""

from __future__ import annotations

from typing import Any

import numpy as np

from karat.analysis.top_lists import assessed
from karat.analysis.triage import misses_of
from karat.data.tables import Corpus
from karat.errors import UsageError
from karat.measure.prepare import prepare
from karat.measure.scores import Scores
from karat.pages.serialize import dumps
from karat.reports.document import Report, System


def refuse_short(form: str, scores: Scores, corpus: Corpus | None = None) -> None:
    """Refuse a log with fewer hits per query than are measured, if its lists may go on.

    Only karat's own logs surely mean by k what is meant here. A shorter list was all there is.
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
    short = (scores.status == "scored").to_numpy() & full & (looked > requested)
    if short.any():
        row = int(np.argmax(np.where(short, looked, 0)))
        k, query_id = int(looked[row]), scores.table["query_id"][row]
        whose_k = "" if k == conventions.k else " (the k of the query)"
        raise UsageError(
            f"output {form}: {scores.system} was asked for {requested:,} hits per query, and "
            f"{query_id!r} is measured at {k:,}{whose_k}; set the system's k to {k:,} and search "
            f"again, or measure at {requested:,}: settings: {{k: {requested}}}, --set k={requested}"
        )


# What each key is the mean of, besides recall_at_k.
_MEANS = {"hit_rate": "Hit@k", "precision_at_k": "P@k", "mrr": "RR@k"}


def to_metrics(report: Report) -> bytes:
    """Return the means of one system as JSON, the two keys of the loop's own script first."""
    (system,) = report.systems
    refuse_short("minimal", system.scores, report.tables and report.tables.corpus)
    return dumps(metrics_of(system), sort_keys=False)


def metrics_of(system: System) -> dict[str, Any]:
    """Return the means and their counts; ``recall_at_k`` is the share of relevant chunks found.

    None means not measured, or for k that queries have different ones. A
    failed call counts as nothing found and is counted; where every call failed, nothing was
    measured.
    """
    scores, counts = system.scores, system.scores.counts
    cutoffs = np.array([scores.conventions.k])
    if scores.trace is not None:
        cutoffs = np.unique(scores.trace.ranked.target.own_k)
    with_gold = assessed(scores)
    means = {name: system.summaries[name].mean for name in ("R@k", *_MEANS.values())}
    if counts.failed_calls and not counts.scored:
        means = dict.fromkeys(means)
    return {
        "recall_at_k": means["R@k"],
        "k": int(cutoffs[0]) if len(cutoffs) == 1 else None,
        **{key: means[name] for key, name in _MEANS.items()},
        "n": system.summaries["R@k"].n,
        # With the queries that have gold but no answer.
        "n_misses": int((with_gold & ~(scores.values("Hit@k") > 0)).sum()),
        "n_failed": counts.failed_calls,
        "n_out_of_kb": counts.no_answer + counts.empty_gold,
    }


def to_misses(report: Report) -> bytes:
    """Return every query of one system with gold and none of it in its top k, as JSON."""
    scores, tables = report.systems[0].scores, report.tables
    if tables is None:
        raise UsageError("misses are listed beside their gold; build the report from the tables")
    refuse_short("misses", scores, tables.corpus)
    gold = prepare(tables.gold, scores.conventions, queries=tables.queries, corpus=tables.corpus)
    return dumps(misses_of(scores, gold, tables.queries, gold.own_k), sort_keys=False)
