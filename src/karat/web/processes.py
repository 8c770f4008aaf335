"""A command run as a process of its own, with everything that it starts in turn."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

_LONGEST_LINE = 65_536
# How long the end of the output may lag behind the end of the process.
_LAST_LINES_SECONDS = 2.0


class Process:
    """A command whose standard error is read line by line, in threads of its own.

    ``on_line`` hears of each line, and ``on_end`` of the exit code once all lines are read.
    """

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        on_line: Callable[[str], None],
        on_end: Callable[[int], None],
    ) -> None:
        self._on_line, self._on_end = on_line, on_end
        self._ended = threading.Event()
        # No shell, so no value of the words is anything but a word; a session of its own, so
        # that Ctrl-C in the server's terminal is the server's alone.
        self._process = subprocess.Popen(  # noqa: S603
            list(words),
            env=dict(environment),
            # Closed when this process ends in whichever way: what was started ends with it.
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        threading.Thread(target=self._watch, name="karat-run", daemon=True).start()

    def stop(self, grace: float) -> None:
        """Ask it to end as Ctrl-C does; what has not ended after some seconds is killed."""
        self._signal(signal.SIGINT)
        threading.Thread(
            target=self._kill_after, args=(grace,), name="karat-run-stop", daemon=True
        ).start()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, after waiting so long at most."""
        return self._ended.wait(seconds)

    def _kill_after(self, grace: float) -> None:
        if not self._ended.wait(grace):
            self._signal(_KILL)

    def _signal(self, number: int) -> None:
        """Send a signal to the process and to what it started, as a terminal would."""
        if self._process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, number)
            else:
                self._process.terminate()

    def _watch(self) -> None:
        reader = threading.Thread(target=self._read, name="karat-run-lines", daemon=True)
        reader.start()
        code = self._process.wait()
        reader.join(_LAST_LINES_SECONDS)
        if reader.is_alive() and hasattr(os, "killpg"):
            # Something it started still holds its output open, and nobody needs that any more.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, _KILL)
            reader.join(_LAST_LINES_SECONDS)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._on_end(code)
        self._ended.set()

    def _read(self) -> None:
        stream = self._process.stderr
        if stream is None:
            return
        with stream:
            while line := stream.readline(_LONGEST_LINE):
                self._on_line(line.decode("utf-8", "replace").rstrip("\r\n"))


_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
