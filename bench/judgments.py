"""Two processes write 10,000 judgments each at once, one by one, to SQLite and to PostgreSQL.

``python bench/judgments.py [COUNT]`` tells how long it takes, and whether all are there once.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from karat.store import LabelItem, Store
from loading_stage import postgres

RATERS = ("Ana", "Ben")
WRITING = """
import sys
from karat.store import Store
where, rater, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
with Store.open(where) as store:
    for at in range(count):
        store.judge(1, at, rater, at % 4, rationale=f"{rater} {at}")
"""


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        measure("SQLite", str(Path(folder) / "history.db"), count)
    with postgres() as url:
        measure("PostgreSQL", url, count)


def measure(kind: str, where: str, count: int) -> None:
    """Write, then look at what is there."""
    items = [LabelItem(f"q{at}", "d", "?", "!") for at in range(count)]
    with Store.open(where) as store:
        store.add_label_set("all", items)
    seconds = written(where, count)
    with Store.open(where) as store:
        said = Counter((one.rater, one.position) for one in store.judgments(1, every=True))
    wanted = {(rater, at) for rater in RATERS for at in range(count)}
    lost, twice = len(wanted - set(said)), sum(n > 1 for n in said.values())
    rate = 2 * count / seconds
    print(f"{kind}: 2 × {count:,} in {seconds:.0f} s, {rate:.0f}/s; lost {lost}, twice {twice}")


def written(where: str, count: int) -> float:
    """How many seconds two processes take that begin at the same time."""
    pipe = subprocess.PIPE
    both = [
        subprocess.Popen(
            [sys.executable, "-c", WRITING, where, rater, str(count)],
            stdin=pipe,
            stdout=pipe,
            text=True,
        )
        for rater in RATERS
    ]
    for process in both:
        process.stdout.readline()
    start = time.perf_counter()
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in both:
        if process.wait():
            raise SystemExit("a process failed")
    return time.perf_counter() - start


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
