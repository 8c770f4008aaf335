"""A progress bar on standard error, for long work on a terminal and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# Less work than this is over before a bar could be read.
_LONG_BYTES = 50_000_000
_LONG_RUNS = 5


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
