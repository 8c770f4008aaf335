"""What is sent to a service: the templates of a karat.yaml, filled in for one query."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus, unquote, urlencode, urlsplit

from karat.errors import CallError, UsageError
from karat.retrievers.protocol import Query
from karat.retrievers.secrets import FROM_ENVIRONMENT
from karat.retrievers.templates import filled, spelled
from karat.retrievers.workshop import Workshop
from karat.version import __version__

if TYPE_CHECKING:
    from karat.retrievers.http.service import Options

_PLACE = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")
# What may stand in a path and query as it is; % begins what is encoded already.
_SAFE = "/?:@!$&'()*+,;=-._~%"
_JSON, _FORM = "application/json", "application/x-www-form-urlencoded"
_PORTS = {"http": 80, "https": 443}
# Only behind the host: in a path it is an attribute of the query.
_OPEN_PORT = re.compile(r"([^/?#]*//[^/?#]*):\{port\}(?=[/?#]|$)")
_WITH_BODY = ("POST", "PUT", "PATCH")


@dataclass(frozen=True, slots=True)
class Request:
    """One call, ready to be sent."""

    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    content: bytes | None


@dataclass(frozen=True)
class Address:
    """Where the service listens; what it is told there changes from query to query."""

    scheme: str
    host: str
    port: int

    @property
    def port_if_unusual(self) -> int | None:
        """The port unless everyone knows it by the scheme."""
        return None if self.port == _PORTS[self.scheme] else self.port

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port_if_unusual is None else f"{host}:{self.port}"


@dataclass(frozen=True, eq=False)
class Template:
    """A request with its secrets in it and its placeholders still open."""

    address: Address
    method: str
    path: str
    params: Mapping[str, Any]
    headers: Mapping[str, str]
    body: Any
    form: Mapping[str, Any] | None

    @classmethod
    def of(cls, options: Options, workshop: Workshop) -> Template:
        """The request that the options describe; environment variables are looked up now."""
        url = _expanded_url(options.url, workshop)
        address, path, user_info = _parts(url, options.url)
        has_body = options.body is not None or options.form is not None
        headers = {
            name: _expanded(spelled(text), workshop) for name, text in options.headers.items()
        }
        body = _expanded(options.body, workshop)
        defaults = {
            "Host": str(address),
            "Accept": _JSON,
            "Accept-Encoding": "gzip, deflate",
            "User-Agent": f"karat/{__version__}",
        }
        kind = _FORM if options.form is not None else _content_type(body)
        if kind is not None:
            defaults["Content-Type"] = kind
        if user_info:
            packed = base64.b64encode(user_info.encode()).decode()
            workshop.secrets["url"] = packed
            defaults["Authorization"] = f"Basic {packed}"
        given = {name.lower() for name in headers}
        return cls(
            address,
            (options.method or ("POST" if has_body else "GET")).upper(),
            path,
            _expanded(options.params, workshop),
            {name: text for name, text in defaults.items() if name.lower() not in given} | headers,
            body,
            _expanded(options.form, workshop),
        )

    def filled(self, query: Query, k: int) -> Request:
        """The call for one query."""
        more = {"k": k}
        try:
            return Request(
                self.method,
                self._target(query, more),
                self._headers(query, more),
                self._content(query, more),
            )
        except UnicodeEncodeError:
            raise CallError(
                f"query {query.query_id!r} holds half of a character (a lone surrogate), "
                "which cannot be sent"
            ) from None
        except ValueError as error:
            raise CallError(f"the body for query {query.query_id!r} is not JSON: {error}") from None

    def _target(self, query: Query, more: Mapping[str, Any]) -> str:
        path = quote(filled(self.path, query, more, _percent), safe=_SAFE)
        if not self.params:
            return path
        params = urlencode(_pairs(filled(self.params, query, more)), quote_via=quote)
        joint = "" if path.endswith(("?", "&")) else "&" if "?" in path else "?"
        return f"{path}{joint}{params}"

    def _headers(self, query: Query, more: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
        headers = []
        for name, template in self.headers.items():
            text = spelled(filled(template, query, more)).strip()
            if not text.isascii() or not text.isprintable():
                raise CallError(
                    f"header {name} would hold a character that headers cannot carry; "
                    "put the query into params or body"
                )
            headers.append((name.encode(), text.encode()))
        return headers

    def _content(self, query: Query, more: Mapping[str, Any]) -> bytes | None:
        if self.form is not None:
            pairs = _pairs(filled(self.form, query, more))
            return urlencode(pairs, quote_via=quote_plus).encode()
        if isinstance(self.body, str):
            return self._text(query, more).encode()
        if self.body is not None:
            body = filled(self.body, query, more)
            return json.dumps(body, allow_nan=False, default=str).encode()
        return b"" if self.method in _WITH_BODY else None

    def _text(self, query: Query, more: Mapping[str, Any]) -> str:
        """A body that is text; what goes into JSON or GraphQL is escaped for it."""
        headers = {name.lower(): text.lower() for name, text in self.headers.items()}
        kind = headers["content-type"]
        escaped = "json" in kind or "graphql" in kind
        text = spelled(filled(self.body, query, more, _in_json if escaped else spelled))
        if kind.startswith(_JSON):
            json.loads(text)
        return text


def with_port(url: str, port: int) -> str:
    """A URL whose host has the port ``{port}``, with a number in its place.

    >>> with_port("http://127.0.0.1:{port}/search?from={port}", 8000)
    'http://127.0.0.1:8000/search?from={port}'
    """
    return _OPEN_PORT.sub(rf"\g<1>:{port}", url)


def has_open_port(url: str) -> bool:
    """Whether the port of a URL is left to whoever starts the service."""
    return _OPEN_PORT.match(url) is not None


def wrong_address(url: str) -> str | None:
    """Why nothing can be sent to a URL, if that is so."""
    try:
        _parts(url, url)
    except UsageError as error:
        return str(error)
    return None


def _percent(value: Any) -> str:
    return quote(spelled(value), safe="")


def _in_json(value: Any) -> str:
    """A value inside of JSON text: without quotation marks, which the text has."""
    text = json.dumps(value, default=str)
    return text[1:-1] if isinstance(value, str) else text


def _pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values for a query string; a list gives its name several times."""
    return [
        (name, spelled(one))
        for name, value in values.items()
        for one in (value if isinstance(value, list) else [value])
    ]


def _content_type(body: Any) -> str | None:
    if body is None:
        return None
    if isinstance(body, str) and not body.lstrip().startswith(("{", "[")):
        return "text/plain; charset=utf-8"
    return _JSON


def _expanded(value: Any, workshop: Workshop) -> Any:
    """The value with environment variables put in; braces in those are no placeholders."""
    if isinstance(value, Mapping):
        return {key: _expanded(inner, workshop) for key, inner in value.items()}
    if isinstance(value, list):
        return [_expanded(inner, workshop) for inner in value]
    if not isinstance(value, str):
        return value
    return FROM_ENVIRONMENT.sub(lambda name: _kept(workshop.expand(name[0])), value)


def _expanded_url(url: str, workshop: Workshop) -> str:
    """The URL with environment variables put in, percent-encoded where they are values."""
    start = url.find("?") if "?" in url else len(url)
    authority = re.match(r"[^/?#]*//[^/?#]*@", url)

    def put(name: re.Match[str]) -> str:
        value = workshop.expand(name[0])
        is_value = name.start() > start or (authority and name.end() < authority.end())
        return _kept(quote(value, safe="") if is_value else value.strip())

    return FROM_ENVIRONMENT.sub(put, url)


def _kept(text: str) -> str:
    return _PLACE.sub(lambda place: f"{{{place[0]}}}", text)


def _parts(url: str, template: str) -> tuple[Address, str, str]:
    """Where to connect, what to ask for there, and user:password if the URL has them."""
    try:
        parts = urlsplit(url)
        port, host = parts.port, (parts.hostname or "").encode("idna").decode()
    except ValueError:
        raise UsageError(f"url: {template} is no address; check its host and port") from None
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(f"url: {template} is no address; it must begin with http:// or https://")
    if _PLACE.search(parts.netloc):
        raise UsageError(f"url: {template} has a placeholder in its host; give one host a system")
    address = Address(parts.scheme, host, port or _PORTS[parts.scheme])
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    user_info = parts.netloc.rpartition("@")[0]
    return address, path, unquote(user_info)
