"""Answers of the workbench: assets, pages from templates, JSON, errors in a sentence, a cache.

Neither a page's data nor JSON can be interpreted as a script.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from jinja2 import ChoiceLoader, Environment, PackageLoader
from markupsafe import Markup
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response

from karat.errors import CallError, InputError, KaratError, MissingExtraError
from karat.pages.formatting import label
from karat.reports.html.assets import SCRIPTS, STYLES, vega
from karat.reports.html.render import context_of, environment
from karat.store import NotStoredError

# Vega and the script that draws with it are served as one.
VEGA, CHARTS = "vega.js", "charts.js"
_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
# Placeholders in a rendered page for what differs per answer, so that the page can be cached.
_NONCE, _CSRF = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
_PLAIN_STYLES = ("tokens.css", "karat.css", "page.css", "print.css", "workbench.css")
_PLAIN_SCRIPTS = ("theme.js", "api.js")
# An error repeats at most this much of a request.
_LONGEST_ECHO = 200

Value = TypeVar("Value")


class Refusal(BaseModel):
    """The API's answer to a request that it refuses."""

    error: str


class OpenAnswer(BaseModel):
    """Any other response of the API: an object whose keys docs/use-the-workbench.md lists.

    Reports and comparisons are what ``karat eval`` and ``karat compare`` write with
    ``-o report.json``; rows are columns with one value per query.
    """

    model_config = ConfigDict(extra="allow")


class RequestRefusedError(KaratError):
    """A refused request, with the HTTP status of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


_STATUS = {NotStoredError: 404, MissingExtraError: 501, CallError: 502}


class Json(JSONResponse):
    """JSON that a browser cannot interpret as a page."""

    def render(self, content: Any) -> bytes:
        """Return JSON text in which no character can begin a tag."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        # These occur only in strings.
        for character in "<>&":
            text = text.replace(character, f"\\u{ord(character):04x}")
        return text.encode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the pages; ``body`` is None for Vega, which is large and made on demand."""

    kind: str
    digest: str
    body: bytes | None

    def content(self) -> bytes:
        """Return the content, which for Vega may take seconds to make."""
        if self.body is not None:
            return self.body
        return b"\n".join([(vega() or "").encode(), asset_table()[CHARTS].body or b""])


@cache
def asset_table() -> Mapping[str, Asset]:
    """Return every asset by its name; no other name is served, and no name is a path."""
    assets = {}
    for package in ("karat.reports.html", "karat.web"):
        for file in files(package).joinpath("assets").iterdir():
            if kind := _KINDS.get(Path(file.name).suffix):
                body = file.read_bytes()
                assets[file.name] = Asset(kind, hashlib.sha256(body).hexdigest()[:16], body)
    with suppress(PackageNotFoundError):
        digest = f"{version('vl-convert-python')}-{assets[CHARTS].digest}"
        assets[VEGA] = Asset(_KINDS[".js"], digest, None)
    return assets


def _address(name: str) -> str:
    """Return the URL of an asset; it changes with the content."""
    return f"/assets/{name}?v={asset_table()[name].digest}"


@dataclass(frozen=True)
class PageAssets:
    """The styles and scripts of a page, each with the nonce that lets it run."""

    base_styles: Sequence[str] = _PLAIN_STYLES
    base_scripts: Sequence[str] = _PLAIN_SCRIPTS

    def styles(self, *names: str) -> Markup:
        """Return links to the style sheets of every page, then to those named."""
        tag = Markup('<link rel="stylesheet" href="{}" nonce="{}">')
        return Markup("\n").join(
            tag.format(_address(name), _NONCE) for name in (*self.base_styles, *names)
        )

    def scripts(self, *names: str) -> Markup:
        """Return the scripts of every page, then those named; api.js gets the session's token."""
        tag = Markup('<script src="{}" nonce="{}"{}></script>')
        attributes = {
            "api.js": Markup(' data-csrf="{}" defer').format(_CSRF),
            VEGA: Markup(" async"),
        }
        return Markup("\n").join(
            tag.format(_address(name), _NONCE, attributes.get(name, Markup(" defer")))
            for name in (*self.base_scripts, *names)
        )


@cache
def templates() -> Environment:
    """Return the workbench's templates, with those of the report below them."""
    made = environment()
    made.loader = ChoiceLoader([PackageLoader("karat.web"), PackageLoader("karat.reports.html")])
    return made


def render(request: Request, name: str, *, status_code: int = 200, **context: Any) -> HTMLResponse:
    """Return a page from a template, which extends workbench.html."""
    page = render_template(request.app, name, **context)
    return personalize(request, page, status_code=status_code)


def render_report(
    request: Request,
    name: str,
    *,
    document: Mapping[str, Any],
    head: Mapping[str, Any] | None,
    **context: Any,
) -> HTMLResponse:
    """Return the page of a report; without the ``head`` of a view it shows no single queries."""
    # The library is large and loads asynchronously.
    charts = VEGA if VEGA in asset_table() else CHARTS
    scripts = (*(name for name in SCRIPTS if name != CHARTS), "api.js", charts)
    assets = PageAssets((*STYLES, "workbench.css"), scripts)
    template_context = context_of(document, head)
    return render(request, name, **{**template_context, "assets": assets, "parts": None, **context})


def render_template(app: FastAPI, name: str, **context: Any) -> bytes:
    """Return a page with placeholders, which can be cached; ``personalize`` fills them."""
    settings = app.state.settings
    defaults = {
        "assets": PageAssets(),
        "csp": None,
        "store": app.state.store.name,
        "with_token": settings.token is not None,
        "with_config": settings.config is not None,
    }
    text = templates().get_template(name).render(defaults | context)
    return text.encode("utf-8", "replace")


def personalize(request: Request, page: bytes, *, status_code: int = 200) -> HTMLResponse:
    """Return a rendered page for one session, with this answer's nonce."""
    for placeholder, value in ((_NONCE, request.state.nonce), (_CSRF, request.state.csrf)):
        page = page.replace(placeholder.encode(), value.encode())
    return HTMLResponse(page, status_code=status_code)


class ResponseCache(Generic[Value]):
    """The values used last; threads that need the same one at once wait for the one making it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, Future[Value]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value made for this key; make it if there is none."""
        with self._lock:
            future = self._values.get(key)
            is_new = future is None
            if future is None:
                future = self._values[key] = Future()
            self._values.move_to_end(key)
            if len(self._values) > self._size:
                self._values.popitem(last=False)
        if is_new:
            try:
                future.set_result(make())
            except BaseException as error:
                with self._lock:
                    if self._values.get(key) is future:
                        del self._values[key]
                future.set_exception(error)
        return future.result()

    def holds(self, key: Hashable) -> bool:
        """Return whether there is a value for this key."""
        with self._lock:
            future = self._values.get(key)
        return future is not None and future.done()


def cached_json(request: Request, make: Callable[[], Any]) -> Response:
    """Return data as JSON, cached per URL until the store changes."""
    body = _cached(request, lambda: bytes(Json(make()).body))
    return Response(body, media_type=Json.media_type)


def cached_page(request: Request, make: Callable[[], bytes]) -> Response:
    """Return a rendered page, cached per URL until the store changes."""
    return personalize(request, _cached(request, make))


def _cached(request: Request, make: Callable[[], bytes]) -> bytes:
    state = request.app.state
    # Read before the data: a change meanwhile makes the cached response outdated, not wrong.
    stamp = state.store.stamp()
    key = request.url.path, request.scope["query_string"], stamp
    body: bytes = state.answers.get(key, make)
    return body


def error_response(request: Request, status: int, sentence: str) -> Response:
    """Return a sentence as JSON under /api, else as a page, without control characters."""
    sentence = label(" ".join(sentence.splitlines()))
    if is_api(request):
        return Json({"error": sentence}, status_code=status)
    title = HTTPStatus(status).phrase
    return render(request, "error.html", status_code=status, title=title, sentence=sentence)


def is_api(request: Request) -> bool:
    """Return whether a request is for the API."""
    # Not from request.url, which fails where the Host header is malformed.
    return str(request.scope["path"]).startswith("/api/")


def handle_errors(app: FastAPI) -> None:
    """Answer every error with one sentence."""

    @app.exception_handler(KaratError)
    def refused(request: Request, error: KaratError) -> Response:
        status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 400)
        where = (isinstance(error, InputError) and error.where) or ""
        if isinstance(error, RequestRefusedError):
            status = error.status
        elif where.startswith(request.app.state.store.name):
            # Store errors may be temporary.
            status = 503
        return error_response(request, status, str(error))

    @app.exception_handler(RequestValidationError)
    def misread(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])[:_LONGEST_ECHO] or "the body"
        return error_response(request, 400, f"{place}: {first['msg'].lower()}")

    @app.exception_handler(HTTPException)
    def answered(request: Request, error: HTTPException) -> Response:
        sentence = str(error.detail)
        if error.status_code == 404:
            sentence = f"there is nothing at {request.url.path[:_LONGEST_ECHO]}"
        return error_response(request, error.status_code, sentence)
