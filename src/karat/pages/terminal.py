"""A page on a terminal: tables split where they are too wide, lists side by side."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from karat.pages.formatting import ASCII_BLOCKS, BLOCKS, PART, label, plural
from karat.pages.page import (
    VERDICT_TONES,
    Column,
    Columns,
    Entry,
    Grid,
    Page,
    Section,
    Tone,
    word_columns,
)

PIPED_WIDTH = 100
# The least that a query's text gets on a narrow terminal.
SHORTEST_TEXT = 20
# The least that a column of verdicts gets.
VERDICT_WIDTH = 16
# Between columns; the narrow gap is used where it saves a table from being split.
WIDE_GAP, NARROW_GAP = 2, 1

# Columns narrower than this stand below each other.
_NARROWEST = 24
# A stacked entry gets this many lines for each of its notes, and a column this many of them.
_NOTE_LINES, _MOST_STACKED = 2, 3
_MORE = "…"

# A text and its style.
_Line = tuple[str, str]

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
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else 0
    if not width:
        try:
            width = os.get_terminal_size(sys.stdout.fileno()).columns
        except (OSError, ValueError, AttributeError):
            width = 0
    # Without a height Rich takes any dumb terminal for one of 80 columns.
    return _Console(
        width=width or PIPED_WIDTH, height=25, markup=False, emoji=False, highlight=False
    )


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
            _show_columns(block, console)
    for line in page.notes:
        print_line(label(line), console, style="dim")


def _show_section(section: Section, console: Console) -> None:
    if section.title:
        print_line(label(section.title), console, style="bold")
    if section.grid is not None:
        grid = section.grid
        widths = [max(map(cell_len, column)) for column in _columns(grid)]
        if "spread" in grid[0] and _across(widths, NARROW_GAP) > console.width:
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
    taken = sum(max(map(cell_len, column)) + WIDE_GAP for column in others)
    room = max(SHORTEST_TEXT, console.width - taken)
    shortened = [grid[0]]
    for *cells, words in grid[1:]:
        text = Text(words)
        text.truncate(room, overflow="ellipsis")
        shortened.append([*cells, text.plain])
    return shortened


def show_table(grid: Grid, console: Console) -> None:
    """Print a grid as one table, or as several that each fit the width."""
    if console.options.ascii_only:
        grid = [[cell.translate(_ASCII) for cell in row] for row in grid]
    columns, fitting = _columns(grid), console.width
    words = word_columns(grid) - {0}
    widths = [max(map(cell_len, column)) for column in columns]
    fitted = list(widths)
    if grid[0][-1] == "verdict":
        # A long verdict may be wrapped on a terminal, or run over the width in a file.
        fitted[-1] = min(fitted[-1], VERDICT_WIDTH)
    narrow = _across(fitted, NARROW_GAP) <= fitting < _across(fitted, WIDE_GAP)
    gap = NARROW_GAP if narrow else WIDE_GAP
    for places in _places_that_fit(fitted, fitting, gap):
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
            table.add_row(*(_text(columns[place][row], place in words) for place in places))
        # A single column may still be too wide: then the terminal wraps it, and nothing is cut;
        # words are broken where they end.
        if console.is_terminal and places[-1] in words:
            table.columns[-1].no_wrap = False
        else:
            console.width = max(fitting, _across([widths[place] for place in places], gap))
        console.print(table, crop=False)
        console.print()
        console.width = fitting


def _text(cell: str, coloured: bool) -> Text:
    tone = VERDICT_TONES.get(cell.partition(" ")[0], "plain")
    return Text(cell, _LINE_STYLES[tone] if coloured else "")


def _across(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * (len(widths) - 1)


def _places_that_fit(widths: Sequence[int], room: int, gap: int) -> Iterator[list[int]]:
    """Yield the first column with as many others as fit, until all are shown."""
    places = [0]
    for place in range(1, len(widths)):
        wider = [*places, place]
        if len(places) > 1 and _across([widths[column] for column in wider], gap) > room:
            yield places
            wider = [0, place]
        places = wider
    yield places


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
    # An interval that no cell has takes no room.
    widths = widths[:-1] if most > 1 and not widths[-1] else widths
    joined = [
        " ".join(
            " " * (width - cell_len(text)) + text for text, width in zip(part, widths, strict=False)
        )
        if len(part) == most
        else part[0]
        for part in parts
    ]
    widest = max(map(cell_len, joined))
    return [" " * (widest - cell_len(cell)) + cell for cell in joined]


def _show_columns(block: Columns, console: Console) -> None:
    """Print the title and lines of a block, then its columns."""
    lines: list[list[_Line]] = [[(label(block.title), "bold")]]
    lines += [[(label(line), "")] for line in block.lines]
    lines += _whole(block.columns) if block.whole else _side_by_side(block.columns, console.width)
    lines += [[(label(line), "dim")] for line in block.last_lines]
    # One text for all lines: printing takes longer than making them.
    console.print(Text("\n").join(Text.assemble(*parts) for parts in lines), soft_wrap=True)
    console.print()


def _side_by_side(columns: Sequence[Column], width: int) -> Iterator[list[_Line]]:
    shared = (width - WIDE_GAP * (len(columns) - 1)) // len(columns)
    beside = shared >= _NARROWEST
    room = shared if beside else width
    drawn = [[(column.name, "bold"), *_entry_lines(column, room)] for column in columns]
    drawn = [[(cut(text, room), style) for text, style in lines] for lines in drawn]
    if not beside:
        yield from ([line] for lines in drawn for line in lines)
        return
    for parts in zip_longest(*drawn, fillvalue=("", "")):
        # Nothing is padded after the last column that has a text.
        last = max((place for place, (text, _) in enumerate(parts) if text), default=0)
        padded = [(set_cell_size(text, room + WIDE_GAP), style) for text, style in parts[:last]]
        yield [*padded, parts[last]]


def _entry_lines(column: Column, width: int) -> Iterator[_Line]:
    if not column.entries:
        yield column.empty, "dim"
    elif not column.stacked:
        yield from _one_line_each(column.entries, width)
    else:
        for entry in column.entries[:_MOST_STACKED]:
            name = _end_of(entry.name, width - len(entry.suffix))
            yield f"{name}{entry.suffix}", _style(entry)
            for note in entry.notes:
                yield from ((line, "") for line in wrapped(note, width, most=_NOTE_LINES))
        more = len(column.entries) - _MOST_STACKED
        if more > 0:
            yield f"and {plural(more, f'{column.name} item')} more", "dim"


def _one_line_each(entries: Sequence[Entry], width: int) -> Iterator[_Line]:
    longest = max(cell_len(entry.name) for entry in entries)
    for entry in entries:
        room = width - len(entry.head)
        name = _end_of(entry.name, room // 2 if entry.text else room)
        name = set_cell_size(name, min(longest, room // 2) if entry.text else room)
        yield (
            f"{entry.head}{name} {entry.text[: 4 * width]}".rstrip(),
            _style(entry),
        )


def _whole(columns: Sequence[Column]) -> Iterator[list[_Line]]:
    """Every entry with its whole text, the columns below each other."""
    for column in columns:
        yield [(column.name, "bold")]
        for entry in column.entries:
            yield [
                (
                    f"{entry.head}{entry.name}{entry.suffix}{entry.detail}",
                    _style(entry),
                )
            ]
            if entry.text:
                yield [(f"   {entry.text}", "")]
        if not column.entries:
            yield [(column.empty, "dim")]


def _style(entry: Entry) -> str:
    return "green" if entry.marked else ""


def cut(text: str, width: int) -> str:
    """Return a text in so many cells; a longer one ends in an ellipsis.

    >>> cut("refunds", 7), cut("refunds", 4)
    ('refunds', 'ref…')
    """
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - 1, 0)).rstrip() + _MORE


def wrapped(text: str, width: int, *, most: int) -> list[str]:
    """Return the first lines of a text, broken at blanks; an ellipsis says that there is more.

    >>> wrapped("one two three four", 9, most=2)
    ['one two', 'three fo…']
    """
    lines: list[str] = []
    tail = text[: 2 * width * most].strip()
    while tail and len(lines) < most - 1:
        head = set_cell_size(tail, width).rstrip() if cell_len(tail) > width else tail
        blank = head.rfind(" ")
        if len(head) < len(tail) and not tail[len(head)].isspace() and blank > 0:
            head = head[:blank]
        lines.append(head.rstrip())
        tail = tail[len(head) :].lstrip()
    return [*lines, cut(tail, width)] if tail else lines


def _end_of(name: str, width: int) -> str:
    """Return a name in so many cells; of a long one the end, which tells chunks from each other."""
    if cell_len(name) <= width:
        return name
    name = name[-width:]
    while cell_len(name) > max(width - 1, 0):
        name = name[1:]
    return f"{_MORE}{name}"
