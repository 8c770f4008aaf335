"""Precision and nDCG on gold alone and with a judge's labels, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from karat.reports.figures import label, measured, several
from karat.reports.grids import Grid


def bounds_grid(results: Mapping[str, Any]) -> Grid:
    """A row a measure and system; no rows where no labels were given."""
    grid = [["measure", "system", "gold", "gold + judge"]]
    for system in results["systems"]:
        for name, both in system.get("bounds", {}).items():
            sides = [measured(both[side]) for side in ("gold", "gold_and_judge")]
            grid.append([name, label(system["name"]), *sides])
    return grid if len(grid) > 1 else []


def bounds_lines(results: Mapping[str, Any]) -> list[str]:
    """How many labels there are, and what they are good for."""
    if "judged" not in results:
        return []
    told = results["judged"]
    parts = [f"{several(told['added'], 'label')} of a judge added to the gold"]
    if told["known"]:
        parts.append(f"{told['known']:,} judged in the gold already, which counts")
    if told["elsewhere"]:
        parts.append(f"{told['elsewhere']:,} of queries without gold or not asked, left out")
    if told["failed"]:
        parts.append(f"{several(told['failed'], 'pair')} could not be judged, left out")
    use = "labels count for P and nDCG alone; nDCG may fall, since more gold betters the ideal list"
    return [" · ".join(parts), use]
