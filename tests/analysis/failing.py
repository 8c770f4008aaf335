"""Runs given as records, and why their queries miss."""

from __future__ import annotations

from karat.analysis.failures import classify
from karat.data.tables import Corpus, Gold, Queries
from karat.evaluation.stages import Thresholds, score_stages
from karat.formats.runlog import run_of_records
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare

LINES = Thresholds()


def staged_of(records, gold, *, queries=None, corpus=None, keep=10, measures="R@10", **settings):
    """A run given as records, scored stage by stage."""
    prepared = prepare(
        gold if isinstance(gold, Gold) else Gold.from_dict(gold),
        conventions_of("karat", {"missing_ids": "allow"} | settings),
        queries=None if queries is None else Queries.from_dict(queries),
        corpus=Corpus.from_dict(corpus) if isinstance(corpus, dict) else corpus,
    )
    run = run_of_records(records, name="run")
    return score_stages(run, prepared, parse_measures(measures), keep=keep)


def failures_of(records, gold, *, queries=None, lines=LINES, **options):
    """The failures of a run given as records."""
    asked = None if queries is None else Queries.from_dict(queries)
    return classify(staged_of(records, gold, queries=queries, **options), asked, thresholds=lines)


def fillers(n, prefix="x"):
    return [f"{prefix}{i}" for i in range(n)]


def with_gold(rank, n=20, gold="g"):
    """A list of n items with the gold at a rank."""
    items = fillers(n - 1)
    items.insert(rank - 1, gold)
    return items
