"""Answers kept for as long as nothing they are made from changes, and locks by key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Generic, TypeVar

from fastapi import Request
from starlette.responses import Response

from karat.web.rendering import Json, personalize

Value = TypeVar("Value")


class KeyedLock:
    """A lock for every key, kept for as long as somebody holds or waits for it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._locks: dict[Hashable, tuple[Lock, int]] = {}

    @contextmanager
    def hold(self, key: Hashable) -> Iterator[None]:
        """Wait until nobody else holds the lock of this key."""
        with self._lock:
            lock, users = self._locks.get(key, (Lock(), 0))
            self._locks[key] = lock, users + 1
        try:
            with lock:
                yield
        finally:
            with self._lock:
                _, users = self._locks[key]
                if users > 1:
                    self._locks[key] = lock, users - 1
                else:
                    del self._locks[key]


class ResponseCache(Generic[Value]):
    """The values used last, each with the stamp of the store that it was made under.

    Threads that need the same value at once wait for the one that makes it.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, tuple[str, Value]] = OrderedDict()
        self._lock = Lock()
        self._making = KeyedLock()

    def get(self, key: Hashable, make: Callable[[], Value], *, stamp: str = "") -> Value:
        """Return the value made for this key under this stamp; make it if there is none."""
        cached = self._find(key, stamp)
        if cached is not None:
            return cached[1]
        with self._making.hold(key):
            cached = self._find(key, stamp)
            if cached is not None:
                return cached[1]
            value = make()
            with self._lock:
                self._values[key] = stamp, value
                self._values.move_to_end(key)
                while len(self._values) > self._size:
                    self._values.popitem(last=False)
            return value

    def holds(self, key: Hashable) -> bool:
        """Return whether there is a value for this key, under any stamp."""
        with self._lock:
            return key in self._values

    def _find(self, key: Hashable, stamp: str) -> tuple[str, Value] | None:
        with self._lock:
            cached = self._values.get(key)
            if cached is None or cached[0] != stamp:
                return None
            self._values.move_to_end(key)
            return cached


def cached_json(request: Request, make: Callable[[], Any], *, stamp: str | None = None) -> Response:
    """Return data as JSON, made once per URL and stamp."""
    body = _cached(request, lambda: bytes(Json(make()).body), stamp)
    return Response(body, media_type=Json.media_type)


def cached_page(
    request: Request, make: Callable[[], bytes], *, stamp: str | None = None
) -> Response:
    """Return a rendered page, made once per URL and stamp."""
    return personalize(request, _cached(request, make, stamp))


def _cached(request: Request, make: Callable[[], bytes], stamp: str | None) -> bytes:
    url = (request.url.path, request.scope["query_string"])
    state = request.app.state
    # Read before the data: a change meanwhile makes the answer old, not wrong.
    stamp = state.store.stamp() if stamp is None else stamp
    body: bytes = state.answers.get(url, make, stamp=stamp)
    return body
