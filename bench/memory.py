"""The same dict in memory, in turns: memory.py QRELS RUN ROUNDS prints both tools' times.

Each side starts from plain dicts of judgments and scores and ends with ten means.
"""

import json
import sys
import time
from collections.abc import Callable

import pytrec_eval

import karat
from peers.with_pytrec_eval import NAMES, means, read_qrels, read_run

QRELS = read_qrels(sys.argv[1])
RUN = read_run(sys.argv[2])


def with_karat() -> dict[str, float]:
    gold = karat.Gold.from_dict(QRELS)
    return dict(karat.evaluate(karat.Run.from_dict(RUN), gold, list(NAMES)).means())


def with_pytrec_eval() -> dict[str, float]:
    return means(pytrec_eval.RelevanceEvaluator(QRELS, set(NAMES.values())).evaluate(RUN))


def timed(evaluate: Callable[[], dict[str, float]]) -> float:
    start = time.perf_counter()
    evaluate()
    return time.perf_counter() - start


if __name__ == "__main__":
    ours, theirs = with_karat(), with_pytrec_eval()
    times: dict[str, list[float]] = {"karat": [], "pytrec_eval": []}
    for _ in range(int(sys.argv[3])):
        times["karat"].append(timed(with_karat))
        times["pytrec_eval"].append(timed(with_pytrec_eval))
    print(json.dumps({"times": times, "means": {"karat": ours, "pytrec_eval": theirs}}))
