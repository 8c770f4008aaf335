"""``python -m karat.web.parent_watchdog MODULE …``: run a module that ends with its parent.

Standard input is a pipe that the parent holds open and never writes to. The system closes it
when the parent ends, however that happens.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

_GRACE_SECONDS = 8.0
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


def main() -> None:
    """Run the module of the arguments, and watch the pipe in a thread."""
    pipe = os.dup(0)
    # The module must not read the pipe.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    threading.Thread(target=_end_with, args=(pipe,), name="karat-watchdog", daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _end_with(pipe: int) -> None:
    while os.read(pipe, 1024):
        continue
    # As Ctrl-C does, so that logs are closed; then by force.
    _send(signal.SIGINT)
    time.sleep(_GRACE_SECONDS)
    _send(_KILL)


def _send(number: int) -> None:
    """Signal this process and its children; it leads its own process group."""
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), number)
    else:
        os.kill(os.getpid(), number)


if __name__ == "__main__":
    main()
