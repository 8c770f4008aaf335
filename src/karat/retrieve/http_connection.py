"""The connection to a search service: requests over httpcore, and why none was answered.

httpcore is used directly, because httpx logs every URL with the keys in it.
"""

from __future__ import annotations

import os
import ssl
import weakref
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from karat.errors import CallError, UsageError
from karat.retrieve.user_code import import_library

if TYPE_CHECKING:
    import httpcore

# As many as the highest concurrency that a system may have; they are opened as needed.
_MOST_CONNECTIONS = 256
# Shorter than servers keep an idle connection, so that they do not close it under a call.
_IDLE_SECONDS = 2.0
_MOST_BYTES = 100_000_000
_MOST_BYTES_OF_ERROR = 100_000
_PORTS = {"http": 80, "https": 443}
_TLS_HINT = "does it speak https://? SSL_CERT_FILE names the authorities to trust"


@dataclass(frozen=True)
class Address:
    """Where the service listens."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_url(url: str) -> tuple[Address, str, str]:
    """Return the address, the path with query, and user:password of a URL; ValueError if bad."""
    parts = urlsplit(url)
    host = (parts.hostname or "").encode("idna").decode()
    if parts.scheme not in _PORTS or not host:
        raise ValueError("it must begin with http:// or https://")
    address = Address(parts.scheme, host, parts.port or _PORTS[parts.scheme])
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return address, path, unquote(parts.netloc.rpartition("@")[0])


@dataclass(frozen=True, slots=True)
class Response:
    """A complete, unpacked response."""

    status: int
    headers: dict[str, str]
    content: bytes


class Connection:
    """Sends requests to one address from any number of threads.

    ``timeout`` limits each step of a call, such as one read.
    """

    def __init__(self, address: Address, timeout: float) -> None:
        self.address = address
        self._timeouts = dict.fromkeys(("connect", "read", "write", "pool"), timeout)
        self._pool = _library().ConnectionPool(
            max_connections=_MOST_CONNECTIONS,
            keepalive_expiry=_IDLE_SECONDS,
            ssl_context=_trust() if address.scheme == "https" else None,
            proxy=_proxy(address),
        )
        # No one tells a retriever that the run is over.
        self.close = weakref.finalize(self, self._pool.close)

    def send(
        self, method: str, target: str, headers: list[tuple[bytes, bytes]], content: bytes | None
    ) -> Response:
        """Return the response to a request; raises CallError if none comes."""
        httpcore = _library()
        scheme, host = self.address.scheme, self.address.host
        port = None if self.address.port == _PORTS[scheme] else self.address.port
        url = httpcore.URL(scheme=scheme, host=host, port=port, target=target)
        limits = {"timeout": self._timeouts}
        try:
            with self._pool.stream(
                method, url, headers=headers, content=content, extensions=limits
            ) as response:
                return _read_response(response)
        except httpcore.TimeoutException:
            raise CallError(f"{self.address} did not answer in time", may_pass=True) from None
        except httpcore.ConnectError as error:
            # httpcore passes the system's error as an argument.
            cause = error.args[0] if error.args else None
            why = getattr(cause, "verify_message", None) or getattr(cause, "strerror", None)
            by_tls = isinstance(cause, ssl.SSLError)
            hint = _TLS_HINT if by_tls else "is the service running there?"
            raise CallError(
                f"cannot connect to {self.address}: {why or 'no connection'}; {hint}",
                may_pass=not by_tls,
            ) from None
        except (httpcore.NetworkError, httpcore.RemoteProtocolError):
            message = f"{self.address} hung up before its answer was complete"
            raise CallError(message, may_pass=True) from None
        except (httpcore.ProxyError, httpcore.LocalProtocolError) as error:
            raise CallError(f"the request to {self.address} cannot be sent: {error}") from None


def _read_response(response: httpcore.Response) -> Response:
    """Read the response to its end; refuse one that is too large."""
    headers = {
        name.decode("latin-1").lower(): text.decode("latin-1") for name, text in response.headers
    }
    succeeded = response.status < 300
    most = _MOST_BYTES if succeeded else _MOST_BYTES_OF_ERROR
    content = bytearray()
    for chunk in _unpacked(response.iter_stream(), headers.get("content-encoding", "")):
        content += chunk
        if len(content) > most:
            if not succeeded:
                break
            raise CallError(f"the answer is larger than {most // 1_000_000} MB; ask for less")
    return Response(response.status, headers, bytes(content))


def _unpacked(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Yield the bytes inside gzip or deflate, a little at a time."""
    if encoding.strip().lower() in ("", "identity"):
        yield from chunks
        return
    # 32 finds out whether it is gzip or zlib.
    unpacker = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)
    chunk = b""
    try:
        for chunk in chunks:
            packed = chunk
            while packed and not unpacker.eof:
                yield unpacker.decompress(packed, 1_000_000)
                packed = unpacker.unconsumed_tail
        yield unpacker.flush()
    except zlib.error:
        raise CallError(
            f"the answer, packed as {encoding!r}, cannot be unpacked; use gzip"
        ) from None
    if chunk and not unpacker.eof:
        raise CallError("the answer breaks off in the middle of what is packed", may_pass=True)


def _proxy(to: Address) -> httpcore.Proxy | None:
    """Return the environment's proxy for an address; none is used on this machine."""
    proxies = getproxies()
    proxy = proxies.get(to.scheme) or proxies.get("all")
    if proxy is None or to.is_local or proxy_bypass(to.host):
        return None
    try:
        address, _, user_info = parse_url(proxy if "://" in proxy else f"http://{proxy}")
    except ValueError:
        raise UsageError(
            f"the environment's proxy for {to.scheme} is no http:// or https:// address; "
            "correct it, or set NO_PROXY for this host"
        ) from None
    library = _library()
    url = library.URL(scheme=address.scheme, host=address.host, port=address.port, target="/")
    user, _, password = user_info.partition(":")
    return library.Proxy(url, auth=(user, password) if user else None)  # type: ignore[no-any-return]


def _trust() -> ssl.SSLContext:
    """Trust SSL_CERT_FILE or SSL_CERT_DIR, else the system's and certifi's authorities."""
    trust = ssl.create_default_context()
    if not any(map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR"))):
        import certifi

        trust.load_verify_locations(certifi.where())
    return trust


def _library() -> Any:
    return import_library("httpcore", "retriever http", "httpcore", "http")
