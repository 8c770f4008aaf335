"""Print how much of karat one nDCG@10 takes, from the command to the printed number.

Counts the karat modules that ``karat eval`` loads on a small TREC run of which every hit is judged,
and the modules and functions that it enters. Exits with 1 if one of them is above its limit.
``--list`` names them, package by package.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

LIMITS = {"modules loaded": 60, "modules entered": 40, "functions entered": 200}
COMMAND = ["eval", "run.trec", "--gold", "qrels.txt", "-m", "nDCG@10"]
QUERIES, HITS = 20, 30


def write_inputs(folder: Path) -> None:
    run = [
        f"q{query} Q0 d{(7 * query + 3 * rank) % 100} {rank} {HITS - rank} small\n"
        for query in range(QUERIES)
        for rank in range(HITS)
    ]
    gold = [
        f"q{query} 0 d{(7 * query + 3 * rank) % 100} {int(rank == query % 5)}\n"
        for query in range(QUERIES)
        for rank in range(HITS)
    ]
    (folder / "run.trec").write_text("".join(run))
    (folder / "qrels.txt").write_text("".join(gold))


def walk() -> tuple[set[str], set[tuple[str, str]]]:
    """Return the modules that the command loads, and the functions that a second run enters."""
    from karat.cli.main import main

    entered: set[tuple[str, str]] = set()

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        code = frame.f_code
        # Neither comprehensions, module bodies nor what dataclasses generate are functions.
        written = not (code.co_name.startswith("<") or "__create_fn__" in code.co_qualname)
        if event == "call" and module.startswith("karat") and written:
            entered.add((module, code.co_qualname))

    with contextlib.redirect_stdout(io.StringIO()):
        if main(COMMAND) != 0:
            raise SystemExit("karat eval failed")
        loaded = {name for name in sys.modules if name.split(".")[0] == "karat"}
        threading.setprofile(trace)
        sys.setprofile(trace)
        main(COMMAND)
        sys.setprofile(None)
        threading.setprofile(None)
    return loaded, entered


def show(loaded: set[str], entered: set[tuple[str, str]]) -> None:
    """Print every module with the functions entered, by package."""
    for package in sorted({name.split(".")[1] for name in loaded if "." in name}):
        functions = [pair for pair in entered if pair[0].split(".")[1] == package]
        modules = sorted(name for name in loaded if name.split(".")[1:2] == [package])
        print(f"{package}: {len(modules)} modules loaded, {len(functions)} functions entered")
        for module in modules:
            names = sorted(name for home, name in functions if home == module)
            print(f"  {module} ({len(names)}): {', '.join(names)}")


def run() -> int:
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(Path(folder))
        os.chdir(folder)
        loaded, entered = walk()
        os.chdir("/")
    if "--list" in sys.argv:
        show(loaded, entered)
    modules = {module for module, _ in entered}
    counts = dict(zip(LIMITS, map(len, (loaded, modules, entered)), strict=True))
    for name, count in counts.items():
        print(f"{name}: {count} (at most {LIMITS[name]})")
    return int(any(count > LIMITS[name] for name, count in counts.items()))


if __name__ == "__main__":
    sys.exit(run())
