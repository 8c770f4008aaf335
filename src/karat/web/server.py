"""The server process: checks its settings, listens, answers, and ends on Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from html import escape
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from karat.errors import InputError, UsageError
from karat.project.config import read_config
from karat.store import NoHistoryError, Store
from karat.web.app import create_app
from karat.web.assets import VEGA, VEGA_SCRIPT, asset_table
from karat.web.security import LARGEST_HEADERS, LONGEST_URL, plain_headers
from karat.web.settings import Settings, link_with_token
from karat.web.workers import end_workers

# From the start of a connection, or its last answer, to the end of the next headers.
HEADER_SECONDS = 10.0
MOST_CONNECTIONS = 2_000
# Files that the store, services and pages may need beside connections.
_SPARE_FILES = 200
_FEWEST_CONNECTIONS = 50
_BACKLOG = 1_024
_CHECK_PATIENCE = 3.0
_SHORTEST_TOKEN = 16
# Streams that are still open after this long are cut off.
_GRACE_SECONDS = 5
# The process ends after this long in any case: more than all parts of a shutdown may take.
_LAST_SECONDS, _LAST_THREAD = 15.0, "karat-last"
# M_ARENA_MAX of malloc.h.
_ARENA_MAX = -8
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_REDIRECT = """\
<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={url}">
<title>karat</title>
<p><a href="{url}">Open the workbench</a></p>
"""


def serve(
    settings: Settings,
    notify: Callable[[str], None],
    *,
    open_page: bool = False,
    quiet: bool = False,
) -> None:
    """Check the settings, then serve until Ctrl-C or SIGTERM.

    ``notify`` gets warnings, and the link to open once the server answers. With ``quiet`` it gets
    only a link that nobody could do without, because it holds the token.
    """
    store = _check(settings)
    if settings.token is not None and len(settings.token) < _SHORTEST_TOKEN and not quiet:
        message = f"a token of fewer than {_SHORTEST_TOKEN} characters can be guessed"
        notify(f"karat: warning: {message}")
    # Commands end before garbage adds up, and turn its collection off; a server runs on.
    gc.enable()
    with browser_opener(settings.token) if open_page else nullcontext() as open_in_browser:

        def ready(address: str) -> None:
            if not quiet or settings.link_holds_token:
                notify(f"karat serves {settings.link(address)} (store {store}); Ctrl-C ends it")
            if open_in_browser is not None:
                open_in_browser(address)

        run_server(settings, ready)


def _check(settings: Settings) -> str:
    """Refuse a config, pool or store that cannot be read; return the name of the store."""
    if settings.config is not None:
        read_config(settings.config)
    if settings.pool is not None and not settings.pool.is_file():
        raise InputError("no such file; karat pool writes one", where=str(settings.pool))
    with Store.open(settings.store, patience=_CHECK_PATIENCE) as store:
        # A store that does not exist yet begins with the first save.
        with suppress(NoHistoryError):
            store.stamp()
        return store.name


def run_server(settings: Settings, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM; ``ready`` gets the address once the server answers."""
    with closing(open_listener(settings.host, settings.port)) as listener:
        raise_file_limit()
        _share_heaps()
        app = create_app(settings)
        _Server(app, options(app), lambda: ready(address_of(settings, listener))).run([listener])
    current = threading.current_thread()
    threads = threading.enumerate()
    if any(thread is not current and thread.name != _LAST_THREAD for thread in threads):
        # All is saved and closed. A normal exit would wait for threads that may take minutes.
        _exit_now()


def _share_heaps() -> None:
    """Let all threads share two heaps of the C library, instead of keeping one each."""
    if sys.platform == "linux":
        # C libraries other than glibc have no such setting, and no such heaps.
        with suppress(AttributeError):
            ctypes.CDLL(None).mallopt(_ARENA_MAX, 2)


def open_listener(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except socket.gaierror:
        raise UsageError(f"--host {host}: there is no such address") from None
    except PermissionError:
        raise UsageError(f"port {port} may not be used; choose one above 1023") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} of {host} is in use; choose another with --port"
        else:
            message = f"cannot listen at {host}, port {port}: {error.strerror or error}"
        raise UsageError(message) from None


def address_of(settings: Settings, listener: socket.socket) -> str:
    """Return the URL to open in a browser."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{listener.getsockname()[1]}"


def options(app: FastAPI) -> uvicorn.Config:
    """Return the settings of uvicorn; limits on connections are karat's own."""
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
        # A client must not claim another address.
        proxy_headers=False,
    )


class _Server(uvicorn.Server):
    """Uvicorn that reports when it is ready and ends with exit code 0 on a signal."""

    def __init__(self, app: FastAPI, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._app, self._ready = app, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then report it."""
        await super().startup(sockets)
        if not self.should_exit:
            self._ready()
            if VEGA in asset_table():
                VEGA_SCRIPT.begin()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams and workers before waiting for requests."""
        self._app.state.stopping.set()
        VEGA_SCRIPT.end()
        await asyncio.to_thread(end_workers, self._app)
        # Streams that are cut off after the grace period are no errors.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end, and make sure that there is an end."""
        if not self.should_exit:
            threading.Thread(
                target=_exit_after, args=(_LAST_SECONDS,), name=_LAST_THREAD, daemon=True
            ).start()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals without raising them again, so that the exit code is 0."""
        before: dict[signal.Signals, Any] = {
            number: signal.signal(number, self.handle_exit) for number in _END_SIGNALS
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _exit_after(seconds: float) -> None:
    time.sleep(seconds)
    _exit_now()


def _exit_now() -> None:
    """End this process with exit code 0, without waiting for threads."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


class Connection(H11Protocol):
    """A connection of uvicorn that ends when no request comes."""

    most = MOST_CONNECTIONS
    # Numbers connections in the order in which they fell silent; clocks are too coarse. The one
    # that is silent longest is closed first.
    _order = count()
    _silent_since = 0
    _deadline: asyncio.TimerHandle | None = None
    _unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.most:
            self._close_oldest()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Stop waiting once the headers of a request are complete."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._wait()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, with the headers that every answer has."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        body = f"{msg}\n".encode()
        headers = plain_headers() | {
            "content-type": "text/plain; charset=utf-8",
            "connection": "close",
            "content-length": str(len(body)),
        }
        parts: tuple[Any, ...] = (
            h11.Response(status_code=400, headers=list(headers.items()), reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        for part in parts:
            self.transport.write(self.conn.send(part) or b"")
        self.transport.close()

    @property
    def silent(self) -> bool:
        """Return whether a request, or the rest of one, is still to come."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _wait(self) -> None:
        self._stop_waiting()
        self._silent_since = next(self._order)
        self._unread = self.transport.get_write_buffer_size()
        self._deadline = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        """Close the connection, unless the client still reads the last answer."""
        if 0 < self.transport.get_write_buffer_size() < self._unread:
            self._wait()
        else:
            self.transport.abort()

    def _close_oldest(self) -> None:
        """Close the connection that was silent longest; this one if all others are busy."""
        waiting = [one for one in self.connections if isinstance(one, Connection) and one.silent]
        oldest = min(waiting, key=lambda one: one._silent_since, default=self)
        # Now, not once it is lost: the next connection may come before that.
        self.connections.discard(oldest)
        oldest.transport.abort()


def raise_file_limit() -> None:
    """Allow as many open files as connections, or else only as many connections as files."""
    try:
        import resource
    except ImportError:
        return
    needed = MOST_CONNECTIONS + _SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    Connection.most = max(_FEWEST_CONNECTIONS, soft - _SPARE_FILES)


@contextmanager
def browser_opener(token: str | None) -> Iterator[Callable[[str], None]]:
    """Yield a function that opens an address in the browser.

    Other users can read the arguments of a command, so the browser gets a file that only its user
    can read and that redirects; the file is removed at the end.
    """
    with TemporaryDirectory(prefix="karat-") as folder:

        def open_in_browser(address: str) -> None:
            file = Path(folder) / "open.html"
            url = escape(link_with_token(address, token))
            file.write_text(_REDIRECT.format(url=url), "utf-8")
            # A browser in a terminal returns only when it is closed.
            threading.Thread(target=webbrowser.open, args=(file.as_uri(),), daemon=True).start()

        yield open_in_browser
