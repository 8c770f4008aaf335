"""Where a finished report goes: its files, standard output, and the exit code it asks for."""

from __future__ import annotations

import os
from collections.abc import Sequence

from karat.cli.options import EXIT_CANNOT_TELL, EXIT_FAILED, cannot_tell, notify, show
from karat.evaluation.inputs import why_skipped, without_grades
from karat.pages.formatting import label, plural
from karat.pages.result import to_json
from karat.reports.document import Report, System
from karat.reports.outputs import Output, write_outputs, write_stdout

_WITHOUT_FAILURES = ("memory", "ab")


def publish(
    report: Report,
    outputs: Sequence[Output],
    *,
    as_json: bool,
    quiet: bool,
    require_verdict: bool = False,
    name_files: bool = False,
) -> int:
    """Write and print the report, annotate GitHub's page of the run, and return the exit code."""
    files = write_outputs(outputs, report)
    if as_json:
        write_stdout(to_json(report))
    elif not quiet and all(output.path is not None for output in outputs):
        show(report)
    if name_files and files and not (quiet or as_json):
        notify(f"report → {', '.join(map(str, files))}")
    _report_failed_calls(report, outputs)
    if os.environ.get("GITHUB_ACTIONS"):
        from karat.reports.github import announce

        announce(report, os.environ, require_verdict=require_verdict)
    return exit_code(report, require_verdict=require_verdict)


def _report_failed_calls(report: Report, outputs: Sequence[Output]) -> None:
    """Forms whose keys are another tool's have no place for calls that failed."""
    forms = [output.form.name for output in outputs if output.form.name in _WITHOUT_FAILURES]
    for system in report.systems:
        failed = system.scores.counts.failed_calls
        if failed and forms:
            calls = f"{plural(failed, 'failed call')} of {label(system.name)}"
            notify(f"karat: {calls} counted as 0 in {', '.join(forms)}:")


def exit_code(report: Report, *, require_verdict: bool) -> int:
    """Return the exit code that a report asks for, and print why it is not 0 or 1."""
    compared = report.comparisons
    reasons = [why_skipped(system.scores) for system in report.systems]
    skipped = None not in reasons and not report.partial
    if skipped:
        notify(f"karat: skipped: {reasons[0]}")
    silent = [label(system.name) for system in report.systems if not _answered(system)]
    if not skipped and silent and (compared is not None or len(silent) == len(report.systems)):
        whose = "" if len(report.systems) == 1 else f" of {', '.join(silent)}"
        # Gold is that of all systems.
        ungraded = without_grades(report.systems[0].scores)
        return cannot_tell(ungraded or f"not one query{whose} could be scored")
    if report.partial:
        names = ", ".join(label(name) for name in report.partial)
        return cannot_tell(f"too many calls of {names} failed")
    gates = {gating.verdict for gating in report.gatings}
    if "fail" in gates or (compared is not None and compared.regression):
        return EXIT_FAILED
    unmeasured = [] if compared is None or skipped else compared.unmeasured
    for because in dict.fromkeys(row.because for row in unmeasured):
        cannot_tell(label(because))
    unclear = compared is not None and any(d.verdict == "unclear" for d in compared.decisions)
    if "unmeasurable" in gates or unmeasured or (require_verdict and unclear and not skipped):
        return EXIT_CANNOT_TELL
    return 0


def _answered(system: System) -> bool:
    """Whether anything was measured: a system that failed everywhere was not, only counted as 0."""
    counts = system.scores.counts
    unanswered = counts.missing + counts.failed_calls
    measured = any(summary.n for summary in system.summaries.values())
    return measured and (counts.scored > 0 or unanswered < counts.queries)
