"""A page on a terminal: tables that are too wide are split."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from karat.pages.formatting import ASCII_BLOCKS, BLOCKS, PART, label
from karat.pages.page import VERDICT_TONES, Grid, Page, Tone, word_columns

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
_ASCII = str.maketrans(BLOCKS, ASCII_BLOCKS)


def standard_console() -> Console:
    """Return the console of standard output, of a fixed width where there is no terminal."""
    width = shutil.get_terminal_size((PIPED_WIDTH, 25)).columns
    # Without a height Rich takes any dumb terminal for one of 80 columns.
    return _Console(width=width, height=25, markup=False, emoji=False, highlight=False)


def show_page(page: Page, console: Console) -> None:
    """Print a page; a table too wide for the terminal is split, never cut. Charts are left out."""
    for sentence in page.sentences:
        print_line(label(sentence.text), console, style=_HEADLINE_STYLES[sentence.tone])
        for reason in sentence.reasons:
            print_line(f"  {label(reason)}", console)
    if page.headline:
        console.print()
    for section in page.sections:
        if section.title:
            print_line(label(section.title), console, style="bold")
        if section.grid is not None:
            show_table(section.grid, console)
        for line in section.lines:
            print_line(label(line), console, style=_LINE_STYLES[section.tone])
        if section.lines:
            console.print()
    for line in page.notes:
        print_line(label(line), console, style="dim")


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


def show_table(grid: Grid, console: Console) -> None:
    """Print a grid as one table, or as several that each fit the width.

    Where there is too little room, a column ``spread`` is left out, and the texts of a last
    column ``text`` are cut.
    """
    head, room = grid[0], console.width
    if console.options.ascii_only:
        grid = [[cell.translate(_ASCII) for cell in row] for row in grid]
    columns, words = _columns(grid), word_columns(grid) - {0}
    widths = [max(cell.cell_len for cell in column) for column in columns]
    if "spread" in head and sum(widths) + NARROW_GAP * (len(head) - 1) > room:
        at = head.index("spread")
        show_table([row[:at] + row[at + 1 :] for row in grid], console)
        return
    fitted = list(widths)
    if head[-1] == "text":
        used_width = sum(widths[:-1]) + WIDE_GAP * (len(head) - 1)
        widths[-1] = fitted[-1] = min(widths[-1], max(SHORTEST_TEXT, room - used_width))
    elif head[-1] == "verdict":
        # A long verdict may be wrapped on a terminal, or run over the width in a file.
        fitted[-1] = min(fitted[-1], VERDICT_WIDTH)
    narrow = sum(fitted) + NARROW_GAP * (len(head) - 1)
    gap = NARROW_GAP if narrow <= room < narrow + len(head) - 1 else WIDE_GAP
    for places in _parts_that_fit(fitted, room, gap):
        table = Table(
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, gap - 1, 0, 0),
            header_style="bold",
        )
        for place in places:
            table.add_column(columns[place][0], no_wrap=True)
        for row in range(1, len(grid)):
            cells = [columns[place][row] for place in places]
            if head[places[-1]] == "text":
                cells[-1].truncate(widths[-1], overflow="ellipsis")
            table.add_row(*cells)
        # A single column may still be too wide: then the terminal wraps it, and nothing is cut;
        # words are broken where they end.
        if console.is_terminal and places[-1] in words:
            table.columns[-1].no_wrap = False
        else:
            used_width = sum(widths[place] for place in places) + gap * (len(places) - 1)
            console.width = max(room, used_width)
        console.print(table, crop=False)
        console.print()
        console.width = room


def _parts_that_fit(widths: Sequence[int], room: int, gap: int) -> list[list[int]]:
    """Return the places of the columns of each table: the first, and as many others as fit."""
    parts, used = [[0]], widths[0]
    for place in range(1, len(widths)):
        if len(parts[-1]) > 1 and used + gap + widths[place] > room:
            parts.append([0])
            used = widths[0]
        parts[-1].append(place)
        used += gap + widths[place]
    return parts


def _columns(grid: Grid) -> list[list[Text]]:
    """Return the columns: words left, numbers right, parts lined up; later verdicts coloured."""
    words = word_columns(grid)
    columns = []
    for place, cells in enumerate(zip(*grid, strict=True)):
        if place in words:
            tones = [VERDICT_TONES.get(cell.partition(" ")[0], "plain") for cell in cells]
            styles = [_LINE_STYLES[tone] if place else "" for tone in tones]
            columns.append(list(map(Text, cells, styles)))
            continue
        parts = [cell.split(PART) for cell in cells]
        most = max(map(len, parts))
        complete = [part for part in parts if len(part) == most]
        widths = [max(map(cell_len, texts)) for texts in zip(*complete, strict=True)]
        # An interval that no cell has takes no room.
        widths = widths[:-1] if most > 1 and not widths[-1] else widths
        joined = []
        for part in parts:
            padded = [
                " " * (width - cell_len(text)) + text
                for width, text in zip(widths, part, strict=False)
            ]
            joined.append(" ".join(padded) if len(part) == most else part[0])
        widest = max(map(cell_len, joined))
        columns.append([Text(" " * (widest - cell_len(cell)) + cell) for cell in joined])
    return columns
