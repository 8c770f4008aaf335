"""pytrec_eval on files: with_pytrec_eval.py QRELS RUN... prints one line of means a run."""

import json
import sys
from collections import defaultdict
from pathlib import Path

import pytrec_eval

NAMES = {
    "nDCG@10": "ndcg_cut_10",
    "RR@10": "recip_rank",
    "R@100": "recall_100",
    "R@1000": "recall_1000",
    "AP": "map",
    "P@10": "P_10",
    "Hit@1": "success_1",
    "Rprec": "Rprec",
    "Bpref": "bpref",
    "nDCG@100": "ndcg_cut_100",
}


def read_qrels(path: str) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = defaultdict(dict)
    with Path(path).open() as file:
        for line in file:
            query, _, item, grade = line.split()
            qrels[query][item] = int(grade)
    return qrels


def read_run(path: str) -> dict[str, dict[str, float]]:
    """The plain loop; quicker than ``pytrec_eval.parse_run``, which also looks for duplicates."""
    run: dict[str, dict[str, float]] = defaultdict(dict)
    with Path(path).open() as file:
        for line in file:
            query, _, item, _, score, _ = line.split()
            run[query][item] = float(score)
    return run


def means(scores: dict[str, dict[str, float]]) -> dict[str, float]:
    rows = list(scores.values())
    result = {ours: sum(row[name] for row in rows) / len(rows) for ours, name in NAMES.items()}
    # pytrec_eval has no cut-off for the reciprocal rank: what lies past rank 10 is dropped here.
    first = (row["recip_rank"] for row in rows)
    return result | {"RR@10": sum(rr for rr in first if rr >= 0.1) / len(rows)}


if __name__ == "__main__":
    evaluator = pytrec_eval.RelevanceEvaluator(read_qrels(sys.argv[1]), set(NAMES.values()))
    for path in sys.argv[2:]:
        print(json.dumps(means(evaluator.evaluate(read_run(path)))))
