"""GitHub Actions: annotations beside the diff, the job summary, and safe standard streams.

GitHub reads ``::error`` and ``::warning`` lines from standard error as well, which leaves
standard output to the report. Its runner reads every line that a step prints: a line that begins
with ``::error::`` or holds ``##[error]`` anywhere is a command. One character of each that comes
from data is written as JSON may write it, so that the line is text and JSON means the same.
"""

from __future__ import annotations

import io
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from karat.errors import UsageError
from karat.pages.formatting import gate_name, label, pair_name, plural

if TYPE_CHECKING:
    from karat.reports.document import Report

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
    if summary := environ.get("GITHUB_STEP_SUMMARY"):
        from karat.reports.markdown import markdown

        try:
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(markdown(document) + "\n")
        except OSError as error:
            lines.append(_line("warning", "karat", f"no step summary: {error.strerror or error}"))
    write_commands("".join(f"{line}\n" for line in lines))


def annotation_lines(results: Document, *, require_verdict: bool = False) -> list[str]:
    """Return one workflow command per problem that stops a change or puts it in doubt."""
    errors = [_line("error", *message) for message in _shown([*_errors(results)])]
    doubts = _shown([*_warnings(results, require_verdict=require_verdict)])
    return errors + [_line("warning", *doubt) for doubt in doubts]


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
    from karat.evaluation.report_text import cautions_beside, other_reversals

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
    title, message = (
        escaped(label(text)).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        for text in (title, message)
    )
    title = title.replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={title}::{message}"


# The runner skips white space before the colons, of which there is more beyond ASCII.
_COMMAND = re.compile(rb"((?:\A|[\r\n])[^\x21-\x7e\r\n]*:):|(##)\[")
_BLANK = re.compile(rb"[^\x21-\x7e]*")
# The state of the line so far: blank, or with text.
_START, _IN_LINE = b"\n", b"x"


def in_workflow(environ: Mapping[str, str]) -> bool:
    """Return whether this runs as a step of a GitHub workflow."""
    return environ.get("GITHUB_ACTIONS") == "true"


def escaped(text: str) -> str:
    r"""Return a text of whole lines that the runner takes for no command.

    >>> escaped("::error::no"), escaped("a ##[error]b"), escaped("a::b")
    (':\\u003aerror::no', 'a ##\\u005berror]b', 'a::b')
    """
    data = text.encode("utf-8", "surrogatepass")
    return _COMMAND.sub(_broken, data).decode("utf-8", "surrogatepass")


def _broken(match: re.Match[bytes]) -> bytes:
    return match[1] + rb"\u003a" if match[1] is not None else match[2] + rb"\u005b"


class Guard:
    """A binary stream whose lines are no commands, in whichever pieces they are written."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        # A command may go on after these: an empty line, a colon, one or two hashes.
        self._begun = _START

    def write(self, data: Any, /) -> int:
        """Write text with its commands broken; refuse binary data that holds one."""
        piece = bytes(data)
        with self._lock:
            text = self._begun + piece
            shown = _COMMAND.sub(_broken, text)
            if shown != text and b"\0" in piece:
                raise UsageError(
                    "standard output would hold a GitHub workflow command that comes from the "
                    "data; write this form to a file"
                )
            self._stream.write(shown[len(self._begun) :])
            self._begun = _last_line(text)
        return len(piece)

    def write_commands(self, data: bytes) -> None:
        """Write whole lines of karat's own as they are."""
        with self._lock:
            self._stream.write(data if self._begun == _START else b"\n" + data)
            self._begun = _START

    def close(self) -> None:
        """Leave the stream open: it belongs to whoever was here before."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _last_line(written: bytes) -> bytes:
    """Return the part of the last line that decides whether a command goes on."""
    line = written[max(written.rfind(b"\n"), written.rfind(b"\r")) + 1 :]
    if _BLANK.fullmatch(line.removesuffix(b":")):
        return _START + line[-1:] if line.endswith(b":") else _START
    hashes = len(line) - len(line.rstrip(b"#"))
    return _IN_LINE + b"#" * min(hashes, 2)


@contextmanager
def guarded_streams(environ: Mapping[str, str] | None = None) -> Iterator[None]:
    """Guard standard output and standard error while this runs in a workflow."""
    with ExitStack() as stack:
        if in_workflow(os.environ if environ is None else environ):
            for name in ("stdout", "stderr"):
                stack.enter_context(_guarded(name))
        yield


@contextmanager
def _guarded(name: str) -> Iterator[None]:
    stream = getattr(sys, name)
    below = getattr(stream, "buffer", None)
    if below is None:
        # Not a stream of the process: somebody collects what is printed.
        yield
        return
    stream.flush()
    guard = io.TextIOWrapper(
        cast("Any", Guard(below)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
    setattr(sys, name, guard)
    try:
        yield
    finally:
        setattr(sys, name, stream)
        # Write errors were reported before.
        with suppress(OSError, ValueError):
            guard.detach()


def write_commands(lines: str) -> None:
    """Write commands of karat's own to standard error, after all that was written before."""
    stream = sys.stderr
    guard = getattr(stream, "buffer", None)
    if isinstance(guard, Guard):
        stream.flush()
        guard.write_commands(lines.encode(stream.encoding, stream.errors or "strict"))
    else:
        stream.write(lines)
    stream.flush()
