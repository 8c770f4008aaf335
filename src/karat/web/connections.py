"""Connections: whoever is silent is let go, so that those who ask are always answered."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from karat.web.headers import plain_headers

# From the beginning of a connection, or its last answer, to the end of the next headers.
HEADER_SECONDS = 10.0
MOST_CONNECTIONS = 2_000
# Files that the store, services and the pages themselves may need beside connections.
_SPARE_FILES = 200
_FEWEST_CONNECTIONS = 50


class Connection(H11Protocol):
    """A connection of uvicorn's that ends when nothing is asked over it."""

    most = MOST_CONNECTIONS
    # The order in which connections began to be waited for (clocks are too coarse for it): what
    # was silent longest goes first where there are too many.
    _turns = count()
    _since = 0
    _deadline: asyncio.TimerHandle | None = None
    _unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.most:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._wait_no_more()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """A request whose headers are complete is worth its time."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._wait_no_more()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._wait()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP at all is told so, with the headers that every answer has."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        body = f"{msg}\n".encode()
        own = {"content-type": "text/plain; charset=utf-8", "connection": "close"}
        headers = list((plain_headers() | own | {"content-length": str(len(body))}).items())
        parts: tuple[Any, ...] = (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        for part in parts:
            self.transport.write(self.conn.send(part) or b"")
        self.transport.close()

    @property
    def silent(self) -> bool:
        """Whether a request, or the rest of one, is still to come."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _wait(self) -> None:
        self._wait_no_more()
        self._since = next(self._turns)
        self._unread = self.transport.get_write_buffer_size()
        self._deadline = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _wait_no_more(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        """The end, unless the last answer is still being read."""
        if 0 < self.transport.get_write_buffer_size() < self._unread:
            self._wait()
        else:
            self.transport.abort()

    def _make_room(self) -> None:
        """End the connection that was silent longest; this one, where all others are busy."""
        waiting = [one for one in self.connections if isinstance(one, Connection) and one.silent]
        oldest = min(waiting, key=lambda one: one._since, default=self)
        # Not only once it is lost: the next newcomer may come before that.
        self.connections.discard(oldest)
        oldest.transport.abort()


def make_files_enough() -> None:
    """Have as many files open as there may be connections; else as many connections as files."""
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
