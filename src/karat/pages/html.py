"""A page as HTML: plain tables without scripts, for notebooks and for files."""

from __future__ import annotations

from html import escape

from karat.pages.formatting import PART, label
from karat.pages.page import Grid, Page, word_columns

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}"
    "table{border-collapse:collapse;margin:.5rem 0 1rem}"
    "th,td{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:left}"
)


def page_html(page: Page) -> str:
    """Return the page as a fragment of HTML."""
    parts = []
    for sentence in page.sentences:
        parts.append(f"<p><strong>{escape(label(sentence.text))}</strong></p>")
        parts += [f"<p>{escape(label(reason))}</p>" for reason in sentence.reasons]
    for section in page.sections:
        if section.title:
            parts.append(f"<h2>{escape(label(section.title))}</h2>")
        if section.grid is not None:
            parts.append(table_html(section.grid))
        parts += [f"<p>{escape(label(line))}</p>" for line in section.lines]
    return "\n".join(
        [*parts, *(f"<p><small>{escape(label(line))}</small></p>" for line in page.notes)]
    )


def page_document(page: Page) -> str:
    """Return the page as a whole HTML document."""
    title = escape(label(page.title))
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n{page_html(page)}\n"
        "</body>\n</html>\n"
    )


def table_html(grid: Grid) -> str:
    """Return a table; numbers are aligned right."""
    words = word_columns(grid)
    header, *rows = (
        [escape(label(text.replace(PART, " ").strip())) for text in row] for row in grid
    )
    align = ["" if place in words else ' style="text-align:right"' for place in range(len(header))]
    head = "".join(f"<th{how}>{cell}</th>" for how, cell in zip(align, header, strict=True))
    body = "\n".join(
        "<tr>"
        + "".join(f"<td{how}>{cell}</td>" for how, cell in zip(align, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
