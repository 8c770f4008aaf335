"""The systems of a page side by side: every measure, and what lies between two systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from karat.errors import UsageError
from karat.reports.figures import figure, interval
from karat.reports.glossary import named
from karat.reports.grids import Grid, distribution_grid, measure_grid
from karat.reports.html.deltas import Delta, delta_of, overall_rows, reaches
from karat.reports.html.names import (
    LONGEST_SENTENCE,
    Document,
    baseline_name,
    measure_names,
    primary_name,
    short,
    shown_names,
    system_names,
)
from karat.reports.notes import (
    lacks_lines,
    nothing_found_lines,
    overlap_lines,
    rule_line,
    tests_line,
)

Row = Mapping[str, Any]

# So many pairs stand open below each other; of more, each opens at a click.
MOST_OPEN = 3
_UNKNOWN: Row = {"mean": None, "ci": None}
_TOLD = ("quartiles", "n", "ceiling")


@dataclass(frozen=True, slots=True)
class Cell:
    """A measure of one system; ``lacks`` says why there is none.

    ``own`` is what it is over all of the system's queries, where this is over fewer.
    """

    mean: str
    ends: str = ""
    lacks: str = ""
    ties: str = ""
    own: str = ""


@dataclass(frozen=True, slots=True)
class MeasureRow:
    """A measure of all systems; ``deltas`` are against the baseline, None where there is none."""

    measure: str
    decides: bool
    lower: bool
    cells: tuple[Cell, ...]
    deltas: tuple[Delta | None, ...]
    quartiles: str
    n: str
    ceiling: str


@dataclass(frozen=True, slots=True)
class PairRow:
    """A measure of two systems, and what lies between them."""

    measure: str
    decides: bool
    lower: bool
    baseline: Cell
    system: Cell
    delta: Delta | None
    ceiling: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two systems: for each measure both means and what lies between them.

    ``fewer`` is true where some means are over the queries that both have, and not over all.
    """

    baseline: str
    system: str
    rows: tuple[PairRow, ...]
    fewer: bool


@dataclass(frozen=True, slots=True)
class Systems:
    """What the section shows: the table of all, then that of each pair.

    ``alone`` is true where one pair says all that there is to say.
    """

    names: tuple[str, ...]
    baseline: str
    rows: tuple[MeasureRow, ...]
    pairs: tuple[Pair, ...]
    alone: bool
    opened: bool
    columns: tuple[str, ...]
    notes: tuple[str, ...]
    spread: Grid
    meanings: tuple[tuple[str, str], ...]


def systems_of(document: Document, head: Document | None) -> Systems:
    """Measures as rows, the one that decides first."""
    names = tuple(system_names(document))
    rows = tuple(_rows(document, head))
    pairs = tuple(_pairs(document, rows))
    compared = [rule_line(document), tests_line(document)] if pairs else []
    lines = [*nothing_found_lines(document), *compared]
    lines += [*overlap_lines(document), *lacks_lines(document)]
    compared_names = {name for pair in pairs for name in (pair.baseline, pair.system)}
    return Systems(
        names=names,
        baseline=shown_names(document).get(baseline_name(document) or "", ""),
        rows=rows,
        pairs=pairs,
        alone=len(pairs) == 1 and compared_names == set(names),
        opened=len(pairs) <= MOST_OPEN,
        columns=tuple(name for name in _TOLD if any(getattr(row, name) for row in rows)),
        notes=tuple(short(line, LONGEST_SENTENCE) for line in lines),
        spread=[[short(cell) for cell in row] for row in distribution_grid(document)],
        meanings=tuple(_meanings([row.measure for row in rows])),
    )


def _rows(document: Document, head: Document | None) -> list[MeasureRow]:
    primary = primary_name(document, head)
    names = sorted(measure_names(document, head), key=lambda name: name != primary)
    heads, *lines = measure_grid(document)
    told = {line[0]: dict(zip(heads, line, strict=True)) for line in lines}
    compared, reach = overall_rows(document), reaches(document)
    baseline = baseline_name(document) or ""
    rows = []
    for name in names:
        deltas = tuple(
            delta_of(compared.get((baseline, system["name"], name)), reach)
            for system in document["systems"]
        )
        rows.append(_row(document, name, deltas, told.get(name, {})))
    return rows


def _row(
    document: Document, name: str, deltas: tuple[Delta | None, ...], told: Mapping[str, str]
) -> MeasureRow:
    cells = [system["measures"].get(name) for system in document["systems"]]
    known = [cell for cell in cells if cell is not None]
    ns = sorted({cell["n"] for cell in known})
    # A system may be called like one of these columns; what it measures is no column of them.
    taken = {system["name"] for system in document["systems"]}
    quartiles, ceiling = ("" if key in taken else told.get(key, "") for key in _TOLD[::2])
    return MeasureRow(
        measure=name,
        decides=document.get("rule", {}).get("primary") == name,
        lower=any(cell["better"] == "lower" for cell in known),
        cells=tuple(map(_cell, cells)),
        deltas=deltas,
        quartiles=quartiles,
        n=" to ".join(f"{n:,}" for n in dict.fromkeys([ns[0], ns[-1]])),
        ceiling=ceiling,
    )


def _cell(cell: Row | None) -> Cell:
    if cell is None:
        return Cell(figure(None), lacks="not measured")
    ties = cell.get("ties")
    tied = ties is not None and figure(ties[0]) != figure(ties[1])
    lacks = short(cell.get("lacks", ""), LONGEST_SENTENCE)
    return Cell(figure(cell["mean"]), interval(cell["ci"]), lacks, interval(ties) if tied else "")


def _pairs(document: Document, rows: Sequence[MeasureRow]) -> list[Pair]:
    """Every pair that was compared, in the order of the comparison."""
    compared, reach = overall_rows(document), reaches(document)
    systems = {system["name"]: system for system in document["systems"]}
    shown = shown_names(document)
    pairs = []
    for both in dict.fromkeys(key[:2] for key in compared):
        made = []
        for row in rows:
            found = compared.get((*both, row.measure))
            cells = [
                # Repeated runs stand in the table by themselves, and here as one.
                systems[name]["measures"].get(row.measure) if name in systems else _UNKNOWN
                for name in both
            ]
            first, second = _beside(found, cells)
            own = (row.measure, row.decides, row.lower)
            made.append(PairRow(*own, first, second, delta_of(found, reach), row.ceiling))
        baseline, system = (shown.get(name, short(name)) for name in both)
        fewer = any(cell.own for row in made for cell in (row.baseline, row.system))
        pairs.append(Pair(baseline, system, tuple(made), fewer))
    return pairs


def _beside(found: Row | None, cells: Sequence[Row | None]) -> list[Cell]:
    """Both means of a row: those that its difference is of, where the systems' own are others.

    A system that failed on some queries, or was not asked them, has a mean over fewer.
    """
    if found is None or found["baseline_mean"] is None or found["system_mean"] is None:
        return [_cell(cell) for cell in cells]
    paired = [float(found[side]) for side in ("baseline_mean", "system_mean")]
    own = [None if cell is None else cell["mean"] for cell in cells]
    differ = any(
        mean is not None and figure(mean) != figure(both)
        for mean, both in zip(own, paired, strict=True)
    )
    return [
        _paired(cell, mean) if differ or cell is None or cell["mean"] is None else _cell(cell)
        for cell, mean in zip(cells, paired, strict=True)
    ]


def _paired(cell: Row | None, mean: float) -> Cell:
    """A mean over the queries that both systems have; its own interval is not of these."""
    if cell is None or cell["mean"] is None:
        return Cell(figure(mean))
    own = f"{figure(cell['mean'])} {interval(cell['ci'])}".strip()
    return Cell(figure(mean), own=f"{own} over all {cell['n']:,} queries of its own")


def _meanings(measures: Sequence[str]) -> list[tuple[str, str]]:
    """What each measure is, in the first words of ``karat measures``."""
    found = []
    for name in measures:
        try:
            found.append((name, named(name).about.partition("\n")[0].replace("``", "")))
        except UsageError:
            # A document of a later version may have measures that this one does not know.
            continue
    return found
