"""GitHub Actions: annotations beside the diff, and the report on the page of the job.

GitHub reads ``::error`` and ``::warning`` lines from standard error as well, which leaves
standard output to the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from karat.evaluation.sentences import cautions_beside, other_reversals
from karat.pages.formatting import gate_name, label, pair_name, plural
from karat.report.document import Report
from karat.report.workflow_commands import escaped, in_workflow, write_commands

# GitHub shows this many errors and this many warnings of a step, and drops the rest.
MOST_SHOWN = 10

Document = Mapping[str, Any]
Message = tuple[str, str]


def announce(report: Report, environ: Mapping[str, str], *, require_verdict: bool = False) -> None:
    """Write annotations and the job summary if this runs in GitHub Actions.

    ``require_verdict`` makes an unclear comparison worth a warning, as one whose primary
    measure has no value always is.
    """
    if not in_workflow(environ):
        return
    document = report.to_dict()
    lines = annotation_lines(document, require_verdict=require_verdict)
    try:
        write_step_summary(document, environ)
    except OSError as error:
        lines.append(_line("warning", "karat", f"no step summary: {error.strerror or error}"))
    write_commands("".join(f"{line}\n" for line in lines))


def annotation_lines(results: Document, *, require_verdict: bool = False) -> list[str]:
    """Return one workflow command per problem that stops a change or puts it in doubt."""
    errors = [_line("error", *message) for message in _shown([*_errors(results)])]
    doubts = _shown([*_warnings(results, require_verdict=require_verdict)])
    return errors + [_line("warning", *doubt) for doubt in doubts]


def write_step_summary(document: Document, environ: Mapping[str, str]) -> None:
    """Append the report to the page of the job, if GitHub names a file for it."""
    from karat.report.markdown import markdown

    name = environ.get("GITHUB_STEP_SUMMARY")
    if name:
        with Path(name).open("a", encoding="utf-8") as file:
            file.write(markdown(document) + "\n")


def _errors(results: Document) -> Iterator[Message]:
    failed = [gate for gate in results.get("gates", []) if gate["verdict"] == "fail"]
    for gate in sorted(failed, key=lambda gate: not gate["unreachable"]):
        kind = "gate out of reach" if gate["unreachable"] else "gate failed"
        yield f"{kind}: {gate_name(gate)}", f"{gate['system']}: {gate['because']}"
    for decision in results.get("decisions", []):
        if decision["verdict"] == "worse":
            yield f"worse: {pair_name(decision)}", decision["because"]
        for caution in decision.get("cautions", ()):
            if caution["regression"]:
                yield f"worse: {caution['measure']}, {pair_name(decision)}", caution["because"]


def _warnings(results: Document, *, require_verdict: bool) -> Iterator[Message]:
    for gate in results.get("gates", []):
        if gate["verdict"] == "unmeasurable":
            title = f"gate cannot be judged: {gate_name(gate)}"
            yield title, f"{gate['system']}: {gate['because']}"
    unmeasured = {
        (row["baseline"], row["system"])
        for row in results.get("comparisons", [])
        if row["primary"] and row["segment"] is None and row["delta"] is None
    }
    for decision in results.get("decisions", []):
        doubted = require_verdict or (decision["baseline"], decision["system"]) in unmeasured
        if doubted and decision["verdict"] == "unclear":
            yield f"no verdict: {pair_name(decision)}", decision["because"]
        for caution in cautions_beside(decision):
            if not caution["regression"]:
                yield f"caution: {pair_name(decision)}", caution["because"]
    for sentence in other_reversals(results):
        yield "better overall, worse in a segment", sentence


def _shown(messages: Sequence[Message]) -> list[Message]:
    """Return as many messages as GitHub shows; the last one counts the rest."""
    if len(messages) <= MOST_SHOWN:
        return list(messages)
    rest = plural(len(messages) - MOST_SHOWN + 1, "other")
    return [*messages[: MOST_SHOWN - 1], ("karat", f"and {rest}: see the report")]


def _line(level: str, title: str, message: str) -> str:
    # Both are within a line, where only ## could begin another command.
    title, message = (escaped(label(text)) for text in (title, message))
    return f"::{level} title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
