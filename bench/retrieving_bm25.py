"""Races karat's bm25 against calling bm25s by hand: 100,000 passages, 1,000 queries.

    python bench/retrieving_bm25.py

Both build the index from the same texts and search for the same queries, in turns, in one process
each; the ratio is of the best of several. The log's memory is told for 1,000 and 50,000 calls.
"""

import argparse
import subprocess
import sys
import time

import numpy as np

K = 50


def texts(n: int, seed: int = 0) -> list[str]:
    """Passages of about 60 words, drawn as words of a language are: few often, many seldom."""
    draw = np.random.default_rng(seed)
    words = np.array([f"w{i}" for i in range(50_000)])
    ranks = draw.zipf(1.15, size=(n, 60)) % len(words)
    return [" ".join(words[row]) for row in ranks]


def queries(n: int) -> list[str]:
    return [" ".join(text.split()[:8]) for text in texts(n, seed=1)]


def by_hand(items: list[str], asked: list[str]) -> tuple[float, list[list[float]]]:
    import bm25s

    start = time.perf_counter()
    index = bm25s.BM25()
    index.index(bm25s.tokenize(items, stopwords=None, show_progress=False), show_progress=False)
    words = bm25s.tokenize(asked, stopwords=None, return_ids=False, show_progress=False)
    _, scores = index.retrieve(words, k=K, show_progress=False)
    return time.perf_counter() - start, scores.tolist()


def by_karat(items: list[str], asked: list[str]) -> tuple[float, list[list[float]]]:
    from karat.data.tables import Corpus
    from karat.retrieve.bm25 import Options, make
    from karat.retrieve.build_context import BuildContext
    from karat.retrieve.protocol import Query
    from karat.retrieve.system import SearchSystem

    corpus = Corpus.from_dict({str(at): text for at, text in enumerate(items)})
    context = BuildContext(corpus=lambda: corpus)
    start = time.perf_counter()
    system = SearchSystem("bm25", make(Options(), context, {}), k=K)
    answers = [system.find([Query(str(at), text)], K)[0] for at, text in enumerate(asked)]
    took = time.perf_counter() - start
    return took, [[hit.score for hit in answer.hits] for answer in answers]


def log_memory(calls: int) -> float:
    """The peak in MB of a process that logs so many calls of 20 hits."""
    code = f"""
import sys
sys.path.insert(0, {str(__file__.rsplit("/", 1)[0])!r})
from retrieving_bm25 import log_calls
log_calls({calls})
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) / 1024)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(told.stdout.split()[-1])


def log_calls(calls: int) -> None:
    import tempfile
    from pathlib import Path

    from karat.retrieve.protocol import Answer, Hit, Query
    from karat.retrieve.run_log import RunLog, record_of, to_json_line
    from karat.retrieve.search import CallRunner

    class Fixed:
        batch, concurrency, deep, meta = 1, 1, False, {}

        def find(self, asked, k):
            return [Answer([Hit(f"d{n}", 1 / (n + 1)) for n in range(20)]) for _ in asked]

    with tempfile.TemporaryDirectory() as folder:
        journal = RunLog(Path(folder) / "log.jsonl", "d", [], resume=False)
        runner = CallRunner(Fixed().find, 20, concurrency=4)
        for query, answer in runner.outcomes(Query(f"q{n}", "text") for n in range(calls)):
            journal.write(to_json_line(record_of(query, answer, {"system": "x"})))
        journal.finish()


def measure(items: int = 100_000, repeats: int = 3) -> dict[str, float]:
    """Seconds of both, best of several in turns; stops when their scores differ."""
    texts_, asked = texts(items), queries(1_000)
    hand, ours = [], []
    for _ in range(repeats):
        took, theirs = by_hand(texts_, asked)
        hand.append(took)
        took, found = by_karat(texts_, asked)
        ours.append(took)
    for one, other in zip(theirs, found, strict=True):
        # karat leaves out what shares no word, where the library fills up with zeros.
        if not np.allclose(one, other + [0.0] * (len(one) - len(other))):
            raise SystemExit("bench: the scores differ")
    return {"seconds": min(ours), "bare_seconds": min(hand), "ratio": min(ours) / min(hand)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    told = measure(args.items, args.repeats)
    print("bm25s by hand {bare_seconds:.2f} s, karat {seconds:.2f} s: {ratio:.2f} ×".format(**told))
    small, large = log_memory(1_000), log_memory(50_000)
    print(f"peak memory of a log: {small:.0f} MB for 1,000 calls, {large:.0f} MB for 50,000")


if __name__ == "__main__":
    main()
