"""How far long work has got, on standard error: a bar on a terminal, plain lines elsewhere.

With KARAT_PROGRESS=json in the environment it is a JSON object a line, for whoever started karat.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress

# Less work than this is over before a bar could be read.
_LONG_BYTES = 50_000_000
_LONG_RUNS = 5
# Where there is no terminal, a line this often says that work goes on.
_LINE_SECONDS = 10.0
# A rate of less time than this is chance.
_RATE_SECONDS = 0.5
# A program that reads along has enough of this many seconds between two lines.
_JSON_SECONDS = 0.2


@contextmanager
def progress(names: Sequence[str], *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yields what is to be called with the name of each file as its turn comes."""
    if not quiet and _as_json():
        yield _JsonFiles(len(names)).begin
        return
    if quiet or not sys.stderr.isatty() or not _is_long(names):
        yield lambda name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=len(names))
        begun = iter(range(len(names)))
        yield lambda name: bar.update(task, description=name, completed=next(begun))


def _is_long(names: Sequence[str]) -> bool:
    files = [Path(name) for name in names if name != "-"]
    size = sum(file.stat().st_size for file in files if file.is_file())
    return len(names) >= _LONG_RUNS or size >= _LONG_BYTES


class Bar(Protocol):
    """Told what is being built, then of calls as they are done."""

    def build(self, what: str, done: int, total: int) -> None: ...
    def advance(self, calls: int) -> None: ...


@contextmanager
def counting(name: str, total: int, *, quiet: bool) -> Iterator[Bar]:
    """How many of the calls are done, at what rate, and how long the rest will take."""
    if quiet:
        yield _Silent()
        return
    if _as_json():
        yield _JsonBar(name, total)
        return
    if not sys.stderr.isatty():
        yield _Lines(name, total)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        yield _Shown(shown, name, total)


def _as_json() -> bool:
    return os.environ.get("KARAT_PROGRESS") == "json"


def _say(**facts: object) -> None:
    print(json.dumps({"karat": "progress", **facts}), file=sys.stderr, flush=True)


class _JsonBar:
    """A line for the start, for the end of each phase, and a few a second between them."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total = name, total
        self.done = 0
        self.last = float("-inf")
        self._tell("calls", 0, total)

    def build(self, what: str, done: int, total: int) -> None:
        """How far the index is."""
        self._tell(what, done, total)

    def advance(self, calls: int) -> None:
        """How many calls are done."""
        self.done += calls
        self._tell("calls", self.done, self.total)

    def _tell(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if done < total and now - self.last < _JSON_SECONDS:
            return
        self.last = now
        _say(system=self.name, what=what, done=done, total=total)


class _JsonFiles:
    """A line as each file's turn comes; the last one's end is the end of the command."""

    def __init__(self, total: int) -> None:
        self.begun, self.total = 0, total

    def begin(self, name: str) -> None:
        """A file's turn; those before it are done."""
        _say(system=None, what="files", file=name, done=self.begun, total=self.total)
        self.begun += 1


class _Silent:
    def build(self, what: str, done: int, total: int) -> None:
        """Say nothing."""

    def advance(self, calls: int) -> None:
        """Say nothing."""


class _Rate:
    """Calls a second since the first was reported; what was done before does not count."""

    def __init__(self) -> None:
        self._begun: float | None = None
        self._calls = 0

    def note(self, calls: int) -> float | None:
        """The rate after some more calls, or None while there is nothing to go by."""
        now = time.monotonic()
        if self._begun is None:
            self._begun = now
            return None
        self._calls += calls
        passed = now - self._begun
        return self._calls / passed if passed >= _RATE_SECONDS and self._calls else None


class _Lines:
    """A line every few seconds, for logs of builds."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total = name, total
        self.done = 0
        self.rate = _Rate()
        self.last = time.monotonic()

    def build(self, what: str, done: int, total: int) -> None:
        """How far the index is, if it is time to say so."""
        if self._is_time():
            print(f"{self.name}: {what} {done:,} of {total:,}", file=sys.stderr, flush=True)

    def advance(self, calls: int) -> None:
        """How many calls are done, if it is time to say so."""
        self.done += calls
        rate = self.rate.note(calls)
        if rate is not None and self._is_time():
            left = (self.total - self.done) / rate
            print(
                f"{self.name}: {self.done:,} of {self.total:,} call{'s' * (self.total != 1)}, "
                f"{rate:.1f} a second, "
                f"about {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )

    def _is_time(self) -> bool:
        now = time.monotonic()
        if now - self.last < _LINE_SECONDS:
            return False
        self.last = now
        return True


class _Shown:
    """A bar on a terminal."""

    def __init__(self, shown: Progress, name: str, total: int) -> None:
        self.shown, self.name, self.total = shown, name, total
        self.task = shown.add_task(name, total=total, rate="")
        self.rate = _Rate()
        self.calling = False

    def build(self, what: str, done: int, total: int) -> None:
        """The bar is the index's while there are no calls."""
        about = f"{self.name}: {what}"
        self.shown.update(self.task, description=about, completed=done, total=total)

    def advance(self, calls: int) -> None:
        """The bar is the calls'."""
        if not self.calling:
            self.calling = True
            self.shown.reset(self.task, total=self.total, description=self.name, rate="")
        rate = self.rate.note(calls)
        self.shown.update(self.task, advance=calls)
        if rate is not None:
            self.shown.update(self.task, rate=f"{rate:.1f}/s")
