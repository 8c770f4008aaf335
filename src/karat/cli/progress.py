"""Progress on standard error: a bar on a terminal, plain lines elsewhere.

With KARAT_PROGRESS=json in the environment it is one JSON object per line, for programs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from karat.pages.formatting import plural

# Less work than this needs no bar.
_LONG_BYTES = 50_000_000
_LONG_RUNS = 5
# Seconds between two lines where there is no terminal, and between two JSON objects.
_LINE_SECONDS, _JSON_SECONDS = 10.0, 0.2
# A rate over less time than this is unreliable.
_RATE_SECONDS = 0.5


@contextmanager
def progress(names: Sequence[str], *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a callback that takes the name of each file before it is read."""
    total = len(names)
    turns = iter(range(total))
    if not quiet and _as_json():
        yield lambda name: _print_json(
            system=None, what="files", file=name, done=next(turns), total=total
        )
        return
    files = [Path(name) for name in names if name != "-"]
    size = sum(file.stat().st_size for file in files if file.is_file())
    long = total >= _LONG_RUNS or size >= _LONG_BYTES
    if quiet or not sys.stderr.isatty() or not long:
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
        task = bar.add_task("", total=total)
        yield lambda name: bar.update(task, description=name, completed=next(turns))


class Bar(Protocol):
    """Receives what is being built, then how many calls are done."""

    def build(self, what: str, done: int, total: int) -> None: ...
    def advance(self, calls: int) -> None: ...


@contextmanager
def counting(name: str, total: int, *, quiet: bool) -> Iterator[Bar]:
    """Show the finished calls, their rate, and the time left."""
    if quiet:
        yield _Silent()
    elif _as_json():
        yield _JsonBar(name, total)
    elif not sys.stderr.isatty():
        yield _LineBar(name, total)
    else:
        with _terminal_bar(name, total) as bar:
            yield bar


class _Silent:
    def build(self, what: str, done: int, total: int) -> None:
        """Print nothing."""

    def advance(self, calls: int) -> None:
        """Print nothing."""


class _JsonBar:
    """A line at the start, at the end of each phase, and a few per second between them."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.done = name, total, 0
        self.printed_at = float("-inf")
        self.build("calls", 0, total)

    def build(self, what: str, done: int, total: int) -> None:
        """Print how far the work is."""
        now = time.monotonic()
        if done >= total or now - self.printed_at >= _JSON_SECONDS:
            self.printed_at = now
            _print_json(system=self.name, what=what, done=done, total=total)

    def advance(self, calls: int) -> None:
        """Count calls."""
        self.done += calls
        self.build("calls", self.done, self.total)


class _LineBar:
    """A line every few seconds, for logs of builds."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.done = name, total, 0
        self.started_at: float | None = None
        self.counted = 0
        self.printed_at = time.monotonic()

    def build(self, what: str, done: int, total: int) -> None:
        """Print how far the index is, if it is time to."""
        self._print(f"{what} {done:,} of {total:,}", time.monotonic())

    def advance(self, calls: int) -> None:
        """Count calls; the rate leaves out those that an earlier search made."""
        self.done += calls
        now = time.monotonic()
        if self.started_at is None:
            self.started_at = now
            return
        self.counted += calls
        seconds = now - self.started_at
        if seconds < _RATE_SECONDS or not self.counted:
            return
        rate = self.counted / seconds
        calls_done = f"{self.done:,} of {plural(self.total, 'call')}"
        left = (self.total - self.done) / rate
        self._print(f"{calls_done}, {rate:.1f} per second, about {left:.0f} s left", now)

    def _print(self, text: str, now: float) -> None:
        if now - self.printed_at >= _LINE_SECONDS:
            self.printed_at = now
            print(f"{self.name}: {text}", file=sys.stderr, flush=True)


@contextmanager
def _terminal_bar(name: str, total: int) -> Iterator[Bar]:
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=20),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task(name, total=total)

        class TerminalBar:
            """The bar is the index's until the first call."""

            calling = False

            def build(self, what: str, done: int, total: int) -> None:
                display.update(task, description=f"{name}: {what}", completed=done, total=total)

            def advance(self, calls: int) -> None:
                if not self.calling:
                    self.calling = True
                    display.reset(task, total=total, description=name)
                display.update(task, advance=calls)

        yield TerminalBar()


def _as_json() -> bool:
    return os.environ.get("KARAT_PROGRESS") == "json"


def _print_json(**facts: object) -> None:
    print(json.dumps({"karat": "progress", **facts}), file=sys.stderr, flush=True)
