"""A page on a terminal; a table too wide for it is split, never cut."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from karat.pages.columns import show_columns
from karat.pages.formatting import PART, label
from karat.pages.page import VERDICT_TONES, Columns, Grid, Page, Section, Tone, word_columns
from karat.pages.sparklines import ASCII_BLOCKS, BLOCKS

PIPED_WIDTH = 100
# The least that a query's text gets on a narrow terminal.
SHORTEST_TEXT = 20
# The least that a column of verdicts gets.
VERDICT_WIDTH = 16
# Between columns; the narrow gap is used where it saves a table from being split.
WIDE_GAP, NARROW_GAP = 2, 1

_HEADLINE_STYLES: dict[Tone, str] = {
    "plain": "bold",
    "good": "bold green",
    "unsure": "bold yellow",
    "bad": "bold red",
}
_LINE_STYLES: dict[Tone, str] = {"plain": "", "good": "green", "unsure": "yellow", "bad": "red"}
# Drawings for terminals that cannot show them.
_ASCII = str.maketrans(f"{BLOCKS}─●", f"{ASCII_BLOCKS}-o")


def standard_console() -> Console:
    """Return the console of standard output, of a fixed width where there is no terminal."""
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() and int(columns) > 0 else _own_width()
    # Without a height Rich takes any dumb terminal for one of 80 columns.
    return _Console(width=width, height=25, markup=False, emoji=False, highlight=False)


def _own_width() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or PIPED_WIDTH
    except (OSError, ValueError, AttributeError):
        return PIPED_WIDTH


def show_page(page: Page, console: Console) -> None:
    """Print a page; a table too wide for the terminal is split, never cut. Charts are left out."""
    for sentence in page.sentences:
        print_line(label(sentence.text), console, style=_HEADLINE_STYLES[sentence.tone])
        for reason in sentence.reasons:
            print_line(f"  {label(reason)}", console)
    if page.headline:
        console.print()
    for block in page.blocks:
        if isinstance(block, Section):
            _show_section(block, console)
        elif isinstance(block, Columns):
            show_columns(block, console)
    for line in page.notes:
        print_line(label(line), console, style="dim")


def _show_section(section: Section, console: Console) -> None:
    if section.title:
        print_line(label(section.title), console, style="bold")
    if section.grid is not None:
        grid = section.grid
        if "spread" in grid[0] and _span(_columns(grid), NARROW_GAP) > console.width:
            grid = [
                [cell for cell, head in zip(row, grid[0], strict=True) if head != "spread"]
                for row in grid
            ]
        show_table(cut_texts(grid, console), console)
    for line in section.lines:
        print_line(label(line), console, style=_LINE_STYLES[section.tone])
    if section.lines:
        console.print()


class _Console(Console):
    """Rich ends the process with 1 when a reader goes away, which is the code of a failed gate."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def print_line(line: str, console: Console, *, style: str = "") -> None:
    """Print a sentence: whole where a file or program reads it, else broken between words."""
    line = line.translate(_ASCII) if console.options.ascii_only else line
    if not console.is_terminal:
        console.print(line, style=style, soft_wrap=True)
        return
    words = line.lstrip(" ")
    indent = len(line) - len(words)
    for piece in Text(words, style).wrap(console, max(console.width - indent, SHORTEST_TEXT)):
        piece.rstrip()
        console.print(Text(" " * indent) + piece, soft_wrap=True)


def cut_texts(grid: Grid, console: Console) -> Grid:
    """Return the table with the texts of its last column cut to the width that is left."""
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


def show_table(grid: Grid, console: Console) -> None:
    """Print a grid as one table, or as several that each fit the width."""
    if console.options.ascii_only:
        grid = [[cell.translate(_ASCII) for cell in row] for row in grid]
    columns, fitting = _columns(grid), console.width
    words = word_columns(grid) - {0}
    widths = [_width(column) for column in columns]
    if grid[0][-1] == "verdict":
        # A long verdict may be wrapped on a terminal, or run over the width in a file.
        widths[-1] = min(widths[-1], VERDICT_WIDTH)
    gap = WIDE_GAP if _across(widths, WIDE_GAP) <= fitting else NARROW_GAP
    gap = gap if _across(widths, gap) <= fitting else WIDE_GAP
    for places in _places_that_fit(widths, fitting, gap):
        chosen = [columns[place] for place in places]
        table = _table(chosen, gap, {places.index(word) for word in words if word in places})
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
    """Yield the first column with as many others as fit, until all are shown."""
    chosen: list[int] = []
    for place in range(1, len(widths)):
        wider = [0, *chosen, place]
        if chosen and sum(widths[column] for column in wider) + gap * (len(wider) - 1) > room:
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
            _LINE_STYLES[VERDICT_TONES.get(cell.partition(" ")[0], "plain")]
            if at in coloured
            else ""
            for at, cell in enumerate(cells)
        )
        table.add_row(*map(Text, cells, styles))
    return table


def _columns(grid: Grid) -> list[list[str]]:
    """Return the columns with their headers; numbers are aligned right, words left."""
    words = word_columns(grid)
    columns = enumerate(zip(*grid, strict=True))
    return [list(cells) if place in words else _aligned(cells) for place, cells in columns]


def _aligned(cells: Sequence[str]) -> list[str]:
    """Return cells of one width, with their parts lined up."""
    parts = [cell.split(PART) for cell in cells]
    most = max(map(len, parts))
    complete = [part for part in parts if len(part) == most]
    widths = [max(map(cell_len, column)) for column in zip(*complete, strict=True)]
    joined = [
        " ".join(map(_right, part, widths)) if len(part) == most else part[0] for part in parts
    ]
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
