"""The compared tools: karat's command line, the bare scan, the peers; checks that they agree."""

import functools
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from race import ABSENT, Contender, once, race
from results import Section

HERE = Path(__file__).parent
KARAT = str(Path(sys.executable).parent / "karat")
PEERS = {"pytrec_eval": 3, "ir_measures": 2, "ranx": 2}  # and how often each runs
MEASURES = ("nDCG@10", "RR@10", "R@100", "R@1000", "AP", "P@10", "Hit@1", "Rprec", "Bpref")
MEASURES += ("nDCG@100",)
# trec_eval has no cut-off for the reciprocal rank: it computes one, but its mean is not compared.
TREC_EVAL = ("ndcg_cut.10,100", "recip_rank", "recall.100,1000", "map", "P.10", "success.1")
TREC_EVAL += ("Rprec", "bpref")
TREC_EVAL_NAMES = ("ndcg_cut_10", "", "recall_100", "recall_1000", "map", "P_10", "success_1")
TREC_EVAL_NAMES += ("Rprec", "bpref", "ndcg_cut_100")
HEADER = ("", "CPU s: median", "best", "wall s: median", "best", "runs", "CPU ratio")
HEADER += ("wall ratio", "peak MB", "largest difference")

Means = list[dict[str, float]]  # of each run


def karat(name: str, rounds: int, *words: object, exit_codes: Sequence[int] = (0,)) -> Contender:
    command = [KARAT, *map(str, words)]
    return Contender(name, command, rounds, exit_codes=exit_codes)


def karat_eval(
    qrels: Path, runs: Iterable[Path], rounds: int, name: str = "karat", *more: object
) -> Contender:
    """karat eval of ten measures on files, with intervals, which no peer computes."""
    measures = [word for measure in MEASURES for word in ("-m", measure)]
    contender = karat(name, rounds, "eval", *runs, "--gold", qrels, *measures, *more)
    contender.means = _karat_means
    return contender


def scan(qrels: Path, runs: Iterable[Path], rounds: int) -> Contender:
    command = [sys.executable, str(HERE / "peers" / "scan.py"), str(qrels), *map(str, runs)]
    return Contender("bare Polars scan", command, rounds)


def peer(package: str, qrels: Path, runs: Iterable[Path], rounds: int) -> Contender:
    script = str(HERE / "peers" / f"with_{package}.py")
    command = [sys.executable, script, str(qrels), *map(str, runs)]
    return Contender(package, command, rounds, package=package, peer=True, means=_printed_means)


def trec_eval(qrels: Path, run: Path, rounds: int) -> Contender:
    measures = [word for name in TREC_EVAL for word in ("-m", name)]
    program = trec_eval_program()
    command = [program or "trec_eval", *measures, str(qrels), str(run)]
    contender = Contender("trec_eval in C", command, rounds, peer=True, means=_trec_eval_means)
    contender.tolerance = 5.1e-5  # it prints four decimals
    if program:
        said = subprocess.run([program, "--version"], capture_output=True, text=True)
        built = ", built with -O3" if program.startswith(_scratch().name) else ""
        contender.name = f"trec_eval {(said.stdout + said.stderr).split()[-1]} in C{built}"
    else:
        contender.problem = f"{ABSENT}: set TREC_EVAL"
    return contender


@functools.cache
def trec_eval_program() -> str | None:
    """Return the program in TREC_EVAL, or one built with -O3 from that folder."""
    place = os.environ.get("TREC_EVAL")
    if not place:
        return shutil.which("trec_eval")
    path = Path(place).resolve()
    if not path.exists():
        raise SystemExit(f"bench: TREC_EVAL names {place}, which does not exist")
    if path.is_file():
        return str(path)
    folder = _scratch()
    copy = shutil.copytree(path, Path(folder.name) / "source")
    (copy / "trec_eval").unlink(missing_ok=True)
    for old in copy.rglob("*.o"):
        old.unlink()
    make = ["make", "-C", str(copy), "CC=cc -O3", "trec_eval"]
    made = subprocess.run(make, capture_output=True, text=True)
    if made.returncode:
        raise SystemExit(f"bench: TREC_EVAL={place} cannot be built:\n{made.stderr}")
    return str(copy / "trec_eval")


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="bench-trec_eval-")


def _karat_means(contender: Contender) -> Means:
    """Return karat's means from another run, as JSON."""
    systems = json.loads(once([*contender.command, "--json"]).output)["systems"]
    return [numbers({m: s["measures"][m]["mean"] for m in MEASURES}) for s in systems]


def numbers(means: dict[str, float | None]) -> dict[str, float]:
    """Return NaN where karat has no value, as for R@1000 of lists that were cut at 100."""
    return {m: math.nan if value is None else value for m, value in means.items()}


def _printed_means(contender: Contender) -> Means:
    return [json.loads(line) for line in contender.samples[-1].output.splitlines()]


def _trec_eval_means(contender: Contender) -> Means:
    rows = [line.split() for line in contender.samples[-1].output.splitlines()]
    found = {name: float(value) for name, _, value in rows}
    pairs = zip(MEASURES, TREC_EVAL_NAMES, strict=True)
    return [{ours: found[theirs] if theirs else math.nan for ours, theirs in pairs}]


def difference(ours: Means, theirs: Means) -> float:
    """Return the largest difference among the means that both have."""
    pairs = [(a[m], b[m]) for a, b in zip(ours, theirs, strict=True) for m in MEASURES]
    return max(abs(a - b) for a, b in pairs if math.isfinite(a) and math.isfinite(b))


def compared(title: str, contenders: list[Contender], *, same_data: bool = True) -> Section:
    """Run the race and fill a table; stop if the answers differ."""
    print(title, file=sys.stderr)
    race(contenders)
    base, ours, rows = contenders[0], None, []
    for contender in contenders:
        if contender.problem:
            rows.append((contender.name, contender.problem, *[""] * (len(HEADER) - 2)))
            continue
        gap = ""
        if same_data and contender.means:
            means = contender.means(contender)
            gap = _gap(title, contender, ours, means)
            ours = ours or means
        c = contender
        cells = (f"{c.cpu:.2f}", f"{c.best_cpu:.2f}", f"{c.median:.2f}", f"{c.best:.2f}")
        cells += (str(len(c.samples)), f"{c.cpu / base.cpu:.2f}", f"{c.median / base.median:.2f}")
        rows.append((c.name, *cells, f"{c.peak:,.0f}", gap))
    width = len(HEADER) if any(row[-1] for row in rows) else len(HEADER) - 1
    return Section(title, HEADER[:width], [row[:width] for row in rows])


def _gap(title: str, contender: Contender, ours: Means | None, theirs: Means) -> str:
    parts = []
    if ours:
        value = difference(ours, theirs)
        if not value <= contender.tolerance:
            raise SystemExit(f"bench: {title}: karat and {contender.name} differ by {value:g}")
        parts.append(f"{value:.0e}" if value else "0")
    none = [m for m in MEASURES if not all(math.isfinite(means[m]) for means in theirs)]
    return "; ".join([*parts, f"no number for {' '.join(none)}"] if none else parts)


def ratio(above: Contender, below: Contender, what: str = "cpu") -> float | str:
    """Return the ratio of medians, or why there is none; ``what``: ``cpu`` or ``median`` (wall)."""
    problem = above.problem or below.problem
    return problem or getattr(above, what) / getattr(below, what)
