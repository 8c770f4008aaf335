"""Standard streams that the caller has closed, as ``>&-`` does: writing to one is an error."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_NAMES = {"stdout": "standard output", "stderr": "standard error"}


class _Closed(io.RawIOBase):
    """A stream that takes nothing."""

    def __init__(self, name: str) -> None:
        self._told = f"{name} is closed; open it, or send it to a file or to /dev/null"

    def writable(self) -> bool:
        """Return True: whoever writes is told what is wrong."""
        return True

    def write(self, data: object, /) -> int:
        """Refuse to write."""
        raise OSError(errno.EBADF, self._told)


@contextmanager
def open_streams() -> Iterator[None]:
    """Put a stream in place of each that is closed; nothing can be read from or written to it.

    The numbers of closed streams are taken, or the next file that is opened would get one, and
    what a library prints would be written into it.
    """
    closed = [name for name in ("stdin", *_NAMES) if getattr(sys, name) is None]
    taken = [os.open(os.devnull, os.O_RDWR) for _ in closed]
    for name, number in zip(closed, taken, strict=True):
        if name == "stdin":
            sys.stdin = io.TextIOWrapper(io.FileIO(number, closefd=False), encoding="utf-8")
        else:
            raw = io.BufferedWriter(_Closed(_NAMES[name]), buffer_size=1)
            setattr(sys, name, io.TextIOWrapper(raw, encoding="utf-8", write_through=True))
    try:
        yield
    finally:
        # The interpreter would try to write what is left, and end with a code of its own.
        for name, number in zip(closed, taken, strict=True):
            setattr(sys, name, None)
            os.close(number)
