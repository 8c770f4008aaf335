"""SIGTERM and SIGHUP as exceptions, so that files are closed and services stopped first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = ("SIGTERM", "SIGHUP")


class StoppedBySignal(SystemExit):
    """A signal asked karat to end; the exit code is the one that a shell shows for it."""


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise StoppedBySignal on SIGTERM and SIGHUP while the block runs."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)):
            # A handler that is set already, or a signal that nohup ignores, stays as it is.
            if signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> None:
    raise StoppedBySignal(128 + number)
