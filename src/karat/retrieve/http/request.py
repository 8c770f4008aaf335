"""Requests: the templates of a karat.yaml, filled in for one query."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus, unquote, urlencode, urlsplit

from karat.errors import CallError, UsageError
from karat.retrieve.build_context import BuildContext
from karat.retrieve.placeholders import ENVIRONMENT_VARIABLE, as_text, fill_placeholders
from karat.retrieve.protocol import Query
from karat.version import __version__

if TYPE_CHECKING:
    from karat.retrieve.http.service import Options

_PLACE = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")
# Characters that need no encoding in a path and query; % begins an encoded one.
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
    """Where the service listens."""

    scheme: str
    host: str
    port: int

    @property
    def port_if_unusual(self) -> int | None:
        """The port, None if it is the scheme's own."""
        return None if self.port == _PORTS[self.scheme] else self.port

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port_if_unusual is None else f"{host}:{self.port}"


@dataclass(frozen=True, eq=False)
class Template:
    """A request with its secrets filled in and its placeholders open."""

    address: Address
    method: str
    path: str
    params: Mapping[str, Any]
    headers: Mapping[str, str]
    body: Any
    form: Mapping[str, Any] | None

    @classmethod
    def of(cls, options: Options, context: BuildContext) -> Template:
        """Return the request of some options; environment variables are read now."""
        url = _expanded_url(options.url, context)
        address, path, user_info = _parts(url, options.url)
        has_body = options.body is not None or options.form is not None
        headers = {
            name: _expanded(as_text(text), context) for name, text in options.headers.items()
        }
        body = _expanded(options.body, context)
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
            context.secrets["url"] = packed
            defaults["Authorization"] = f"Basic {packed}"
        set_names = {name.lower() for name in headers}
        return cls(
            address,
            (options.method or ("POST" if has_body else "GET")).upper(),
            path,
            _expanded(options.params, context),
            {name: text for name, text in defaults.items() if name.lower() not in set_names}
            | headers,
            body,
            _expanded(options.form, context),
        )

    def filled(self, query: Query, k: int) -> Request:
        """Return the call for one query."""
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
        path = quote(fill_placeholders(self.path, query, more, _percent), safe=_SAFE)
        if not self.params:
            return path
        params = urlencode(_pairs(fill_placeholders(self.params, query, more)), quote_via=quote)
        joint = "" if path.endswith(("?", "&")) else "&" if "?" in path else "?"
        return f"{path}{joint}{params}"

    def _headers(self, query: Query, more: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
        headers = []
        for name, template in self.headers.items():
            text = as_text(fill_placeholders(template, query, more)).strip()
            if not text.isascii() or not text.isprintable():
                raise CallError(
                    f"header {name} would hold a character that headers cannot carry; "
                    "put the query into params or body"
                )
            headers.append((name.encode(), text.encode()))
        return headers

    def _content(self, query: Query, more: Mapping[str, Any]) -> bytes | None:
        if self.form is not None:
            pairs = _pairs(fill_placeholders(self.form, query, more))
            return urlencode(pairs, quote_via=quote_plus).encode()
        if isinstance(self.body, str):
            return self._text(query, more).encode()
        if self.body is not None:
            body = fill_placeholders(self.body, query, more)
            return json.dumps(body, allow_nan=False, default=str).encode()
        return b"" if self.method in _WITH_BODY else None

    def _text(self, query: Query, more: Mapping[str, Any]) -> str:
        """Return a text body; values in JSON or GraphQL are escaped."""
        headers = {name.lower(): text.lower() for name, text in self.headers.items()}
        kind = headers["content-type"]
        escaped = "json" in kind or "graphql" in kind
        text = as_text(
            fill_placeholders(self.body, query, more, _inside_json if escaped else as_text)
        )
        if kind.startswith(_JSON):
            json.loads(text)
        return text


def with_port(url: str, port: int) -> str:
    """Return a URL with a number in place of the port ``{port}``.

    >>> with_port("http://127.0.0.1:{port}/search?from={port}", 8000)
    'http://127.0.0.1:8000/search?from={port}'
    """
    return _OPEN_PORT.sub(rf"\g<1>:{port}", url)


def has_open_port(url: str) -> bool:
    """Return whether the port of a URL is ``{port}``."""
    return _OPEN_PORT.match(url) is not None


def wrong_address(url: str) -> str | None:
    """Return why nothing can be sent to a URL, None if it is fine."""
    try:
        _parts(url, url)
    except UsageError as error:
        return str(error)
    return None


def _percent(value: Any) -> str:
    return quote(as_text(value), safe="")


def _inside_json(value: Any) -> str:
    """Return a value for use inside JSON text, without quotation marks."""
    text = json.dumps(value, default=str)
    return text[1:-1] if isinstance(value, str) else text


def _pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and values for a query string; a list repeats its name."""
    return [
        (name, as_text(item))
        for name, value in values.items()
        for item in (value if isinstance(value, list) else [value])
    ]


def _content_type(body: Any) -> str | None:
    if body is None:
        return None
    if isinstance(body, str) and not body.lstrip().startswith(("{", "[")):
        return "text/plain; charset=utf-8"
    return _JSON


def _expanded(value: Any, context: BuildContext) -> Any:
    """Fill in environment variables; braces in their values are no placeholders."""
    if isinstance(value, Mapping):
        return {key: _expanded(inner, context) for key, inner in value.items()}
    if isinstance(value, list):
        return [_expanded(inner, context) for inner in value]
    if not isinstance(value, str):
        return value
    return ENVIRONMENT_VARIABLE.sub(
        lambda name: _without_placeholders(context.expand(name[0])), value
    )


def _expanded_url(url: str, context: BuildContext) -> str:
    """Fill in environment variables, percent-encoded where they are values."""
    start = url.find("?") if "?" in url else len(url)
    authority = re.match(r"[^/?#]*//[^/?#]*@", url)

    def put(name: re.Match[str]) -> str:
        value = context.expand(name[0])
        is_value = name.start() > start or (authority and name.end() < authority.end())
        return _without_placeholders(quote(value, safe="") if is_value else value.strip())

    return ENVIRONMENT_VARIABLE.sub(put, url)


def _without_placeholders(text: str) -> str:
    return _PLACE.sub(lambda place: f"{{{place[0]}}}", text)


def _parts(url: str, template: str) -> tuple[Address, str, str]:
    """Return the address, the path with query, and user:password of a URL."""
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
