"""What a minimal eval loop saves: ``metrics.json`` with its means, ``misses.json`` to look into."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from karat.analysis.failures.case import ASSESSED
from karat.analysis.triage.misses import misses_of
from karat.errors import UsageError
from karat.measures.prepare import prepare
from karat.measures.scores import Scores
from karat.reports.document import Report, System
from karat.reports.short_lists import refuse_short

# What each key is the mean of, besides recall_at_k.
_MEANS = {"hit_rate": "Hit@k", "precision_at_k": "P@k", "mrr": "RR@k"}


def to_metrics(report: Report) -> bytes:
    """The means of one system as JSON, the two keys of the loop's own script first."""
    (system,) = report.systems
    refuse_short("minimal", system.scores, report.tables and report.tables.corpus)
    return _dumps(metrics_of(system))


def metrics_of(system: System) -> dict[str, Any]:
    """The means, and what they are over: ``recall_at_k`` is the share of relevant chunks found.

    None stands for what could not be measured, and for k where queries have different ones. A
    failed call counts as nothing found and is counted; where every call failed, nothing was
    measured.
    """
    counts = system.scores.counts
    means = {name: system.summaries[name].mean for name in ("R@k", *_MEANS.values())}
    if counts.failed_calls and not counts.scored:
        means = dict.fromkeys(means)
    return {
        "recall_at_k": means["R@k"],
        "k": _k_of(system.scores),
        **{key: means[name] for key, name in _MEANS.items()},
        "n": system.summaries["R@k"].n,
        "n_misses": _misses_in(system.scores),
        "n_failed": counts.failed_calls,
        "n_out_of_kb": counts.no_answer + counts.empty_gold,
    }


def to_misses(report: Report) -> bytes:
    """Every query of one system with gold and none of it in its top k, as JSON."""
    scores, tables = report.systems[0].scores, report.tables
    if tables is None:
        raise UsageError("misses are listed beside their gold; build the report from the tables")
    refuse_short("misses", scores, tables.corpus)
    gold = prepare(tables.gold, scores.conventions, queries=tables.queries, corpus=tables.corpus)
    return misses_to_json(misses_of(scores, gold, tables.queries, gold.own_k))


def misses_to_json(misses: Sequence[Mapping[str, Any]]) -> bytes:
    """A list of misses as it is saved."""
    return _dumps(misses)


def _dumps(plain: object) -> bytes:
    text = json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def _k_of(scores: Scores) -> int | None:
    if scores.trace is None:
        return scores.conventions.k
    different = np.unique(scores.trace.ranked.target.own_k)
    return int(different[0]) if len(different) == 1 else None


def _misses_in(scores: Scores) -> int:
    """How many queries have gold and no hit; one that was not answered has none."""
    assessed = scores.status.is_in(ASSESSED).to_numpy()
    return int((assessed & ~(scores.values("Hit@k") > 0)).sum())
