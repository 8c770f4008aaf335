"""The report on a terminal, the verdict first; a table too wide for it is split, never cut."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from karat.reports.bounds import bounds_grid, bounds_lines
from karat.reports.document import Report
from karat.reports.figures import PART, label
from karat.reports.grids import (
    Grid,
    compared_segments,
    comparison_grids,
    gate_grid,
    measure_grid,
    moved_grids,
    segment_grid,
    transposed,
    word_columns,
)
from karat.reports.headlines import Tone, headlines, unreachable
from karat.reports.notes import (
    blocking_lines,
    conventions_lines,
    counts_lines,
    lacks_lines,
    left_out_lines,
    origin_lines,
    other_reversals,
    overlap_lines,
    rule_line,
    tests_line,
)
from karat.reports.sparklines import spreads_of
from karat.reports.unjudged import open_lines

# More systems than this read better below each other than side by side.
SIDE_BY_SIDE = 4
PIPED_WIDTH = 100
# What a query's text gets on a terminal that has no room for it.
SHORTEST_TEXT = 20
# What a column of verdicts needs at least.
VERDICT_WIDTH = 16
# Between columns; the narrow one where it saves a table from being split.
WIDE_GAP, NARROW_GAP = 2, 1

_ORIGIN = ("dataset_version", "as_of_range", "code_version")
_TONES: dict[Tone, str] = {"bad": "bold red", "unsure": "bold yellow", "good": "bold green"}
_VERDICTS = {
    "pass": "green",
    "better": "green",
    "fail": "red",
    "worse": "red",
    "unmeasurable": "yellow",
    "skipped": "yellow",
}

Results = Mapping[str, Any]


def show_report(report: Report, console: Console | None = None) -> None:
    """Print the verdict, gates, comparisons, measures, segments, counts and conventions."""
    console = console or standard_console()
    show_results(report.results(), console, spreads=_spreads(report, console))
    origin = {name: getattr(report, name) for name in _ORIGIN}
    for line in origin_lines(origin):
        say(line, console, style="dim")


def show_results(
    results: Results, console: Console, *, spreads: Mapping[str, str] | None = None
) -> None:
    """Print the results part of a report's document.

    ``spreads`` draws how the queries' values of one system spread, by measure: the document
    has their quartiles alone.
    """
    _show_verdict(results, console)
    if results.get("gates"):
        show_grid(gate_grid(results), console)
    _show_lines([*blocking_lines(results), *left_out_lines(results)], console)
    if "comparisons" in results and (compared := comparison_grids(results)):
        _show_titled(compared, console)
        _show_lines([f"{rule_line(results)} · {tests_line(results)}"], console)
    _show_measures(results, console, spreads or {})
    if bounds := bounds_grid(results):
        show_grid(bounds, console)
        _show_lines(bounds_lines(results), console)
    _show_segments(results, console)
    _show_lines(other_reversals(results), console, style="yellow")
    _show_lines(overlap_lines(results), console)
    moved = moved_grids(results).items()
    _show_titled(
        {f"moved most: {title}": cut_texts(grid, console) for title, grid in moved}, console
    )
    for line in (*counts_lines(results), *open_lines(results), *lacks_lines(results)):
        say(line, console)
    for line in conventions_lines(results):
        say(line, console, style="dim")


def standard_console() -> Console:
    """Standard output: as wide as the terminal, or of a fixed width where there is none."""
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() and int(columns) > 0 else _own_width()
    # Without a height Rich takes any dumb terminal for one of 80 columns.
    return _Console(width=width, height=25, markup=False, emoji=False, highlight=False)


def _own_width() -> int:
    """What the terminal itself says; a fixed number where there is none."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or PIPED_WIDTH
    except (OSError, ValueError, AttributeError):
        return PIPED_WIDTH


def say(line: str, console: Console, *, style: str = "") -> None:
    """Print a sentence: whole where a file or program reads it, else broken between words."""
    if not console.is_terminal:
        console.print(line, style=style, soft_wrap=True)
        return
    words = line.lstrip(" ")
    indent = len(line) - len(words)
    for piece in Text(words, style).wrap(console, max(console.width - indent, SHORTEST_TEXT)):
        piece.rstrip()
        console.print(Text(" " * indent) + piece, soft_wrap=True)


class _Console(Console):
    """Rich ends the process with 1 when a reader goes away, which is the code of a failed gate."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _show_verdict(results: Results, console: Console) -> None:
    for line in unreachable(results):
        say(f"OUT OF REACH  {line}", console, style=_TONES["bad"])
    found = headlines(results)
    several = len(results.get("decisions", [])) > 1
    for one in found:
        told = one.about
        if one.pair:
            told = f"{one.about}: {one.because[0]}" if several else one.because[0]
        say(f"{one.word}  {told}", console, style=_TONES[one.tone])
        for reason in one.because[1:] if one.pair else one.because:
            say(f"  {reason}", console)
    if found:
        console.print()


def _spreads(report: Report, console: Console) -> dict[str, str]:
    """How one system's queries spread; for several there is no room."""
    if len(report.systems) > 1:
        return {}
    (system,) = report.systems
    plain = console.options.ascii_only
    return spreads_of(system.scores, system.summaries, ascii_only=plain)


def _show_measures(results: Results, console: Console, spreads: Mapping[str, str]) -> None:
    grid = measure_grid(results, spreads)
    if _span(_columns(grid), NARROW_GAP) > console.width:
        grid = measure_grid(results)
    if len(results["systems"]) > SIDE_BY_SIDE:
        grid = transposed(grid)
        grid[0][0] = "system"
    show_grid(grid, console)


def _show_segments(results: Results, console: Console) -> None:
    if "comparisons" in results:
        _show_titled(compared_segments(results), console)
    for system in results["systems"]:
        for column, segments in system.get("segments", {}).items():
            if len(results["systems"]) > 1:
                say(label(system["name"]), console, style="bold")
            show_grid(segment_grid(segments, column), console)


def _show_titled(grids: Mapping[str, Grid], console: Console) -> None:
    for title, grid in grids.items():
        say(title, console, style="bold")
        show_grid(grid, console)


def _show_lines(lines: Sequence[str], console: Console, *, style: str = "") -> None:
    """Lines that belong to what stands above them, and a gap below."""
    for line in lines:
        say(label(line), console, style=style)
    if lines:
        console.print()


def cut_texts(grid: Grid, console: Console) -> Grid:
    """The grid with the texts in its last column cut to what is left of the width."""
    if grid[0][-1] != "text":
        return grid
    *others, _ = _columns(grid)
    room = max(SHORTEST_TEXT, console.width - sum(_width(column) + WIDE_GAP for column in others))
    cut = [grid[0]]
    for *cells, words in grid[1:]:
        text = Text(words)
        text.truncate(room, overflow="ellipsis")
        cut.append([*cells, text.plain])
    return cut


def show_grid(grid: Grid, console: Console) -> None:
    """Print a grid as one table, or as several that each fit the width."""
    columns, fitting = _columns(grid), console.width
    words = word_columns(grid) - {0}
    widths = [_width(column) for column in columns]
    if grid[0][-1] == "verdict":
        # Words that explain a verdict may stand below each other, or past the edge of a file.
        widths[-1] = min(widths[-1], VERDICT_WIDTH)
    gap = WIDE_GAP if _across(widths, WIDE_GAP) <= fitting else NARROW_GAP
    gap = gap if _across(widths, gap) <= fitting else WIDE_GAP
    for places in _places_that_fit(widths, fitting, gap):
        chosen = [columns[place] for place in places]
        table = _table(chosen, gap, {places.index(one) for one in words if one in places})
        # A single column may still be too wide: then the terminal wraps it, and nothing is cut;
        # words are broken where they end.
        if console.is_terminal and places[-1] in words:
            table.columns[-1].no_wrap = False
        else:
            console.width = max(fitting, _span(chosen, gap))
        console.print(table, crop=False)
        console.print()
        console.width = fitting


def _places_that_fit(widths: Sequence[int], room: int, gap: int) -> Iterator[list[int]]:
    """The first column with as many of the others as fit, until all have been shown."""
    chosen: list[int] = []
    for place in range(1, len(widths)):
        wider = [0, *chosen, place]
        if chosen and sum(widths[one] for one in wider) + gap * (len(wider) - 1) > room:
            yield [0, *chosen]
            chosen = []
        chosen.append(place)
    yield [0, *chosen]


def _table(columns: Sequence[Sequence[str]], gap: int, coloured: Collection[int]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, gap - 1, 0, 0),
        header_style="bold",
    )
    for header, *_ in columns:
        table.add_column(header, no_wrap=True)
    for cells in zip(*(column[1:] for column in columns), strict=True):
        styles = (
            _VERDICTS.get(cell.partition(" ")[0], "") if at in coloured else ""
            for at, cell in enumerate(cells)
        )
        table.add_row(*map(Text, cells, styles))
    return table


def _columns(grid: Grid) -> list[list[str]]:
    """The columns, each with its header: numbers end at the right, words start at the left."""
    words = word_columns(grid)
    columns = enumerate(zip(*grid, strict=True))
    return [list(cells) if place in words else _aligned(cells) for place, cells in columns]


def _aligned(cells: Sequence[str]) -> list[str]:
    """Cells of one width, and the parts of a cell below those of the others."""
    parts = [cell.split(PART) for cell in cells]
    most = max(map(len, parts))
    whole = [own for own in parts if len(own) == most]
    widths = [max(map(cell_len, column)) for column in zip(*whole, strict=True)]
    joined = [" ".join(map(_right, own, widths)) if len(own) == most else own[0] for own in parts]
    if most > 1 and not widths[-1]:
        joined = [cell.rstrip() for cell in joined]
    widest = _width(joined)
    return [_right(cell, widest) for cell in joined]


def _right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text


def _width(column: Sequence[str]) -> int:
    return max(map(cell_len, column))


def _span(columns: Sequence[Sequence[str]], gap: int) -> int:
    return _across([_width(column) for column in columns], gap)


def _across(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * (len(widths) - 1)
