"""Races karat's retrievers and runner against the bare libraries and writes bench/RETRIEVING.md.

    python bench/retrieving.py       about three minutes on a quiet machine

Each contender does the same work in the same run, in turns. Ends with 1 when a target is missed.
"""

import statistics
from pathlib import Path

import retrieving_bm25
import retrieving_dense
import retrieving_http
from results import Section, Target, document, finish, machine

OUT = Path(__file__).parent / "RETRIEVING.md"


def bm25() -> Section:
    told = retrieving_bm25.measure()
    return Section(
        "bm25: index 100,000 passages of 60 words, then 1,000 queries of 8 words",
        ["", "s, best of 3"],
        [
            ("bm25s by hand", f"{told['bare_seconds']:.2f}"),
            ("karat", f"{told['seconds']:.2f}"),
        ],
        targets=[Target.at_most("bm25: time against bm25s by hand", 1.15, told["ratio"])],
    )


def dense() -> Section:
    told = retrieving_dense.measure()
    return Section(
        "dense: 256 queries among 100,000 × 384 vectors, in batches of 64",
        ["", "s, best of 7"],
        [
            ("matrix product alone", f"{told['product_seconds']:.3f}"),
            ("matrix product and top 100 by argpartition", f"{told['bare_seconds']:.3f}"),
            ("karat", f"{told['seconds']:.3f}"),
        ],
        note=f"karat takes {told['product_ratio']:.2f} × the product alone. "
        f"{100 * told['same_lists']:.1f} % of the lists are the same; karat orders near ties "
        "by scores in double precision.",
        targets=[Target.at_most("dense: time against product and top k", 1.25, told["ratio"])],
    )


def http() -> Section:
    samples = retrieving_http.measure()
    rows = [
        (name, f"{statistics.median(one[name] for one in samples):.3f}")
        for name in ("httpx", "httpcore", "karat")
    ]
    added = statistics.median(one["karat"] - one["httpcore"] for one in samples)
    return Section(
        "http: 2,000 calls to a loopback server, 16 at once",
        ["", "ms a call, median of 7"],
        rows,
        note="The others keep only the ids; karat also writes its log.",
        targets=[Target.at_most("http: added to a call over bare httpcore", 1.0, added, "ms")],
    )


def log() -> Section:
    small, large = retrieving_bm25.log_memory(1_000), retrieving_bm25.log_memory(50_000)
    return Section(
        "log: peak memory while calls of 20 hits are logged",
        ["", "MB"],
        [("1,000 calls", f"{small:.0f}"), ("50,000 calls", f"{large:.0f}")],
        targets=[Target.at_most("log: memory of 50,000 calls against 1,000", 1.1, large / small)],
    )


def main() -> None:
    computer = machine()
    sections = [bm25(), dense(), http(), log()]
    text = document(
        sections,
        computer,
        "`make bench-retrieving`",
        about="All in one run on one machine, in turns, in one process each.",
        ratios="Ratios are of the best times, what is added is a median.",
        packages=("karat", "bm25s", "numpy", "httpx", "httpcore"),
    )
    finish(sections, text, OUT)


if __name__ == "__main__":
    main()
