"""Precision and nDCG on gold alone and with a judge's labels, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from karat.reports.figures import NOTHING, figure, label, measured, percent, several
from karat.reports.grids import Grid


def bounds_grid(results: Mapping[str, Any]) -> Grid:
    """A row a measure and system; no rows where no labels were given."""
    grid = [["measure", "system", "gold", "gold + judge", "unjudged"]]
    for system in results["systems"]:
        for name, both in system.get("bounds", {}).items():
            sides = [measured(both[side]) for side in ("gold", "gold_and_judge")]
            rest = both["unjudged"]
            share = NOTHING if rest is None else percent(rest)
            grid.append([name, label(system["name"]), *sides, share])
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
    lines = [" · ".join(parts), use, *_open_lines(results)]
    return lines + [_turned_line(one) for one in told["reversed"]]


def _open_lines(results: Mapping[str, Any]) -> list[str]:
    """That some of the top k is judged by nobody, where it is so."""
    cells = [cell for system in results["systems"] for cell in system.get("bounds", {}).values()]
    if not any(cell["unjudged"] for cell in cells):
        return []
    known = "gold + judge bounds only what was judged"
    return [f"{known}: an unjudged hit counts as not relevant on both sides"]


def _turned_line(one: Mapping[str, Any]) -> str:
    """That the labels say the opposite of the gold."""
    pair = f"{label(one['system'])} against {label(one['baseline'])}"
    rises, falls = ("rises", "falls") if one["gold"] > 0 else ("falls", "rises")
    gold, both = (figure(abs(one[side])) for side in ("gold", "gold_and_judge"))
    told = f"{one['measure']} {rises} by {gold} on gold; with the labels it {falls} by {both}"
    return f"{pair}: {told} instead"
