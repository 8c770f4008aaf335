"""The report as Markdown, for a pull request or a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from karat.reports.document import Report
from karat.reports.figures import (
    conventions_line,
    counts_lines,
    label,
    lacks_lines,
    measure_grid,
    segment_grid,
)

# What would end a table cell or start markup inside it.
_ESCAPED = str.maketrans({character: f"\\{character}" for character in "\\|`*_<>[]"})


def to_markdown(report: Report) -> bytes:
    """Systems by measures, then segments, counts, conventions and the digests of the inputs."""
    document = report.document()
    names = ", ".join(_escape(label(system["name"])) for system in document["systems"])
    parts = [f"# Retrieval quality: {names}", _table(measure_grid(document))]
    parts += _segments(document["systems"])
    parts += ["## Counts", _bullets([*counts_lines(document), *lacks_lines(document)])]
    parts += ["## Conventions", _escape(conventions_line(document))]
    parts += ["## Inputs", _table(_inputs(document["inputs"]))]
    tool = document["tool"]
    parts += [f"Written by {tool['name']} {tool['version']}."]
    return ("\n\n".join(parts) + "\n").encode()


def _segments(systems: Sequence[dict[str, Any]]) -> list[str]:
    parts = []
    for system in systems:
        for column, segments in system.get("segments", {}).items():
            heading = f"## {label(system['name'])} by {label(column)}"
            parts += [_escape(heading), _table(segment_grid(segments, column))]
    return parts


def _inputs(inputs: dict[str, Any]) -> list[list[str]]:
    rows = [["input", "file", "sha256"]]
    for kind in ("gold", "queries", "corpus"):
        if inputs[kind] is not None:
            rows.append([kind, label(inputs[kind]["name"]), inputs[kind]["sha256"] or ""])
    rows += [["run", label(run["name"]), run["sha256"] or ""] for run in inputs["runs"]]
    return rows


def _table(grid: Sequence[Sequence[str]]) -> str:
    header, *rows = ([_escape(cell.strip()) for cell in row] for row in grid)
    rule = ["---", *["---:" for _ in header[1:]]]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_escape(line)}" for line in lines)


def _escape(text: str) -> str:
    return text.translate(_ESCAPED)
