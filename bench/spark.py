"""Compare `--engine spark` with the local engine on Parquet, at 7 and at 70 million rows.

    python bench/spark.py [--quick]

Writes bench/SPARK.md. ``--quick`` leaves out the 70 million and writes nothing.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from results import Section, Target, document, machine

HITS = 1000
SIZES = (7_000, 70_000)
TIMES = {7_000: 5, 70_000: 3}
MEASURES = "nDCG@10,RR@10,R@100,AP@100"
PACKAGES = ("karat", "polars", "numpy", "pyspark", "pyarrow")
START = "from karat.spark.engine import session; session().range(1).count()"


@dataclass
class Taken:
    """The time and memory of a process with its children."""

    seconds: float
    cpu: float
    peak: float


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    sizes = SIZES[:1] if quick else SIZES
    here = machine()
    with tempfile.TemporaryDirectory(prefix="karat-bench-") as folder:
        start = best([taken([sys.executable, "-c", START]) for _ in range(3)])
        print(f"start {start.seconds:.1f} s", flush=True)
        both = {size: at_size(Path(folder), size) for size in sizes}
    if not quick:
        text = document(
            [section(start, both)],
            here,
            "`make bench-spark`",
            ratios="Ratios are of best times.",
            packages=PACKAGES,
        )
        Path(__file__).with_name("SPARK.md").write_text(text)


def at_size(folder: Path, queries: int) -> dict[str, Taken]:
    """Return the best of several alternating runs of each engine; both must agree."""
    write(folder, queries)
    every: dict[str, list[Taken]] = {"local": [], "spark": []}
    said = {}
    for _ in range(TIMES[queries]):
        for engine, times in every.items():
            out = folder / f"{engine}.json"
            command = [sys.executable, "-m", "karat.cli", "eval", str(folder / "run.parquet")]
            command += ["--gold", str(folder / "gold.parquet"), "-m", MEASURES, "--no-bounds"]
            command += ["--engine", engine, "--quiet", "-o", f"csv:{out}"]
            times.append(taken(command))
            said[engine] = out.read_bytes()
            print(queries, engine, times[-1], flush=True)
    if said["local"] != said["spark"]:
        raise SystemExit("the two engines do not say the same")
    return {engine: best(times) for engine, times in every.items()}


def best(times: list[Taken]) -> Taken:
    return min(times, key=lambda one: one.seconds)


def section(start: Taken, both: dict[int, dict[str, Taken]]) -> Section:
    rows = [["Spark's start", f"{start.seconds:.1f}", f"{start.cpu:.1f}", f"{start.peak:,.0f}", ""]]
    for size, engines in both.items():
        for engine, one in engines.items():
            rows.append(
                [
                    f"{size * HITS / 1e6:.0f} M rows, {engine}",
                    f"{one.seconds:.1f}",
                    f"{one.cpu:.1f}",
                    f"{one.peak:,.0f}",
                    f"{1e6 * one.seconds / (size * HITS):.3f}",
                ]
            )
    few, many = (both[size] for size in SIZES)
    beyond = many["spark"].seconds - start.seconds
    more = (SIZES[1] - SIZES[0]) * HITS
    first = (few["spark"].seconds - start.seconds) / (SIZES[0] * HITS)
    each = (many["spark"].seconds - few["spark"].seconds) / more
    targets = [
        Target.at_most(
            "70 M rows: Spark beyond its start, against the local engine",
            3,
            beyond / many["local"].seconds,
        ),
        Target.at_most("a row between 7 M and 70 M, against one of the first 7 M", 1, each / first),
        Target.at_most(
            "70 M rows: peak of all of Spark's processes", 6, many["spark"].peak / 1e3, "GB"
        ),
    ]
    note = (
        "Whole processes, best of several in turns; both engines wrote the same bytes. CPU and "
        "memory are those of the process and all that it started (the JVM, the Python workers), "
        "resident memory added up, so that what they share counts several times."
    )
    header = ["", "s", "s of CPU", "peak MB", "µs a row"]
    return Section("spark: 1,000 hits a query, one Parquet file", header, rows, note, targets)


def write(folder: Path, queries: int) -> None:
    """A run and its gold, seeded, a thousand queries at a time."""
    rng = np.random.default_rng(7)
    run = gold = None
    for start in range(0, queries, 1000):
        names = [f"query-{at}" for at in range(start, min(start + 1000, queries))]
        query = np.repeat(np.arange(len(names)), HITS)
        frame = pl.DataFrame(
            {
                "query_id": pl.Series(names).gather(query),
                "item_id": [f"d{item}" for item in rng.integers(0, 8_800_000, len(query))],
                "score": -np.sort(-rng.random((len(names), HITS)), axis=1).ravel(),
            }
        )
        judged = frame.filter(pl.Series(rng.random(len(query)) < 0.004)).unique(
            ["query_id", "item_id"], maintain_order=True
        )
        judged = judged.select("query_id", "item_id").with_columns(
            grade=pl.Series(rng.integers(0, 4, judged.height))
        )
        run = appended(run, folder / "run.parquet", frame)
        gold = appended(gold, folder / "gold.parquet", judged)
    for writer in (run, gold):
        writer.close()


def appended(writer: pq.ParquetWriter | None, path: Path, frame: pl.DataFrame) -> pq.ParquetWriter:
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    kinds = [pa.string() if pa.types.is_large_string(f.type) else f.type for f in table.schema]
    table = table.cast(pa.schema(list(zip(table.schema.names, kinds, strict=True))))
    writer = writer or pq.ParquetWriter(path, table.schema)
    writer.write_table(table)
    return writer


def taken(command: list[str]) -> Taken:
    """Run a process to its end while sampling it and its children."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    watch = Watch(process.pid)
    watch.start()
    error = process.stderr.read()
    process.wait()
    seconds = time.perf_counter() - began
    watch.stop()
    if process.returncode:
        raise SystemExit(error.decode())
    return Taken(seconds, watch.cpu, watch.peak)


class Watch(threading.Thread):
    """Samples a tree of processes twenty times a second."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.peak, self.spent, self.ended = pid, 0.0, dict[int, float](), False

    @property
    def cpu(self) -> float:
        return sum(self.spent.values())

    def run(self) -> None:
        while not self.ended:
            self.look()
            time.sleep(0.05)

    def stop(self) -> None:
        self.ended = True
        self.join()

    def look(self) -> None:
        resident = 0.0
        for pid in tree(self.pid):
            try:
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            self.spent[pid] = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
            resident += int(stat[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6
        self.peak = max(self.peak, resident)


def tree(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            found += tree(int(child))
    return found


if __name__ == "__main__":
    main()
