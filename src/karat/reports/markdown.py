"""A report as Markdown: a pull-request comment, with the verdict first and the details folded.

A report without gates and comparisons has no verdict: it becomes a page with open sections.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from karat.analysis.diagnose import diagnostics_sections
from karat.evaluation import report_text
from karat.pages.formatting import label, plural
from karat.pages.markdown import bullets, content, escape, join, table
from karat.pages.page import Grid, Section, Tone
from karat.reports import report_page
from karat.reports.document import Report

# The first line, by which a workflow finds its earlier comment and updates it.
MARKER = "<!-- karat -->"
# GitHub refuses a comment of more than 65,536 characters.
LONGEST_COMMENT = 65_000
# The rest is folded.
MOST_ROWS, MOST_SENTENCES = 30, 10

_SYMBOLS: dict[Tone, str] = {"bad": "❌", "unsure": "⚠️", "good": "✅"}

Document = Mapping[str, Any]


def to_markdown(report: Report) -> bytes:
    """Return a pull-request comment if there is a verdict, else a page."""
    return markdown(report.to_dict()).encode()


def markdown(document: Document) -> str:
    """Return the Markdown of a report's whole document."""
    tool = document["tool"]
    end = f"Written by {tool['name']} {tool['version']}."
    verdicts = report_text.headlines(document)
    if not verdicts:
        names = ", ".join(escape(system["name"]) for system in document["systems"])
        measures = table(report_text.measure_table(document))
        first = [MARKER, f"# Retrieval quality: {names}", measures, *_to_fix(document)]
        for title, sections in _sections(document):
            first += [f"## {escape(title)}", *_content(sections)]
        return join([*first, end])
    first = [MARKER, *_verdict(document, verdicts), *_gates(document), *_compared(document)]
    first += _to_fix(document)
    room = LONGEST_COMMENT - len(join([*first, end]))
    all_measures = Section(grid=report_text.measure_table(document))
    folded = [("All measures", [all_measures]), *_sections(document)]
    return join([*first, *_folded(folded, room), end])


def _verdict(document: Document, verdicts: Sequence[report_text.Headline]) -> Iterator[str]:
    """Yield the most urgent verdict as a heading, then the others, each with its reasons."""
    for place, headline in enumerate(verdicts):
        word = f"{_SYMBOLS[headline.tone]} {headline.word.capitalize()}"
        heading = f"{word}: {escape(headline.about)}"
        yield f"**{heading}**" if place else f"## {heading}"
        if headline.pair:
            yield from map(escape, headline.because)
            continue
        never = [f"out of reach: {sentence}" for sentence in report_text.unreachable(document)]
        if reasons := [*never, *headline.because]:
            yield _first_few(reasons)


def _to_fix(document: Document) -> Iterator[str]:
    if findings := document.get("findings"):
        compared = len(document["systems"]) > 1
        whose = f" in {escape(document['findings_of'])}" if compared else ""
        yield f"### What to fix next{whose}"
        yield _first_few(findings)


def _gates(document: Document) -> Iterator[str]:
    gates = sorted(document.get("gates", []), key=lambda gate: gate["verdict"] == "pass")
    if gates:
        yield table(report_text.gate_table({"gates": gates[:MOST_ROWS]}))
    if len(gates) > MOST_ROWS:
        yield f"Shown: {MOST_ROWS} of {len(gates)} gates, those that do not pass first."
    if lines := report_text.gate_lines(document):
        yield bullets(lines)


def _compared(document: Document) -> Iterator[str]:
    rows = [row for row in document.get("comparisons", []) if not row["segment"] and row["n"]]
    if len(rows) > MOST_ROWS:
        rows = [row for row in rows if row["primary"]]
    if rows:
        compared = {"comparisons": rows}
        grids = report_text.comparison_tables(compared, report_text.COMPARED_SHORT)
        for title, grid in grids.items():
            yield f"**{escape(title)}**"
            yield table(grid)
        yield escape(report_text.rule_line(document))
    if reversals := report_text.other_reversals(document):
        yield "**A segment goes the other way:**"
        yield _first_few(reversals)


def _sections(document: Document) -> Iterator[tuple[str, list[Section]]]:
    """Yield the titles and the sections of the details."""
    if "judged" in document:
        grid, lines = report_page.bounds_table(document), report_page.bounds_lines(document)
        yield "With a judge's labels", [Section("", grid, lines)]
    yield "Distribution over queries", [Section("", report_text.distribution_table(document))]
    if len(document.get("gates", [])) > MOST_ROWS:
        yield "All gates", [Section("", report_text.gate_table(document))]
    compared = "comparisons" in document
    full = report_text.COMPARED_FULL
    if compared and (tests := report_text.comparison_tables(document, full)):
        yield "All tests", [*_titled(tests), Section(lines=[report_text.tests_line(document)])]
    of_pairs = report_text.compared_segments(document) if compared else {}
    if segments := of_pairs | _segments(document):
        yield "Segments", _titled(segments)
    if moved := report_text.moved_tables(document):
        yield "Queries that moved most", _titled(moved)
    if overlap := report_text.overlap_lines(document):
        yield "Overlap of the lists", [Section(lines=overlap)]
    for section in diagnostics_sections(document):
        yield section.title, [replace(section, title="")]
    if grid := report_page.range_table(document):
        lines = report_page.inexact_lines(document)
        yield "If unjudged items were judged", [Section("", grid, lines)]
    lines = [*report_page.counts_and_gaps(document), *report_text.conventions_lines(document)]
    yield "Counts and conventions", [Section(lines=lines)]
    yield "Inputs", [Section("", report_text.input_table(document["inputs"]))]
    if grid := report_text.artifact_table(document):
        yield "Artifacts", [Section("", grid)]


def _segments(document: Document) -> dict[str, Grid]:
    return {
        f"{label(system['name'])} by {label(column)}": report_text.segment_table(segments, column)
        for system in document["systems"]
        for column, segments in system.get("segments", {}).items()
    }


def _titled(grids: Mapping[str, Grid]) -> list[Section]:
    return [Section(title, grid) for title, grid in grids.items()]


def _content(sections: Sequence[Section]) -> list[str]:
    return [text for section in sections for text in content(section, "**{}**")]


def _folded(details: Iterable[tuple[str, Sequence[Section]]], room: int) -> Iterator[str]:
    """Yield collapsible blocks; those that do not fit are named."""
    left_out = []
    for title, sections in details:
        # GitHub reads Markdown inside a block only between empty lines.
        head = f"<details><summary>{html.escape(title)}</summary>"
        block = "\n\n".join([head, *_content(sections), "</details>"])
        if len(block) + 2 > room:
            left_out.append(title)
            continue
        room -= len(block) + 2
        yield block
    if left_out:
        yield f"Left out, since a comment has a maximum length: {', '.join(left_out)}."


def _first_few(sentences: Sequence[str]) -> str:
    more = len(sentences) - MOST_SENTENCES
    others = [f"and {plural(more, 'other')}"] if more > 0 else []
    return bullets([*sentences[:MOST_SENTENCES], *others])
