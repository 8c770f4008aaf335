"""Exact search for 256 queries among 100,000 × 384 vectors, in batches of 64, against the bare
matrix product with argpartition on the same vectors in the same run: prints the best of seven.
"""

import json
import tempfile
import time
from pathlib import Path

import numpy as np

from karat.formats.yamls import Place
from karat.retrievers.blueprints import parse_systems
from karat.retrievers.protocol import Query
from karat.retrievers.workshop import Workshop
from karat.tables import Corpus

ITEMS, QUERIES, DIM, BATCH, K = 100_000, 256, 384, 64, 100


def bare(rows, queries):
    """What anybody would write: the k best rows of each query, best first."""
    best = []
    for start in range(0, len(queries), BATCH):
        scores = queries[start : start + BATCH] @ rows.T
        top = np.argpartition(-scores, K, axis=1)[:, :K]
        kept = np.take_along_axis(scores, top, axis=1)
        best.append(np.take_along_axis(top, np.argsort(-kept, axis=1), axis=1))
    return np.concatenate(best)


def system(rows, queries, folder: Path):
    """karat's own, with vectors kept in files."""
    np.save(folder / "items.npy", rows)
    np.savez(folder / "queries.npz", ids=np.arange(QUERIES), vectors=queries)
    spec = {"retriever": "dense", "vectors": "items.npy", "query_vectors": "queries.npz"}
    blueprint = parse_systems({"dense": spec}, Place("bench"))["dense"]
    corpus = Corpus.from_dict({str(row): "" for row in range(ITEMS)})
    return Workshop(corpus=lambda: corpus, folder=folder).build(blueprint).finder


def found(finder, asked):
    """karat's answers, batch by batch."""
    return [
        one for at in range(0, QUERIES, BATCH) for one in finder.find(asked[at : at + BATCH], K)
    ]


def agreement(answers, expected) -> float:
    """The share of queries with the very same list."""
    ours = [[hit.item_id for hit in answer.hits] for answer in answers]
    return float(np.mean([a == list(map(str, b)) for a, b in zip(ours, expected, strict=True)]))


def timed(work, *given) -> float:
    start = time.perf_counter()
    work(*given)
    return time.perf_counter() - start


def measure(repeats: int = 7) -> dict[str, float]:
    """Seconds of both, their ratio, and the share of lists that are the same."""
    numbers = np.random.default_rng(0)
    rows, queries = (
        numbers.normal(size=(count, DIM)).astype(np.float32) for count in (ITEMS, QUERIES)
    )
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    asked = [Query(str(number), "") for number in range(QUERIES)]
    own, simple = [], []
    with tempfile.TemporaryDirectory() as folder:
        finder = system(rows, queries, Path(folder))
        same = agreement(found(finder, asked), bare(rows, queries))
        for _ in range(repeats):
            simple.append(timed(bare, rows, queries))
            own.append(timed(found, finder, asked))
    told = {"seconds": min(own), "bare_seconds": min(simple), "ratio": min(own) / min(simple)}
    return told | {"same_lists": same}


if __name__ == "__main__":
    print(json.dumps(measure()))
