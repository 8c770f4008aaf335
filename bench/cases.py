"""The cases: which files, who races on them, and what is asked of karat."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from statistics import median

from contenders import HERE, KARAT, PEERS, agree, compared, karat, peer, ratio, scan
from race import Contender, once, race
from results import Section, Target


@dataclass(frozen=True)
class Data:
    """The generated files; kept in a folder named after the generator's own digest."""

    scale: int

    @property
    def home(self) -> Path:
        digest = hashlib.sha256((HERE / "generate.py").read_bytes()).hexdigest()
        return HERE / "data" / digest[:8]

    def folder(self, queries: int, hits: int, kind: str = "trec") -> Path:
        queries = max(queries // self.scale, 1)
        folder = self.home / f"{queries}x{hits}{'-runs' if kind == 'runs' else ''}"
        done = folder / f".{kind}"
        if not done.exists():
            print(f"generating {folder.name} {kind}", file=sys.stderr)
            size = (str(queries), str(hits))
            command = (sys.executable, str(HERE / "generate.py"), str(folder), kind, *size)
            subprocess.run(command, check=True)
            done.touch()
        return folder


def size(folder: Path) -> str:
    queries, hits = folder.name.removesuffix("-runs").split("x")
    return f"{int(queries):,} queries × {int(hits):,} hits"


def large(data: Data) -> Section:
    folder = data.folder(6_980, 1_000)
    files = (folder / "qrels.txt", [folder / "run.trec"])
    ours, floor = karat(*files, rounds=7), scan(*files, rounds=7)
    pytrec, irm, ranx = (peer(name, *files, rounds) for name, rounds in PEERS.items())
    sure = karat(*files, rounds=3, name="karat, with intervals", intervals=True)
    everyone = [ours, floor, pytrec, irm, ranx, sure]
    section = compared(f"large: {size(folder)}, TREC file", everyone)
    memory = None if pytrec.problem else ours.peak / pytrec.peak
    section.targets = [
        Target.at_least("large: faster than pytrec_eval", 5, ratio(pytrec, ours)),
        Target.at_least("large: faster than ir_measures", 10, ratio(irm, ours)),
        Target.at_least("large: faster than ranx", 10, ratio(ranx, ours)),
        Target.at_most("large: time against a bare Polars scan", 1.8, ratio(ours, floor)),
        Target.at_most("large: peak memory against pytrec_eval", 0.6, memory),
    ]
    return section


def shuffled(data: Data) -> Section:
    folder = data.folder(6_980, 1_000)
    data.folder(6_980, 1_000, "shuffled")
    files = (folder / "qrels.txt", [folder / "shuffled.trec"])
    ours, pytrec = karat(*files, rounds=5), peer("pytrec_eval", *files, rounds=3)
    section = compared("shuffled: the same rows in any order", [ours, scan(*files, 5), pytrec])
    section.targets = [Target.at_least("shuffled: faster than pytrec_eval", 3, ratio(pytrec, ours))]
    return section


def forms(data: Data) -> Section:
    folder, qrels = data.folder(6_980, 1_000), data.folder(6_980, 1_000) / "qrels.txt"
    ours = karat(qrels, [folder / "run.trec"], rounds=3)
    others = []
    for kind in ("parquet", "jsonl"):
        data.folder(6_980, 1_000, kind)
        others.append(karat(qrels, [folder / f"run.{kind}"], rounds=3, name=f"karat, {kind}"))
    return compared("forms: the same rows as Parquet and as a run log", [ours, *others])


def many(data: Data) -> Section:
    folder = data.folder(1_000, 100, "runs")
    files = (folder / "qrels.txt", sorted(folder.glob("r*.trec")))
    peers = [peer(name, *files, rounds) for name, rounds in PEERS.items()]
    title = f"many: 20 runs of {size(folder)}, one process"
    return compared(title, [karat(*files, rounds=7), scan(*files, rounds=7), *peers])


def small(data: Data) -> Section:
    folder = data.folder(50 * data.scale, 1_000)
    files = (folder / "qrels.txt", [folder / "run.trec"])
    ours, pytrec = karat(*files, rounds=11), peer("pytrec_eval", *files, rounds=11)
    slow = [peer(name, *files, rounds=3) for name in ("ir_measures", "ranx")]
    section = compared(f"small: {size(folder)}", [ours, scan(*files, rounds=11), pytrec, *slow])
    section.targets = [Target.at_most("small: time against pytrec_eval", 2.5, ratio(ours, pytrec))]
    return section


def memory(data: Data) -> Section:
    """Dicts in, means out, in one process: no file is read within the time taken."""
    header = ("", "karat: best s", "median s", "pytrec_eval: best s", "median s", "× pytrec_eval")
    section = Section("memory: from a dict of dicts", header, [])
    print(section.title, file=sys.stderr)
    for queries, hits, rounds in ((1_000, 100, 15), (6_980, 1_000, 5)):
        folder = data.folder(queries, hits)
        files = (str(folder / "qrels.txt"), str(folder / "run.trec"), str(rounds))
        one = Contender("pytrec_eval", [sys.executable, str(HERE / "memory.py"), *files], 1)
        one.package = "pytrec_eval"
        race([one])
        if one.problem not in (None, "not installed"):
            raise SystemExit(f"bench: memory: {one.problem}")
        value = None
        if one.problem:
            section.rows.append((size(folder), one.problem, *[""] * (len(header) - 2)))
        else:
            found = json.loads(one.samples[0].output)
            ours, theirs = found["times"]["karat"], found["times"]["pytrec_eval"]
            agree([found["means"]["karat"]], [found["means"]["pytrec_eval"]], "the two in memory")
            value = median(ours) / median(theirs)
            times = (min(ours), median(ours), min(theirs), median(theirs), value)
            section.rows.append((size(folder), *(f"{time:.3f}" for time in times)))
        what = f"memory: time against pytrec_eval, {size(folder)}"
        section.targets.append(Target.at_most(what, 1, value))
    return section


def huge(data: Data) -> Section:
    base, folder = data.folder(6_980, 1_000), data.folder(69_800, 1_000)
    try:
        one = karat(base / "qrels.txt", [base / "run.trec"], rounds=3)
        ten = karat(folder / "qrels.txt", [folder / "run.trec"], rounds=3, name="karat, ten times")
        ten_scan = scan(folder / "qrels.txt", [folder / "run.trec"], rounds=1)
        title = f"huge: {size(folder)}, ten times the rows of large"
        section = compared(title, [one, ten, ten_scan], same_data=False)
    finally:
        shutil.rmtree(folder)
    section.targets = [
        Target.at_most("huge: peak memory", 2.5, ten.peak / 1e3, "GB"),
        Target.at_most("huge: time per row against large", 1.25, ten.median / one.median / 10),
    ]
    return section


def decide(data: Data) -> Section:
    """All pairs of 20 systems, and the intervals of ten measures: computing only, no reading."""
    folder = data.folder(1_000, 100, "runs")
    files = [str(folder / "qrels.txt"), *map(str, sorted(folder.glob("r*.trec")))]
    times = {}
    for tool in ("karat", "ranx"):
        command = [sys.executable, str(HERE / "deciding.py"), tool, *files]
        one = Contender(tool, command, 1, package=None if tool == "karat" else tool)
        race([one])
        times[tool] = None if one.problem else json.loads(one.samples[0].output)["seconds"]
    intervals = json.loads(once([sys.executable, str(HERE / "intervals.py")]).output)["seconds"]
    rows = [
        ("karat: 10,000 permutations, intervals, max-T", f"{times['karat']:.2f}", "1.00"),
        (
            "ranx: 1,000 permutations",
            "not run" if times["ranx"] is None else f"{times['ranx']:.2f}",
            "" if times["ranx"] is None else f"{times['ranx'] / times['karat']:.2f}",
        ),
        ("karat: 6,980 queries × 10 measures × 2,000 resamples", f"{intervals:.2f}", ""),
    ]
    title = f"decide: 20 systems of {size(folder)} × 3 measures, all 190 pairs"
    section = Section(title, ("", "s of compute", "× karat"), rows)
    section.targets = [
        Target.at_most("decide: all pairs", 1, times["karat"], "s"),
        Target.at_most("decide: intervals of 10 measures", 2, intervals, "s"),
    ]
    return section


def start(data: Data) -> Section:
    """What starting costs: the processor's time of --help, and what an import loads."""
    helps = sorted(once([KARAT, "--help"]).cpu for _ in range(11))
    plain = loaded("")
    lazy = loaded("import karat") - plain - {"karat"}
    full = loaded("import karat; [getattr(karat, name) for name in karat.__all__]") - plain
    wrong = sorted(full & extras())
    rows = [
        ("`karat --help`, s of CPU: best, median", f"{helps[0]:.2f}, {median(helps):.2f}"),
        ("`import karat` loads", ", ".join(sorted(lazy)) or "nothing beyond the standard library"),
        ("with every public name touched", ", ".join(sorted(full - {"karat"}))),
    ]
    section = Section("start: what it costs to begin", ("", ""), rows)
    what = "start: `import karat` and its names load scipy or an extra"
    section.targets = [
        Target.at_most("start: CPU time of `karat --help`", 0.3, median(helps), "s"),
        Target(what, "none", ", ".join(wrong) or "none", not wrong),
    ]
    return section


def loaded(code: str) -> set[str]:
    """The packages outside the standard library that some code loads."""
    tops = "{name.partition('.')[0] for name in sys.modules}"
    output = once([sys.executable, "-c", f"import sys; {code}\nprint(*{tops})"]).output
    return {name for name in output.split() if name not in sys.stdlib_module_names}


def extras() -> set[str]:
    """The modules of all that only karat's extras ask for."""
    asked = [spec for spec in requires("karat") or [] if "extra ==" in spec]
    wanted = {project(spec) for spec in asked} | {"scipy"}
    owners = packages_distributions().items()
    return {module for module, names in owners if wanted & {project(name) for name in names}}


def project(spec: str) -> str:
    """The name in a requirement, in its normal spelling."""
    return re.split(r"[^\w.-]", spec)[0].lower().replace("_", "-").replace(".", "-")


CASES: dict[str, Callable[[Data], Section]] = {
    case.__name__: case
    for case in (start, small, large, shuffled, forms, many, memory, decide, huge)
}


def warm(data: Data) -> None:
    """Whatever is compiled at a first call in an environment is compiled before the race."""
    folder = data.folder(50 * data.scale, 1_000)
    print("warming up", file=sys.stderr)
    peers = [peer(name, folder / "qrels.txt", [folder / "run.trec"], 1) for name in PEERS]
    race([karat(folder / "qrels.txt", [folder / "run.trec"], 1), *peers])
