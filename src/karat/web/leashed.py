"""``python -m karat.web.leashed MODULE …``: a module that ends when whoever started it is gone.

Its standard input is a pipe that the starter holds open and never writes to: the system closes
it when the starter ends, however that happens.
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
    """Run the module that the words name, and watch the pipe beside it."""
    leash = os.dup(0)
    # What runs here has nobody to ask, and must not wait for the pipe either.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    threading.Thread(target=_end_with, args=(leash,), name="karat-leash", daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _end_with(leash: int) -> None:
    while os.read(leash, 1024):
        continue
    # As Ctrl-C: what is logged is kept. What does not heed it is made to end.
    _send(signal.SIGINT)
    time.sleep(_GRACE_SECONDS)
    _send(_KILL)


def _send(number: int) -> None:
    """A signal to this process and what it started; it was started as the first of its group."""
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), number)
    else:
        os.kill(os.getpid(), number)


if __name__ == "__main__":
    main()
