"""Precision and nDCG on gold alone and with a judge's labels, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from karat.reports.figures import (
    NOTHING,
    change,
    figure,
    interval,
    label,
    measured,
    percent,
    several,
)
from karat.reports.grids import Grid


def bounds_grid(results: Mapping[str, Any]) -> Grid:
    """A row a measure and system; no rows where no labels were given."""
    head = ["measure", "system", "gold", "gold + judge", "unjudged"]
    corrected = _any_corrected(results)
    grid = [[*head[:-1], "corrected", head[-1]] if corrected else head]
    for system in results["systems"]:
        for name, both in system.get("bounds", {}).items():
            sides = [measured(both[side]) for side in ("gold", "gold_and_judge")]
            rest = both["unjudged"]
            share = NOTHING if rest is None else percent(rest)
            own = [_corrected(both.get("corrected"))] if corrected else []
            grid.append([name, label(system["name"]), *sides, *own, share])
    return grid if len(grid) > 1 else []


def _any_corrected(results: Mapping[str, Any]) -> bool:
    cells = (cell for one in results["systems"] for cell in one.get("bounds", {}).values())
    return any("corrected" in cell for cell in cells)


def _corrected(found: Mapping[str, Any] | None) -> str:
    """A precision without the judge's errors, where there is one."""
    if found is None:
        return ""
    return measured({"mean": found["value"], "ci": found["ci"]})


def bounds_lines(results: Mapping[str, Any]) -> list[str]:
    """How many labels there are, and what they are good for."""
    if "judged" not in results:
        return []
    told = results["judged"]
    parts = [f"{several(told['added'], 'label')} of a judge added to the gold"]
    if told["known"]:
        parts.append(f"{told['known']:,} judged in the gold already, which counts")
    if told["elsewhere"]:
        where = "of queries without relevant gold or not asked"
        parts.append(f"{told['elsewhere']:,} {where}, left out")
    if told["failed"]:
        parts.append(f"{several(told['failed'], 'pair')} could not be judged, left out")
    if told.get("not_judged"):
        parts.append(f"{several(told['not_judged'], 'label')} below 0: pooled, not judged")
    use = "labels count for P and nDCG alone; nDCG may fall, since more gold betters the ideal list"
    lines = [" · ".join(parts), use, *_open_lines(results), *_corrected_lines(results)]
    return lines + [_turned_line(one) for one in told["reversed"]]


def _corrected_lines(results: Mapping[str, Any]) -> list[str]:
    """What the corrected precision rests on, why there is none, and what it makes of pairs."""
    cells = [cell for one in results["systems"] for cell in one.get("bounds", {}).values()]
    found = [cell["corrected"] for cell in cells if "corrected" in cell]
    lacking = sorted({one["because"] for one in found if one["because"] is not None})
    lines = [f"no corrected precision: {why}" for why in lacking]
    lines += [_rests_on(one) for one in found if one["because"] is None][:1]
    return lines + [_apart(row) for row in results.get("comparisons", []) if _is_corrected(row)]


def _rests_on(one: Mapping[str, Any]) -> str:
    rates = ", ".join(f"{name} {figure(one[name])}" for name in ("sensitivity", "specificity"))
    people = f"{several(one['labels']['all'], 'pair')} that people judged too"
    return f"corrected for the judge's errors ({rates} on {people}): {one['only']}"


def _is_corrected(row: Mapping[str, Any]) -> bool:
    return row.get("corrected") is not None and row["corrected"]["value"] is not None


def _apart(row: Mapping[str, Any]) -> str:
    """How far apart two systems are by their corrected precision."""
    pair = f"{label(row['system'])} against {label(row['baseline'])}"
    found = row["corrected"]
    told = f"{change(found['value'])} {interval(found['ci'])}".rstrip()
    return f"{pair}: corrected {row['measure']} {told}"


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
