"""ranx on files: with_ranx.py QRELS RUN... prints one line of means a run."""

import json
import sys

from ranx import Qrels, Run, evaluate

NAMES = {
    "nDCG@10": "ndcg@10",
    "RR@10": "mrr@10",
    "R@100": "recall@100",
    "R@1000": "recall@1000",
    "AP": "map",
    "P@10": "precision@10",
    "Hit@1": "hit_rate@1",
    "Rprec": "r-precision",
    "Bpref": "bpref",
    "nDCG@100": "ndcg@100",
}

if __name__ == "__main__":
    qrels = Qrels.from_file(sys.argv[1], kind="trec")
    for path in sys.argv[2:]:
        means = evaluate(qrels, Run.from_file(path, kind="trec"), list(NAMES.values()))
        print(json.dumps({ours: float(means[name]) for ours, name in NAMES.items()}))
