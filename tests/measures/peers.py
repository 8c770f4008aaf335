"""The libraries karat is held against, each behind one function, and collections to try."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence

import ir_measures
import pytrec_eval

import karat

Table = Mapping[str, Mapping[str, float]]
Values = dict[tuple[str, str], float]

# pytrec_eval's name of a measure -> karat's
PYTREC = {
    "map": "AP",
    "map_cut_3": "AP@3",
    "map_cut_10": "AP@10",
    "recip_rank": "RR",
    "Rprec": "Rprec",
    "bpref": "Bpref",
    "infAP": "infAP",
    "ndcg": "nDCG",
    "ndcg_cut_3": "nDCG@3",
    "ndcg_cut_10": "nDCG@10",
    "P_1": "P@1",
    "P_5": "P@5",
    "P_30": "P@30",
    "recall_1": "R@1",
    "recall_5": "R@5",
    "recall_30": "R@30",
    "success_1": "Hit@1",
    "success_5": "Hit@5",
    **{f"iprec_at_recall_{x / 10:.2f}": f"IPrec@{x / 10:g}" for x in range(11)},
    "set_P": "SetP",
    "set_recall": "SetR",
    "set_F": "SetF",
    "num_ret": "NumRet",
    "num_rel": "NumRel",
    "num_rel_ret": "NumRelRet",
}


def by_pytrec_eval(gold: Table, run: Table, names: Sequence[str], *, rel: int = 1) -> Values:
    evaluator = pytrec_eval.RelevanceEvaluator(gold, set(names), relevance_level=rel)
    return {
        (name, query): value
        for query, row in evaluator.evaluate(run).items()
        for name, value in row.items()
    }


def by_ir_measures(gold: Table, run: Table, names: Sequence[str]) -> Values:
    measures = [ir_measures.parse_measure(name) for name in names]
    spelled = dict(zip(measures, names, strict=True))
    return {
        (spelled[metric.measure], metric.query_id): float(metric.value)
        for metric in ir_measures.iter_calc(measures, gold, run)
    }


_RANX = """
import json, sys, warnings
warnings.simplefilter("ignore")
from ranx import Qrels, Run, evaluate
gold, runs, names = json.load(sys.stdin)
results = []
for scores in runs:
    run = Run(scores)
    evaluate(Qrels(gold), run, names, make_comparable=True)
    results.append({name: dict(run.scores[name]) for name in names})
json.dump(results, sys.stdout)
"""


def by_ranx(gold: Table, runs: Sequence[Table], names: Sequence[str]) -> list[Values]:
    """ranx in a process of its own, uncompiled: the same numbers without half a minute of JIT."""
    done = subprocess.run(
        [sys.executable, "-c", _RANX],
        input=json.dumps([gold, list(runs), list(names)]),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )
    return [
        {(name, query): value for name in names for query, value in result[name].items()}
        for result in json.loads(done.stdout)
    ]


def by_karat(gold: Table, run: Table, names: Sequence[str], **options: object) -> Values:
    """karat's values, keyed by the names as they were given; what is null is not there."""
    table = karat.evaluate(
        karat.Run.from_dict(run), karat.Gold.from_dict(gold), list(names), **options
    ).table
    columns = {name: str(karat.parse_measure(name)) for name in names}
    return {
        (name, row["query_id"]): row[column]
        for row in table.iter_rows(named=True)
        for name, column in columns.items()
        if row[column] is not None
    }


def collection(
    seed: int,
    *,
    ties: bool = True,
    grades: Sequence[int] = (-1, 0, 0, 1, 2, 4),
    queries: int = 6,
    documents: int = 25,
) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, float]]]:
    """Gold and a run: the last query of each is not in the other; ids of queries are numbers."""
    chance = random.Random(seed)
    pool = [f"d{number}" for number in range(documents)]
    gold, run = {}, {}
    for number in range(1, queries + 1):
        judged = chance.sample(pool, chance.randint(1, 12))
        gold[str(number)] = {item: chance.choice(grades) for item in judged}
        # one item at least that is not negative: pytrec_eval never returns without
        gold[str(number)][judged[0]] = max(0, gold[str(number)][judged[0]])
        listed = chance.sample(pool, chance.randint(1, documents))
        scores = chance.sample(range(1000), len(listed))
        run[str(number)] = {
            item: float(score % 7 if ties else score)
            for item, score in zip(listed, scores, strict=True)
        }
    del run[str(queries)]
    run[str(queries + 1)] = {"d1": 1.0}
    return gold, run
