"""The guard before the application: checks on every request, headers on every answer."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import re
import secrets
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from karat.errors import InputError
from karat.formats.json_records import parse_json
from karat.web.responses import RequestRefusedError, error_response, is_api, render
from karat.web.settings import Settings

LONGEST_URL, MOST_HEADERS, LARGEST_HEADERS = 8_192, 100, 32_768
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
# Sec-Fetch-Site of requests from a page of karat, or from a typed address.
_SAME_SITE = ("same-origin", "none")
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
# A body must be complete after this long.
_BODY_SECONDS = 15.0
# The delay before a wrong token is refused.
_GUESS_SECONDS = 0.3
# More concurrent requests would only wait for each other.
_MOST_REQUESTS = 500
# The lifetime of a session cookie: a week.
_SESSION_SECONDS = 7 * 24 * 60 * 60

_FOREIGN_WRITE = (
    "this write does not come from a page of this workbench; reload the page, or, in a program,"
    " send Authorization: Bearer TOKEN to a workbench started with that token"
)

_log = logging.getLogger("karat.web")

_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src {scripts}; "
    "img-src 'self' data:; connect-src 'self'; font-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def host_name(host: str) -> str:
    """Return the name in a Host header, without its port.

    >>> host_name("LocalHost:8000"), host_name("[::1]:8000"), host_name("evil.example/@x")
    ('localhost', '::1', '')
    """
    match = _HOST.fullmatch(host.lower())
    return "" if match is None else match["name"].strip("[]")


def local_path(path: str) -> str:
    """Return a path if it is on this server, else the first page.

    >>> [local_path(path) for path in ("/compare?ids=1,2", "//evil.example", "https://evil.example")]
    ['/compare?ids=1,2', '/', '/']
    """
    plain = path.startswith("/") and not path.startswith("//") and path.isprintable()
    return path if plain and "\\" not in path else "/"


def _check_size(request: Request) -> None:
    """Refuse long addresses and large headers."""
    scope, headers = request.scope, request.scope["headers"]
    length = len(scope.get("raw_path") or scope["path"].encode()) + len(scope["query_string"])
    if length > LONGEST_URL:
        message = f"the address is too long; at most {LONGEST_URL:,} characters"
        raise RequestRefusedError(414, message)
    if len(headers) > MOST_HEADERS or sum(len(a) + len(b) for a, b in headers) > LARGEST_HEADERS:
        raise RequestRefusedError(431, "the headers are too large")


def _check_origin(request: Request) -> None:
    """Refuse what other sites send, except links: they may neither write nor embed."""
    site = request.headers.get("sec-fetch-site", "none")
    linked = request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate"
    if site not in _SAME_SITE and not linked:
        raise RequestRefusedError(403, "another site requested this; only pages of karat may")
    origin = request.headers.get("origin")
    if request.method in _SAFE_METHODS or origin is None:
        return
    if origin == "null" and request.headers.get("sec-fetch-site") == "same-origin":
        # A page without a referrer has no origin; Sec-Fetch-Site vouches for it.
        return
    try:
        host = urlsplit(origin).netloc.lower()
    except ValueError:
        host = ""
    if host != request.headers.get("host", "").lower():
        raise RequestRefusedError(403, "another site tried to write here; only pages of karat may")


async def _read_body(request: Request, most: int) -> bytes:
    """Return the whole body; refuse one that is too long or incomplete."""
    too_large = RequestRefusedError(413, f"too large; at most {most:,} bytes")
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length[:20]) > most:
        raise too_large
    body = b""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise too_large
    except (TimeoutError, ClientDisconnect):
        raise RequestRefusedError(408, "the request body did not arrive in time") from None
    return body


def _check_json(body: bytes) -> None:
    """Refuse a body that is not JSON, or has NaN or a key twice."""
    try:
        parse_json(body.decode("utf-8"), "the body", None)
    except UnicodeDecodeError:
        raise RequestRefusedError(400, "the body is not UTF-8; send JSON in UTF-8") from None
    except InputError as error:
        place = "the body" if error.line in (None, 1) else f"the body, line {error.line}"
        raise RequestRefusedError(400, f"{place}: {error.what}") from None


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that gives a body that was read before."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


def _equal_secrets(secret: str, expected: str) -> bool:
    """Compare two secrets in a time that does not depend on their content."""
    return hmac.compare_digest(*(text.encode("utf-8", "replace") for text in (secret, expected)))


class Sessions:
    """Sessions of this process: a random name with a signature that only it can make."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        # Only users with the token can end a session, so these stay few.
        self._ended: set[str] = set()

    def begin(self) -> str:
        """Return the cookie of a new session."""
        name = secrets.token_urlsafe(16)
        return f"{name}.{self._signed('session', name)}"

    def known(self, cookie: str | None) -> bool:
        """Return whether a cookie is that of a session of this process."""
        name, _, signature = (cookie or "").partition(".")
        signed = bool(name) and _equal_secrets(signature, self._signed("session", name))
        return signed and name not in self._ended

    def end(self, cookie: str) -> None:
        """End a session, even if a browser still has its cookie."""
        self._ended.add(cookie.partition(".")[0])

    def csrf(self, cookie: str) -> str:
        """Return what pages of this session send with every write, and other sites cannot know."""
        return self._signed("csrf", cookie)

    def _signed(self, purpose: str, text: str) -> str:
        message = f"{purpose}:{text}".encode("utf-8", "replace")
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()


@dataclass(slots=True)
class Visit:
    """One request: its session, empty for an unknown user, and whether that is new."""

    session: str
    new: bool
    bearer: bool = False


class RequestGuard:
    """Checks before the application, headers after it."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._sessions = Sessions()
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it with a reason."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope, receive)
        visit = self._visit(request)
        request.state.nonce = secrets.token_urlsafe(16)
        request.state.csrf = self._sessions.csrf(visit.session)
        started = False

        async def answer(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._add_headers(MutableHeaders(scope=message), request, visit)
            await send(message)

        try:
            response = await self._let_in(request, visit, answer)
        except RequestRefusedError as error:
            response = error_response(request, error.status, str(error))
        except Exception:
            if started or os.environ.get("KARAT_DEBUG"):
                raise
            _log.exception("a bug in karat, on a request for %s", scope["path"])
            response = error_response(request, 500, "a bug in karat; its log has the details")
        if response is not None:
            await response(scope, receive, answer)

    async def _let_in(self, request: Request, visit: Visit, answer: Send) -> Response | None:
        """Let the application answer; return the answer to a user who may not pass."""
        _check_size(request)
        if host_name(request.headers.get("host", "")) not in self._settings.names:
            # A malicious site may point its own name here (DNS rebinding).
            message = "this host name is not allowed; allow it with --allow-host NAME"
            raise RequestRefusedError(400, message)
        _check_origin(request)
        response = await self._check_token(request, visit)
        if response is not None:
            return response
        receive = request.receive
        if request.method not in _SAFE_METHODS:
            self._check_write(request, visit)
            body = await _read_body(request, self._settings.max_body)
            if body:
                _check_json(body)
            receive = _replayed(body, receive)
        if self._requests >= _MOST_REQUESTS:
            raise RequestRefusedError(503, "too many requests at once; try again in a moment")
        scope = request.scope
        if request.method == "HEAD" and not is_api(request):
            # A page answers HEAD as GET. In a copy: the server still knows that no body is sent.
            scope = {**scope, "method": "GET"}
        self._requests += 1
        try:
            await self._app(scope, receive, answer)
        except asyncio.CancelledError:
            raise RequestRefusedError(503, "the server is shutting down") from None
        finally:
            self._requests -= 1
        return None

    def _visit(self, request: Request) -> Visit:
        cookie = request.cookies.get(self._cookie(request))
        if self._sessions.known(cookie):
            return Visit(str(cookie), new=False)
        if self._settings.token is not None:
            # Only users with the token get a session.
            return Visit("", new=False)
        return Visit(self._sessions.begin(), new=True)

    def _cookie(self, request: Request) -> str:
        """Return the cookie's name; browsers share cookies between all ports of a host."""
        server = request.scope.get("server") or ("", self._settings.port)
        return f"karat_{server[1]}"

    async def _check_token(self, request: Request, visit: Visit) -> Response | None:
        """Return the answer to a user without the token, or None to pass the request on."""
        token, path = self._settings.token, request.url.path
        in_link = None if is_api(request) else request.query_params.get("token")
        if token is None:
            # No token is needed, but it must not stay in the address.
            return None if in_link is None else RedirectResponse(_without_token(request), 303)
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            if not await _is_token(bearer.strip(), token):
                raise RequestRefusedError(401, "the token is wrong")
            visit.bearer = True
            return None
        if in_link is not None and request.method == "GET":
            if await _is_token(in_link, token):
                return self._admitted(visit, _without_token(request))
        elif visit.session and path == "/logout" and request.method == "POST":
            return self._logout(request, visit)
        elif visit.session or path.startswith("/assets/"):
            return None
        elif path == "/login" and request.method == "POST":
            return await self._login(request, visit, token)
        if is_api(request):
            raise RequestRefusedError(401, "this needs a token: send Authorization: Bearer TOKEN")
        return _login_page(request, _without_token(request), wrong=in_link is not None)

    async def _login(self, request: Request, visit: Visit, token: str) -> Response:
        """Answer the form of the login page."""
        body = await _read_body(request, self._settings.max_body)
        form = dict(parse_qsl(body.decode("utf-8", "replace")))
        next_page = local_path(form.get("next", "/"))
        if await _is_token(form.get("token", ""), token):
            return self._admitted(visit, next_page)
        return _login_page(request, next_page, wrong=True)

    def _logout(self, request: Request, visit: Visit) -> Response:
        """End the session and its cookie."""
        self._sessions.end(visit.session)
        visit.session = ""
        response = RedirectResponse("/", status_code=303)
        response.delete_cookie(self._cookie(request), httponly=True, samesite="strict")
        return response

    def _admitted(self, visit: Visit, to: str) -> Response:
        visit.session, visit.new = self._sessions.begin(), True
        return RedirectResponse(to, status_code=303)

    def _check_write(self, request: Request, visit: Visit) -> None:
        """Refuse a write without the session's CSRF token, unless it has the bearer token."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RequestRefusedError(415, "writes are JSON; send Content-Type: application/json")
        if visit.bearer:
            return
        csrf = request.headers.get("x-karat-csrf", "")
        if not visit.session or visit.new or not _equal_secrets(csrf, request.state.csrf):
            raise RequestRefusedError(403, _FOREIGN_WRITE)

    def _add_headers(self, headers: MutableHeaders, request: Request, visit: Visit) -> None:
        """Add the headers that every answer has, and the cookie of a new session."""
        # A page may only load scripts and styles with its nonce.
        policy = _POLICY.format(scripts=f"'nonce-{request.state.nonce}'")
        for name, value in {"Content-Security-Policy": policy, **_HEADERS}.items():
            headers.setdefault(name, value)
        kind = headers.get("content-type", "")
        if visit.new and (kind.startswith("text/html") or "location" in headers):
            cookie = f"{self._cookie(request)}={visit.session}; Path=/; Max-Age={_SESSION_SECONDS}"
            # Headers of a TLS proxy in front of this server are not trusted.
            secure = "; Secure" if request.scope["scheme"] == "https" else ""
            headers.append("Set-Cookie", f"{cookie}; HttpOnly; SameSite=Strict{secure}")


def _login_page(request: Request, next_page: str, *, wrong: bool) -> Response:
    page = render(request, "login.html", status_code=401, next=next_page, wrong=wrong)
    if request.method == "GET" and request.headers.get("sec-fetch-site", "none") not in _SAME_SITE:
        # A browser that follows a link of another site does not send the session's cookie.
        # It does when this page reloads.
        page.headers["Refresh"] = f"0;url={next_page}"
    return page


async def _is_token(text: str, token: str) -> bool:
    """Compare with the token; delay the refusal of a wrong one."""
    equal = _equal_secrets(text, token)
    if not equal:
        await asyncio.sleep(_GUESS_SECONDS)
    return equal


def _without_token(request: Request) -> str:
    """Return the address of a request without the token."""
    query = [pair for pair in request.query_params.multi_items() if pair[0] != "token"]
    return local_path(request.url.path + (f"?{urlencode(query)}" if query else ""))
