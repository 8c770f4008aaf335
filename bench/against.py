"""Compare the CPU time of today's commands with those of an earlier revision.

    python bench/against.py c667a0d
    python bench/against.py HEAD~1 --rounds 3 --only compare --scale 10

The commands are karat's in the races of bench/cases.py. Both revisions run in turns, as whole
processes with the same installed packages; medians count. Ends with 1 when a command takes more
than 1.10 times the CPU time of before.
"""

import argparse
import io
import subprocess
import tarfile
import tempfile
from pathlib import Path
from statistics import median

from cases import RACES, Data
from contenders import HERE, KARAT, karat
from race import CommandFailedError, Contender, Sample, once
from results import table

MOST = 1.10
ROOT = HERE.parent
HEADER = ("", "before: CPU s", "today: CPU s", "ratio", "ratio of wall times")


def sources(revision: str, folder: Path) -> Path:
    """Return the folder of the sources at a revision."""
    archive = subprocess.run(
        ["git", "archive", revision, "src"], cwd=ROOT, check=True, capture_output=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder / "src"


def samples_of(contender: Contender, trees: list[Path], rounds: int) -> list[list[Sample]]:
    """Return the samples of each tree, without the first turn."""
    samples: list[list[Sample]] = [[] for _ in trees]
    for turn in range(-1, rounds):
        pairs = list(zip(trees, samples, strict=True))
        for tree, taken in pairs if turn % 2 else reversed(pairs):
            if contender.before:
                contender.before()
            environment = {"PYTHONPATH": str(tree)}
            sample = once(contender.command, contender.exit_codes, environment)
            taken += [sample] if turn >= 0 else []
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision")
    parser.add_argument("--rounds", type=int, default=5)
    names = [name for name in RACES if name != "huge"]
    parser.add_argument("--only", action="append", choices=names, help="this case; repeatable")
    parser.add_argument("--scale", type=int, default=1, help="divide the number of queries")
    args = parser.parse_args()
    rows, data = [], Data(args.scale)
    with tempfile.TemporaryDirectory() as folder:
        trees = [sources(args.revision, Path(folder)), ROOT / "src"]
        commands = [("--help", karat("karat", 1, "--help"))]
        commands += [(n, c) for n in args.only or names for c in RACES[n](data).contenders]
        for case, contender in commands:
            if contender.command[0] != KARAT:
                continue
            title = f"{case}: {contender.name}"
            try:
                samples = samples_of(contender, trees, args.rounds)
            except CommandFailedError as error:
                raise SystemExit(f"bench: {title}: {error}") from None
            before, today = (median(sample.cpu for sample in taken) for taken in samples)
            walls = [median(sample.wall for sample in taken) for taken in samples]
            cells = (before, today, today / before, walls[1] / walls[0])
            rows.append((title, *(f"{cell:.2f}" for cell in cells)))
    print(table(HEADER, rows))
    if slower := [title for title, _, _, ratio, _ in rows if float(ratio) > MOST]:
        raise SystemExit(f"bench: slower than before: {', '.join(slower)}")


if __name__ == "__main__":
    main()
