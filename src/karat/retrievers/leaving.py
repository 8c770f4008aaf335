"""Leaving in order: SIGTERM and SIGHUP end a search as Ctrl-C does, and not in mid-air."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = ("SIGTERM", "SIGHUP")


class Leaving(SystemExit):
    """A signal asked karat to end; the exit code is the one that a shell shows for it."""


@contextmanager
def leaving_in_order() -> Iterator[None]:
    """Have what is open closed, and services stopped, before a signal ends karat."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)):
            # Who ignores a signal, as nohup does, or heeds it already has reasons.
            if signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, _leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    raise Leaving(128 + number)
