"""How far long work has got, on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

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


@contextmanager
def progress(names: Sequence[str], *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yields what is to be called with the name of each file as its turn comes."""
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
                f"{self.name}: {self.done:,} of {self.total:,} calls, {rate:.1f} a second, "
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
