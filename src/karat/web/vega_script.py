"""The script of Vega, made beside the server: making it stops whatever else the process does.

What an earlier process has made is in the user's cache, and need only be read.
"""

from __future__ import annotations

import subprocess
import sys
import threading

_MAKE = """
import sys
from karat.reports.html.vega import vega
sys.stdout.buffer.write((vega() or "").encode())
"""


class VegaScript:
    """The library as one script, made once by whoever asks first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: bytes | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False

    def begin(self) -> None:
        """Have it made before anybody asks."""
        threading.Thread(target=self.made, name="karat-vega", daemon=True).start()

    def made(self) -> bytes:
        """The script; waits until it is made."""
        with self._lock:
            if self._made is not None:
                return self._made
            made = _kept() or self._from_process()
            if not made and not self._ended:
                made = _from_here()
            self._made = made or None
            return made

    def end(self) -> None:
        """Nobody will ask any more."""
        self._ended = True
        if self._process is not None:
            self._process.kill()

    def _from_process(self) -> bytes:
        """What another Python makes; nothing where it could not."""
        try:
            self._process = subprocess.Popen(  # noqa: S603 - words of our own
                [sys.executable, "-P", "-c", _MAKE],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return b""
        script, _ = self._process.communicate()
        return script if self._process.returncode == 0 else b""


def _kept() -> bytes:
    from karat.reports.html.vega import kept

    return (kept() or "").encode()


def _from_here() -> bytes:
    from karat.reports.html.vega import vega

    return (vega() or "").encode()


SCRIPT = VegaScript()
