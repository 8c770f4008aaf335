"""Ctrl-C while waiting for input."""

from __future__ import annotations

import contextlib
import signal


def heed_interrupts() -> None:
    """Let Ctrl-C end a wait for standard input or a pipe.

    Polars, once imported, has waiting calls restarted after a signal, and Python never
    gets to see it.
    """
    with contextlib.suppress(AttributeError, OSError, ValueError):
        signal.siginterrupt(signal.SIGINT, True)
