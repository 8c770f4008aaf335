"""Files that faults are tried on: small enough to be quick, large enough to be interrupted."""

from __future__ import annotations

import json
import random
from pathlib import Path

ITEMS = 60


def lay_runs(folder: Path, queries: int = 100) -> Path:
    """Gold, queries, a corpus and two runs, the same every time."""
    folder.mkdir(parents=True)
    chance = random.Random(7)
    asked, gold, runs = [], [], {"old": [], "new": []}
    for q in range(queries):
        asked.append({"id": f"q{q:03}", "query": f"word{q % 50} word{q % 7}", "kind": f"k{q % 3}"})
        gold += [f"q{q:03} 0 d{item:02} 1" for item in chance.sample(range(ITEMS), 3)]
        for name, lines in runs.items():
            found = enumerate(chance.sample(range(ITEMS), 10), start=1)
            lines += [f"q{q:03} Q0 d{item:02} {at} {1 / at:.6f} {name}" for at, item in found]
    texts = [{"id": f"d{i:02}", "text": f"word{i} word{i % 5} word{i % 7}"} for i in range(ITEMS)]
    write_lines(folder / "queries.jsonl", map(json.dumps, asked))
    write_lines(folder / "corpus.jsonl", map(json.dumps, texts))
    write_lines(folder / "qrels.txt", gold)
    for name, lines in runs.items():
        write_lines(folder / f"{name}.trec", lines)
    return folder


def lay_pool(folder: Path, pairs: int) -> Path:
    """A pool of pairs that nobody judged."""
    folder.mkdir(parents=True)
    pool = [
        {
            "query_id": f"q{i // 10:04}",
            "query": f"word{i // 10} word{i % 7}",
            "item_id": f"d{i:05}",
            "text": f"word{i % 11} word{i % 7}",
        }
        for i in range(pairs)
    ]
    write_lines(folder / "pool.jsonl", map(json.dumps, pool))
    return folder


def write_lines(path: Path, lines) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))
