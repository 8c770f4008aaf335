"""Runs scored as the analyses of what they return want them, for tests."""

from __future__ import annotations

import karat
from karat.evaluation.stages import score_stages
from karat.formats.runlog import run_of_records
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare

Corpus, Gold, Queries, Run = (
    karat.Corpus.from_dict,
    karat.Gold.from_dict,
    karat.Queries.from_dict,
    karat.Run.from_dict,
)


def staged_of(run, gold, measures=("RR",), *, queries=None, corpus=None, keep=10, **settings):
    conventions = conventions_of("karat", {"missing_ids": "allow"} | settings)
    gold = gold if isinstance(gold, karat.Gold) else Gold(gold)
    prepared = prepare(gold, conventions, queries=queries, corpus=corpus)
    chosen = parse_measures(list(measures), conventions=conventions)
    return score_stages(run, prepared, chosen, lenient=chosen, keep=keep)


def logged(lists, **more):
    """A run log of lists by query; a hit is an id or a dict."""
    records = [{"query_id": query, "topk": hits, **more} for query, hits in lists.items()]
    return run_of_records(records, name="log")
