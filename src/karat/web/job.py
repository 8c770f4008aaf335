"""One evaluation started from the page: what it said so far, and everyone who listens."""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_LOG_LINES = 500
_LONGEST_LINE = 2_000
_SAVED = re.compile(r"saved as (\d+(?:, \d+)*) in ")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_WARNING = "karat: warning:"

# What the exit codes of karat run mean; a gate that fails is a finding, not a failure.
_FINISHED = {
    0: "Finished: no gate fails, and nothing got worse.",
    1: "Finished: a gate fails, or a system got worse. The evaluation itself is complete.",
    3: "Finished, but it cannot tell: too little could be measured for a verdict.",
}
_FAILED = {
    2: "Not evaluated: the karat.yaml, a file or a value cannot be used.",
    70: "Not evaluated: a bug in karat ended it.",
}
_STOPPED = "Stopped before the end; calls already logged are used when it is run again."


@dataclass(frozen=True, slots=True)
class Wish:
    """What to evaluate; no system named means all of them."""

    systems: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    fresh: bool = False

    def document(self) -> dict[str, Any]:
        """The wish as plain data."""
        return {"systems": list(self.systems), "tags": list(self.tags), "fresh": self.fresh}


@dataclass(frozen=True, slots=True)
class Told:
    """Something that happened: ``kind`` is progress, log or state; numbers only go up."""

    number: int
    kind: str
    data: Mapping[str, Any]


class Job:
    """What is known of a run; written by the thread that watches it, read by any.

    Of each system only the latest progress is kept, and of the log the last lines, so a
    listener who was away misses steps but never the outcome. ``redact`` takes secrets out of
    a line of the log.
    """

    def __init__(
        self,
        id: int,
        wish: Wish,
        systems: tuple[str, ...],
        *,
        redact: Callable[[str], str] = str,
    ) -> None:
        self.id, self.wish, self.systems = id, wish, systems
        self._redact = redact
        self._lock = threading.Lock()
        self._number = 0
        self._log: deque[Told] = deque(maxlen=_LOG_LINES)
        self._progress: dict[str | None, Told] = {}
        self._state: Told
        self._listeners: set[Callable[[], None]] = set()
        self._stopping = False
        self._why: str | None = None
        self._saved: tuple[int, ...] = ()
        self._change(
            "running", None, "Running: the systems are asked, then their answers are scored."
        )

    @property
    def running(self) -> bool:
        """Whether the process has not ended yet."""
        return self._state.data["state"] in ("running", "stopping")

    def since(self, number: int) -> list[Told]:
        """What happened after that number, in order."""
        with self._lock:
            known = (*self._log, *self._progress.values(), self._state)
            # A number of another server's life is none of ours.
            after = number if number <= self._number else 0
        return sorted((one for one in known if one.number > after), key=lambda one: one.number)

    @contextmanager
    def heard_by(self, wake: Callable[[], None]) -> Iterator[None]:
        """Have ``wake`` called whenever something happened."""
        with self._lock:
            self._listeners.add(wake)
        try:
            yield
        finally:
            with self._lock:
                self._listeners.discard(wake)

    @property
    def listeners(self) -> int:
        """How many are listening."""
        return len(self._listeners)

    def wake_all(self) -> None:
        """Have every listener look again."""
        with self._lock:
            waiting = list(self._listeners)
        for wake in waiting:
            wake()

    def read(self, line: str) -> None:
        """Take a line of the command's standard error."""
        progress = _progress(line)
        if progress is not None:
            self._tell("progress", progress)
            return
        # Of a bar that is drawn over and over, the last state is what counts.
        text = _CONTROLS.sub(
            "\N{REPLACEMENT CHARACTER}", _COLOURS.sub("", line.rpartition("\r")[2])
        )
        text = self._redact(text)
        if saved := _SAVED.match(text):
            self._saved = tuple(map(int, saved[1].split(", ")))
        if text.startswith("karat: ") and not text.startswith(_WARNING):
            self._why = text.removeprefix("karat: ")
        self._tell("log", {"line": text[:_LONGEST_LINE]})
        if reused := self._reused(text):
            self._tell("progress", reused)

    def stopping(self) -> None:
        """Somebody asked for the end."""
        self._stopping = True
        if self.running:
            self._change("stopping", None, "Stopping: what is logged so far is being kept.")

    def end(self, code: int) -> None:
        """The process is gone; without anything saved, a 1 is Python's own and not a verdict."""
        if code in _FINISHED and (code != 1 or self._saved):
            self._change("done", code, _FINISHED[code])
        elif self._stopping:
            self._change("stopped", code, _STOPPED)
        else:
            self._change("failed", code, _FAILED.get(code, f"Not evaluated: it ended with {code}."))

    def document(self) -> dict[str, Any]:
        """All of it as plain data."""
        with self._lock:
            return {
                "id": self.id,
                **self.wish.document(),
                "systems": list(self.systems),
                **self._state.data,
                "progress": [dict(one.data) for one in self._progress.values()],
                "log": [one.data["line"] for one in self._log],
                "last": self._number,
            }

    def _reused(self, line: str) -> dict[str, Any] | None:
        """A log that is used again has no progress of its own, though it is all there."""
        for system in self.systems:
            found = re.match(rf"{re.escape(system)}: ([\d,]+) calls, log reused", line)
            if found:
                calls = int(found[1].replace(",", ""))
                return {"system": system, "what": "reused", "done": calls, "total": calls}
        return None

    def _change(self, state: str, code: int | None, meaning: str) -> None:
        why = self._why if state in ("done", "failed", "stopped") else None
        data = {
            "state": state,
            "exit_code": code,
            "meaning": meaning,
            "why": why,
            "saved": list(self._saved),
        }
        self._tell("state", data)

    def _tell(self, kind: str, data: Mapping[str, Any]) -> None:
        with self._lock:
            self._number += 1
            told = Told(self._number, kind, data)
            if kind == "log":
                self._log.append(told)
            elif kind == "progress":
                self._progress[data["system"]] = told
            else:
                self._state = told
        self.wake_all()


def _progress(line: str) -> dict[str, Any] | None:
    """A line of KARAT_PROGRESS=json, or None for any other."""
    if not line.startswith('{"karat": "progress"'):
        return None
    try:
        data = json.loads(line)
    except ValueError:
        return None
    numbers = [data.get("done"), data.get("total")]
    if not all(isinstance(one, int) and one >= 0 for one in numbers):
        return None
    system = data.get("system")
    return {
        "system": None if system is None else str(system),
        "what": str(data.get("what")),
        "done": numbers[0],
        "total": numbers[1],
    }
