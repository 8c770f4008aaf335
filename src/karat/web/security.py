"""Who may ask for what: every request passes here first, and every answer last."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from karat.web.checks import (
    OURS,
    SAFE,
    RefusedError,
    check_json,
    check_origin,
    check_size,
    host_name,
    local,
    read_whole,
    replayed,
)
from karat.web.errors import error_response, is_api
from karat.web.headers import HEADERS, POLICY, policy
from karat.web.rendering import render
from karat.web.sessions import Sessions, cookie_of, same
from karat.web.settings import Settings

# What a wrong token costs whoever guesses it.
_GUESS_SECONDS = 0.3
# So many are worked on at once; more would only wait for each other.
_MOST_REQUESTS = 500
# How long a browser keeps a session: a week.
_SESSION_SECONDS = 7 * 24 * 60 * 60

_NOT_OURS = (
    "this write does not come from a page of this workbench; load the page again, or, in a program,"
    " send Authorization: Bearer TOKEN to a workbench that was started with that token"
)

_log = logging.getLogger("karat.web")


@dataclass(slots=True)
class Visit:
    """One request: its session's cookie, whether that is new, and who vouches for it."""

    session: str
    new: bool
    known: bool
    bearer: bool = False


class Guard:
    """The checks before the application, and the headers after it."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._sessions = Sessions()
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer why not."""
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
        request.state.visit = visit
        answer = _Answer(send, request, visit, self._cookie(request))
        try:
            await self._let_in(request, visit, receive, answer)
        except RefusedError as error:
            response = error_response(request, error.status, error.sentence)
            await response(scope, receive, answer)
        except Exception:
            if answer.begun or os.environ.get("KARAT_DEBUG"):
                raise
            _log.exception("a bug in karat, asked for %s", scope["path"])
            response = error_response(request, 500, "a bug in karat; its log says more")
            await response(scope, receive, answer)

    async def _let_in(
        self, request: Request, visit: Visit, receive: Receive, answer: _Answer
    ) -> None:
        check_size(request)
        self._check_host(request)
        check_origin(request)
        response = await self._unless_token(request, visit)
        if response is not None:
            await response(request.scope, receive, answer)
            return
        if request.method not in SAFE:
            self._check_write(request, visit)
            body = await read_whole(request, receive, self._settings.max_body)
            check_json(body)
            receive = replayed(body, receive)
        await self._work(request, receive, answer)

    async def _work(self, request: Request, receive: Receive, answer: _Answer) -> None:
        """Have the application answer; a page is asked for by HEAD as by GET."""
        if self._under_way >= _MOST_REQUESTS:
            raise RefusedError(503, "too much is asked at once; try again in a moment")
        scope = request.scope
        if request.method == "HEAD" and not is_api(request):
            # A copy: the server still knows that no body is to be sent.
            scope = {**scope, "method": "GET"}
        self._under_way += 1
        try:
            await self._app(scope, receive, answer)
        finally:
            self._under_way -= 1

    def _visit(self, request: Request) -> Visit:
        cookie = cookie_of(request.headers.get("cookie", ""), self._cookie(request))
        if cookie is not None and self._sessions.known(cookie):
            return Visit(cookie, new=False, known=True)
        if self._settings.token is not None:
            # Only who shows the token gets a session, whatever the answer will be.
            return Visit("", new=False, known=False)
        return Visit(self._sessions.begin(), new=True, known=True)

    def _cookie(self, request: Request) -> str:
        """Browsers keep one set of cookies for all ports of a host, where another karat may be."""
        server = request.scope.get("server") or ("", self._settings.port)
        return f"karat_{server[1]}"

    def _check_host(self, request: Request) -> None:
        """A name that leads here but is not ours was made up by a site that wants to read us."""
        asked = host_name(request.headers.get("host", ""))
        if asked not in self._settings.names:
            told = "this workbench is not called that; --allow-host NAME lets it be called so"
            raise RefusedError(400, told)

    async def _unless_token(self, request: Request, visit: Visit) -> Response | None:
        """The answer to who has not shown the token yet, or shows it now; None lets in."""
        token, path = self._settings.token, request.url.path
        asked = None if is_api(request) else request.query_params.get("token")
        if token is None:
            # Nothing to know here, but it is no part of the address either.
            return None if asked is None else RedirectResponse(_without_token(request), 303)
        if (given := _bearer(request.headers)) is not None:
            if not await _guessed(given, token):
                raise RefusedError(401, "the token is not right")
            visit.bearer = visit.known = True
            return None
        if asked is not None and request.method == "GET":
            if await _guessed(asked, token):
                return self._admitted(visit, _without_token(request))
        elif visit.known and path == "/logout" and request.method == "POST":
            return self._logout(request, visit)
        elif visit.known or path.startswith("/assets/"):
            return None
        elif path == "/login" and request.method == "POST":
            return await self._login(request, visit, token)
        if is_api(request):
            raise RefusedError(401, "a token is needed, as in Authorization: Bearer TOKEN")
        return _login_page(request, _without_token(request), wrong=asked is not None)

    async def _login(self, request: Request, visit: Visit, token: str) -> Response:
        """The form of the login page."""
        body = await read_whole(request, request.receive, self._settings.max_body)
        form = dict(parse_qsl(body.decode("utf-8", "replace")))
        asked = local(form.get("next", "/"))
        if await _guessed(form.get("token", ""), token):
            return self._admitted(visit, asked)
        return _login_page(request, asked, wrong=True)

    def _logout(self, request: Request, visit: Visit) -> Response:
        """The session is worth nothing from now on, whoever has kept its cookie."""
        self._sessions.end(visit.session)
        visit.known = False
        response = RedirectResponse("/", status_code=303)
        response.delete_cookie(self._cookie(request), httponly=True, samesite="strict")
        return response

    def _admitted(self, visit: Visit, to: str) -> Response:
        visit.session, visit.new, visit.known = self._sessions.begin(), True, True
        return RedirectResponse(to, status_code=303)

    def _check_write(self, request: Request, visit: Visit) -> None:
        """A write comes from our own page, which knows the session's token, or has the other."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RefusedError(415, "writes are JSON: send Content-Type: application/json")
        if visit.bearer:
            return
        given = request.headers.get("x-karat-csrf", "")
        if not visit.session or visit.new or not same(given, request.state.csrf):
            raise RefusedError(403, _NOT_OURS)


class _Answer:
    """What is sent, with the headers that every answer has."""

    def __init__(self, send: Send, request: Request, visit: Visit, cookie: str) -> None:
        self._send, self._request, self._visit, self._cookie = send, request, visit, cookie
        self.begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            self._add_headers(MutableHeaders(scope=message))
        await self._send(message)

    def _add_headers(self, headers: MutableHeaders) -> None:
        headers[POLICY] = policy(self._request.state.nonce)
        for name, value in HEADERS.items():
            headers.setdefault(name, value)
        if not self._visit.new:
            return
        kind = headers.get("content-type", "")
        if kind.startswith("text/html") or "location" in headers:
            headers.append("Set-Cookie", self._session())

    def _session(self) -> str:
        told = f"{self._cookie}={self._visit.session}; Path=/; Max-Age={_SESSION_SECONDS}"
        # A server with TLS before this one is not asked whether it is there.
        secure = "; Secure" if self._request.scope["scheme"] == "https" else ""
        return f"{told}; HttpOnly; SameSite=Strict{secure}"


def _login_page(request: Request, asked: str, *, wrong: bool) -> Response:
    page = render(request, "login.html", status_code=401, next=asked, wrong=wrong)
    if request.method == "GET" and request.headers.get("sec-fetch-site", "none") not in OURS:
        # A browser that follows a link of another site keeps the session's cookie to itself.
        # Asked once more, from this page, it sends it.
        page.headers["Refresh"] = f"0;url={asked}"
    return page


def _bearer(headers: Headers) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


async def _guessed(given: str, token: str) -> bool:
    right = same(given, token)
    if not right:
        await asyncio.sleep(_GUESS_SECONDS)
    return right


def _without_token(request: Request) -> str:
    """The address that was asked for, without the token in it."""
    asked = [one for one in request.query_params.multi_items() if one[0] != "token"]
    return local(request.url.path + (f"?{urlencode(asked)}" if asked else ""))
