"""The workbench's application, and the server that answers until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext, suppress
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from anyio.to_thread import current_default_thread_limiter
from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer
from uvicorn.protocols.http.h11_impl import H11Protocol

from karat.errors import InputError, UsageError
from karat.project.config import read_config
from karat.reports.html.assets import vega
from karat.store import NoHistoryError, Store
from karat.version import __version__
from karat.web import evaluations, labels, live, pages, runs
from karat.web.responses import VEGA, Json, Refusal, ResponseCache, asset_table, handle_errors
from karat.web.security import LARGEST_HEADERS, LONGEST_URL, RequestGuard
from karat.web.settings import Settings, link_with_token

# Cache sizes: rendered responses, parts of reports, comparisons.
_ANSWERS, _PARTS, _COMPARISONS = 64, 64, 8
# Seconds that a request waits while another process saves.
_PATIENCE = 10.0
# Most threads wait for a lock or a disk; requests that only read must not wait for these.
_THREADS = 100
# From the start of a connection, or its last response, to the end of the next headers.
HEADER_SECONDS = 10.0
_BACKLOG = 1_024
_CHECK_PATIENCE = 3.0
_SHORTEST_TOKEN = 16
# Requests that are still open after this long are cut off.
_GRACE_SECONDS = 3
# The process ends after this long in any case; a shutdown takes less.
_LAST_SECONDS = 15.0
_REDIRECT = """\
<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={url}">
<title>karat</title>
<p><a href="{url}">Open the workbench</a></p>
"""


def create_app(settings: Settings) -> FastAPI:
    """Return the application; it opens the store, and closes it when the server stops."""
    app = FastAPI(
        title="karat",
        version=__version__,
        summary="List, compare, label and start evaluations of retrieval systems.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        default_response_class=Json,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    # Read now, so that a missing file fails at the start.
    asset_table()
    app.state.settings = settings
    app.state.store = Store.open(settings.store, patience=_PATIENCE)
    app.state.live = live.LiveSystems(settings)
    app.state.jobs = runs.Jobs(settings)
    app.state.answers = ResponseCache[bytes](_ANSWERS)
    app.state.parts = ResponseCache[Any](_PARTS)
    app.state.comparisons = ResponseCache[Any](_COMPARISONS)
    app.state.comparing = asyncio.Semaphore(evaluations.COMPARISONS_AT_ONCE)
    if settings.pool is not None:
        labels.import_pool(app.state.store, settings.pool)
    for module in (evaluations, labels, live, runs):
        app.include_router(
            module.router,
            responses={"default": {"model": Refusal, "description": "the reason, in one sentence"}},
            # The guard checks the token; this documents it for programs.
            dependencies=[Depends(HTTPBearer(auto_error=False))],
        )
    app.include_router(pages.router)
    handle_errors(app)
    app.add_middleware(RequestGuard, settings=settings)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    current_default_thread_limiter().total_tokens = _THREADS
    try:
        yield
    finally:
        await stop_work(app)
    app.state.store.close()


async def stop_work(app: FastAPI) -> None:
    """Stop evaluations, searches and services; takes a few seconds at most."""
    await asyncio.to_thread(app.state.jobs.close)
    await asyncio.to_thread(app.state.live.close)


def serve(
    settings: Settings,
    notify: Callable[[str], None],
    *,
    open_page: bool = False,
    quiet: bool = False,
) -> None:
    """Check the settings, then serve until Ctrl-C or SIGTERM.

    ``notify`` gets warnings, and the link to open once the server answers. With ``quiet`` it gets
    only a link that contains the token, since the workbench is not usable without it.
    """
    store = _check(settings)
    if settings.token is not None and len(settings.token) < _SHORTEST_TOKEN and not quiet:
        message = f"a token of fewer than {_SHORTEST_TOKEN} characters can be guessed"
        notify(f"karat: warning: {message}")
    # Commands turn garbage collection off because they end soon; a server needs it.
    gc.enable()
    with _browser_opener(settings.token) if open_page else nullcontext() as open_in_browser:

        def ready(address: str) -> None:
            if not quiet or settings.link_holds_token:
                notify(f"karat serves {settings.link(address)} (store {store}); Ctrl-C ends it")
            if open_in_browser is not None:
                open_in_browser(address)

        _run_server(settings, ready)
    if threading.active_count() > 1:
        # Everything is saved and closed. A normal exit would wait minutes for some threads.
        _exit_now()


def _check(settings: Settings) -> str:
    """Refuse a config, pool or store that cannot be read; return the name of the store."""
    if settings.config is not None:
        read_config(settings.config)
    if settings.pool is not None and not settings.pool.is_file():
        raise InputError("no such file; create it with karat pool", where=str(settings.pool))
    with Store.open(settings.store, patience=_CHECK_PATIENCE) as store:
        # The first save creates a store that does not exist yet.
        with suppress(NoHistoryError):
            store.stamp()
        return store.name


def _run_server(settings: Settings, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM; ``ready`` gets the address once the server answers."""
    with closing(_open_listener(settings.host, settings.port)) as listener:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = f"http://{host}:{listener.getsockname()[1]}"
        server = _Server(create_app(settings), lambda: ready(address))
        # Uvicorn raises the signal that ended it once more, to be handled as it was before.
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt):
            server.run([listener])
        signal.signal(signal.SIGTERM, before)
        server.last_resort.cancel()


def _open_listener(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} of {host} is in use; choose another with --port"
        else:
            message = f"cannot listen at {host}, port {port}: {error.strerror or error}"
        raise UsageError(message) from None


def options(app: FastAPI) -> uvicorn.Config:
    """Return the settings of uvicorn."""
    return uvicorn.Config(
        app,
        http=TimedConnection,
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
    """Uvicorn that reports when it is ready, and stops running work on shutdown."""

    def __init__(self, app: FastAPI, ready: Callable[[], None]) -> None:
        super().__init__(options(app))
        self._app, self._ready = app, ready
        self.last_resort = threading.Timer(_LAST_SECONDS, _exit_now)
        self.last_resort.daemon = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then report it."""
        await super().startup(sockets)
        if not self.should_exit:
            self._ready()
            if VEGA in asset_table():
                # Preloaded, so that the first page with charts does not wait for it.
                threading.Thread(target=vega, name="karat-vega", daemon=True).start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End evaluations before waiting for requests."""
        self.last_resort.start()
        await stop_work(self._app)
        # Requests that are cut off after the grace period are no errors.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


def _exit_now() -> None:
    """End this process with exit code 0, without waiting for threads."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


class TimedConnection(H11Protocol):
    """A connection of uvicorn that ends when the headers of a request do not come in time."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request; uvicorn itself waits for the later ones to begin."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def handle_events(self) -> None:
        """Wait for the rest of headers that have begun."""
        super().handle_events()
        answered = self.cycle is None or self.cycle.response_complete
        if not (answered and self.conn.trailing_data[0]):
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline = None
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.abort)


@contextmanager
def _browser_opener(token: str | None) -> Iterator[Callable[[str], None]]:
    """Yield a function that opens an address in the browser.

    Other users can read the arguments of a command, so the browser gets a file that only its user
    can read and that redirects; the file is removed at the end.
    """
    with TemporaryDirectory(prefix="karat-") as folder:

        def open_in_browser(address: str) -> None:
            file = Path(folder) / "open.html"
            url = escape(link_with_token(address, token))
            file.write_text(_REDIRECT.format(url=url), "utf-8")
            # A terminal browser returns only when it is closed.
            threading.Thread(target=webbrowser.open, args=(file.as_uri(),), daemon=True).start()

        yield open_in_browser
