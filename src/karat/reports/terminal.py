"""The report as tables on a terminal; a table too wide for it is split, never cut."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from karat.reports.document import Report
from karat.reports.figures import (
    conventions_line,
    counts_lines,
    label,
    lacks_lines,
    measure_grid,
    segment_grid,
    transposed,
)

# More systems than this read better below each other than side by side.
SIDE_BY_SIDE = 4
PIPED_WIDTH = 100

Grid = Sequence[Sequence[str]]


def show_report(report: Report, console: Console | None = None) -> None:
    """Print measures, segments, counts and conventions."""
    console = console or standard_console()
    results = report.results()
    grid = measure_grid(results)
    if len(report.systems) > SIDE_BY_SIDE:
        grid = transposed(grid)
        grid[0][0] = "system"
    show_grid(grid, console)
    for system in results["systems"]:
        for column, segments in system.get("segments", {}).items():
            if len(report.systems) > 1:
                console.print(label(system["name"]), style="bold", soft_wrap=True)
            show_grid(segment_grid(segments, column), console)
    for line in (*counts_lines(results), *lacks_lines(results)):
        console.print(line, soft_wrap=True)
    console.print(conventions_line(results), style="dim", soft_wrap=True)


def standard_console() -> Console:
    """Standard output: as wide as the terminal, or of a fixed width where there is none."""
    width = None
    if not sys.stdout.isatty():
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdecimal() and int(columns) > 0 else PIPED_WIDTH
    return Console(width=width, markup=False, emoji=False, highlight=False)


def show_grid(grid: Grid, console: Console) -> None:
    """Print a grid as one table, or as several that each fit the width."""
    fitting = console.width
    for columns in _columns_that_fit(grid, console):
        table = _table(grid, columns)
        # A single column may still be too wide: then the terminal wraps it, and nothing is cut.
        console.width = max(fitting, _width(table, console))
        console.print(table, crop=False)
        console.print()
        console.width = fitting


def _columns_that_fit(grid: Grid, console: Console) -> Iterator[list[int]]:
    """The first column with as many of the others as fit, until all have been shown."""
    chosen: list[int] = []
    for column in range(1, len(grid[0])):
        if chosen and _width(_table(grid, [0, *chosen, column]), console) > console.width:
            yield [0, *chosen]
            chosen = []
        chosen.append(column)
    yield [0, *chosen]


def _table(grid: Grid, columns: Sequence[int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for column in columns:
        justify = "left" if column == 0 else "right"
        table.add_column(grid[0][column], justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for row in grid[1:]:
        table.add_row(*(row[column] for column in columns))
    return table


def _width(table: Table, console: Console) -> int:
    unbounded = console.options.update(width=100_000)
    return Measurement.get(console, unbounded, table).maximum
