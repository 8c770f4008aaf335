"""Who asks: a token compared without telling how much of it was right, and signed sessions."""

from __future__ import annotations

import hashlib
import hmac
import secrets

_BYTES = 16


def same(given: str, expected: str) -> bool:
    """Whether two secrets are equal, in a time that tells neither length nor beginning."""
    digests = (hashlib.sha256(one.encode("utf-8", "replace")).digest() for one in (given, expected))
    return hmac.compare_digest(*digests)


class Sessions:
    """Sessions that this process began: a random name, and a signature that only it can make."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        # Only who knew the token can end a session, so these stay few.
        self._ended: set[str] = set()

    def begin(self) -> str:
        """A new session, as its cookie holds it."""
        name = secrets.token_urlsafe(_BYTES)
        return f"{name}.{self._signed('session', name)}"

    def known(self, cookie: str | None) -> bool:
        """Whether a cookie is of a session that was begun here."""
        name, _, signature = (cookie or "").partition(".")
        signed = bool(name) and same(signature, self._signed("session", name))
        return signed and name not in self._ended

    def end(self, cookie: str) -> None:
        """Let a session be worth nothing any more."""
        self._ended.add(cookie.partition(".")[0])

    def csrf(self, cookie: str) -> str:
        """What a page of this session sends with every write, and no other site can know."""
        return self._signed("csrf", cookie)

    def _signed(self, purpose: str, text: str) -> str:
        told = f"{purpose}:{text}".encode("utf-8", "replace")
        return hmac.new(self._key, told, hashlib.sha256).hexdigest()


def cookie_of(header: str, name: str) -> str | None:
    """One cookie's value out of a Cookie header, whatever other programs put beside it.

    >>> cookie_of('odd={"a": 1}; =; karat_8000=abc', "karat_8000"), cookie_of("a=b", "c")
    ('abc', None)
    """
    for pair in header.split(";"):
        own, _, value = pair.strip().partition("=")
        if own == name:
            return value
    return None
