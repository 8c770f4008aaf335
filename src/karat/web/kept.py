"""Answers that are given again for as long as nothing that they are made of has changed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Generic, TypeVar

from fastapi import Request
from starlette.responses import Response

from karat.web.rendering import Json, page

Made = TypeVar("Made")


class Kept(Generic[Made]):
    """The answers used last, each with the stamp of the store that it was made under.

    Whoever asks for what is just being made waits for it instead of making it again.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: OrderedDict[Hashable, tuple[str, Made]] = OrderedDict()
        self._making: dict[Hashable, Lock] = {}
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Made], *, stamp: str = "") -> Made:
        """What was made for this key under this stamp, else what is made now."""
        with self._lock:
            found = self._found(key, stamp)
            if found is not None:
                return found[1]
            making = self._making.setdefault(key, Lock())
        with making:
            return self._waited(key, make, stamp)

    def holds(self, key: Hashable) -> bool:
        """Whether something was made for this key, so that it takes no time to get."""
        with self._lock:
            return key in self._made

    def _waited(self, key: Hashable, make: Callable[[], Made], stamp: str) -> Made:
        with self._lock:
            found = self._found(key, stamp)
        if found is not None:
            return found[1]
        try:
            made = make()
            with self._lock:
                self._made[key] = stamp, made
                self._made.move_to_end(key)
                while len(self._made) > self._most:
                    self._made.popitem(last=False)
            return made
        finally:
            with self._lock:
                self._making.pop(key, None)

    def _found(self, key: Hashable, stamp: str) -> tuple[str, Made] | None:
        found = self._made.get(key)
        if found is None or found[0] != stamp:
            return None
        self._made.move_to_end(key)
        return found


def kept_json(request: Request, make: Callable[[], Any], *, stamp: str | None = None) -> Response:
    """Data as JSON, made once for an address as long as what it is made of stays as it is."""
    body = _kept(request, lambda: bytes(Json(make()).body), stamp)
    return Response(body, media_type=Json.media_type)


def kept_page(request: Request, make: Callable[[], bytes], *, stamp: str | None = None) -> Response:
    """A rendered page, made once for an address as long as what it shows stays as it is."""
    return page(request, _kept(request, make, stamp))


def _kept(request: Request, make: Callable[[], bytes], stamp: str | None) -> bytes:
    """What was made under this stamp; that of the store unless said."""
    address = (request.url.path, request.scope["query_string"])
    state = request.app.state
    # Asked for before anything is read: a change meanwhile makes the answer old, not wrong.
    own = state.store.stamp() if stamp is None else stamp
    made: bytes = state.answers.get(address, make, stamp=own)
    return made
