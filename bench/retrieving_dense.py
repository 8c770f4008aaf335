"""Exact search for 256 queries among 100,000 × 384 vectors, in batches of 64, against the bare
matrix product, alone and with argpartition, on the same vectors in the same run: prints the best
of seven.
"""

import json
import tempfile
import time
from pathlib import Path

import numpy as np

from karat.data.tables import Corpus
from karat.formats.settings import Place
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Query
from karat.retrieve.system_config import parse_systems

ITEMS, QUERIES, DIM, BATCH, K = 100_000, 256, 384, 64, 100


def products(rows, queries):
    """The scores alone, a batch at a time: what no exact search can do without."""
    for start in range(0, len(queries), BATCH):
        yield queries[start : start + BATCH] @ rows.T


def multiplied(rows, queries):
    """The products, each let go before the next."""
    for _ in products(rows, queries):
        pass


def bare(rows, queries):
    """What anybody would write: the k best rows of each query, best first."""
    best = []
    for scores in products(rows, queries):
        for row in scores:
            top = np.argpartition(row, len(row) - K)[-K:]
            best.append(top[np.argsort(row[top])[::-1]])
    return best


def system(rows, queries, folder: Path):
    """karat's own, with vectors kept in files."""
    np.save(folder / "items.npy", rows)
    np.savez(folder / "queries.npz", ids=np.arange(QUERIES), vectors=queries)
    spec = {"retriever": "dense", "vectors": "items.npy", "query_vectors": "queries.npz"}
    system_config = parse_systems({"dense": spec}, Place("bench"))["dense"]
    corpus = Corpus.from_dict({str(row): "" for row in range(ITEMS)})
    return BuildContext(corpus=lambda: corpus, folder=folder).build(system_config).finder


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
    """Seconds of each, karat's ratio to both others, and the share of lists that are the same."""
    numbers = np.random.default_rng(0)
    rows, queries = (
        numbers.normal(size=(count, DIM)).astype(np.float32) for count in (ITEMS, QUERIES)
    )
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    asked = [Query(str(number), "") for number in range(QUERIES)]
    own, simple, product = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        finder = system(rows, queries, Path(folder))
        same = agreement(found(finder, asked), bare(rows, queries))
        for _ in range(repeats):
            product.append(timed(multiplied, rows, queries))
            simple.append(timed(bare, rows, queries))
            own.append(timed(found, finder, asked))
    return {
        "seconds": min(own),
        "bare_seconds": min(simple),
        "product_seconds": min(product),
        "ratio": min(own) / min(simple),
        "product_ratio": min(own) / min(product),
        "same_lists": same,
    }


if __name__ == "__main__":
    print(json.dumps(measure()))
