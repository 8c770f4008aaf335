"""What figures could be, whatever the unjudged items are: as a table and in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from karat.reports.figures import figure, label, several
from karat.reports.grids import Grid

Results = Mapping[str, Any]


def open_grid(results: Results) -> Grid:
    """A row a measure and system that unjudged items can move; no rows where nothing is open."""
    grid = [["measure", "system", "now", "lowest", "highest"]]
    names = dict.fromkeys(name for system in results["systems"] for name in system["measures"])
    for name in names:
        for system in results["systems"]:
            cell = system["measures"].get(name, {})
            if ends := _open_ends(system, name):
                grid.append([name, label(system["name"]), figure(cell["mean"]), *map(figure, ends)])
    return grid if len(grid) > 1 else []


def open_lines(results: Results) -> list[str]:
    """How many items nobody judged, and what they could make of the measure that comes first."""
    told = [line for system in results["systems"] for line in _open_line(results, system)]
    left_out = results.get("bounds_left_out")
    return [*told, *([] if left_out is None else [left_out])]


def inexact_line(results: Results) -> list[str]:
    """That some ends are only known to lie within what is told, where it is so."""
    names = {
        name: None
        for system in results["systems"]
        for name, cell in system["measures"].items()
        if not cell.get("bounds", {"exact": True})["exact"]
    }
    rest = "the true ends lie within those told"
    return [f"{', '.join(names)}: {rest}"] if names else []


def _open_line(results: Results, system: Results) -> list[str]:
    told = _unjudged(system)
    if told is None:
        return []
    name = next((name for name in system["measures"] if _open_ends(system, name)), None)
    if name is None:
        return [told]
    low, high = map(figure, _open_ends(system, name) or ())
    return [f"{told}; whatever they are, {name} lies between {low} and {high}"]


def _unjudged(system: Results) -> str | None:
    """How many items are unjudged, and in how far that matters."""
    many, apart = system.get("unjudged", 0), system.get("unjudged_apart", 0)
    if not many and not apart:
        return None
    name = label(system["name"])
    if not many:
        return f"{name}: {several(apart, 'unjudged item')} in queries that are not scored"
    told = f"{several(many, 'item')} {'is' if many == 1 else 'are'} unjudged"
    more = f" ({apart:,} more in queries that are not scored)" if apart else ""
    return f"{name}: {told}, taken as not relevant{more}"


def _open_ends(system: Results, name: str) -> tuple[float, float] | None:
    """The ends of a measure, where unjudged items can move it."""
    ends = system["measures"].get(name, {}).get("bounds")
    if not ends or ends["low"] is None or ends["low"] == ends["high"]:
        return None
    return ends["low"], ends["high"]
