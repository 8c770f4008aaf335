"""Who races: karat's command line, the bare scan, the peers; and whether they agree."""

import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from race import Contender, once, race
from results import Section

HERE = Path(__file__).parent
KARAT = str(Path(sys.executable).parent / "karat")
PEERS = {"pytrec_eval": 3, "ir_measures": 2, "ranx": 2}  # and how often each runs
MEASURES = ("nDCG@10", "RR@10", "R@100", "R@1000", "AP", "P@10", "Hit@1", "Rprec", "Bpref")
MEASURES += ("nDCG@100",)
HEADER = ("", "best s", "median s", "runs", "× karat", "peak MB", "largest difference")
TOLERANCE = 1e-6

Means = list[dict[str, float]]  # of each run


def karat(
    qrels: Path,
    runs: Iterable[Path],
    rounds: int,
    name: str = "karat",
    *,
    intervals: bool = False,
) -> Contender:
    """karat on files; without intervals unless asked for, since no peer computes them."""
    asked = [word for measure in MEASURES for word in ("-m", measure)]
    asked += [] if intervals else ["--set", "interval=none"]
    return Contender(name, [KARAT, "eval", *map(str, runs), "--gold", str(qrels), *asked], rounds)


def scan(qrels: Path, runs: Iterable[Path], rounds: int) -> Contender:
    command = [sys.executable, str(HERE / "peers" / "scan.py"), str(qrels), *map(str, runs)]
    return Contender("bare scan", command, rounds)


def peer(package: str, qrels: Path, runs: Iterable[Path], rounds: int) -> Contender:
    script = str(HERE / "peers" / f"with_{package}.py")
    command = [sys.executable, script, str(qrels), *map(str, runs)]
    return Contender(package, command, rounds, package=package)


def means_of(one: Contender) -> Means | None:
    """What a contender found: karat is asked once more, for JSON; a peer prints it anyway."""
    if one.command[0] == KARAT:
        systems = json.loads(once([*one.command, "--json"]).output)["systems"]
        return [{m: system["measures"][m]["mean"] for m in MEASURES} for system in systems]
    if one.problem or one.package is None:
        return None
    return [json.loads(line) for line in one.samples[-1].output.splitlines()]


def difference(ours: Means, theirs: Means) -> tuple[float, list[str]]:
    """The largest difference of a mean, and the measures that a tool has no number for."""
    pairs = [(m, a[m], b[m]) for a, b in zip(ours, theirs, strict=True) for m in MEASURES]
    none = list(dict.fromkeys(m for m, _, b in pairs if not math.isfinite(b)))
    return max(abs(a - b) for m, a, b in pairs if m not in none), none


def agree(ours: Means, theirs: Means, who: str) -> None:
    gap, none = difference(ours, theirs)
    if none or not gap <= TOLERANCE:
        raise SystemExit(f"bench: {who} disagree by {gap:g} {none}\n  {ours}\n  {theirs}")


def compared(title: str, contenders: list[Contender], *, same_data: bool = True) -> Section:
    """Races and fills a table; on the same data karat and pytrec_eval have to agree."""
    print(title, file=sys.stderr)
    race(contenders)
    found = [means_of(one) if same_data else None for one in contenders]
    for one, means in zip(contenders, found, strict=True):
        if found[0] and means and (one.command[0] == KARAT or one.name == "pytrec_eval"):
            agree(found[0], means, f"{title}: karat and {one.name}")
    rows = [
        row(one, contenders[0].median, gap(found[0], means))
        for one, means in zip(contenders, found, strict=True)
    ]
    return Section(title, HEADER, rows)


def gap(ours: Means | None, theirs: Means | None) -> str:
    if not ours or not theirs or ours is theirs:
        return ""
    value, none = difference(ours, theirs)
    return (f"{value:.0e}" if value else "0") + (
        f"; no number for {' '.join(none)}" if none else ""
    )


def row(one: Contender, base: float, apart: str) -> Sequence[str]:
    if one.problem:
        return (one.name, one.problem, *[""] * (len(HEADER) - 2))
    times = (f"{one.best:.2f}", f"{one.median:.2f}", str(len(one.samples)))
    return (one.name, *times, f"{one.median / base:.2f}", f"{one.peak:,.0f}", apart)


def ratio(above: Contender, below: Contender) -> float | None:
    return None if above.problem or below.problem else above.median / below.median
