"""The server: one process that listens, answers, and ends when it is asked to."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from karat.errors import UsageError
from karat.web.app import create_app
from karat.web.asset_table import VEGA, table
from karat.web.checks import LARGEST_HEADERS, LONGEST_URL
from karat.web.connections import HEADER_SECONDS, Connection, make_files_enough
from karat.web.settings import Settings
from karat.web.vega_script import SCRIPT
from karat.web.workers import end_workers

_WAITING = 1_024
# What still streams after this long is cut off.
_GRACE_SECONDS = 5
# What has not ended after this long is not waited for: more than all of its parts may take.
_LAST_SECONDS, _LAST = 15.0, "karat-last"
# As malloc.h calls it.
_ARENA_MAX = -8
_ENDS = (signal.SIGINT, signal.SIGTERM)


def serve(settings: Settings, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM; ``ready`` is given the address once it answers."""
    with closing(listening(settings.host, settings.port)) as listener:
        make_files_enough()
        _share_heaps()
        app = create_app(settings)
        _Server(app, options(app), lambda: ready(address_of(settings, listener))).run([listener])
    if _still_working():
        # Everything is told and closed. To end as usual would wait for what may take minutes.
        _leave()


def _share_heaps() -> None:
    """Have all threads take memory from the same two heaps of the C library.

    Else each keeps what it once needed, though one interpreter runs one of them at a time.
    """
    if sys.platform == "linux":
        # Another C library than glibc has no such setting, and no such heaps.
        with suppress(AttributeError):
            ctypes.CDLL(None).mallopt(_ARENA_MAX, 2)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_WAITING)
    except socket.gaierror:
        raise UsageError(f"--host {host}: there is no such address") from None
    except PermissionError:
        raise UsageError(f"port {port} may not be used; choose one above 1023") from None
    except OSError as error:
        raise _cannot_listen(host, port, error) from None


def address_of(settings: Settings, listener: socket.socket) -> str:
    """What to open in a browser."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{listener.getsockname()[1]}"


def _cannot_listen(host: str, port: int, error: OSError) -> UsageError:
    import errno

    if error.errno == errno.EADDRINUSE:
        return UsageError(f"port {port} of {host} is in use; choose another with --port")
    return UsageError(f"cannot listen at {host}, port {port}: {error.strerror or error}")


def options(app: FastAPI) -> uvicorn.Config:
    """How uvicorn serves it; how many are answered at once is decided here, not there."""
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_keep_alive=int(HEADER_SECONDS),
        timeout_graceful_shutdown=_GRACE_SECONDS,
        h11_max_incomplete_event_size=LONGEST_URL + LARGEST_HEADERS,
        # Whoever the other side says it is: it is not asked.
        proxy_headers=False,
    )


class _Server(uvicorn.Server):
    """Uvicorn, which says when it is ready and does not die of the signal that ends it."""

    def __init__(self, app: FastAPI, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._app, self._ready = app, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        await super().startup(sockets)
        if not self.should_exit:
            self._ready()
            if VEGA in table():
                SCRIPT.begin()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what streams before waiting for its end."""
        self._app.state.stopping.set()
        SCRIPT.end()
        await asyncio.to_thread(end_workers, self._app)
        # What is cut off after the grace is no error to be told.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end, and see to it that there is an end."""
        if not self.should_exit:
            threading.Thread(
                target=_leave_after, args=(_LAST_SECONDS,), name=_LAST, daemon=True
            ).start()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals for a wish to end, which is met: the exit code is 0."""
        before: dict[signal.Signals, Any] = {
            one: signal.signal(one, self.handle_exit) for one in _ENDS
        }
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def _still_working() -> bool:
    """Whether a thread goes on that the end of the process would wait for, or cut short."""
    own = threading.current_thread()
    return any(one is not own and one.name != _LAST for one in threading.enumerate())


def _leave_after(seconds: float) -> None:
    time.sleep(seconds)
    _leave()


def _leave() -> None:
    """End this process now, as one that was asked to end."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)
