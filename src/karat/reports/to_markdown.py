"""The report as Markdown: a pull-request comment, with the verdict first and the detail folded.

A report without gates and comparisons has no verdict: it is a page with open sections.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from karat.reports.behind import behind_sections
from karat.reports.bounds import bounds_grid, bounds_lines
from karat.reports.document import Report
from karat.reports.figures import PART, label, several
from karat.reports.grids import (
    COMPARED_FULL,
    COMPARED_SHORT,
    Grid,
    artifact_grid,
    compared_segments,
    comparison_grids,
    distribution_grid,
    gate_grid,
    input_grid,
    measure_grid,
    moved_grids,
    segment_grid,
    word_columns,
)
from karat.reports.headlines import Headline, Tone, headlines, unreachable
from karat.reports.notes import (
    blocking_lines,
    conventions_lines,
    counts_lines,
    lacks_lines,
    left_out_lines,
    other_reversals,
    overlap_lines,
    rule_line,
    tests_line,
)
from karat.reports.pages import Section
from karat.reports.unjudged import inexact_line, open_grid, open_lines

# By its first line a workflow finds the comment that it wrote before, and updates it.
MARKER = "<!-- karat -->"
# GitHub refuses a comment of more than 65,536 characters.
LONGEST_COMMENT = 65_000
LONGEST_TEXT = 120
# What a reader takes in at a glance; the rest is folded.
MOST_ROWS, MOST_SENTENCES = 30, 10

_SYMBOLS: dict[Tone, str] = {"bad": "❌", "unsure": "⚠️", "good": "✅"}
# What would end a table cell or start markup inside it.
_ESCAPED = str.maketrans({character: f"\\{character}" for character in "\\|`*_<>[]~#&"})
_MENTION = re.compile(r"(?<!\w)@(?=\w)")

Document = Mapping[str, Any]


def to_markdown(report: Report) -> bytes:
    """A comment where there is a verdict, else a page."""
    return markdown(report.document()).encode()


def markdown(document: Document) -> str:
    """The text for a report's whole document."""
    tool = document["tool"]
    end = f"Written by {tool['name']} {tool['version']}."
    verdicts = headlines(document)
    if not verdicts:
        return _joined([MARKER, *_page(document), end])
    first = [MARKER, *_verdict(document, verdicts), *_gates(document), *_compared(document)]
    first += _to_fix(document)
    room = LONGEST_COMMENT - len(_joined([*first, end]))
    return _joined([*first, *_folded(_details(document), room), end])


def _page(document: Document) -> Iterator[str]:
    names = ", ".join(safe(system["name"]) for system in document["systems"])
    yield f"# Retrieval quality: {names}"
    yield table(measure_grid(document))
    yield from _to_fix(document)
    if bounds := bounds_grid(document):
        yield "## With a judge's labels"
        yield table(bounds)
        yield _bullets(bounds_lines(document))
    if len(document["systems"]) > 1:
        yield "## Distribution over queries"
        yield table(distribution_grid(document))
    for title, grid in _segments(document).items():
        yield f"## {safe(title)}"
        yield table(grid)
    for section in behind_sections(document):
        yield f"## {safe(section.title)}"
        yield from _parts(section)
    if unjudged := open_grid(document):
        yield "## Whatever the unjudged items are"
        yield table(unjudged)
        yield from _notes(inexact_line(document))
    yield "## Counts"
    yield _bullets(_counted(document))
    yield "## Conventions"
    yield _bullets(conventions_lines(document))
    yield "## Inputs"
    yield table(input_grid(document["inputs"]))
    if artifacts := artifact_grid(document):
        yield "## Artifacts"
        yield table(artifacts)


def _verdict(document: Document, verdicts: Sequence[Headline]) -> Iterator[str]:
    """The most urgent verdict as a heading, then the others, each with its sentences."""
    for place, one in enumerate(verdicts):
        told = f"{_SYMBOLS[one.tone]} {one.word.capitalize()}: {safe(one.about)}"
        yield f"**{told}**" if place else f"## {told}"
        if one.pair:
            yield from map(safe, one.because)
            continue
        never = [f"out of reach: {sentence}" for sentence in unreachable(document)]
        if reasons := [*never, *one.because]:
            yield _some(reasons)


def _to_fix(document: Document) -> Iterator[str]:
    """What there is to fix next, the most important first."""
    if found := document.get("findings"):
        compared = len(document["systems"]) > 1
        whose = f" in {safe(document['findings_of'])}" if compared else ""
        yield f"### What to fix next{whose}"
        yield _some(found)


def _gates(document: Document) -> Iterator[str]:
    gates = sorted(document.get("gates", []), key=lambda gate: gate["verdict"] == "pass")
    if gates:
        yield table(gate_grid({"gates": gates[:MOST_ROWS]}))
    if len(gates) > MOST_ROWS:
        yield f"Shown: {MOST_ROWS} of {len(gates)} gates, those that do not pass first."
    lines = [*blocking_lines(document), *left_out_lines(document)]
    if lines:
        yield _bullets(lines)


def _compared(document: Document) -> Iterator[str]:
    rows = [row for row in document.get("comparisons", []) if not row["segment"] and row["n"]]
    if len(rows) > MOST_ROWS:
        rows = [row for row in rows if row["primary"]]
    if rows:
        yield from _titled(comparison_grids({"comparisons": rows}, COMPARED_SHORT))
        yield safe(rule_line(document))
    if reversals := other_reversals(document):
        yield "**A segment goes the other way:**"
        yield _some(reversals)


def _details(document: Document) -> Iterator[tuple[str, list[str]]]:
    """What is folded: a title and what stands below it."""
    yield "All measures", [table(measure_grid(document))]
    if bounds := bounds_grid(document):
        yield "With a judge's labels", [table(bounds), _bullets(bounds_lines(document))]
    yield "Distribution over queries", [table(distribution_grid(document))]
    if len(document.get("gates", [])) > MOST_ROWS:
        yield "All gates", [table(gate_grid(document))]
    if "comparisons" in document and (tests := comparison_grids(document, COMPARED_FULL)):
        yield "All tests", [*_titled(tests), safe(tests_line(document))]
    segments = compared_segments(document) if "comparisons" in document else {}
    segments |= _segments(document)
    if segments:
        yield "Segments", _titled(segments)
    if moved := moved_grids(document):
        yield "Queries that moved most", _titled(moved)
    if alike := overlap_lines(document):
        yield "How alike the lists are", [_bullets(alike)]
    for section in behind_sections(document):
        yield section.title, list(_parts(section))
    if unjudged := open_grid(document):
        notes = list(_notes(inexact_line(document)))
        yield "Whatever the unjudged items are", [table(unjudged), *notes]
    counts = _counted(document)
    yield "Counts and conventions", [_bullets([*counts, *conventions_lines(document)])]
    yield "Inputs", [table(input_grid(document["inputs"]))]
    if artifacts := artifact_grid(document):
        yield "Artifacts", [table(artifacts)]


def _counted(document: Document) -> list[str]:
    return [*counts_lines(document), *open_lines(document), *lacks_lines(document)]


def _notes(lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield _bullets(lines)


def _parts(section: Section) -> Iterator[str]:
    if section.grid is not None:
        yield table(section.grid)
    if section.lines:
        yield _bullets(section.lines)


def _segments(document: Document) -> dict[str, Grid]:
    return {
        f"{label(system['name'])} by {label(column)}": segment_grid(segments, column)
        for system in document["systems"]
        for column, segments in system.get("segments", {}).items()
    }


def _titled(grids: Mapping[str, Grid]) -> list[str]:
    return [part for title, grid in grids.items() for part in (f"**{safe(title)}**", table(grid))]


def _folded(details: Iterator[tuple[str, list[str]]], room: int) -> Iterator[str]:
    """Blocks that open at a click; those that do not fit are named."""
    left_out = []
    for title, parts in details:
        # GitHub reads Markdown inside a block only between empty lines.
        head = f"<details><summary>{html.escape(title)}</summary>"
        block = "\n\n".join([head, *parts, "</details>"])
        if len(block) + 2 > room:
            left_out.append(title)
            continue
        room -= len(block) + 2
        yield block
    if left_out:
        yield f"Left out, as a comment has no room for it: {', '.join(left_out)}."


def _some(sentences: Sequence[str]) -> str:
    more = len(sentences) - MOST_SENTENCES
    rest = [f"and {several(more, 'other')}"] if more > 0 else []
    return _bullets([*sentences[:MOST_SENTENCES], *rest])


def table(grid: Grid) -> str:
    header, *rows = ([_cell(cell) for cell in row] for row in grid)
    words = word_columns(grid)
    rule = ["---" if column in words else "---:" for column in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))


def _cell(text: str) -> str:
    text = text.replace(PART, " ").strip()
    return _escape(text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…")


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {safe(line)}" for line in lines)


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(parts) + "\n"


def safe(text: str) -> str:
    return _escape(label(text))


def _escape(text: str) -> str:
    """Text that stays text: no markup, and nobody is called by an @ in a query."""
    return _MENTION.sub("@\N{WORD JOINER}", text.translate(_ESCAPED))
