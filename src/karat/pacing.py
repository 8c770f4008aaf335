"""How fast calls may begin, whoever makes them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field


@dataclass(eq=False)
class Pace:
    """Lets calls begin at most so many times a second."""

    rate: float | None
    stop: threading.Event = field(default_factory=threading.Event)
    _next: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wait(self) -> None:
        """Return when the next call may begin."""
        if self.rate is None:
            return
        with self._lock:
            now = time.monotonic()
            begin = max(self._next, now)
            self._next = begin + 1 / self.rate
        self.stop.wait(begin - now)
