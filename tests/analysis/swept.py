"""Runs scored at every cut-off, and random ones to sweep."""

from __future__ import annotations

import random

from karat.analysis.sweep.curves import parse_curves
from karat.data.tables import Gold, Run
from karat.evaluation.stages import score_stages
from karat.measure.conventions import conventions_of
from karat.measure.prepare import prepare


def staged_of(
    run, gold, names, ks, *, profile="karat", queries=None, corpus=None, keep=0, more=(), **settings
):
    """A run scored at every cut-off, and its curves."""
    conventions = conventions_of(profile, {"missing_ids": "allow"} | settings)
    prepared = prepare(gold, conventions, queries=queries, corpus=corpus)
    curves = parse_curves(names, ks, conventions=conventions)
    measures = [one for curve in curves for one in curve.at.values()] + list(more)
    return score_stages(run, prepared, measures, lenient=measures, keep=keep), curves


def world(seed: int, *, queries: int = 30, depth: int = 25) -> tuple[Run, Gold]:
    """Random lists of chunks of documents, with graded gold; some queries are not answered."""
    rng = random.Random(seed)
    items = [f"d{doc}#{part}" for doc in range(20) for part in range(3)]
    gold = {
        f"q{n}": {item: rng.randint(0, 3) for item in rng.sample(items, rng.randint(1, 6))}
        for n in range(queries)
    }
    run = {
        f"q{n}": {item: rng.randint(1, 40) / 7 for item in rng.sample(items, depth)}
        for n in range(queries)
        if n % 9
    }
    return Run.from_dict(run), Gold.from_dict(gold)
