"""The loop as a script: ask the service, score the answers, and see where two readings differ.

Run it in this folder: python eval_loop.py
"""

from __future__ import annotations

import json
from pathlib import Path

import karat


def recall_at_k(retrieved: list[str], relevant: set[str]) -> float:
    """What such scripts often call recall: whether anything relevant came back at all."""
    if not relevant:
        return 0.0
    return 1.0 if any(one in relevant for one in retrieved) else 0.0


def main() -> None:
    """Ask every question once and score the answers twice."""
    lines = Path("eval_set.jsonl").read_text(encoding="utf-8").splitlines()
    items = [json.loads(line) for line in lines if line.strip()]
    k = 5
    with karat.read_systems("karat.yaml") as systems:

        def run_search(query: str, top_k: int) -> list[str]:
            asked = karat.Queries.from_dict({"q": query})
            found: list[str] = systems["live"].search(asked, top_k).hits["item_id"].to_list()
            return found

        retrieved = [run_search(item["query"], k) for item in items]

    relevant = [set(item.get("relevant_chunk_ids", [])) for item in items]
    own = [recall_at_k(found, right) for found, right in zip(retrieved, relevant, strict=True)]
    print("script", {"recall_at_k": round(sum(own) / len(own), 4), "k": k, "n": len(own)})

    gold, queries = karat.read_gold("eval_set.jsonl"), karat.read_queries("eval_set.jsonl")
    # In the order of the lines; where a line has no id, karat makes one of its text.
    ids = queries.frame["query_id"].to_list()
    run = karat.Run.from_dict(dict(zip(ids, retrieved, strict=True)), name="live")
    for name, settings in (("karat ", {}), ("zeroes", {"empty_gold": "zero"})):
        scores = karat.evaluate(run, gold, profile="minimal", settings=settings, queries=queries)
        means = {measure: mean and round(mean, 4) for measure, mean in scores.means().items()}
        print(name, means, "n", scores.summaries["R@k"].n)


if __name__ == "__main__":
    main()
