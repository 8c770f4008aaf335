"""Requests that must not overlap, such as those of one rater, one after the other."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from threading import Lock


class OneByOne:
    """A lock for every key, kept for as long as somebody holds or wants it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: dict[Hashable, tuple[Lock, int]] = {}

    @contextmanager
    def turn(self, key: Hashable) -> Iterator[None]:
        """Wait until nobody else has a turn with this key."""
        with self._lock:
            own, wanted = self._held.get(key, (Lock(), 0))
            self._held[key] = own, wanted + 1
        try:
            with own:
                yield
        finally:
            with self._lock:
                _, wanted = self._held[key]
                if wanted > 1:
                    self._held[key] = own, wanted - 1
                else:
                    del self._held[key]
