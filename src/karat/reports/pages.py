"""Pages: titled tables and lines made of a document, on a terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from karat.columns import Source
from karat.measures.conventions import Conventions
from karat.reports.document import SCHEMA_VERSION, input_of
from karat.reports.figures import label
from karat.version import __version__

if TYPE_CHECKING:
    from rich.console import Console

    from karat.reports.grids import Grid


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page: a title, a table (its first row the heads), and lines below it.

    Cells and lines are plain text; names from files go through ``figures.label``. A table whose
    last head is ``text`` has that column cut to the terminal's width.
    """

    title: str = ""
    grid: Grid | None = None
    lines: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """What a reader sees: sentences first, then sections, then how the numbers were made."""

    title: str
    first: Sequence[str] = ()
    sections: Sequence[Section] = ()
    last: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Paper:
    """A finished analysis: ``body`` is its plain data, ``page_of`` how that reads."""

    body: Mapping[str, Any]
    conventions: Conventions
    gold: Source
    runs: Sequence[Source]
    page_of: Callable[[Mapping[str, Any]], Page]
    queries: Source | None = None
    corpus: Source | None = None
    more_inputs: Mapping[str, Any] = field(default_factory=dict)

    def results(self) -> dict[str, Any]:
        """The document without its inputs, whose digests take a pass over every file."""
        return {
            "schema_version": SCHEMA_VERSION,
            "tool": {"name": "karat", "version": __version__},
            "conventions": self.conventions.document(),
            **self.body,
        }

    def document(self) -> dict[str, Any]:
        """The whole document, with the digest of every input."""
        inputs: dict[str, Any] = {
            "gold": input_of(self.gold),
            "runs": [input_of(source) for source in self.runs],
            "queries": self.queries and input_of(self.queries),
            "corpus": self.corpus and input_of(self.corpus),
            **self.more_inputs,
        }
        return {**self.results(), "inputs": inputs}

    def page(self) -> Page:
        """The page on it."""
        return self.page_of(self.results())


def show_page(page: Page, console: Console) -> None:
    """Print a page; a table too wide for the terminal is split, never cut."""
    from karat.reports.terminal import cut_texts, say, show_grid

    for line in page.first:
        say(label(line), console, style="bold")
    if page.first:
        console.print()
    for section in page.sections:
        if section.title:
            say(label(section.title), console, style="bold")
        if section.grid is not None:
            show_grid(cut_texts(section.grid, console), console)
        for line in section.lines:
            say(label(line), console)
        if section.lines:
            console.print()
    for line in page.last:
        say(label(line), console, style="dim")


def to_markdown(paper: Paper) -> bytes:
    """The page as Markdown."""
    from karat.reports.to_markdown import safe, table

    page = paper.page()
    parts = [f"# {safe(page.title)}", *(safe(line) for line in page.first)]
    for section in page.sections:
        parts += [f"## {safe(section.title)}"] if section.title else []
        parts += [table(section.grid)] if section.grid is not None else []
        parts += [safe(line) for line in section.lines]
    parts += [safe(line) for line in page.last]
    return ("\n\n".join(parts) + "\n").encode()
