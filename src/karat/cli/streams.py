"""Standard streams: closed ones, encodings that lack a character, and Ctrl-C while waiting."""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_NAMES = {"stdout": "standard output", "stderr": "standard error"}


class _Closed(io.RawIOBase):
    """A closed stream."""

    def __init__(self, name: str) -> None:
        self._message = f"{name} is closed; open it, or send it to a file or to /dev/null"

    def writable(self) -> bool:
        """Return True, so that a write raises the error."""
        return True

    def write(self, data: object, /) -> int:
        """Refuse to write."""
        raise OSError(errno.EBADF, self._message)


@contextmanager
def open_streams() -> Iterator[None]:
    """Replace closed streams, and let every stream print what its encoding lacks as lookalikes.

    Nothing can be read from or written to a replaced stream. The numbers of closed streams are
    reserved; otherwise the next opened file would get one, and libraries would print into it.
    """
    closed = [name for name in ("stdin", *_NAMES) if getattr(sys, name) is None]
    reserved = [os.open(os.devnull, os.O_RDWR) for _ in closed]
    for name, number in zip(closed, reserved, strict=True):
        if name == "stdin":
            sys.stdin = io.TextIOWrapper(io.FileIO(number, closefd=False), encoding="utf-8")
        else:
            raw = io.BufferedWriter(_Closed(_NAMES[name]), buffer_size=1)
            setattr(sys, name, io.TextIOWrapper(raw, encoding="utf-8", write_through=True))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors=LOOKALIKES)  # type: ignore[union-attr]
    try:
        yield
    finally:
        # The interpreter would try to write what is left, and end with a code of its own.
        for name, number in zip(closed, reserved, strict=True):
            setattr(sys, name, None)
            os.close(number)


def heed_interrupts() -> None:
    """Let Ctrl-C end a wait for standard input or a pipe.

    Polars, once imported, has waiting calls restarted after a signal, and Python never
    gets to see it.
    """
    with contextlib.suppress(AttributeError, OSError, ValueError):
        signal.siginterrupt(signal.SIGINT, True)


LOOKALIKES = "karat-lookalikes"

# One for one, so that columns stay where they are.
_ALIKE = {
    **dict(zip("▁▂▃▄▅▆▇█", "_.:-=+*#", strict=True)),
    **dict(zip("─●·…×−→Δ≤≥²±“”", '-o/~x->d<>2~""', strict=True)),
}


def _encode_lookalikes(error: UnicodeError) -> tuple[str, int]:
    """Handle an encoding error: write characters that look alike, else question marks.

    >>> "Δ +0.05 · n = 12 … ▁█ é".encode("ascii", LOOKALIKES)
    b'd +0.05 / n = 12 ~ _# ?'
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(_ALIKE.get(character, "?") for character in lost), error.end


codecs.register_error(LOOKALIKES, _encode_lookalikes)
