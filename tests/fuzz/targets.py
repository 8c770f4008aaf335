"""All that reads what others wrote, each as a function of bytes, with seeds to start from."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from fuzz import parsers, readers
from karat.formats.registry import FORMATS, KINDS


@dataclass(frozen=True)
class Target:
    """A function that must hold for any bytes, and some for which it does something."""

    name: str
    check: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    words: tuple[bytes, ...] = ()

    @property
    def apart(self) -> bool:
        """Whether it may take the process down, which only another process survives."""
        return "parquet" in self.name


@cache
def folder() -> Path:
    """Where the bytes lie while they are read; in memory where there is such a place."""
    shared = Path("/dev/shm")
    made = tempfile.mkdtemp(prefix="karat-fuzz-", dir=shared if shared.is_dir() else None)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def _file_targets() -> list[Target]:
    return [
        Target(
            f"{form.name}-{kind}",
            partial(readers.read_and_write, folder, form.name, kind),
            partial(readers.seeds, form.name, kind),
            readers.WORDS,
        )
        for form in FORMATS.values()
        for kind in form.carries
    ]


def _door_targets() -> list[Target]:
    return [
        Target(
            f"any-{kind}",
            partial(readers.read_whatever, folder, kind),
            partial(readers.seeds_of_all, kind),
            readers.WORDS,
        )
        for kind in KINDS
    ]


def _parser_targets() -> list[Target]:
    return [
        Target(name, partial(check, folder), partial(tuple, seeds), words)
        for name, check, seeds, words in parsers.PARSERS
    ]


TARGETS = {one.name: one for one in (*_file_targets(), *_door_targets(), *_parser_targets())}
