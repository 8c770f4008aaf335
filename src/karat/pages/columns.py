"""Columns on a terminal: lists side by side, as wide as it is, or below each other if narrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from karat.pages.formatting import label, plural
from karat.pages.page import Column, Columns, Entry

# Columns narrower than this stand below each other.
_NARROWEST = 24
_GAP = 2
# A stacked entry gets this many lines for each of its notes, and a column this many of them.
_NOTE_LINES, _MOST_STACKED = 2, 3
_MORE = "…"

# A text and its style.
_Line = tuple[str, str]


def show_columns(block: Columns, console: Console) -> None:
    """Print the title and lines of a block, then its columns."""
    lines: list[list[_Line]] = [[(label(block.title), "bold")]]
    lines += [[(label(line), "")] for line in block.lines]
    lines += _whole(block.columns) if block.whole else _side_by_side(block.columns, console.width)
    lines += [[(label(line), "dim")] for line in block.last_lines]
    # One text for all lines: printing takes longer than making them.
    console.print(Text("\n").join(Text.assemble(*parts) for parts in lines), soft_wrap=True)
    console.print()


def _side_by_side(columns: Sequence[Column], width: int) -> Iterator[list[_Line]]:
    shared = (width - _GAP * (len(columns) - 1)) // len(columns)
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
        padded = [(set_cell_size(text, room + _GAP), style) for text, style in parts[:last]]
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
        yield f"{entry.head}{name} {entry.text[: 4 * width]}".rstrip(), _style(entry)


def _whole(columns: Sequence[Column]) -> Iterator[list[_Line]]:
    """Every entry with its whole text, the columns below each other."""
    for column in columns:
        yield [(column.name, "bold")]
        for entry in column.entries:
            yield [(f"{entry.head}{entry.name}{entry.suffix}{entry.detail}", _style(entry))]
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
    rest = text[: 2 * width * most].strip()
    while rest and len(lines) < most - 1:
        head = set_cell_size(rest, width).rstrip() if cell_len(rest) > width else rest
        blank = head.rfind(" ")
        if len(head) < len(rest) and not rest[len(head)].isspace() and blank > 0:
            head = head[:blank]
        lines.append(head.rstrip())
        rest = rest[len(head) :].lstrip()
    return [*lines, cut(rest, width)] if rest else lines


def _end_of(name: str, width: int) -> str:
    """Return a name in so many cells; of a long one the end, which tells chunks from each other."""
    if cell_len(name) <= width:
        return name
    name = name[-width:]
    while cell_len(name) > max(width - 1, 0):
        name = name[1:]
    return f"{_MORE}{name}"
