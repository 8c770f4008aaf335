"""The tables of a report as plain cells, before any form gives them borders.

The first row is the header. A tab in a cell parts what should stand below each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from karat.analysis.segments import CROSS, SMALL
from karat.reports.figures import (
    PART,
    between,
    change,
    figure,
    gate_name,
    held,
    interval,
    label,
    measured,
    p_value,
    pair_name,
    verdict_words,
)

# Heads of columns that hold words.
_WORDS = {
    *("change", "file", "sha256", "text", "verdict", "class", "query", "stage", "source", "item"),
    *("doc", "because", "what", "rule", "measure", "system", "segment", "version", "chosen"),
    *("its gold", "index version", "chunker", "embedding model", "reranker model", "spread"),
}
# What a log says that a system is made of, under these heads.
_ARTIFACTS = ("index_version", "chunker", "embedding_model", "reranker_model")
# As much of a digest as tells two files apart.
_DIGEST = 12

Grid = list[list[str]]
Row = Mapping[str, Any]

# A longer name stands above the figures, where it does not push them apart.
LONGEST_HEAD = 12
# What a pull request shows of a comparison, what a terminal does, and what there is to know.
COMPARED_SHORT = ("baseline", "system", "Δ", "verdict")
COMPARED = ("baseline", "system", "Δ", "p", "n", "+/=/−", "verdict")
COMPARED_FULL = (*COMPARED[:-1], "detects", "verdict")


def measure_grid(results: Mapping[str, Any], spreads: Mapping[str, str] | None = None) -> Grid:
    """Measures as rows, systems as columns; n, ceiling and tie ranges where they say something.

    One system alone has room for the quartiles of its queries, and for how they spread, drawn,
    where ``spreads`` has that; ``distribution_grid`` has all.
    """
    drawn = spreads or {}
    systems = results["systems"]
    measures = [system["measures"] for system in systems]
    most = max((one["n"] for own in measures for one in own.values()), default=0)
    names = [label(system["name"]) for system in systems]
    grid = [["measure", *names, "quartiles", "spread", "n", "ceiling"]]
    for name in measures[0]:
        cells = [own[name] for own in measures]
        ns = [cell["n"] for cell in cells]
        n = "" if set(ns) == {most} else between(str(min(ns)), str(max(ns)))
        quartiles = _quartiles(cells[0]) if len(cells) == 1 else ""
        spread = drawn.get(name, "") if quartiles else ""
        row = [name, *map(measured, cells), quartiles, spread, n, _ceiling(cells)]
        grid.append(row)
        ties = [_tie_range(cell) for cell in cells]
        if any(ties):
            grid.append(["  by tie order", *ties, "", "", "", ""])
    return _without_empty(grid, ("quartiles", "spread", "n", "ceiling"))


def distribution_grid(results: Mapping[str, Any]) -> Grid:
    """How the values spread over the queries: the ends, the quartiles and the median."""
    grid = [["measure", "system", "lowest", "25 %", "median", "75 %", "highest"]]
    for name in results["systems"][0]["measures"]:
        for system in results["systems"]:
            if spread := system["measures"][name].get("quantiles"):
                grid.append([name, label(system["name"]), *map(figure, spread)])
    return grid


def word_columns(grid: Grid) -> set[int]:
    """The columns that hold words and not numbers: they start where numbers end."""
    return {0, *(place for place, name in enumerate(grid[0]) if name in _WORDS)}


def transposed(grid: Sequence[Sequence[str]]) -> Grid:
    """Systems as rows."""
    return [list(column) for column in zip(*grid, strict=True)]


def segment_grid(segments: Mapping[str, Mapping[str, Any]], column: str) -> Grid:
    """The values of one segment column as rows, measures as columns; small ones say so."""
    measures = list(next(iter(segments.values()), {}))
    grid = [[label(column), "n", *measures]]
    for value, cells in segments.items():
        known = [cell for cell in cells.values() if cell["n"]]
        ns = [cell["n"] for cell in known] or [0]
        small = any(cell.get("small") for cell in known or cells.values())
        n = between(str(min(ns)), str(max(ns))) + (" small" if small else "")
        grid.append([label(value), n, *(measured(cells[name]) for name in measures)])
    return grid


def gate_grid(results: Mapping[str, Any]) -> Grid:
    """Gates as rows, below the name of their system where there are several."""
    grid = [["gate", "verdict", "mean", "n", "needed"]]
    for name, gates in _grouped(results["gates"]):
        grid += [[name, *[""] * 4]] if name else []
        for gate in gates:
            title = ("  " if name else "") + gate_name(gate)
            cells = [gate["verdict"], held(gate), str(gate["n"]), figure(gate["needed"])]
            grid.append([title, *cells])
    return grid


def comparison_grids(
    results: Mapping[str, Any], columns: Sequence[str] = COMPARED
) -> dict[str, Grid]:
    """Measures as rows, for each pair below a title; the one that decides is first and starred."""
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
    """What decides, segment by segment: a title and a grid for each pair and segment column."""
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


def moved_grids(results: Mapping[str, Any]) -> dict[str, Grid]:
    """The queries that moved most: a title and a grid for each pair; the text comes last."""
    grids: dict[str, Grid] = {}
    for one in results.get("moved", []):
        head = ["query", one["measure"], "change", "text"]
        grid = grids.setdefault(pair_name(one), [head])
        values = f"{figure(one['baseline_value'])}{PART}→ {figure(one['system_value'])}"
        grid.append([label(one["query_id"]), values, one["change"], label(one["text"] or "")])
    return {title: _without_empty(grid, ("text",)) for title, grid in grids.items()}


def input_grid(inputs: Mapping[str, Any]) -> Grid:
    """Every input with the digest of its bytes, then what data and code they are of."""
    rows = [["input", "file", "sha256"]]
    for kind in ("gold", "queries", "corpus"):
        if inputs[kind] is not None:
            rows.append([kind, label(inputs[kind]["name"]), inputs[kind]["sha256"] or ""])
    rows += [["run", label(run["name"]), run["sha256"] or ""] for run in inputs["runs"]]
    return rows + [[name, told, ""] for name, told in origin_parts(inputs).items()]


def origin_parts(inputs: Mapping[str, Any]) -> dict[str, str]:
    """The version of the dataset, its dates and the version of the code, where they are known."""
    ends = inputs.get("as_of_range")
    told = {
        "dataset version": inputs.get("dataset_version"),
        "as_of range": None if ends is None else " to ".join(ends),
        "code version": inputs.get("code_version"),
    }
    return {name: label(str(value)) for name, value in told.items() if value is not None}


def artifact_grid(results: Mapping[str, Any]) -> Grid:
    """What each system is made of, as its log says; no rows where no log says anything."""
    grid = [["system", *(name.replace("_", " ") for name in _ARTIFACTS)]]
    for system in results["systems"]:
        meta = system.get("meta", {})
        grid.append([label(system["name"]), *(label(_spelled(meta.get(n))) for n in _ARTIFACTS)])
    told = _without_empty(grid, grid[0][1:])
    return told if len(told[0]) > 1 else []


def _spelled(value: Any) -> str:
    """A setting in words: the name of a thing first, a digest in short.

    >>> _spelled({"algo": "paragraph", "overlap": 0}), _spelled("v3"), _spelled(None)
    ('algo paragraph, overlap 0', 'v3', '')
    >>> _spelled({"sha256": "0123456789abcdef", "name": "rank.py:score", "call": "rank.py:score"})
    'rank.py:score, sha256 0123456789ab'
    """
    if not isinstance(value, Mapping):
        return "" if value is None else str(value)
    name = value.get("name")
    parts = [] if name is None else [str(name)]
    for key, one in value.items():
        if one is not None and one != name:
            parts.append(f"{key} {str(one)[:_DIGEST] if key == 'sha256' else one}")
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
    """The heads of the columns, with the names of the two systems if these are short."""
    names = {key: label(row[key]) for key in ("baseline", "system")}
    if max(map(len, names.values())) > LONGEST_HEAD:
        return list(columns)
    return [names.get(column, column) for column in columns]


def _grouped(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Rows by system, in order; a system that is the only one needs no name."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(label(row["system"]), []).append(row)
    return list(groups.items()) if len(groups) > 1 else [("", list(rows))]


def _ceiling(cells: Iterable[Row]) -> str:
    """The best reachable value, where it is below what a reader takes for granted."""
    reachable = [
        cell["ceiling"]
        for cell in cells
        if cell["better"] == "higher" and cell["ceiling"] not in (None, 1.0)
    ]
    return between(figure(min(reachable)), figure(max(reachable))) if reachable else ""


def _quartiles(cell: Row) -> str:
    """The middle half of the queries and their median."""
    low, median, high = (cell.get("quantiles") or [None] * 5)[1:4]
    if low is None:
        return ""
    return f"{figure(low)} · {figure(median)} · {figure(high)}"


def _tie_range(cell: Row) -> str:
    """The range of the mean over tie orders, where it is wide enough to be seen."""
    low, high = map(figure, cell.get("ties", (None, None)))
    return "" if low == high else between(low, high)


def _without_empty(grid: Grid, names: Collection[str]) -> Grid:
    """The grid without those of the named columns that say nothing."""
    places = _places(grid, names)
    return _without(grid, [place for place in places if not any(row[place] for row in grid[1:])])


def _places(grid: Grid, names: Collection[str]) -> list[int]:
    """Where the named columns are; a system of such a name stands before them."""
    heads = grid[0]
    last = {name: place for place, name in enumerate(heads) if place and name in names}
    return list(last.values())


def _without(grid: Grid, places: Sequence[int]) -> Grid:
    return [[cell for place, cell in enumerate(row) if place not in places] for row in grid]
