"""Where a finished report goes: its files, standard output, and the exit code it asks for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import typer

from karat.evaluation.inputs import why_skipped, without_grades
from karat.pages.formatting import label, plural
from karat.pages.result import to_json
from karat.report.document import Report, System
from karat.report.github import announce
from karat.report.outputs import Output, write_outputs, write_stdout

EXIT_FAILED, EXIT_CANNOT_TELL = 1, 3
_WITHOUT_FAILURES = ("memory", "ab")


def publish(
    report: Report,
    outputs: Sequence[Output],
    *,
    as_json: bool,
    quiet: bool,
    require_verdict: bool = False,
    name_files: bool = False,
) -> None:
    """Show the report, tell GitHub where it runs there, and leave with the code it asks for.

    ``name_files`` says where it was written, for who did not type that.
    """
    files = show(report, outputs, as_json=as_json, quiet=quiet)
    if name_files and files and not (quiet or as_json):
        typer.echo(f"report → {', '.join(map(str, files))}", err=True)
    _tell_failed(report, outputs)
    announce(report, os.environ, require_verdict=require_verdict)
    _end(report, require_verdict=require_verdict)


def show(report: Report, outputs: Sequence[Output], *, as_json: bool, quiet: bool) -> list[Path]:
    """Write the files, then print the report unless something else goes to standard output."""
    files = write_outputs(outputs, report)
    if as_json:
        write_stdout(to_json(report))
    elif not quiet and all(output.path is not None for output in outputs):
        from karat.pages.terminal import show_page, standard_console

        show_page(report.page(), standard_console())
    return files


def _tell_failed(report: Report, outputs: Sequence[Output]) -> None:
    """Forms whose keys are another tool's have no place for calls that failed."""
    forms = [output.form.name for output in outputs if output.form.name in _WITHOUT_FAILURES]
    for system in report.systems:
        failed = system.scores.counts.failed_calls
        if failed and forms:
            told = f"{plural(failed, 'failed call')} of {label(system.name)}"
            typer.echo(f"karat: {told} counted as 0 in {', '.join(forms)}:", err=True)


def _end(report: Report, *, require_verdict: bool) -> None:
    """Leave with the exit code that the report asks for; a failure outranks a doubt."""
    compared = report.comparisons
    reasons = [why_skipped(system.scores) for system in report.systems]
    skipped = None not in reasons and not report.partial
    if skipped:
        typer.echo(f"karat: skipped: {reasons[0]}", err=True)
    silent = [label(system.name) for system in report.systems if not _answered(system)]
    if not skipped and silent and (compared is not None or len(silent) == len(report.systems)):
        told = "" if len(report.systems) == 1 else f" of {', '.join(silent)}"
        because = f"not one query{told} could be scored"
        # Gold is that of all systems.
        ungraded = without_grades(report.systems[0].scores)
        typer.echo(f"karat: cannot tell: {ungraded or because}", err=True)
        raise typer.Exit(EXIT_CANNOT_TELL)
    if report.partial:
        told = ", ".join(label(name) for name in report.partial)
        typer.echo(f"karat: cannot tell: too many calls of {told} failed", err=True)
        raise typer.Exit(EXIT_CANNOT_TELL)
    gates = {gating.verdict for gating in report.gatings}
    if "fail" in gates or (compared is not None and compared.regression):
        raise typer.Exit(EXIT_FAILED)
    unmeasured = [] if compared is None or skipped else compared.unmeasured
    for because in dict.fromkeys(row.because for row in unmeasured):
        typer.echo(f"karat: cannot tell: {label(because)}", err=True)
    unclear = compared is not None and any(d.verdict == "unclear" for d in compared.decisions)
    if "unmeasurable" in gates or unmeasured or (require_verdict and unclear and not skipped):
        raise typer.Exit(EXIT_CANNOT_TELL)


def _answered(system: System) -> bool:
    """Whether anything was measured: a system that failed everywhere was not, only counted as 0."""
    counts = system.scores.counts
    unanswered = counts.missing + counts.failed_calls
    measured = any(summary.n for summary in system.summaries.values())
    return measured and (counts.scored > 0 or unanswered < counts.queries)
