"""A page as Markdown, and the parts that every Markdown text is made of."""

from __future__ import annotations

import re
from collections.abc import Sequence

from karat.pages.formatting import PART, label
from karat.pages.page import Grid, Page, Section, word_columns

LONGEST_TEXT = 120

# Characters that would end a table cell or start markup inside it.
_ESCAPED = str.maketrans({character: f"\\{character}" for character in "\\|`*_<>[]~#&"})
_MENTION = re.compile(r"(?<!\w)@(?=\w)")


def page_markdown(page: Page) -> str:
    """Return the page as Markdown; charts are left out."""
    parts = [f"# {escape(page.title)}"]
    for sentence in page.sentences:
        parts.append(escape(sentence.text))
        parts += [bullets(sentence.reasons)] if sentence.reasons else []
    for section in page.sections:
        parts += content(section, "## {}")
    return join([*parts, *map(escape, page.notes)])


def content(section: Section, heading: str = "") -> list[str]:
    """Return the heading, the table and the lines of a section, as far as it has them."""
    parts = [heading.format(escape(section.title))] if heading and section.title else []
    parts += [table(section.grid)] if section.grid is not None else []
    return [*parts, bullets(section.lines)] if section.lines else parts


def table(grid: Grid) -> str:
    """Return a table; numbers are aligned right."""
    header, *rows = ([_cell(cell) for cell in row] for row in grid)
    words = word_columns(grid)
    rule = ["---" if column in words else "---:" for column in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))


def bullets(lines: Sequence[str]) -> str:
    """Return a list of sentences."""
    return "\n".join(f"- {escape(line)}" for line in lines)


def join(parts: Sequence[str]) -> str:
    """Return the parts with an empty line between them."""
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Return text that stays text: no markup, and an @ in a query mentions nobody."""
    return _MENTION.sub("@\N{WORD JOINER}", label(text).translate(_ESCAPED))


def _cell(text: str) -> str:
    text = text.replace(PART, " ").strip()
    return escape(text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…")
