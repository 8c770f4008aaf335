"""Page: what a reader sees of a result, before any form gives it borders.

A page is a title, headline sentences, blocks and notes. Renderers (``terminal``, ``markdown``,
``html``) know only this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from karat.pages.formatting import NOTHING, PART, figure, label, measured

# Rows of a table; the first row is the header. A tab in a cell separates parts that line up.
Grid = list[list[str]]
# The columns of a table by header: the key of a value in each row, or a function of the row.
TableColumns = Mapping[str, str | Callable[[Mapping[str, Any]], Any]]

Tone = Literal["plain", "good", "unsure", "bad"]
# "same" is neither good nor bad news.
VERDICT_TONES: Mapping[str, Tone] = {
    "pass": "good",
    "better": "good",
    "fail": "bad",
    "worse": "bad",
    "unclear": "unsure",
    "unmeasurable": "unsure",
    "skipped": "unsure",
}

# Headers of columns that hold words: these are aligned left, numbers right.
_WORD_HEADERS = {
    *("change", "file", "sha256", "text", "verdict", "class", "query", "stage", "source", "item"),
    *("doc", "near-duplicate", "because", "what", "rule", "measure", "system", "segment"),
    *("version", "chosen", "BM25", "its gold", "index version", "chunker", "embedding model"),
    *("reranker model", "spread"),
}


@dataclass(frozen=True, slots=True)
class Sentence:
    """A headline: its text, whether it is good news, and the reasons below it."""

    text: str
    tone: Tone = "plain"
    reasons: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A block of a page: a title, a table (its first row the header), and lines below it.

    Cells and lines are plain text; names from files go through ``formatting.label``. If the
    last column is headed ``text``, the terminal cuts it to its width; a column headed
    ``spread`` is left out where there is no room. ``tone`` is that of the lines.
    """

    title: str = ""
    grid: Grid | None = None
    lines: Sequence[str] = ()
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Chart:
    """A block of a page: a Vega-Lite specification, and the title above it.

    Forms that cannot draw leave it out, so a chart repeats numbers that a table has.
    """

    title: str
    spec: Mapping[str, Any]


Block = Section | Chart


@dataclass(frozen=True, slots=True)
class Page:
    """A result as people read it: headline sentences, blocks, and notes on how it was made."""

    title: str
    headline: Sequence[str | Sentence] = ()
    blocks: Sequence[Block] = ()
    notes: Sequence[str] = ()

    @property
    def sentences(self) -> list[Sentence]:
        """The headline, a plain text as a sentence without a tone."""
        return [Sentence(line) if isinstance(line, str) else line for line in self.headline]

    @property
    def sections(self) -> list[Section]:
        """The blocks as sections, without the charts."""
        return [block for block in self.blocks if isinstance(block, Section)]

    @property
    def charts(self) -> list[Chart]:
        """The charts among the blocks."""
        return [block for block in self.blocks if isinstance(block, Chart)]


def table(rows: Iterable[Mapping[str, Any]], columns: TableColumns) -> Grid:
    """Return a table of plain data, its cells formatted by their kind.

    A last column ``text`` is left out if no row has a text.

    >>> table([{"id": "q1", "n": 1200}], {"query": "id", "n": "n", "text": lambda row: None})
    [['query', 'n'], ['q1', '1,200']]
    """
    grid = [list(columns)]
    for row in rows:
        values = [row[key] if isinstance(key, str) else key(row) for key in columns.values()]
        grid.append([_cell(value, name) for name, value in zip(columns, values, strict=True)])
    if grid[0][-1] == "text" and not any(cells[-1] for cells in grid[1:]):
        return [cells[:-1] for cells in grid]
    return grid


def _cell(value: Any, header: str) -> str:
    """Return a value as text; a mapping is a mean with its interval."""
    if value is None:
        return "" if header == "text" else NOTHING
    if isinstance(value, str):
        return PART.join(map(label, value.split(PART)))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return measured(value)
    return f"{value:,}" if isinstance(value, int) else figure(value)


def word_columns(grid: Grid) -> set[int]:
    """Return the columns that hold words rather than numbers."""
    return {0, *(place for place, name in enumerate(grid[0]) if name in _WORD_HEADERS)}
