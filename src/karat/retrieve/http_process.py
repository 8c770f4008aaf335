"""A search service that karat starts for a run and stops after it."""

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
from karat.jobs.signals import stop_on_signals
from karat.retrieve.build_context import BuildContext
from karat.retrieve.http_connection import Address

_PLACE = re.compile(r"(?<!\$)\{(?:port|python)\}")
# Seconds between two looks, and those that a service has to end by itself.
_PAUSE, _GRACE = 0.05, 5.0
# Of its output, how many bytes are kept, and how many lines and characters an error shows.
_KEPT_BYTES, _LINES, _LONGEST = 64_000, 5, 600


def start_service(
    command: Sequence[str], address: Address, timeout: float, context: BuildContext
) -> ServiceProcess:
    """Start a service and wait until it listens; the context stops it at its end."""
    if not hasattr(os, "killpg"):
        raise UsageError(
            "start: this system has no groups of processes; start the service yourself"
        )
    if not address.is_local:
        raise UsageError(f"start: a service at {address} is not on this machine; start it there")
    if _listens(address):
        raise UsageError(
            f"start: something listens at {address} already, which would be asked instead; stop "
            'it, or have a free port chosen: "{port}" in start and in url'
        )
    context.ending.enter_context(stop_on_signals())
    known = {"{port}": str(address.port), "{python}": sys.executable}
    filled = [_PLACE.sub(lambda place: known[place[0]], word) for word in command]
    service = ServiceProcess(filled, context)
    context.ending.callback(service.stop)
    service.wait(address, timeout)
    return service


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


class ServiceProcess:
    """A process and its children, in a process group; ``stop`` ends them all.

    Its output is read as it comes, and only the end of it is kept.
    """

    def __init__(self, command: Sequence[str], context: BuildContext) -> None:
        self._command, self._redact = shlex.join(command), context.redact
        environment = {**os.environ, **context.environment, "PYTHONUNBUFFERED": "1"}
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own command, without a shell
                [context.expand(word) for word in command],
                cwd=context.folder,
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
        # Stopped at the latest before the interpreter ends.
        self.stop = weakref.finalize(self, _end, process)
        self._output = bytearray()
        self._reader = threading.Thread(
            target=_drain, args=(process.stdout, self._output), daemon=True
        )
        self._reader.start()

    def wait(self, address: Address, timeout: float) -> None:
        """Return once it listens; errors include its last output."""
        end = time.monotonic() + timeout
        listens = False
        while not listens:
            listens = _listens(address)
            # Looked at last, since another process may have been quicker at the same port.
            if (ending := self.ended()) is not None:
                raise UsageError(
                    f"start: {ending}; it must stay in the foreground; "
                    f"try it yourself: {self._command}"
                )
            if time.monotonic() > end and not listens:
                raise UsageError(
                    f"start: the service does not listen at {address} after {timeout:g} s"
                    f"{self._last_output()}; check its host and port, or give it longer with "
                    "start_timeout"
                )
            time.sleep(0 if listens else _PAUSE)

    def ended(self) -> str | None:
        """Return how it ended, with its last output; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        # Its process id may soon be reused, so its children are stopped now.
        self.stop()
        self._reader.join(1)
        return f"the service ended with exit code {code}{self._last_output()}"

    def _last_output(self) -> str:
        # Secrets first: half of one, cut off, would not be recognised.
        output = self._redact(bytes(self._output).decode("utf-8", "replace"))
        lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
        text = " | ".join(lines[-_LINES:])
        return f" and printed: {text[-_LONGEST:]}" if text else " and printed nothing"


def _drain(pipe: IO[bytes], output: bytearray) -> None:
    with pipe:
        while chunk := os.read(pipe.fileno(), _KEPT_BYTES):
            output += chunk
            del output[:-_KEPT_BYTES]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the process group to end, then kill it; also on a second Ctrl-C."""
    # The group may have ended, or its number may belong to another user by now.
    gone = suppress(ProcessLookupError, PermissionError)
    try:
        with gone:
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    finally:
        with gone:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _listens(address: Address) -> bool:
    try:
        with socket.create_connection((address.host, address.port), timeout=1.0) as connection:
            # Where no one listens, a connection can meet itself.
            return bool(connection.getsockname() != connection.getpeername())
    except OSError:
        return False
