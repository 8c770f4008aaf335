"""Compare the CPU time of today's commands with those of an earlier revision.

    python bench/against.py c667a0d
    python bench/against.py HEAD~1 --rounds 3 --only compare --scale 10

Both run in turns, as whole processes with the same installed packages; medians count. Ends with 1
when a command takes more than 1.10 times the CPU time of before.
"""

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from statistics import median

from cases import Data
from contenders import HERE, MEASURES
from race import CommandFailedError, Sample, once

MOST = 1.10
ROOT = HERE.parent


def commands(data: Data, folder: Path) -> dict[str, list[str]]:
    """Return the arguments of every command by its name in the table."""
    large = data.folder(6_980, 1_000)
    for kind in ("shuffled", "parquet"):
        data.folder(6_980, 1_000, kind)
    logs = data.folder(1_000, 1_000)
    data.folder(1_000, 1_000, "jsonl")
    small, runs = data.folder(50 * data.scale, 1_000), data.folder(1_000, 100, "runs")
    pair = data.folder(200, 100, "runs")
    measures = [word for measure in MEASURES for word in ("-m", measure)]

    def evaluate(place: Path, run: str, *more: str) -> list[str]:
        return ["eval", str(place / run), "--gold", str(place / "qrels.txt"), *measures, *more]

    def compare(place: Path, *names: str) -> list[str]:
        files = [str(place / name) for name in names]
        return ["compare", *files, "--gold", str(place / "qrels.txt")]

    first, second, *_ = sorted(path.name for path in runs.glob("r*.trec"))
    every = [str(path) for path in sorted(runs.glob("r*.trec"))]
    return {
        "--help": ["--help"],
        "eval, 50 × 1,000": evaluate(small, "run.trec"),
        "eval, 6,980 × 1,000": evaluate(large, "run.trec"),
        "the same, no intervals": evaluate(large, "run.trec", "--set", "interval=none"),
        "the same, shuffled": evaluate(large, "shuffled.trec"),
        "the same, Parquet": evaluate(large, "run.parquet"),
        "the same, report.json": evaluate(large, "run.trec", "-o", str(folder / "report.json")),
        "the same, report.html": evaluate(large, "run.trec", "-o", str(folder / "report.html")),
        "eval, run log, 1,000 × 1,000": evaluate(logs, "run.jsonl"),
        "eval, 20 runs of 1,000 × 100": ["eval", *every, *evaluate(runs, first)[2:]],
        "compare, 200 × 100": compare(pair, first, second),
        "compare, 1,000 × 100": compare(runs, first, second),
        "run of the recipe rag": ["run", str(folder / "rag" / "karat.yaml")],
        "search of the recipe rag": [
            "search", str(folder / "rag" / "karat.yaml"), "-o", str(folder / "{system}.jsonl"),
        ],
        "sweep, 1,000 × 100": ["sweep", *compare(runs, first)[1:]],
        "diagnose, 1,000 × 100": ["diagnose", *compare(runs, first)[1:]],
    }  # fmt: skip


def sources(revision: str, folder: Path) -> Path:
    """Return the folder of the sources at a revision."""
    archive = subprocess.run(
        ["git", "archive", revision, "src"], cwd=ROOT, check=True, capture_output=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder / "src"


# A failed gate or a confirmed regression is an answer too.
_RUN = 'PYTHONPATH="$0" "$@" || test $? -eq 1'


def take(tree: Path, arguments: list[str]) -> Sample:
    return once(["sh", "-c", _RUN, str(tree), sys.executable, "-m", "karat", *arguments])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", help="commands whose name holds this")
    parser.add_argument("--scale", type=int, default=1, help="divide the number of queries")
    args = parser.parse_args()
    slower = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trees = [sources(args.revision, folder / "before"), ROOT / "src"]
        take(trees[1], ["init", "rag", str(folder / "rag")])
        print(f"| CPU seconds, median of {args.rounds} | {args.revision} | today | ratio | wall |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for title, arguments in commands(Data(args.scale), folder).items():
            if args.only and not any(part in title for part in args.only):
                continue
            samples: list[list[Sample]] = [[], []]
            try:
                for turn in range(-1, args.rounds):
                    pairs = list(zip(trees, samples, strict=True))
                    for tree, taken in pairs if turn % 2 else reversed(pairs):
                        sample = take(tree, arguments)
                        taken += [sample] if turn >= 0 else []
            except CommandFailedError as error:
                raise SystemExit(f"bench: {title}: {error}") from None
            before, today = (median(sample.cpu for sample in taken) for taken in samples)
            walls = [median(sample.wall for sample in taken) for taken in samples]
            ratio = today / before
            cells = f"{before:.2f} | {today:.2f} | {ratio:.2f} | {walls[1] / walls[0]:.2f}"
            print(f"| {title} | {cells} |", flush=True)
            slower += [title] if ratio > MOST else []
    if slower:
        raise SystemExit(f"bench: slower than before: {', '.join(slower)}")


if __name__ == "__main__":
    main()
