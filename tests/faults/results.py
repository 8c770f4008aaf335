"""What the full form found, as the table of docs/reliability.md; the page around it is by hand."""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
_HEADER = ("fault", "during", "times", "outcome")


class Row(NamedTuple):
    """A fault, what karat was doing, how often it was tried, and what came of it."""

    fault: str
    during: str
    times: int
    outcome: str


def machine() -> str:
    """The machine, said as the benchmarks say it; they are scripts and no package."""
    spec = importlib.util.spec_from_file_location("bench_results", ROOT / "bench" / "results.py")
    results = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules["bench_results"] = results
    spec.loader.exec_module(results)
    return results.machine()


def refreshed(page: str, rows: list[Row], *, whole: bool, machine: str) -> str:
    """The page with these rows; unless they are the whole, others that it has stay."""
    before, _, rest = page.partition(BEGIN)
    old, _, after = rest.partition(END)
    known = {} if whole else {row[:2]: row for row in _rows(old)}
    known |= {row[:2]: row for row in rows}
    lines = [_line(_HEADER), _line(("---", "---", "---:", "---"))]
    lines += [_line(row._replace(times=f"{row.times:,}")) for row in sorted(known.values())]
    told = f"Written by make faults on {time.strftime('%Y-%m-%d')}, never by hand. {machine}."
    return f"{before}{BEGIN}\n{told}\n\n" + "\n".join(lines) + f"\n{END}{after}"


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def _rows(table: str) -> list[Row]:
    cells = [re.split(r"\s*\|\s*", line.strip("| ")) for line in table.splitlines() if "|" in line]
    return [Row(a, b, int(n.replace(",", "")), c) for a, b, n, c in cells[2:]]
