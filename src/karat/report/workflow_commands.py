r"""GitHub workflow commands: keeps values from data from forming one in what karat prints.

GitHub's runner reads every line that a step prints. A line that begins with ``::error::`` or
holds ``##[error]`` anywhere is a command. One character of each is written as JSON may write
it, so that the line is text and JSON means the same as before.
"""

from __future__ import annotations

import io
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from karat.errors import UsageError

# The runner skips white space before the colons, of which there is more beyond ASCII.
_COMMAND = re.compile(rb"((?:\A|[\r\n])[^\x21-\x7e\r\n]*:):|(##)\[")
_BLANK = re.compile(rb"[^\x21-\x7e]*")
# What stands for the line so far: nothing that is seen, or something.
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


class Guard(io.BufferedIOBase):
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
            whole = self._begun + piece
            shown = _COMMAND.sub(_broken, whole)
            if shown != whole and b"\0" in piece:
                raise UsageError(
                    "standard output would hold a GitHub workflow command that comes from the "
                    "data; write this form to a file"
                )
            self._stream.write(shown[len(self._begun) :])
            self._begun = _beginning(whole)
        return len(piece)

    def write_commands(self, data: bytes) -> None:
        """Write whole lines of karat's own as they are."""
        with self._lock:
            self._stream.write(data if self._begun == _START else b"\n" + data)
            self._begun = _START

    def flush(self) -> None:
        """Hand on what was written."""
        self._stream.flush()

    def close(self) -> None:
        """Leave the stream open: it belongs to whoever was here before."""

    def writable(self) -> bool:
        """Return True: this is what it is for."""
        return True

    @property
    def name(self) -> str:
        """Return the name of the stream, such as <stdout>."""
        return str(getattr(self._stream, "name", ""))

    def fileno(self) -> int:
        """Return the number of the stream's file."""
        number: int = self._stream.fileno()
        return number

    def isatty(self) -> bool:
        """Return whether somebody looks on."""
        return bool(self._stream.isatty())


def _beginning(written: bytes) -> bytes:
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
        Guard(below),
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
        # What cannot be written has been told by now.
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
