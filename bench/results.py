"""Turns what was measured into bench/RESULTS.md: the machine, the targets, a table a case."""

import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from race import ABSENT

PACKAGES = ("karat", "polars", "numpy", "pytrec-eval-terrier", "ir_measures", "ranx")


@dataclass(frozen=True)
class Target:
    """A promise and what became of it; ``met`` is None where a peer is not at hand."""

    what: str
    asked: str
    measured: str
    met: bool | None

    @classmethod
    def at_least(cls, what: str, limit: float, value: float | str, unit: str = "×") -> "Target":
        return cls._of(what, "≥", limit, value, unit)

    @classmethod
    def at_most(cls, what: str, limit: float, value: float | str, unit: str = "×") -> "Target":
        return cls._of(what, "≤", limit, value, unit)

    @classmethod
    def _of(cls, what: str, sign: str, limit: float, value: float | str, unit: str) -> "Target":
        asked = f"{sign} {limit:g} {unit}"
        if isinstance(value, str):  # a peer that is there but fails hides the answer: not met
            return cls(what, asked, value, None if value.startswith(ABSENT) else False)
        met = value <= limit if sign == "≤" else value >= limit
        return cls(what, asked, f"{value:,.2f} {unit}", met)


@dataclass
class Section:
    """One case: its title, a table, what to know about it, and the targets it answers for."""

    title: str
    header: Sequence[str]
    rows: list[Sequence[str]]
    note: str = ""
    targets: list[Target] = field(default_factory=list)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---", *("---:" for _ in header[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def machine() -> str:
    info = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    cores = len(os.sched_getaffinity(0))
    return (
        f"{names[0] if names else platform.machine()}, {cores} cores, {memory:.0f} GB, "
        f"{system}, load {os.getloadavg()[0]:.1f} at the start"
    )


def versions(packages: Sequence[str]) -> str:
    found = [f"Python {platform.python_version()}"]
    for name in packages:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} not installed")
    return ", ".join(found)


def finish(sections: Sequence["Section"], text: str, out: Path) -> None:
    """Write and print the document; end with 1 when a target is missed."""
    out.parent.mkdir(exist_ok=True)
    out.write_text(text)
    print(text)
    targets = [target for section in sections for target in section.targets]
    if open_ := [target.what for target in targets if target.met is None]:
        print("bench: not measured: " + "; ".join(open_), file=sys.stderr)
    if missed := [target.what for target in targets if target.met is False]:
        raise SystemExit("bench: not reached: " + "; ".join(missed))


WHOLE = "All in one run on one machine, in turns; whole processes unless said otherwise."


def document(
    sections: Sequence[Section],
    machine: str,
    how: str,
    *,
    about: str = WHOLE,
    ratios: str = "Ratios are of medians; those in a table are to its first row.",
    packages: Sequence[str] = PACKAGES,
) -> str:
    marks = {True: "pass", False: "**FAIL**", None: "not measured"}
    targets = [
        (target.what, target.asked, target.measured, marks[target.met])
        for section in sections
        for target in section.targets
    ]
    parts = [
        "# Benchmark results",
        f"Written by {how} on {time.strftime('%Y-%m-%d')}, never by hand.",
        about,
        f"- Machine: {machine}\n- Versions: {versions(packages)}",
        "## Targets",
        ratios,
        table(("target", "asked", "measured", ""), targets),
    ]
    for section in sections:
        parts += [f"## {section.title}", table(section.header, section.rows)]
        parts += [section.note] if section.note else []
    return "\n\n".join(parts) + "\n"
