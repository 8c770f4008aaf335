"""The connection to a service: one pool for all threads, one time limit for a whole call.

httpcore is used directly. httpx's own limits are for one read each, so that a service that
sends a byte now and then never times out, and httpx logs every URL with the keys in it.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
import weakref
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from karat.errors import CallError, UsageError, missing_extra
from karat.retrievers.http.request import Address, Request

if TYPE_CHECKING:
    import httpcore

# As many as the highest concurrency that a system may have; they are opened as needed.
_MOST_CONNECTIONS = 256
# Shorter than servers keep an idle connection, so that they do not close it under a call.
_IDLE = 2.0
LARGEST = 100_000_000
_LARGEST_REASON = 100_000


@dataclass(frozen=True, slots=True)
class Response:
    """What came back, whole and unpacked."""

    status: int
    headers: dict[str, str]
    content: bytes


class Wire:
    """Sends requests to one address from any number of threads."""

    def __init__(self, address: Address, timeout: float) -> None:
        httpcore = _library()
        self.address = address
        self._timeout = timeout
        self._limit = _Limit()
        self._pool = _pool(address, _Backend(httpcore.SyncBackend(), self._limit))
        # Nobody tells a retriever that the run is over.
        self.close = weakref.finalize(self, self._pool.close)

    def send(self, request: Request) -> Response:
        """The answer to a request; whatever keeps it from coming is a CallError."""
        httpcore = _library()
        self._limit.start(self._timeout)
        url = httpcore.URL(
            scheme=self.address.scheme,
            host=self.address.host,
            port=self.address.port_if_unusual,
            target=request.target,
        )
        began = False
        try:
            with self._pool.stream(
                request.method, url, headers=request.headers, content=request.content
            ) as response:
                began = True
                return _whole(response)
        except (httpcore.TimeoutException, TimeoutError):
            raise self._late(began) from None
        except httpcore.ConnectError as error:
            # httpcore wraps what the system said; as a cause it is cut off on the way.
            raise self._unreachable(error.args[0] if error.args else None) from None
        except (httpcore.NetworkError, httpcore.RemoteProtocolError):
            raise self._broken(began) from None
        except httpcore.ProxyError as error:
            raise CallError(f"the proxy on the way to {self.address} refused: {error}") from None
        except httpcore.LocalProtocolError as error:
            raise CallError(f"the request cannot be sent: {error}") from None

    def _late(self, began: bool) -> CallError:
        if began:
            what = f"{self.address} did not finish its answer within {self._timeout:g} s"
        else:
            what = f"{self.address} did not answer within {self._timeout:g} s"
        return CallError(what, may_pass=True)

    def _broken(self, began: bool) -> CallError:
        what = "broke off in the middle of its answer" if began else "hung up without an answer"
        return CallError(f"{self.address} {what}", may_pass=True)

    def _unreachable(self, cause: object) -> CallError:
        if isinstance(cause, socket.gaierror):
            what = f"no address is known for the host {self.address.host!r}: {cause.strerror}"
            return CallError(what, may_pass=True)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return CallError(
                f"the certificate of {self.address} cannot be trusted: {cause.verify_message}; "
                "SSL_CERT_FILE names the authorities to trust"
            )
        if isinstance(cause, ssl.SSLError):
            return CallError(f"{self.address} does not speak TLS as expected; is it http:// there?")
        why = getattr(cause, "strerror", None) or "no connection"
        what = f"cannot connect to {self.address}: {why}; is the service running there?"
        return CallError(what, may_pass=True)


def _whole(response: httpcore.Response) -> Response:
    """The answer read to its end, or refused when it does not end."""
    headers = {
        name.decode("latin-1").lower(): text.decode("latin-1") for name, text in response.headers
    }
    is_fine = response.status < 300
    most = LARGEST if is_fine else _LARGEST_REASON
    chunks: list[bytes] = []
    size = 0
    for chunk in _unpacked(response.iter_stream(), headers.get("content-encoding", "")):
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            if not is_fine:
                break
            raise CallError(f"the answer is larger than {LARGEST // 1_000_000} MB; ask for less")
    return Response(response.status, headers, b"".join(chunks))


def _unpacked(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """The bytes behind gzip or deflate, never much more at once than what came."""
    if encoding.strip().lower() in ("", "identity"):
        yield from chunks
        return
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        raise CallError(f"the answer is packed as {encoding!r}; gzip or deflate were asked for")
    # 32 finds out whether it is gzip or zlib.
    unpacker = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)
    came = False
    try:
        for chunk in chunks:
            came = True
            rest = chunk
            while rest and not unpacker.eof:
                yield unpacker.decompress(rest, 1_000_000)
                rest = unpacker.unconsumed_tail
        yield unpacker.flush()
    except zlib.error as error:
        raise CallError(f"the answer cannot be unpacked: {error}") from None
    if came and not unpacker.eof:
        raise CallError("the answer breaks off in the middle of what is packed", may_pass=True)


class _Limit(threading.local):
    """When the call of this thread must be over."""

    end = 0.0

    def start(self, timeout: float) -> None:
        self.end = time.monotonic() + timeout

    def left(self) -> float:
        """Seconds left, for one more step of the call."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class _Backend:
    """A network whose every step has what is left of the call's time, not a limit of its own."""

    def __init__(self, inner: httpcore.NetworkBackend, limit: _Limit) -> None:
        self._inner = inner
        self._limit = limit

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, **options: Any
    ) -> _Stream:
        stream = self._inner.connect_tcp(host, port, self._limit.left(), **options)
        return _Stream(stream, self._limit)


class _Stream:
    def __init__(self, inner: httpcore.NetworkStream, limit: _Limit) -> None:
        self._inner = inner
        self._limit = limit
        self.close = inner.close
        self.get_extra_info = inner.get_extra_info

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._limit.left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._limit.left())

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: Any = None
    ) -> _Stream:
        inner = self._inner.start_tls(ssl_context, server_hostname, self._limit.left())
        return _Stream(inner, self._limit)


def _pool(address: Address, backend: Any) -> httpcore.ConnectionPool:
    library = _library()
    settings: dict[str, Any] = {
        "max_connections": _MOST_CONNECTIONS,
        "keepalive_expiry": _IDLE,
        "network_backend": backend,
    }
    if address.scheme == "https":
        settings["ssl_context"] = _trust()
    proxy = _proxy(address)
    pool: httpcore.ConnectionPool
    if proxy is None:
        pool = library.ConnectionPool(**settings)
        return pool
    parts = urlsplit(proxy)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"the environment's proxy for {address.scheme} is no http:// or https:// address; "
            "correct it, or set NO_PROXY for this host"
        )
    user = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    url = library.URL(scheme=parts.scheme, host=parts.hostname, port=port, target="/")
    pool = library.HTTPProxy(proxy_url=url, proxy_auth=user, **settings)
    return pool


def _proxy(address: Address) -> str | None:
    """The proxy that the environment names, as other programs use it; never to this machine."""
    if is_here(address.host) or proxy_bypass(address.host):
        return None
    proxies = getproxies()
    found = proxies.get(address.scheme) or proxies.get("all")
    return found if found is None or "://" in found else f"http://{found}"


def is_here(host: str) -> bool:
    """Whether a host is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _trust() -> ssl.SSLContext:
    """The authorities of SSL_CERT_FILE or SSL_CERT_DIR, else the system's and certifi's."""
    context = ssl.create_default_context()
    if not os.environ.get("SSL_CERT_FILE") and not os.environ.get("SSL_CERT_DIR"):
        import certifi

        context.load_verify_locations(certifi.where())
    return context


def _library() -> Any:
    try:
        import httpcore
    except ImportError:
        raise missing_extra("retriever http", "httpcore", "http") from None
    return httpcore
