"""Logs made by hand and by chance, and measures worked out from their lists in plain Python."""

from __future__ import annotations

import math
import random

from karat.analysis.stages.effects import Cuts
from karat.data.tables import Gold
from karat.evaluation.stages import score_stages
from karat.formats.runlog import run_of_records
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare

MEASURES = "nDCG@5, P@5, R@5, RR@5"


def cuts_of(k=5, depth=50, measures=None):
    return Cuts(tuple(parse_measures(measures or MEASURES.replace("@5", f"@{k}"))), k, depth)


def staged_of(records, gold, *, cuts=None, queries=None, corpus=None, profile="karat", **settings):
    """A log in memory, scored stage by stage."""
    given = gold if isinstance(gold, Gold) else Gold.from_dict(gold)
    conventions = conventions_of(profile, settings)
    prepared = prepare(given, conventions, queries=queries, corpus=corpus)
    wanted = (cuts or cuts_of()).every
    run = run_of_records(records, name="log")
    return score_stages(run, prepared, wanted, lenient=wanted, keep=10)


def made_up(n=40, seed=0, *, raw=60, k=5, **told):
    """Graded gold, raw lists, and what a reranker made of them that moves most gold up."""
    chance = random.Random(seed)
    gold, records = {}, []
    for number in range(n):
        items = [f"d{i:03}" for i in range(200)]
        graded = {
            item: chance.choice([1, 1, 2, 3]) for item in chance.sample(items, 1 + number % 4)
        }
        gold[f"q{number:02}"] = {**graded, chance.choice(items): 0, **graded}
        rest = [item for item in items if item not in graded]
        lists = chance.sample(rest, raw)
        for item in graded:
            if chance.random() < 0.85:
                lists.insert(chance.randrange(min(raw, 30)), item)
        lists = lists[:raw]
        moved = {item: chance.random() < 0.6 for item in graded}
        top = sorted(lists, key=lambda item: lists.index(item) - 20 * moved.get(item, False))
        records.append(
            {
                "query_id": f"q{number:02}",
                "topk": top[:k],
                "raw": lists,
                "stages": {"rerank": top},
                **told,
            }
        )
    return gold, records


def recall(items, graded, k):
    wanted = {item for item, grade in graded.items() if grade >= 1}
    return len(wanted & set(items[:k])) / len(wanted)


def precision(items, graded, k):
    return sum(graded.get(item, 0) >= 1 for item in items[:k]) / k


def reciprocal_rank(items, graded, k):
    for rank, item in enumerate(items[:k], 1):
        if graded.get(item, 0) >= 1:
            return 1 / rank
    return 0.0


def ndcg(items, graded, k, worth=lambda grade: grade):
    def dcg(grades):
        return sum(worth(g) / math.log(rank + 1, 2) for rank, g in enumerate(grades[:k], 1))

    ideal = sorted((g for g in graded.values() if g > 0), reverse=True)
    return dcg([graded.get(item, 0) for item in items]) / dcg(ideal)


def mean_of(function, lists, gold, k, **more):
    values = [function(lists[name], gold[name], k, **more) for name in gold]
    return math.fsum(values) / len(values)
