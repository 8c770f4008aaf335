"""What is refused before anything is done: what is too large, and what other sites ask for."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import Message, Receive

from karat.errors import InputError
from karat.formats.records import parse

LONGEST_URL, MOST_HEADERS, LARGEST_HEADERS = 8_192, 100, 32_768
SAFE = ("GET", "HEAD", "OPTIONS")
# Sec-Fetch-Site where a page of karat asks, or somebody who typed the address.
OURS = ("same-origin", "none")
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
# A body comes at once or not at all.
_BODY_SECONDS = 15.0


class RefusedError(Exception):
    """A request that is not let in: the status, and the sentence that says why."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


def host_name(host: str) -> str:
    """The name in a Host header, without its port.

    >>> host_name("LocalHost:8000"), host_name("[::1]:8000"), host_name("evil.example/@x")
    ('localhost', '::1', '')
    """
    found = _HOST.fullmatch(host.lower())
    return "" if found is None else found["name"].strip("[]")


def local(path: str) -> str:
    """A path on this server, else its first page: nobody is led to another place.

    >>> local("/compare?ids=1,2"), local("//evil.example"), local("https://evil.example")
    ('/compare?ids=1,2', '/', '/')
    """
    plain = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if plain and "\\" not in path else "/"


def check_size(request: Request) -> None:
    scope = request.scope
    asked = len(scope.get("raw_path") or scope["path"].encode()) + len(scope["query_string"])
    if asked > LONGEST_URL:
        raise RefusedError(414, f"the address is too long; at most {LONGEST_URL:,} characters")
    headers = scope["headers"]
    if len(headers) > MOST_HEADERS or sum(len(a) + len(b) for a, b in headers) > LARGEST_HEADERS:
        raise RefusedError(431, "the headers are too large")


def check_origin(request: Request) -> None:
    """Other sites may link to a page, and do nothing else: neither write nor embed."""
    site = request.headers.get("sec-fetch-site", "none")
    linked = request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate"
    if site not in OURS and not linked:
        raise RefusedError(403, "another site asks for this, which only pages of karat may")
    origin = request.headers.get("origin")
    if request.method in SAFE or origin is None:
        return
    if origin == "null" and request.headers.get("sec-fetch-site") == "same-origin":
        # A form of a page that says nobody where it is: the browser vouches for it otherwise.
        return
    if _place(origin) != request.headers.get("host", "").lower():
        raise RefusedError(403, "another site writes here, which only pages of karat may")


def _place(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


async def read_whole(request: Request, receive: Receive, most: int) -> bytes:
    """The body, read to its end before anything is done with it; refused where it is too long."""
    told = f"too large; at most {most:,} bytes"
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length[:20]) > most:
        raise RefusedError(413, told)
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RefusedError(400, "the request ended before its end")
                body += message.get("body", b"")
                if len(body) > most:
                    raise RefusedError(413, told)
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        raise RefusedError(408, "the rest of the request did not come") from None
    return bytes(body)


def check_json(body: bytes) -> None:
    """Refuse a body that is no JSON, or none that a file may hold: with a key twice, or NaN."""
    if not body:
        return
    try:
        parse(body.decode("utf-8"), "the body", None)
    except UnicodeDecodeError:
        raise RefusedError(400, "the body is not UTF-8; send JSON in UTF-8") from None
    except InputError as error:
        place = "the body" if error.line in (None, 1) else f"the body, line {error.line}"
        raise RefusedError(400, f"{place}: {error.what}") from None


def replayed(body: bytes, receive: Receive) -> Receive:
    """What gives the body that was read to who asks for it next."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
