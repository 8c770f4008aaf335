"""Print how much of karat one nDCG@10 takes, from the command to the printed number.

Counts the karat modules that ``karat eval`` loads on a small TREC run, and the modules and
functions that it enters. Exits with 1 if one of them is above its limit.
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
    gold = [f"q{query} 0 d{(7 * query + 9) % 100} 1\n" for query in range(QUERIES)]
    (folder / "run.trec").write_text("".join(run))
    (folder / "qrels.txt").write_text("".join(gold))


def walk() -> dict[str, int]:
    """Run the command twice: count what the first run loads and what the second one enters."""
    from karat.cli.main import main

    entered: set[tuple[str, str]] = set()

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        code = frame.f_code
        # Neither comprehensions nor module bodies are functions.
        if event == "call" and module.startswith("karat") and not code.co_name.startswith("<"):
            entered.add((module, code.co_qualname))

    with contextlib.redirect_stdout(io.StringIO()):
        if main(COMMAND) != 0:
            raise SystemExit("karat eval failed")
        loaded = sum(name.split(".")[0] == "karat" for name in sys.modules)
        threading.setprofile(trace)
        sys.setprofile(trace)
        main(COMMAND)
        sys.setprofile(None)
        threading.setprofile(None)
    modules = {module for module, _ in entered}
    return dict(zip(LIMITS, (loaded, len(modules), len(entered)), strict=True))


def run() -> int:
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(Path(folder))
        os.chdir(folder)
        counts = walk()
        os.chdir("/")
    for name, count in counts.items():
        print(f"{name}: {count} (at most {LIMITS[name]})")
    return int(any(count > LIMITS[name] for name, count in counts.items()))


if __name__ == "__main__":
    sys.exit(run())
