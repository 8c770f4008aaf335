"""Write the benchmark's files, seeded so that all tools get the same data.

    python bench/generate.py FOLDER KIND QUERIES HITS [--seed N]

KIND is ``trec`` (run.trec and qrels.txt), ``runs`` (r01.trec … r20.trec and qrels.txt), or one of
``shuffled``, ``parquet``, ``jsonl``: the rows of FOLDER/run.trec in another form. ``collection``
takes the numbers of items and of queries: a corpus, queries, gold, a run and a karat.yaml.
"""

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

FIRST, LAST = 1_000_000, 8_841_823  # item ids have seven digits
BLOCK = 500  # queries held in memory at a time
RUNS = 20
KINDS = ("trec", "runs", "shuffled", "parquet", "jsonl", "collection")


def gold_and_lists(
    queries: int, hits: int, rng: np.random.Generator
) -> Iterator[tuple[str, dict[str, int], np.ndarray]]:
    """Each query with its judgments and a ranked list; about 70 % of the judged are in the top 100.

    The first judgment is always of grade 1 to 3, so that no query has empty gold, on which
    tools differ. Of the others one in ten is not retrieved at all.
    """
    names = rng.choice(10 * queries, queries, replace=False) + 100_000
    top = min(100, hits)
    for name in names:
        items = rng.choice(LAST - FIRST + 1, hits + 4, replace=False) + FIRST
        judged: dict[str, int] = {}
        for n in range(rng.integers(1, 5)):
            chance, where = rng.random(2)
            high, low = int(top * where**3), int(hits * where)
            place = high if chance < 0.68 else low if chance < 0.9 else hits + n
            judged.setdefault(str(items[place]), int(rng.integers(n == 0, 4)))
        yield str(name), judged, items[:hits]


def run_frame(names: list[str], lists: np.ndarray, rng: np.random.Generator) -> pl.DataFrame:
    """The six columns of a TREC run; scores fall by at least 0.002, so none tie even as float32."""
    queries, hits = lists.shape
    scores = 40 - np.cumsum(rng.uniform(0.002, 0.03, lists.shape), axis=1)
    return pl.DataFrame(
        {
            "query_id": pl.Series(names).gather(np.repeat(np.arange(queries), hits)),
            "q0": pl.repeat("Q0", queries * hits, eager=True),
            "item_id": lists.ravel(),
            "rank": np.tile(np.arange(1, hits + 1), queries),
            "score": scores.ravel(),
            "tag": pl.repeat("bench", queries * hits, eager=True),
        }
    )


def write_trec(folder: Path, queries: int, hits: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    names: list[str] = []
    lists: list[np.ndarray] = []
    with (folder / "run.trec").open("wb") as run, (folder / "qrels.txt").open("w") as qrels:
        for n, (name, judged, items) in enumerate(gold_and_lists(queries, hits, rng), start=1):
            qrels.writelines(f"{name} 0 {item} {grade}\n" for item, grade in judged.items())
            names.append(name)
            lists.append(items)
            if len(names) == BLOCK or n == queries:
                frame = run_frame(names, np.stack(lists), rng)
                frame.write_csv(run, include_header=False, separator=" ", float_precision=6)
                names, lists = [], []


def write_runs(folder: Path, queries: int, hits: int, seed: int) -> None:
    """Twenty systems on one gold: each shuffles the same lists in its own way."""
    rng = np.random.default_rng(seed)
    names, golds, lists = zip(*gold_and_lists(queries, hits, rng), strict=True)
    with (folder / "qrels.txt").open("w") as qrels:
        for name, judged in zip(names, golds, strict=True):
            qrels.writelines(f"{name} 0 {item} {grade}\n" for item, grade in judged.items())
    for n in range(1, RUNS + 1):
        frame = run_frame(list(names), rng.permuted(np.stack(lists), axis=1), rng)
        path = folder / f"r{n:02}.trec"
        frame.write_csv(path, include_header=False, separator=" ", float_precision=6)


def read_trec(path: Path) -> pl.DataFrame:
    text, number = pl.String, pl.Float64
    columns = {"query_id": text, "q0": text, "item_id": text, "rank": pl.Int64}
    schema = {**columns, "score": number, "tag": text}
    return pl.read_csv(path, has_header=False, separator=" ", quote_char=None, schema=schema)


def write_shuffled(folder: Path, seed: int) -> None:
    frame = read_trec(folder / "run.trec")
    frame = frame[np.random.default_rng(seed).permutation(frame.height)]
    path = folder / "shuffled.trec"
    frame.write_csv(path, include_header=False, separator=" ", float_precision=6)


def write_parquet(folder: Path) -> None:
    frame = read_trec(folder / "run.trec").select("query_id", "item_id", "score")
    frame.write_parquet(folder / "run.parquet")


def write_jsonl(folder: Path) -> None:
    """Write a run log: one line per query, its hits under ``topk``."""
    frame = read_trec(folder / "run.trec")
    with (folder / "run.jsonl").open("w") as file:
        for (name,), rows in frame.group_by("query_id", maintain_order=True):
            topk = rows.select("rank", chunk_id="item_id", score="score").to_dicts()
            line = {"query_id": name, "system": "bench", "k_raw": len(topk), "topk": topk}
            file.write(json.dumps(line) + "\n")


def write_collection(folder: Path, items: int, queries: int, seed: int) -> None:
    rng = random.Random(seed)
    words = [f"w{rank}" for rank in range(20_000)]
    weights = [1 / (rank + 5) for rank in range(len(words))]
    ids = [f"doc{n // 5}#{n % 5}" for n in range(items)]
    hits = min(items, 100)
    texts, golds, run = [], [], []
    with (folder / "corpus.jsonl").open("w") as out:
        for item in ids:
            text = " ".join(rng.choices(words, weights, k=80))
            out.write(json.dumps({"_id": item, "text": text}) + "\n")
    for n in range(queries):
        text = " ".join(rng.choices(words, weights, k=8))
        texts.append(json.dumps({"_id": f"q{n}", "text": text}))
        ranked = rng.sample(ids, hits)
        golds.append(f"q{n} 0 {rng.choice(ranked)} 1")
        run += [f"q{n} Q0 {item} {rank} {hits - rank} x" for rank, item in enumerate(ranked, 1)]
    for name, lines in (("queries.jsonl", texts), ("qrels.txt", golds), ("run.trec", run)):
        (folder / name).write_text("\n".join(lines) + "\n")
    config = "queries: queries.jsonl\ngold: qrels.txt\ncorpus: corpus.jsonl\n"
    config += "systems: {bm25: {retriever: bm25, k: 100}}\n"
    (folder / "karat.yaml").write_text(config)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("queries", type=int, nargs="?", default=0)
    parser.add_argument("hits", type=int, nargs="?", default=0)
    parser.add_argument("--seed", type=int, default=20)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    match args.kind:
        case "trec":
            write_trec(args.folder, args.queries, args.hits, args.seed)
        case "runs":
            write_runs(args.folder, args.queries, args.hits, args.seed)
        case "shuffled":
            write_shuffled(args.folder, args.seed)
        case "parquet":
            write_parquet(args.folder)
        case "jsonl":
            write_jsonl(args.folder)
        case "collection":
            write_collection(args.folder, args.queries, args.hits, args.seed)


if __name__ == "__main__":
    main()
