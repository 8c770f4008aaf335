"""The tables of a report as plain cells, before any form gives them borders.

The first row is the header. A tab in a cell separates parts that line up in a column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from karat.evaluation.segments import CROSS, SMALL
from karat.pages.formatting import (
    PART,
    change,
    figure,
    gate_mean,
    gate_name,
    interval,
    label,
    measured,
    number_range,
    p_value,
    pair_name,
    verdict_words,
)
from karat.pages.page import Grid

# Keys of a log that say what a system is made of.
_ARTIFACTS = ("index_version", "chunker", "embedding_model", "reranker_model")
# Digits of a digest that are shown.
_DIGEST = 12

Row = Mapping[str, Any]

# A longer name goes into the title, since it would widen the column.
LONGEST_HEAD = 12
# Columns of a comparison in a pull request, on a terminal, and in full.
COMPARED_SHORT = ("baseline", "system", "Δ", "verdict")
COMPARED = ("baseline", "system", "Δ", "p", "n", "+/=/−", "verdict")
COMPARED_FULL = (*COMPARED[:-1], "detects", "verdict")


def measure_table(results: Mapping[str, Any], spreads: Mapping[str, str] | None = None) -> Grid:
    """Return measures as rows, systems as columns; other columns only where they add something.

    One system alone has room for the quartiles of its queries, and for how they spread, drawn,
    where ``spreads`` has that; ``distribution_table`` has all.
    """
    drawn = spreads or {}
    systems = results["systems"]
    measures = [system["measures"] for system in systems]
    most = max((one["n"] for measure in measures for one in measure.values()), default=0)
    names = [label(system["name"]) for system in systems]
    grid = [["measure", *names, "quartiles", "spread", "n", "ceiling"]]
    for name in measures[0]:
        cells = [measure[name] for measure in measures]
        ns = [cell["n"] for cell in cells]
        n = "" if set(ns) == {most} else number_range(str(min(ns)), str(max(ns)))
        quartiles = _quartiles(cells[0]) if len(cells) == 1 else ""
        spread = drawn.get(name, "") if quartiles else ""
        row = [name, *map(measured, cells), quartiles, spread, n, _ceiling(cells)]
        grid.append(row)
        ties = [_tie_range(cell) for cell in cells]
        if any(ties):
            grid.append(["  by tie order", *ties, "", "", "", ""])
    return _without_empty(grid, ("quartiles", "spread", "n", "ceiling"))


def distribution_table(results: Mapping[str, Any]) -> Grid:
    """Return how values spread over the queries: the ends, the quartiles and the median."""
    grid = [["measure", "system", "lowest", "25 %", "median", "75 %", "highest"]]
    for name in results["systems"][0]["measures"]:
        for system in results["systems"]:
            if spread := system["measures"][name].get("quantiles"):
                grid.append([name, label(system["name"]), *map(figure, spread)])
    return grid


def transposed(grid: Sequence[Sequence[str]]) -> Grid:
    """Return the table with systems as rows."""
    return [list(column) for column in zip(*grid, strict=True)]


def segment_table(segments: Mapping[str, Mapping[str, Any]], column: str) -> Grid:
    """Return the values of one segment column as rows, measures as columns; marks small ones."""
    measures = list(next(iter(segments.values()), {}))
    grid = [[label(column), "n", *measures]]
    for value, cells in segments.items():
        known = [cell for cell in cells.values() if cell["n"]]
        ns = [cell["n"] for cell in known] or [0]
        small = any(cell.get("small") for cell in known or cells.values())
        n = number_range(str(min(ns)), str(max(ns))) + (" small" if small else "")
        grid.append([label(value), n, *(measured(cells[name]) for name in measures)])
    return grid


def gate_table(results: Mapping[str, Any]) -> Grid:
    """Return gates as rows, below the name of their system if there are several."""
    grid = [["gate", "verdict", "mean", "n", "needed"]]
    for name, gates in _grouped(results["gates"]):
        grid += [[name, *[""] * 4]] if name else []
        for gate in gates:
            title = ("  " if name else "") + gate_name(gate)
            cells = [gate["verdict"], gate_mean(gate), str(gate["n"]), figure(gate["needed"])]
            grid.append([title, *cells])
    return grid


def comparison_tables(
    results: Mapping[str, Any], columns: Sequence[str] = COMPARED
) -> dict[str, Grid]:
    """Return a titled table per pair, measures as rows; the deciding one is first and starred."""
    rows = [row for row in results["comparisons"] if row["segment"] is None and row["n"]]
    rows.sort(key=lambda row: not row["primary"])
    grids: dict[str, Grid] = {}
    for row in rows:
        head = ["measure", *_heads(row, columns)]
        cells = _compared(row) | {"verdict": verdict_words(row, p="p" not in columns)}
        grid = grids.setdefault(pair_name(row), [head])
        name = f"{row['measure']} *" if row["primary"] else row["measure"]
        grid.append([name, *(cells[column] for column in columns)])
    if len({row["n"] for row in rows}) > 1:
        return grids
    return {title: _without(grid, _places(grid, ("n",))) for title, grid in grids.items()}


def compared_segments(results: Mapping[str, Any]) -> dict[str, Grid]:
    """Return a titled table per pair and segment column, for the deciding measure."""
    rows = [row for row in results["comparisons"] if row["segment"] and row["primary"]]
    grids: dict[str, Grid] = {}
    for row in rows:
        column = label(CROSS.join(row["segment"]))
        title = f"{row['measure']} by {column}, {pair_name(row)}"
        columns = ("n", "baseline", "system", "Δ", "p", "verdict")
        cells = _compared(row) | {"verdict": verdict_words(row)}
        cells["n"] += " small" if row["n"] < SMALL else ""
        grid = grids.setdefault(title, [[column, *_heads(row, columns)]])
        value = label(CROSS.join(row["segment"].values()))
        grid.append([value, *(cells[name] for name in columns)])
    return grids


def moved_tables(results: Mapping[str, Any]) -> dict[str, Grid]:
    """Return a titled table per pair of the queries that moved most; the text comes last."""
    grids: dict[str, Grid] = {}
    for query in results.get("moved", []):
        head = ["query", query["measure"], "change", "text"]
        grid = grids.setdefault(pair_name(query), [head])
        values = f"{figure(query['baseline_value'])}{PART}→ {figure(query['system_value'])}"
        grid.append([label(query["query_id"]), values, query["change"], label(query["text"] or "")])
    return {title: _without_empty(grid, ("text",)) for title, grid in grids.items()}


def input_table(inputs: Mapping[str, Any]) -> Grid:
    """Return every input with its digest, then the versions of data and code."""
    rows = [["input", "file", "sha256"]]
    for kind in ("gold", "queries", "corpus"):
        if inputs[kind] is not None:
            rows.append([kind, label(inputs[kind]["name"]), inputs[kind]["sha256"] or ""])
    rows += [["run", label(run["name"]), run["sha256"] or ""] for run in inputs["runs"]]
    return rows + [[name, value, ""] for name, value in origin_parts(inputs).items()]


def origin_parts(inputs: Mapping[str, Any]) -> dict[str, str]:
    """Return the dataset version, its dates and the code version, where known."""
    ends = inputs.get("as_of_range")
    parts = {
        "dataset version": inputs.get("dataset_version"),
        "as_of range": None if ends is None else " to ".join(ends),
        "code version": inputs.get("code_version"),
    }
    return {name: label(str(value)) for name, value in parts.items() if value is not None}


def artifact_table(results: Mapping[str, Any]) -> Grid:
    """Return what each system is made of, as its log says; no rows if no log says it."""
    grid = [["system", *(name.replace("_", " ") for name in _ARTIFACTS)]]
    for system in results["systems"]:
        meta = system.get("meta", {})
        grid.append([label(system["name"]), *(label(_spelled(meta.get(n))) for n in _ARTIFACTS)])
    filled = _without_empty(grid, grid[0][1:])
    return filled if len(filled[0]) > 1 else []


def _spelled(value: Any) -> str:
    """Return a setting in words: a name first, digests shortened.

    >>> _spelled({"algo": "paragraph", "overlap": 0}), _spelled("v3"), _spelled(None)
    ('algo paragraph, overlap 0', 'v3', '')
    >>> _spelled({"sha256": "0123456789abcdef", "name": "rank.py:score", "call": "rank.py:score"})
    'rank.py:score, sha256 0123456789ab'
    """
    if not isinstance(value, Mapping):
        return "" if value is None else str(value)
    name = value.get("name")
    parts = [] if name is None else [str(name)]
    for key, element in value.items():
        if element is not None and element != name:
            parts.append(f"{key} {str(element)[:_DIGEST] if key == 'sha256' else element}")
    return ", ".join(parts)


def _compared(row: Row) -> dict[str, str]:
    return {
        "baseline": figure(row["baseline_mean"]),
        "system": figure(row["system_mean"]),
        "Δ": f"{change(row['delta'])}{PART}{interval(row['ci'])}",
        "p": p_value(row["p_adjusted"]),
        "n": str(row["n"]),
        "+/=/−": f"{row['wins']}/{row['ties']}/{row['losses']}",
        "detects": figure(row["detectable"]),
    }


def _heads(row: Row, columns: Sequence[str]) -> list[str]:
    """Return the headers, with the names of the two systems if these are short."""
    names = {key: label(row[key]) for key in ("baseline", "system")}
    if max(map(len, names.values())) > LONGEST_HEAD:
        return list(columns)
    return [names.get(column, column) for column in columns]


def _grouped(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Return rows by system, in order; a single system is not named."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(label(row["system"]), []).append(row)
    return list(groups.items()) if len(groups) > 1 else [("", list(rows))]


def _ceiling(cells: Iterable[Row]) -> str:
    """Return the best reachable value, if it is below 1."""
    reachable = [
        cell["ceiling"]
        for cell in cells
        if cell["better"] == "higher" and cell["ceiling"] not in (None, 1.0)
    ]
    return number_range(figure(min(reachable)), figure(max(reachable))) if reachable else ""


def _quartiles(cell: Row) -> str:
    """Return the quartiles of the queries."""
    low, median, high = (cell.get("quantiles") or [None] * 5)[1:4]
    if low is None:
        return ""
    return f"{figure(low)} · {figure(median)} · {figure(high)}"


def _tie_range(cell: Row) -> str:
    """Return the range of the mean over tie orders, if it is wide enough to see."""
    low, high = map(figure, cell.get("ties", (None, None)))
    return "" if low == high else number_range(low, high)


def _without_empty(grid: Grid, names: Collection[str]) -> Grid:
    """Return the table without those of the named columns that are empty."""
    places = _places(grid, names)
    return _without(grid, [place for place in places if not any(row[place] for row in grid[1:])])


def _places(grid: Grid, names: Collection[str]) -> list[int]:
    """Return where the named columns are; a system with such a name comes before them."""
    heads = grid[0]
    last = {name: place for place, name in enumerate(heads) if place and name in names}
    return list(last.values())


def _without(grid: Grid, places: Sequence[int]) -> Grid:
    return [[cell for place, cell in enumerate(row) if place not in places] for row in grid]
