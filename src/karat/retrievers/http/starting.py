"""A service that karat starts itself: its command, its port, its last words, and its end."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

from karat.errors import UsageError
from karat.retrievers.http.request import Address
from karat.retrievers.http.wire import is_here
from karat.retrievers.leaving import leaving_in_order
from karat.retrievers.workshop import Workshop

_PLACE = re.compile(r"(?<!\$)\{(?:port|python)\}")
# Seconds between two looks, and those that a service has to end by itself.
_PAUSE, _GRACE = 0.05, 5.0
# Seconds that one in the background has to show itself.
_LATER = 1.0
# What is kept of the output, in bytes, and what an error shows of it.
_KEPT, _LINES, _LONGEST = 64_000, 5, 600


def start(command: Sequence[str], address: Address, timeout: float, workshop: Workshop) -> Service:
    """The service, listening at its address; the workshop stops it at its end."""
    if not hasattr(os, "killpg"):
        raise UsageError(
            "start: this system has no groups of processes; start the service yourself"
        )
    if not is_here(address.host):
        raise UsageError(f"start: a service at {address} is not on this machine; start it there")
    if _listens(address):
        raise UsageError(
            f"start: something listens at {address} already, which would be asked instead; stop "
            'it, or have a free port chosen: "{port}" in start and in url'
        )
    workshop.ending.enter_context(leaving_in_order())
    known = {"{port}": str(address.port), "{python}": sys.executable}
    filled = [_PLACE.sub(lambda place: known[place[0]], word) for word in command]
    service = Service(filled, workshop)
    workshop.ending.callback(service.stop)
    try:
        service.wait(address, timeout)
    except BaseException:
        service.stop()
        raise
    return service


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


class Service:
    """A process and all that it starts, in a group of their own; ``stop`` ends them all.

    What it prints is read as it comes, so that it never waits for a reader, and only the end
    of it is kept.
    """

    def __init__(self, command: Sequence[str], workshop: Workshop) -> None:
        self._command, self._redact = shlex.join(command), workshop.redact
        environment = {**os.environ, **workshop.environment, "PYTHONUNBUFFERED": "1"}
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own command, without a shell
                [workshop.expand(word) for word in command],
                cwd=workshop.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"start: {self._command} cannot be run: {why}") from None
        self._process = process
        # Also when nobody stops it: before the interpreter ends.
        self.stop = weakref.finalize(self, _end, process)
        self._last = bytearray()
        self._reader = threading.Thread(target=_drain, args=(process.stdout, self._last))
        self._reader.daemon = True
        self._reader.start()

    def wait(self, address: Address, timeout: float) -> None:
        """Return once it listens; whatever keeps it from that is told with its last words."""
        end = time.monotonic() + timeout
        while not _listens(address):
            self._refuse_if_ended(address)
            if time.monotonic() > end:
                raise UsageError(
                    f"start: the service does not listen at {address} after {timeout:g} s"
                    f"{self._last_words()}; check its host and port, or give it longer with "
                    "start_timeout"
                )
            time.sleep(_PAUSE)
        # Someone else may have been quicker at the same port.
        self._refuse_if_ended(address)

    def _refuse_if_ended(self, address: Address) -> None:
        told = self.ended()
        if told is not None:
            behind = "" if self._process.returncode else _behind(address)
            raise UsageError(f"start: {told}{behind}; try it yourself: {self._command}")

    def ended(self) -> str | None:
        """How it ended, with its last words; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        # Its number may soon be another process's: what it left behind is stopped now.
        self.stop()
        self._reader.join(1)
        return f"the service ended with {_named(code)}{self._last_words()}"

    def _last_words(self) -> str:
        # Secrets first: half of one, cut off, would not be recognised.
        said = self._redact(bytes(self._last).decode("utf-8", "replace"))
        lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
        text = " | ".join(lines[-_LINES:])
        if not text:
            return " and printed nothing"
        return f" and printed: {text if len(text) <= _LONGEST else f'…{text[-_LONGEST:]}'}"


def _drain(pipe: IO[bytes], last: bytearray) -> None:
    with pipe:
        while chunk := os.read(pipe.fileno(), _KEPT):
            last += chunk
            del last[:-_KEPT]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a process and all that it started to end, then make them; also on a second Ctrl-C."""
    try:
        _send(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    finally:
        _send(process, signal.SIGKILL)
        process.wait()


def _send(process: subprocess.Popen[bytes], number: int) -> None:
    """A signal to the whole group, whose number is that of its first process."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _named(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"


def _behind(address: Address) -> str:
    """What there is to say of a command that ended well, with its service perhaps behind it."""
    end = time.monotonic() + _LATER
    while not (listens := _listens(address)) and time.monotonic() < end:
        time.sleep(_PAUSE)
    told = "; it may have gone to the background, and must stay in the foreground to be stopped"
    left = f"; something listens at {address} now, which you have to stop"
    return told + (left if listens else "")


def _listens(address: Address) -> bool:
    try:
        with socket.create_connection((address.host, address.port), timeout=1.0) as connection:
            # Where nobody listens, a connection can meet itself.
            own, other = connection.getsockname(), connection.getpeername()
            return bool(own != other)
    except OSError:
        return False
