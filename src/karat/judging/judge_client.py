"""The openai client for one endpoint: one time limit a call, no retries, no surprises.

The client's own retries are off, since karat counts its own; answers are bounded in size and
time, which the client leaves open; and nothing of the environment but the key goes to others.
"""

from __future__ import annotations

import importlib
import threading
import time
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from karat.errors import UsageError, missing_extra

if TYPE_CHECKING:
    import openai

LARGEST = 1_000_000
_CALL = "/chat/completions"


def address(url: str) -> str:
    """The base of an endpoint, without what the client adds; anything odd is refused."""
    parts = urlsplit(url.strip())
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.username is not None or parts.password is not None:
        raise UsageError("--url holds a user or password; the key comes from the environment")
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise UsageError(
            f"--url is {url!r}; the base of an endpoint is expected, as in "
            "http://127.0.0.1:8080/v1 or https://api.openai.com/v1"
        )
    if parts.query or parts.fragment:
        raise UsageError("--url holds a ? or #; give the base only, as in https://host/v1")
    return url.strip().rstrip("/").removesuffix(_CALL)


def library() -> Any:
    """The openai package, or how to install it."""
    try:
        import openai
    except ImportError:
        raise missing_extra("karat judge", "the openai client", "judge") from None
    return openai


class Client:
    """Sends requests to one endpoint from any number of threads."""

    def __init__(self, url: str, key: str | None, timeout: float) -> None:
        package = library()
        self._begun = threading.local()
        self._lock = threading.Lock()
        self._under_way = 0
        self._closed = False
        host = urlsplit(url).hostname or ""
        network = _network(package)
        limited = _limited(network, package)

        def bound(response: Any) -> None:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise package.OpenAIError("the answer is packed, which was not asked for")
            response.stream = limited(response.stream, self._begun.at + timeout)

        self._client: openai.OpenAI = package.OpenAI(
            # The client insists on one; without a key no header is sent.
            api_key=key or "none",
            base_url=url,
            max_retries=0,
            timeout=timeout,
            http_client=package.DefaultHttpxClient(
                timeout=timeout,
                follow_redirects=False,
                mounts=_around_proxies(host),
                event_hooks={"response": [bound]},
            ),
        )
        self._headers: dict[str, Any] = {"Accept-Encoding": "identity"}
        if key is None:
            self._headers["Authorization"] = package.Omit()
        if not (host == "openai.com" or host.endswith(".openai.com")):
            for name in ("OpenAI-Organization", "OpenAI-Project"):
                self._headers[name] = package.Omit()

    def send(self, body: dict[str, Any]) -> tuple[bytes, str]:
        """The bytes of an answer and its content type; openai's errors come through."""
        with self._lock:
            if self._closed:
                raise library().OpenAIError("the judging is over")
            self._under_way += 1
        try:
            return self._answer(body)
        finally:
            with self._lock:
                self._under_way -= 1
            self._close_if_over()

    def _answer(self, body: dict[str, Any]) -> tuple[bytes, str]:
        self._begun.at = time.monotonic()
        model, messages = body["model"], body["messages"]
        rest = {name: value for name, value in body.items() if name not in ("model", "messages")}
        raw = self._client.chat.completions.with_raw_response.create(
            model=model, messages=messages, extra_body=rest, extra_headers=self._headers
        )
        answer = raw.http_response
        return answer.content, answer.headers.get("content-type", "")

    def close(self) -> None:
        """Hang up, as soon as no call is under way: those of other threads end by themselves."""
        with self._lock:
            self._closed = True
        self._close_if_over()

    def _close_if_over(self) -> None:
        with self._lock:
            if self._closed and not self._under_way:
                self._client.close()


def _network(package: Any) -> Any:
    """The HTTP library that this version of the client is built on."""
    base = package.DefaultHttpxClient.__mro__[1]
    return importlib.import_module(base.__module__.partition(".")[0])


def _limited(network: Any, package: Any) -> Any:
    """The bytes of an answer, which end: too many, or too late, are errors."""

    class Limited(network.SyncByteStream):  # type: ignore[misc]  # known only at run time
        def __init__(self, inner: Any, end: float) -> None:
            self.inner, self.end = inner, end

        def __iter__(self) -> Any:
            size = 0
            for chunk in self.inner:
                size += len(chunk)
                if size > LARGEST:
                    raise package.OpenAIError(f"the answer is larger than {LARGEST:,} bytes")
                if time.monotonic() > self.end:
                    raise network.ReadTimeout("the answer trickles in")
                yield chunk

        def close(self) -> None:
            self.inner.close()

    return Limited


def _around_proxies(host: str) -> dict[str, Any]:
    """A proxy of the environment could not reach this machine under that name."""
    name = f"[{host}]" if ":" in host else host
    return {f"all://{name}": None} if _is_here(host) else {}


def _is_here(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
