"""The cases: their files, the tools that run on them, and the targets for karat."""

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

from contenders import (
    HERE,
    KARAT,
    PEERS,
    compared,
    difference,
    karat,
    karat_eval,
    numbers,
    peer,
    ratio,
    scan,
    trec_eval,
)
from race import Contender, once, race
from results import Section, Target


@dataclass(frozen=True)
class Data:
    """The generated files, in a folder named after the generator's digest."""

    scale: int

    @property
    def home(self) -> Path:
        digest = hashlib.sha256((HERE / "generate.py").read_bytes()).hexdigest()
        return HERE / "data" / digest[:8]

    def folder(self, queries: int, hits: int, kind: str = "trec") -> Path:
        """Return the files of a kind, for a collection with these numbers of items and queries."""
        queries = max(queries // self.scale, 1)
        own = f"-{kind}" if kind in ("runs", "collection") else ""
        folder = self.home / f"{queries}x{hits}{own}"
        done = folder / f".{kind}"
        if not done.exists():
            print(f"generating {folder.name} {kind}", file=sys.stderr)
            size = (str(queries), str(hits))
            command = (sys.executable, str(HERE / "generate.py"), str(folder), kind, *size)
            subprocess.run(command, check=True)
            done.touch()
        return folder

    def recipe(self) -> Path:
        """Return the karat.yaml of the recipe rag, as this karat writes it."""
        folder = self.home / "rag"
        shutil.rmtree(folder, ignore_errors=True)
        once([KARAT, "init", "rag", str(folder)])
        return folder / "karat.yaml"


@dataclass
class Race:
    """Run whole processes on the same files and check their targets."""

    title: str
    contenders: list[Contender]
    targets: Callable[[], list[Target]] = list
    same_data: bool = True
    scratch: Path | None = None  # a folder too large to keep

    def section(self) -> Section:
        try:
            section = compared(self.title, self.contenders, same_data=self.same_data)
        finally:
            if self.scratch:
                shutil.rmtree(self.scratch)
        section.targets = self.targets()
        return section


def size(folder: Path) -> str:
    queries, hits = re.findall(r"\d+", folder.name)
    return f"{int(queries):,} queries × {int(hits):,} hits"


def small(data: Data) -> Race:
    folder = data.folder(50 * data.scale, 1_000)
    files = (folder / "qrels.txt", [folder / "run.trec"])
    ours, pytrec = karat_eval(*files, 11), peer("pytrec_eval", *files, 11)
    others = [scan(*files, 11), pytrec, trec_eval(files[0], files[1][0], 11)]
    others += [peer(name, *files, 3) for name in ("ir_measures", "ranx")]
    return Race(
        f"small: {size(folder)}, with table and intervals",
        [ours, *others],
        lambda: [Target.at_most("small: CPU time against pytrec_eval", 2, ratio(ours, pytrec))],
    )


def large(data: Data) -> Race:
    folder = data.folder(6_980, 1_000)
    files = (folder / "qrels.txt", [folder / "run.trec"])
    ours, floor = karat_eval(*files, 7), scan(*files, 7)
    in_c = trec_eval(files[0], files[1][0], 3)
    peers = {name: peer(name, *files, rounds) for name, rounds in PEERS.items()}
    reports = {
        suffix: karat_eval(*files, 7, f"karat, -o report.{suffix}", "-o", data.home / f"r.{suffix}")
        for suffix in ("json", "html")
    }
    plain = karat_eval(*files, 3, "karat, no intervals", "--set", "interval=none")
    return Race(
        f"large: {size(folder)}, TREC file, ten measures with intervals",
        [ours, floor, *peers.values(), in_c, plain, *reports.values()],
        lambda: [
            Target.at_most("large: CPU time against a bare Polars scan", 1.6, ratio(ours, floor)),
            Target.at_most(
                "large: wall time against a bare Polars scan", 2, ratio(ours, floor, "median")
            ),
            Target.at_least(
                "large: faster than pytrec_eval", 6, ratio(peers["pytrec_eval"], ours, "median")
            ),
            Target.at_least("large: faster than trec_eval in C", 3, ratio(in_c, ours, "median")),
            Target.at_most("large: peak memory", 350, ours.peak, "MB"),
            *(
                Target.at_most(f"large: CPU time with -o report.{suffix}", 1.25, ratio(one, ours))
                for suffix, one in reports.items()
            ),
        ],
    )


def forms(data: Data) -> Race:
    folder, qrels = data.folder(6_980, 1_000), data.folder(6_980, 1_000) / "qrels.txt"
    for kind in ("shuffled", "parquet"):
        data.folder(6_980, 1_000, kind)
    shuffled = [folder / "shuffled.trec"]
    slow = peer("pytrec_eval", qrels, shuffled, 2)
    slow.name = "pytrec_eval, shuffled"
    return Race(
        f"forms: {size(folder)}, the rows in any order and as Parquet",
        [
            karat_eval(qrels, [folder / "run.trec"], 5),
            karat_eval(qrels, shuffled, 5, "karat, shuffled"),
            slow,
            karat_eval(qrels, [folder / "run.parquet"], 5, "karat, Parquet"),
        ],
    )


def log(data: Data) -> Race:
    folder = data.folder(1_000, 1_000)
    data.folder(1_000, 1_000, "jsonl")
    trec = karat_eval(folder / "qrels.txt", [folder / "run.trec"], 7, "karat, TREC file")
    ours = karat_eval(folder / "qrels.txt", [folder / "run.jsonl"], 7, "karat, JSONL run log")
    return Race(
        f"log: {size(folder)} as a run log",
        [trec, ours],
        lambda: [Target.at_most("log: CPU time against the TREC file", 1.5, ratio(ours, trec))],
    )


def many(data: Data) -> Race:
    folder = data.folder(1_000, 100, "runs")
    files = (folder / "qrels.txt", sorted(folder.glob("r*.trec")))
    peers = [peer(name, *files, rounds) for name, rounds in PEERS.items()]
    title = f"many: 20 runs of {size(folder)}, one process"
    return Race(title, [karat_eval(*files, 7), scan(*files, 7), *peers])


def compare(data: Data) -> Race:
    folder, larger = data.folder(200 * data.scale, 100, "runs"), data.folder(1_000, 100, "runs")

    def command(name: str, folder: Path, runs: int = 2) -> Contender:
        files = sorted(folder.glob("r*.trec"))[:runs]
        title = f"karat {name}, {size(folder)}"
        return karat(title, 9, name, *files, "--gold", folder / "qrels.txt", exit_codes=(0, 1))

    one, two = command("eval", folder, 1), command("compare", folder)
    others = [command(name, larger) for name in ("compare", "sweep", "diagnose")]
    return Race(
        "compare: two runs, beside the eval of one",
        [one, two, *others],
        lambda: [Target.at_most("compare: CPU time against eval of one", 1.5, ratio(two, one))],
    )


def recipe(data: Data) -> Race:
    # Its gates fail, so its exit code is 1. The turn that does not count is its first time.
    ours = karat("karat run", 5, "run", data.recipe(), exit_codes=(0, 1))
    return Race(
        "recipe: karat run of the recipe rag, second time",
        [ours],
        lambda: [Target.at_most("recipe: CPU time", 3.5, ours.cpu, "s")],
    )


def search(data: Data) -> Race:
    folder = data.folder(100_000, 200, "collection")
    words = ("search", folder / "karat.yaml", "-o", folder / "{system}.jsonl")
    first, second = karat("first time", 3, *words), karat("second time", 3, *words)
    first.before = lambda: shutil.rmtree(folder / ".karat", ignore_errors=True)
    items, queries = re.findall(r"\d+", folder.name)
    return Race(
        f"search: karat search with BM25, {int(items):,} items, {queries} queries",
        [first, second],
        lambda: [Target.at_most("search: CPU time against the first", 0.35, ratio(second, first))],
    )


def huge(data: Data) -> Race:
    base, folder = data.folder(6_980, 1_000), data.folder(69_800, 1_000)
    one = karat_eval(base / "qrels.txt", [base / "run.trec"], 3)
    ten = karat_eval(folder / "qrels.txt", [folder / "run.trec"], 3, "karat, ten times")
    return Race(
        f"huge: {size(folder)}, ten times the rows of large",
        [one, ten, scan(folder / "qrels.txt", [folder / "run.trec"], 1)],
        lambda: [
            Target.at_most("huge: peak memory", 2.5, ten.peak / 1e3, "GB"),
            Target.at_most("huge: CPU time per row against large", 1.25, ten.cpu / one.cpu / 10),
        ],
        same_data=False,
        scratch=folder,
    )


def start(data: Data) -> Section:
    """Measure start-up: the CPU time of --help, and the modules an import loads."""
    shown, imported = karat("`karat --help`", 11, "--help"), python("import karat")
    contenders = [shown, imported, python("pass")]
    section = compared("start: what it costs to begin", contenders)
    plain = loaded("")
    lazy = loaded("import karat") - plain - {"karat"}
    # The store is an extra itself.
    names = "[name for name in karat.__all__ if name not in ('Store', 'LabelSets')]"
    full = loaded(f"import karat; [getattr(karat, name) for name in {names}]") - plain
    wrong = sorted(full & extras())
    section.note = (
        f"`import karat` loads {', '.join(sorted(lazy)) or 'nothing beyond the standard library'}; "
        f"with every public name touched {', '.join(sorted(full - {'karat'}))}."
    )
    what = "start: `import karat` and its names load scipy or an extra"
    section.targets = [
        Target.at_most("start: CPU time of `karat --help`", 0.15, shown.cpu, "s"),
        Target.at_most("start: CPU time of `import karat`", 0.05, imported.cpu, "s"),
        Target(what, "none", ", ".join(wrong) or "none", not wrong),
    ]
    return section


def python(code: str) -> Contender:
    return Contender(f"`python -c '{code}'`", [sys.executable, "-c", code], 11)


def memory(data: Data) -> Section:
    """Time dicts to means in one process, without reading files."""
    header = ("", "karat: best s", "median s", "pytrec_eval: best s", "median s", "× pytrec_eval")
    section = Section("memory: from a dict of dicts", header, [])
    print(section.title, file=sys.stderr)
    for queries, hits, rounds in ((1_000, 100, 15), (6_980, 1_000, 5)):
        folder = data.folder(queries, hits)
        files = (str(folder / "qrels.txt"), str(folder / "run.trec"), str(rounds))
        command = [sys.executable, str(HERE / "memory.py"), *files]
        both = Contender("both", command, 1, package="pytrec_eval")
        race([both])
        value: float | str = both.problem or 0.0
        if both.problem:
            section.rows.append((size(folder), both.problem, *[""] * (len(header) - 2)))
        else:
            found = json.loads(both.samples[0].output)
            means = [[numbers(found["means"][tool])] for tool in ("karat", "pytrec_eval")]
            gap = difference(*means)
            if not gap <= both.tolerance:
                raise SystemExit(f"bench: memory: karat and pytrec_eval differ by {gap:g}")
            ours, theirs = found["times"]["karat"], found["times"]["pytrec_eval"]
            value = median(ours) / median(theirs)
            times = (min(ours), median(ours), min(theirs), median(theirs), value)
            section.rows.append((size(folder), *(f"{time:.3f}" for time in times)))
        what = f"memory: time against pytrec_eval, {size(folder)}"
        section.targets.append(Target.at_most(what, 1, value))
    return section


def decide(data: Data) -> Section:
    """Time all pairs of 20 systems and the intervals of ten measures, without reading files."""
    folder = data.folder(1_000, 100, "runs")
    files = [str(folder / "qrels.txt"), *map(str, sorted(folder.glob("r*.trec")))]
    tools = []
    for name in ("karat", "ranx"):
        command = [sys.executable, str(HERE / "deciding.py"), name, *files]
        package = None if name == "karat" else name
        tools.append(Contender(name, command, 1, package=package, peer=bool(package)))
    race(tools)
    ours, ranx = (one.problem or json.loads(one.samples[0].output)["seconds"] for one in tools)
    intervals = json.loads(once([sys.executable, str(HERE / "intervals.py")]).output)["seconds"]
    slow = (ranx, "") if tools[1].problem else (f"{ranx:.2f}", f"{ranx / ours:.2f}")
    rows = [
        ("karat: 10,000 permutations, intervals, max-T", f"{ours:.2f}", "1.00"),
        ("ranx: 1,000 permutations", *slow),
        ("karat: 6,980 queries × 10 measures × 2,000 resamples", f"{intervals:.2f}", ""),
    ]
    title = f"decide: 20 systems of {size(folder)} × 3 measures, all 190 pairs"
    section = Section(title, ("", "s of compute", "× karat"), rows)
    section.targets = [
        Target.at_most("decide: all pairs", 1, ours, "s"),
        Target.at_most("decide: intervals of 10 measures", 2, intervals, "s"),
    ]
    return section


def loaded(code: str) -> set[str]:
    """Return the packages outside the standard library that some code loads."""
    tops = "{name.partition('.')[0] for name in sys.modules}"
    output = once([sys.executable, "-c", f"import sys; {code}\nprint(*{tops})"]).output
    return {name for name in output.split() if name not in sys.stdlib_module_names}


def extras() -> set[str]:
    """Return the modules that only karat's extras require."""
    asked = [spec for spec in requires("karat") or [] if "extra ==" in spec]
    wanted = {project(spec) for spec in asked} | {"scipy"}
    owners = packages_distributions().items()
    return {module for module, names in owners if wanted & {project(name) for name in names}}


def project(spec: str) -> str:
    """Return the normalised name in a requirement."""
    return re.split(r"[^\w.-]", spec)[0].lower().replace("_", "-").replace(".", "-")


RACES: dict[str, Callable[[Data], Race]] = {
    case.__name__: case for case in (small, large, forms, log, many, compare, recipe, search, huge)
}
COMPUTED: dict[str, Callable[[Data], Section]] = {
    case.__name__: case for case in (start, memory, decide)
}


def warm(data: Data) -> None:
    """Compile before the race whatever an environment compiles at its first call."""
    folder = data.folder(50 * data.scale, 1_000)
    print("warming up", file=sys.stderr)
    files = (folder / "qrels.txt", [folder / "run.trec"], 1)
    race([karat_eval(*files), *(peer(name, *files) for name in PEERS)])
