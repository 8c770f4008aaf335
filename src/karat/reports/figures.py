"""How figures read to people: decimals, ranges, and the lines on counts and conventions.

Works on the results part of a report's document; the terminal and Markdown both use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from karat.measures.conventions import ANY_GRADE

NOTHING = "-"

# each count in words, for one and for more
_EVENTS = {
    "missing": ("missing from the run", "missing from the run"),
    "failed_calls": ("failed call", "failed calls"),
    "empty_gold": ("without relevant gold", "without relevant gold"),
    "no_answer": ("without an answer", "without an answer"),
    "not_in_gold": ("in the run but not asked", "in the run but not asked"),
    "not_in_queries": (
        "in the gold but not among the queries",
        "in the gold but not among the queries",
    ),
    "duplicates_dropped": ("duplicate hit dropped", "duplicate hits dropped"),
    "order_conflicts": ("rank against its score", "ranks against their scores"),
    "versions_unknown": ("unknown version", "unknown versions"),
}
_NO_RESULT = {"missing", "failed_calls"}


def figure(value: float | None) -> str:
    """Four decimals; fewer for numbers that are no shares, such as counts and milliseconds.

    >>> figure(0.41237), figure(1500.0), figure(None)
    ('0.4124', '1500.0', '-')
    """
    if value is None:
        return NOTHING
    return f"{value:.4f}" if abs(value) < 100 else f"{value:.1f}"


def between(low: str, high: str) -> str:
    """A range, or the one value where both ends read the same."""
    return low if low == high else f"{low}..{high}"


def label(text: str) -> str:
    """A name from a file, safe to show: characters that steer a terminal are replaced."""
    return "".join(character if character.isprintable() else "�" for character in text)


def measure_grid(results: Mapping[str, Any]) -> list[list[str]]:
    """Measures as rows, systems as columns; n, ceiling and tie ranges where they say something."""
    systems = results["systems"]
    measures = [system["measures"] for system in systems]
    most = max((one["n"] for own in measures for one in own.values()), default=0)
    grid = [["measure", *(label(system["name"]) for system in systems), "n", "ceiling"]]
    for name in measures[0]:
        cells = [own[name] for own in measures]
        ns = [cell["n"] for cell in cells]
        n = "" if set(ns) == {most} else between(str(min(ns)), str(max(ns)))
        grid.append([name, *(figure(cell["mean"]) for cell in cells), n, _ceiling(cells)])
        ties = [_tie_range(cell) for cell in cells]
        if any(ties):
            grid.append(["  by tie order", *ties, "", ""])
    return _without_empty_columns(grid)


def segment_grid(segments: Mapping[str, Mapping[str, Any]], column: str) -> list[list[str]]:
    """The values of one segment column as rows, measures as columns."""
    measures = list(next(iter(segments.values()), {}))
    grid = [[label(column), "n", *measures]]
    for value, cells in segments.items():
        n = max((cell["n"] for cell in cells.values()), default=0)
        grid.append([label(value), str(n), *(figure(cells[name]["mean"]) for name in measures)])
    return grid


def transposed(grid: Sequence[Sequence[str]]) -> list[list[str]]:
    """Systems as rows."""
    return [list(column) for column in zip(*grid, strict=True)]


def counts_lines(results: Mapping[str, Any]) -> list[str]:
    """What happened to the queries and hits: one line, or one a system where they differ."""
    fate = "left out" if results["conventions"]["missing"] == "skip" else "worst value"
    lines = [_counts_line(system["counts"], fate) for system in results["systems"]]
    if len(set(lines)) == 1:
        return lines[:1]
    names = (label(system["name"]) for system in results["systems"])
    return [f"{name}: {line}" for name, line in zip(names, lines, strict=True)]


def lacks_lines(results: Mapping[str, Any]) -> list[str]:
    """Which of the profile's measures could not be computed, and what they needed."""
    reasons: dict[str, list[str]] = {}
    for system in results["systems"]:
        for name, cell in system["measures"].items():
            if "lacks" in cell and name not in reasons.setdefault(cell["lacks"], []):
                reasons[cell["lacks"]].append(name)
    return [f"not measured: {', '.join(names)} ({reason})" for reason, names in reasons.items()]


def conventions_line(results: Mapping[str, Any]) -> str:
    """The decisions under which the numbers hold."""
    conventions = dict(results["conventions"])
    for idle in _idle_settings(results):
        conventions.pop(idle, None)
    parts = [f"profile {conventions.pop('profile')}"]
    for name, value in conventions.items():
        if value is None:
            own = {system.get("conventions", {}).get(name) for system in results["systems"]}
            value = " or ".join(sorted(str(one) for one in own if one is not None))
        if name == "rel" and value == ANY_GRADE:
            parts.append("rel above 0")
        elif value:
            parts.append(f"{name} {_setting(value)}")
    return " · ".join(parts)


def _idle_settings(results: Mapping[str, Any]) -> list[str]:
    """Settings that have no part in these numbers: spans' cover, the k of measures without one."""
    own_k = any(name.endswith("@k") for name in results["systems"][0]["measures"])
    spans = results["conventions"]["level"] == "span"
    return [*([] if spans else ["cover"]), *([] if own_k else ["k"])]


def _setting(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return " < ".join(map(str, value)) if isinstance(value, list) else str(value)


def _counts_line(counts: Mapping[str, int], fate: str) -> str:
    """``fate`` is what becomes of a query without a result."""
    events = [
        f"{counts[name]:,} {words[counts[name] > 1]}" + (f" ({fate})" if name in _NO_RESULT else "")
        for name, words in _EVENTS.items()
        if counts.get(name)
    ]
    return " · ".join([f"{counts['scored']:,} of {counts['queries']:,} queries scored", *events])


def _ceiling(cells: Iterable[Mapping[str, Any]]) -> str:
    """The best reachable value, where it is below what a reader takes for granted."""
    reachable = [
        cell["ceiling"]
        for cell in cells
        if cell["better"] == "higher" and cell["ceiling"] not in (None, 1.0)
    ]
    return between(figure(min(reachable)), figure(max(reachable))) if reachable else ""


def _tie_range(cell: Mapping[str, Any]) -> str:
    """The range of the mean over tie orders, where it is wide enough to be seen."""
    low, high = map(figure, cell.get("ties", (None, None)))
    return "" if low == high else between(low, high)


def _without_empty_columns(grid: list[list[str]]) -> list[list[str]]:
    keep = [
        column
        for column in range(len(grid[0]))
        if column <= len(grid[0]) - 3 or any(row[column] for row in grid[1:])
    ]
    return [[row[column] for column in keep] for row in grid]
