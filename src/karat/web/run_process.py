"""A command in its own process, whose output is read line by line and that ends with its parent.

Evaluations run as processes: one can be stopped at any point, reads the user's code as it is on
disk now, does not slow the pages down, and leaves the server alive if a system crashes it.

``python -m karat.web.run_process MODULE …`` is the child. Its standard input is a pipe that the
parent holds open and never writes to; the system closes it when the parent ends, however that
happens.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_LONGEST_LINE = 65_536
# How long to wait for the last output after the process ended.
_LAST_LINES_SECONDS = 2.0
# Long enough for a log to be closed and a service to be stopped.
GRACE_SECONDS = 8.0
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


class RunProcess:
    """A module that runs as a command.

    Calls ``on_line`` with each line of its standard error, and ``on_end`` with the exit code
    after the last line, both from threads of its own.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        on_line: Callable[[str], None],
        on_end: Callable[[int], None],
    ) -> None:
        self._on_line, self._on_end = on_line, on_end
        self._ended = threading.Event()
        # In its own session, so that Ctrl-C in the server's terminal does not reach it.
        self._process = subprocess.Popen(  # noqa: S603 - no shell
            [sys.executable, "-m", "karat.web.run_process", *command],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        threading.Thread(target=self._watch, name="karat-run", daemon=True).start()

    def stop(self, grace: float) -> None:
        """Interrupt the process as Ctrl-C does, and kill it after ``grace`` seconds."""
        if not self._ended.is_set():
            _signal_group(self._process.pid, signal.SIGINT)
            threading.Thread(target=self._kill_after, args=(grace,), daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Wait for the process to end; return whether it has ended."""
        return self._ended.wait(seconds)

    def _kill_after(self, grace: float) -> None:
        if not self._ended.wait(grace):
            _signal_group(self._process.pid, _KILL)

    def _watch(self) -> None:
        reader = threading.Thread(target=self._read, name="karat-run-lines", daemon=True)
        reader.start()
        code = self._process.wait()
        # A child process that is still running may hold the output open.
        _signal_group(self._process.pid, _KILL)
        reader.join(_LAST_LINES_SECONDS)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._on_end(code)
        self._ended.set()

    def _read(self) -> None:
        if self._process.stderr is not None:
            with self._process.stderr as stream:
                while line := stream.readline(_LONGEST_LINE):
                    self._on_line(line.decode("utf-8", "replace").rstrip("\r\n"))


def _signal_group(leader: int, number: int) -> None:
    """Signal a process and its children, as a terminal would."""
    with suppress(OSError):
        getattr(os, "killpg", os.kill)(leader, number)


def main() -> None:
    """Run the module of the arguments, and end when the pipe is closed."""
    pipe = os.dup(0)
    # The module must not read the pipe.
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    threading.Thread(target=_end_with, args=(pipe,), name="karat-watchdog", daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _end_with(pipe: int) -> None:
    while os.read(pipe, 1024):
        continue
    # First like Ctrl-C, so that logs are closed; then kill.
    _signal_group(os.getpid(), signal.SIGINT)
    time.sleep(GRACE_SECONDS)
    _signal_group(os.getpid(), _KILL)


if __name__ == "__main__":
    main()
