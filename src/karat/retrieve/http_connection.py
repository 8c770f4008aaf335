"""The connection to a search service: requests over httpcore, and the hits in its answers.

httpcore is used directly, because httpx logs every URL with the keys in it. The order in which
hits are in an answer is their rank, regardless of scores.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import weakref
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import responses
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from karat.data.columns import ITEM_NAMES
from karat.errors import CallError, UsageError
from karat.jobs.calls import retry_after
from karat.jobs.redaction import Redact
from karat.retrieve.protocol import Answer, Hit
from karat.retrieve.user_code import finite_number, id_of, import_library, score_of

if TYPE_CHECKING:
    import httpcore

# As many as the highest concurrency that a system may have; they are opened as needed.
_MOST_CONNECTIONS = 256
# Shorter than servers keep an idle connection, so that they do not close it under a call.
_IDLE_SECONDS = 2.0
_MOST_BYTES = 100_000_000
_MOST_BYTES_OF_ERROR = 100_000
_PORTS = {"http": 80, "https": 443}
_TLS_HINT = "does it support https://? SSL_CERT_FILE names the authorities to trust"

_MOST_KEYS, _DEEPEST, _LONGEST_SHAPE = 12, 4, 400
_DETAILS = ("doc_id", "version", "source", "text")
# Too early, too many, or timed out over there: the same call may pass later.
_MAY_PASS = (408, 425, 429)
_REASONS = ("detail", "message", "reason", "error", "errors", "msg", "title", "description")
_LONGEST = 300
_KINDS = {
    dict: "object",
    list: "list",
    str: "text",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


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
    """Sends requests to one address from any thread; ``timeout`` limits each step of a call."""

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
            message = f"{self.address} closed the connection before its answer was complete"
            raise CallError(message, may_pass=True) from None
        except (httpcore.ProxyError, httpcore.LocalProtocolError) as error:
            raise CallError(f"the request to {self.address} cannot be sent: {error}") from None


def _read_response(response: httpcore.Response) -> Response:
    """Read the response to its end and unpack it; refuse one that is too large."""
    headers = {
        name.decode("latin-1").lower(): text.decode("latin-1") for name, text in response.headers
    }
    succeeded = response.status < 300
    most = _MOST_BYTES if succeeded else _MOST_BYTES_OF_ERROR
    content = bytearray()
    for chunk in response.iter_stream():
        content += chunk
        if len(content) > most:
            break
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        content = _unpacked(content, encoding, most)
    if succeeded and len(content) > most:
        raise CallError(f"the answer is larger than {most // 1_000_000} MB; ask for less")
    return Response(response.status, headers, bytes(content[:most]))


def _unpacked(content: bytearray, encoding: str, most: int) -> bytearray:
    """Return what is packed by gzip or deflate, as far as it is not too large."""
    # 32 finds out whether it is gzip or zlib.
    unpacker = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)
    try:
        unpacked = bytearray(unpacker.decompress(content, most + 1))
    except zlib.error:
        raise CallError(
            f"the answer, packed as {encoding!r}, cannot be unpacked; use gzip"
        ) from None
    whole = len(content) <= most and len(unpacked) <= most
    if whole and content and not unpacker.eof:
        raise CallError("the compressed answer is incomplete", may_pass=True)
    return unpacked


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
            f"the environment's proxy for {to.scheme} is not an http:// or https:// address; "
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


class JsonPath:
    """A JMESPath expression that is looked up in an answer or a hit; ValueError if it is none."""

    def __init__(self, text: str) -> None:
        library = import_library("jmespath", "retriever http", "jmespath", "http")
        self.text = text
        self._errors = library.exceptions.JMESPathError
        # Some usual names of ids need quotation marks in JMESPath.
        self._compiled = library.compile(f'"{text}"' if text in ITEM_NAMES else text)
        # Unknown functions are noticed only when they are called.
        with suppress(library.exceptions.JMESPathTypeError):
            self._compiled.search(None)

    def find(self, value: Any) -> Any:
        """Return what the expression finds in a value, or None."""
        try:
            return self._compiled.search(value)
        except self._errors as error:
            raise CallError(f"{self.text}: {' '.join(str(error).split())}") from None


def json_shape(value: Any, depth: int = 0) -> str:
    """Return the structure of a JSON value, without its contents.

    >>> json_shape({"query": "pie", "results": [{"id": "a", "score": 1.5}] * 3})
    '{query: text, results: [3 × {id: text, score: number}]}'
    """
    if isinstance(value, dict) and value and depth < _DEEPEST:
        pairs = [f"{key}: {json_shape(inner, depth + 1)}" for key, inner in value.items()]
        keys = ", ".join(pairs[:_MOST_KEYS] + ["…"] * (len(pairs) > _MOST_KEYS))
        return _cut(f"{{{keys}}}", _LONGEST_SHAPE)
    if isinstance(value, list) and value and depth < _DEEPEST:
        return f"[{len(value):,} × {json_shape(value[0], depth + 1)}]"
    if isinstance(value, dict | list) and not value:
        return str(value)
    return _KINDS[type(value)]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most].rstrip()}…"


class Reader:
    """Finds the hits of an answer by the expressions among the options of a karat.yaml."""

    def __init__(self, expressions: Mapping[str, Any], redact: Redact) -> None:
        self._redact = redact
        self._hits = JsonPath(expressions["hits"])
        # What ``hits[]`` flattens, to see the nulls that JMESPath drops.
        self._list = JsonPath(self._hits.text.removesuffix("[]") or "@")
        self._fields = {
            name: JsonPath(expressions[name])
            for name in ("item_id", "score", *_DETAILS)
            if expressions[name] is not None
        }
        self._numbers = {
            label: {name: JsonPath(text) for name, text in expressions[label].items()}
            for label in ("latency", "cost")
        }

    def answer(self, response: Response, k: int) -> Answer:
        """Return the first k hits, in the order returned."""
        _check_status(response, self._redact)
        try:
            data = json.loads(response.content)
        except (ValueError, RecursionError):
            media = response.headers.get("content-type", "").partition(";")[0].strip()
            text = response.content[:1000].decode("utf-8", "replace")
            raise CallError(
                f"returned {media or 'something'} that begins "
                f"{quoted(text, self._redact, most=60)!r}; JSON is expected"
            ) from None
        values = self._hits.find(data)
        if not isinstance(values, list):
            reason = _reason_in(data)
            raise CallError(
                f"hits: {self._hits.text} finds no list; the answer is {json_shape(data)}"
                + (f" and says: {quoted(reason, self._redact)}" if reason else "")
            )
        listed = self._list.find(data)
        if isinstance(listed, list) and None in listed[:k]:
            raise CallError(f"hit {listed.index(None) + 1} is null, which has no id")
        hits = self._read(values[:k]) if values else []
        return Answer(hits, self._measured("latency", data), self._measured("cost", data))

    def _read(self, values: list[Any]) -> list[Hit]:
        """Return the hits; the first one decides which key holds the ids."""
        id_path = self._fields.get("item_id") or _usual_id(values[0])
        # The usual id may be the doc's own.
        is_doc = id_path.text == "doc_id" and "doc_id" not in self._fields
        hits = []
        for rank, value in enumerate(values, 1):
            item = id_path.find(value)
            if item is None:
                shape = json_shape(value)
                raise CallError(f"hit {rank}: item_id: {id_path.text} finds nothing in {shape}")
            name = f"hit {rank}: the service"
            item_id = id_of(item, name)
            score = self._field("score", value)
            fields: dict[str, Any] = {key: self._detail(key, value, rank) for key in _DETAILS}
            fields["score"] = None if score is None else score_of(score, item_id, name)
            hits.append(Hit(item_id, **fields | ({"doc_id": None} if is_doc else {})))
        return hits

    def _field(self, name: str, hit: Any) -> Any:
        """Return a field by its expression, else by its name."""
        if name in self._fields:
            return self._fields[name].find(hit)
        return hit.get(name) if isinstance(hit, dict) else None

    def _detail(self, name: str, hit: Any, rank: int) -> str | None:
        """Return a further field as text; one without an expression counts only if it is text."""
        value = self._field(name, hit)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
        if value is None or name not in self._fields:
            return None
        path = self._fields[name].text
        raise CallError(f"hit {rank}: {name}: {path} is {json_shape(value)}; text is expected")

    def _measured(self, label: str, data: Any) -> dict[str, float]:
        """Return times or costs that the answer reports; null ones are left out."""
        numbers = {}
        for name, path in self._numbers[label].items():
            value = path.find(data)
            if value is None:
                continue
            number = finite_number(value)
            if number is None or number < 0:
                raise CallError(
                    f"{label}: {name}: {path.text} finds no number from 0; "
                    f"the answer is {json_shape(data)}"
                )
            numbers[name] = number
        return numbers


def _usual_id(hit: Any) -> JsonPath:
    """Return where the first hit has its id."""
    present = [name for name in ITEM_NAMES if name in hit] if isinstance(hit, dict) else []
    if not present:
        raise CallError(
            f"hit 1 is {json_shape(hit)}, which has none of {', '.join(ITEM_NAMES)}; say "
            "item_id: <key>, or item_id: '@' if it is the id itself"
        )
    return JsonPath(next((name for name in present if hit[name] is not None), present[0]))


def _check_status(response: Response, redact: Redact) -> None:
    """Raise CallError for any status other than success."""
    status = response.status
    if 200 <= status < 300:
        return
    message = f"answered {status} {responses.get(status, '')}".rstrip()
    if 300 <= status < 400:
        # Without user and query, which may repeat keys.
        place = re.sub(r"(?<=//)[^/]*@|[?#].*", "", response.headers.get("location", ""))
        to = f" to {quoted(unquote(place), redact)}" if place else ""
        raise CallError(f"{message}{to}; redirects are not followed, give the final url")
    text = response.content.decode("utf-8", "replace")
    with suppress(ValueError, RecursionError):
        text = _reason_in(json.loads(text)) or text
    reason = quoted(text, redact)
    may_pass = status >= 500 or status in _MAY_PASS
    if reason and not message.endswith(f" {reason}"):
        message = f"{message}: {reason}"
    wait = retry_after(response.headers) if may_pass else None
    raise CallError(message, may_pass=may_pass, wait=wait)


def quoted(text: str, redact: Redact, *, most: int = _LONGEST) -> str:
    """Return what a service said in one line, without secrets, cut if it is long."""
    # Secrets first: half of one, cut off at the end, would not be recognised.
    return _cut(" ".join(redact(text).split()), most)


def _reason_in(data: Any) -> str:
    """Return the first reason in an error's JSON, in the forms that services use."""
    if isinstance(data, list) and data:
        return _reason_in(data[0])
    if isinstance(data, dict):
        reason = _reason_in(next((data[key] for key in _REASONS if data.get(key)), ""))
        place: Any = data.get("loc")
        named = reason and isinstance(place, list)
        return f"{'.'.join(map(str, place))}: {reason}" if named else reason
    return data if isinstance(data, str) else ""
