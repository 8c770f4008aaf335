"""The connection to a service, one time limit per call, and services that karat starts.

httpcore is used directly. httpx's own limits are for one read each, so that a service that
sends a byte now and then never times out, and httpx logs every URL with the keys in it.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import weakref
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from karat.errors import CallError, UsageError
from karat.jobs.signals import stop_on_signals
from karat.retrieve.build_context import BuildContext
from karat.retrieve.http.request import Address, Request
from karat.retrieve.user_code import import_library

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
    """A complete, unpacked response."""

    status: int
    headers: dict[str, str]
    content: bytes


class Connection:
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
        """Return the response to a request; raises CallError if none comes."""
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
                return _read_response(response)
        except (httpcore.TimeoutException, TimeoutError):
            what = "finish its answer" if began else "answer"
            raise CallError(
                f"{self.address} did not {what} within {self._timeout:g} s", may_pass=True
            ) from None
        except httpcore.ConnectError as error:
            # httpcore passes the system's error as an argument.
            raise self._unreachable(error.args[0] if error.args else None) from None
        except (httpcore.NetworkError, httpcore.RemoteProtocolError):
            what = "broke off in the middle of its answer" if began else "hung up without an answer"
            raise CallError(f"{self.address} {what}", may_pass=True) from None
        except httpcore.ProxyError as error:
            raise CallError(f"the proxy on the way to {self.address} refused: {error}") from None
        except httpcore.LocalProtocolError as error:
            raise CallError(f"the request cannot be sent: {error}") from None

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


def _read_response(response: httpcore.Response) -> Response:
    """Read the response to its end; refuse one that is too large."""
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
    """Yield the bytes inside gzip or deflate, a little at a time."""
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
    """When the call of this thread must end."""

    end = 0.0

    def start(self, timeout: float) -> None:
        self.end = time.monotonic() + timeout

    def left(self) -> float:
        """Return the seconds left for the call."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class _Backend:
    """A network whose every step gets the time left of the call."""

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
    """Return the environment's proxy for an address; None for this machine."""
    if is_local(address.host) or proxy_bypass(address.host):
        return None
    proxies = getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def is_local(host: str) -> bool:
    """Return whether a host is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _trust() -> ssl.SSLContext:
    """Trust SSL_CERT_FILE or SSL_CERT_DIR, else the system's and certifi's authorities."""
    trust = ssl.create_default_context()
    if not os.environ.get("SSL_CERT_FILE") and not os.environ.get("SSL_CERT_DIR"):
        import certifi

        trust.load_verify_locations(certifi.where())
    return trust


def _library() -> Any:
    return import_library("httpcore", "retriever http", "httpcore", "http")


_PLACE = re.compile(r"(?<!\$)\{(?:port|python)\}")
# Seconds between two looks, and those that a service has to end by itself.
_PAUSE, _GRACE = 0.05, 5.0
# Seconds that one in the background has to show itself.
_LATER = 1.0
# What is kept of the output, in bytes, and what an error shows of it.
_KEPT, _LINES, _LONGEST = 64_000, 5, 600


def start_service(
    command: Sequence[str], address: Address, timeout: float, context: BuildContext
) -> ServiceProcess:
    """Start a service and wait until it listens; the context stops it at its end."""
    if not hasattr(os, "killpg"):
        raise UsageError(
            "start: this system has no groups of processes; start the service yourself"
        )
    if not is_local(address.host):
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
    try:
        service.wait(address, timeout)
    except BaseException:
        service.stop()
        raise
    return service


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


class ServiceProcess:
    """A process and its children, in a process group; ``stop`` ends them all.

    What it prints is read as it comes, so that it never waits for a reader, and only the end
    of it is kept.
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
        self._last = bytearray()
        self._reader = threading.Thread(target=_drain, args=(process.stdout, self._last))
        self._reader.daemon = True
        self._reader.start()

    def wait(self, address: Address, timeout: float) -> None:
        """Return once it listens; errors include its last output."""
        end = time.monotonic() + timeout
        while not _listens(address):
            self._refuse_if_ended(address)
            if time.monotonic() > end:
                raise UsageError(
                    f"start: the service does not listen at {address} after {timeout:g} s"
                    f"{self._last_output()}; check its host and port, or give it longer with "
                    "start_timeout"
                )
            time.sleep(_PAUSE)
        # Someone else may have been quicker at the same port.
        self._refuse_if_ended(address)

    def _refuse_if_ended(self, address: Address) -> None:
        ending = self.ended()
        if ending is not None:
            hint = "" if self._process.returncode else _background_hint(address)
            raise UsageError(f"start: {ending}{hint}; try it yourself: {self._command}")

    def ended(self) -> str | None:
        """Return how it ended, with its last output; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        # Its process id may soon be reused, so its children are stopped now.
        self.stop()
        self._reader.join(1)
        return f"the service ended with {_named(code)}{self._last_output()}"

    def _last_output(self) -> str:
        # Secrets first: half of one, cut off, would not be recognised.
        output = self._redact(bytes(self._last).decode("utf-8", "replace"))
        lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
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
    """Ask the process group to end, then kill it; also on a second Ctrl-C."""
    try:
        _send(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    finally:
        _send(process, signal.SIGKILL)
        process.wait()


def _send(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _named(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"


def _background_hint(address: Address) -> str:
    """Return a hint for a command that ended well: its service may be in the background."""
    end = time.monotonic() + _LATER
    while not (listens := _listens(address)) and time.monotonic() < end:
        time.sleep(_PAUSE)
    hint = "; it may have gone to the background, and must stay in the foreground to be stopped"
    leftover = f"; something listens at {address} now, which you have to stop"
    return hint + (leftover if listens else "")


def _listens(address: Address) -> bool:
    try:
        with socket.create_connection((address.host, address.port), timeout=1.0) as connection:
            # Where nobody listens, a connection can meet itself.
            here, there = connection.getsockname(), connection.getpeername()
            return bool(here != there)
    except OSError:
        return False
