"""Where a finished report goes: its files, standard output, and the exit code it asks for."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from karat.reports.document import Report
from karat.reports.outputs import Output, write_outputs, write_stdout
from karat.reports.to_json import to_json

EXIT_CANNOT_TELL = 3


def publish(report: Report, outputs: Sequence[Output], *, as_json: bool, quiet: bool) -> None:
    """Write the files, then print the report unless something else goes to standard output."""
    write_outputs(outputs, report)
    if as_json:
        write_stdout(to_json(report))
    elif not quiet and all(output.path is not None for output in outputs):
        from karat.reports.terminal import show_report

        show_report(report)
    if not _anything_scored(report):
        typer.echo("karat: cannot tell: not one query could be scored", err=True)
        raise typer.Exit(EXIT_CANNOT_TELL)


def _anything_scored(report: Report) -> bool:
    return any(summary.n for system in report.systems for summary in system.summaries.values())
