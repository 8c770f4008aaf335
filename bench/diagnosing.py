"""Time the diagnostic commands and write bench/DIAGNOSING.md.

    python bench/diagnosing.py       about two minutes on a quiet machine

Commands are whole processes and run in turns. Ends with 1 when a target is missed.
"""

import shutil
import time

from cases import Data, size
from contenders import HERE, KARAT
from race import Contender, once, race
from results import Section, Target, document, finish, machine

OUT = HERE / "DIAGNOSING.md"
CUTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 75, 100, 200, 500, 1000)
ITEMS, QUERIES = 100_000, 200


def sweep(data: Data) -> Section:
    folder = data.folder(6_980, 1_000)
    files = [str(folder / "run.trec"), "--gold", str(folder / "qrels.txt")]
    asked = ["-m", "nDCG@10", "-m", "R@100"]
    one = Contender("karat eval, two measures", [KARAT, "eval", *files, *asked], 7)
    cuts = ",".join(map(str, CUTS))
    many = Contender(
        "karat sweep, the two over 20 cut-offs",
        [KARAT, "sweep", *files, "-m", "nDCG", "-m", "R", "--k", cuts],
        7,
    )
    race([one, many])
    return Section(
        f"sweep: {size(folder)}",
        ["", "best s", "median s"],
        [(c.name, f"{c.best:.2f}", f"{c.median:.2f}") for c in (one, many)],
        note="Both with intervals.",
        targets=[Target.at_most("sweep: 20 cut-offs against one eval", 1.5, many.best / one.best)],
    )


def classes(data: Data) -> Section:
    """Return the time of classifying alone, in this process, once a run is scored."""
    from karat.analysis.failures import classify
    from karat.evaluation.stages import KEEP, Thresholds, score_stages
    from karat.formats.readers import read_gold, scan_run
    from karat.measure.conventions import conventions_of
    from karat.measure.names import parse_measures
    from karat.measure.prepare import prepare

    folder = data.folder(6_980, 1_000)
    gold = prepare(read_gold(folder / "qrels.txt"), conventions_of("karat"))
    staged = score_stages(scan_run(folder / "run.trec"), gold, parse_measures("R@10"), keep=KEEP)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        found = classify(staged, None, thresholds=Thresholds()).to_dict()
        times.append(time.perf_counter() - start)
    return Section(
        f"failures: {size(folder)}",
        ["", "s, best of 5"],
        [(f"classify {found['misses']:,} misses", f"{min(times):.3f}")],
        targets=[Target.at_most("failures: beyond scoring", 2, min(times), "s")],
    )


def triage(data: Data) -> Section:
    folder = data.folder(ITEMS, QUERIES, "collection")
    command = [KARAT, "triage", str(folder / "run.trec"), "--gold", str(folder / "qrels.txt")]
    command += ["--queries", str(folder / "queries.jsonl"), "--corpus"]
    command += [str(folder / "corpus.jsonl"), "--cache", str(folder / "cache")]
    shutil.rmtree(folder / "cache", ignore_errors=True)
    indexing = once(command).wall
    opened = Contender("karat triage, once indexed", command, 9)
    race([opened])
    return Section(
        f"triage: {ITEMS:,} items, {QUERIES} queries × 100 hits",
        ["", "best s", "median s"],
        [(opened.name, f"{opened.best:.2f}", f"{opened.median:.2f}")],
        note=f"The first time, with the indexing, took {indexing:.1f} s.",
        targets=[Target.at_most("triage: opens", 1, opened.best, "s")],
    )


def main() -> None:
    computer, data = machine(), Data(1)
    sections = [sweep(data), classes(data), triage(data)]
    text = document(
        sections,
        computer,
        "`make bench-diagnosing`",
        about="All in one run on one machine, in turns.",
        ratios="Ratios are of the best times.",
        packages=("karat", "polars", "numpy", "bm25s"),
    )
    finish(sections, text, OUT)


if __name__ == "__main__":
    main()
