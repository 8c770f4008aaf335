"""ir_measures on files: with_ir_measures.py QRELS RUN... prints one line of means a run."""

import json
import sys

import ir_measures
from ir_measures import AP, RR, Bpref, P, R, Rprec, Success, nDCG

MEASURES = {
    "nDCG@10": nDCG @ 10,
    "RR@10": RR @ 10,
    "R@100": R @ 100,
    "R@1000": R @ 1000,
    "AP": AP,
    "P@10": P @ 10,
    "Hit@1": Success @ 1,
    "Rprec": Rprec,
    "Bpref": Bpref,
    "nDCG@100": nDCG @ 100,
}

if __name__ == "__main__":
    qrels = list(ir_measures.read_trec_qrels(sys.argv[1]))
    for path in sys.argv[2:]:
        run = ir_measures.read_trec_run(path)
        means = ir_measures.calc_aggregate(MEASURES.values(), qrels, run)
        print(json.dumps({ours: means[measure] for ours, measure in MEASURES.items()}))
