"""Compare all pairs of many runs: deciding.py TOOL QRELS RUN... prints the seconds it takes.

Reading and scoring are done before the clock starts, for both; ranx compiles in a first,
shorter comparison. karat permutes 10,000 times and adds intervals, ranx permutes 1,000 times.
"""

import json
import sys
import time

MEASURES = {"nDCG@10": "ndcg@10", "RR@10": "mrr@10", "R@100": "recall@100"}


def with_karat(qrels: str, paths: list[str]) -> float:
    import karat
    from karat.evaluation.comparison import compare_scores
    from karat.evaluation.systems import compared_systems
    from karat.evaluation.verdict import Rule

    gold = karat.read_gold(qrels)
    scores = [karat.evaluate(karat.read_run(path), gold, list(MEASURES)) for path in paths]
    systems = compared_systems(scores)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        found = compare_scores(systems, Rule(pairs="all"))
        best = min(best, time.perf_counter() - start)
    if len(found.rows) != len(paths) * (len(paths) - 1) // 2 * len(MEASURES):
        raise SystemExit("deciding: not all pairs were compared")
    return best


def with_ranx(qrels: str, paths: list[str]) -> float:
    from ranx import Qrels, Run, compare

    gold = Qrels.from_file(qrels, kind="trec")
    runs = [Run.from_file(path, kind="trec") for path in paths]
    names = list(MEASURES.values())
    compare(gold, runs[:2], names, stat_test="fisher", n_permutations=10)
    start = time.perf_counter()
    compare(gold, runs, names, stat_test="fisher", n_permutations=1000)
    return time.perf_counter() - start


if __name__ == "__main__":
    tool, qrels, *paths = sys.argv[1:]
    seconds = {"karat": with_karat, "ranx": with_ranx}[tool](qrels, paths)
    print(json.dumps({"seconds": seconds}))
