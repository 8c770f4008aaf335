"""The whole of SciFact from scratch: embeds 5,183 abstracts, searches for 300 claims with BM25,
MiniLM and both fused, and sets what is measured beside what is published. Takes minutes.

    python scripts/scifact.py [DATA] [--keep FOLDER]

Exits with 1 when a figure is further from the published one than it may be.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import karat

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "retrievers"))

import model_folders  # noqa: E402

DATA = ROOT / ".." / "shared" / "data" / "scifact"
MEASURES = ["nDCG@10", "R@100"]
# What is published (Anserini's BM25; MiniLM in full precision), and how far off is still the same.
PUBLISHED = {
    ("bm25", "nDCG@10"): (0.6789, 0.02),
    ("bm25", "R@100"): (0.9253, 0.02),
    ("dense", "nDCG@10"): (0.6451, 0.01),
}
CONFIG = f"""\
queries: queries.jsonl
corpus: corpus.jsonl.gz
systems:
  bm25: {{retriever: bm25, stemmer: english, stopwords: english, k: 100}}
  dense: {{retriever: dense, model: {model_folders.MINILM}, path: minilm, max_length: 256, k: 100}}
  fused: {{retriever: fuse, of: [bm25, dense], k: 100}}
"""


def lay_out(data: Path, folder: Path) -> None:
    """A folder as a user would have it: karat.yaml, queries, corpus and the model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "karat.yaml").write_text(CONFIG)
    shutil.copyfile(data / "corpus.beir-layout.jsonl.gz", folder / "corpus.jsonl.gz")
    with gzip.open(data / "topics.beir-v1.0.0-scifact.test.tsv.gz", "rt") as topics:
        pairs = [line.rstrip("\n").split("\t") for line in topics]
    lines = [json.dumps({"id": query, "text": text}) for query, text in pairs]
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n")
    model_folders.minilm(folder / "minilm")


def measured(data: Path, folder: Path) -> dict[tuple[str, str], float]:
    """Search with every system, then score the logs."""
    for system in ("bm25", "dense", "fused"):
        begun = time.monotonic()
        command = [sys.executable, "-m", "karat", "search", "--restart", "--system", system]
        subprocess.run(command, cwd=folder, check=True)  # noqa: S603
        print(f"{system}: {time.monotonic() - begun:.0f} s", flush=True)
    gold = karat.read_gold(str(data / "qrels.beir-v1.0.0-scifact.test.txt"))
    found = {}
    for system in ("bm25", "dense", "fused"):
        run = karat.read_run(str(folder / "runs" / f"{system}.jsonl"))
        for measure, mean in karat.evaluate(run, gold, MEASURES).means().items():
            found[system, measure] = mean
    return found


def show(found: dict[tuple[str, str], float]) -> bool:
    """The table; whether everything is as it should be."""
    fine = True
    print(f"{'system':8}{'measure':10}{'measured':>10}{'published':>11}{'may differ':>12}")
    for (system, measure), mean in found.items():
        published, tolerance = PUBLISHED.get((system, measure), (None, 0.0))
        told = "" if published is None else f"{published:11.4f}{tolerance:12.2f}"
        off = published is not None and abs(mean - published) > tolerance
        fine = fine and not off
        print(f"{system:8}{measure:10}{mean:10.4f}{told}{'   too far' if off else ''}")
    for alone in ("bm25", "dense"):
        if found["fused", "nDCG@10"] <= found[alone, "nDCG@10"]:
            print(f"fused should be above {alone} in nDCG@10")
            fine = False
    return fine


def main() -> int:
    """Run it where asked to, or in a folder that is gone afterwards."""
    parser = argparse.ArgumentParser(description="SciFact from scratch, against published figures")
    parser.add_argument("data", nargs="?", type=Path, default=DATA)
    parser.add_argument("--keep", type=Path, help="work here, and keep vectors and logs")
    given = parser.parse_args()
    if not given.data.is_dir():
        print(f"{given.data}: no such folder; give the one that holds SciFact", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        lay_out(given.data, folder)
        return 0 if show(measured(given.data, folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
