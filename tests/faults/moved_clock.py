"""A clock that jumps while karat runs: libfaketime where it is installed, else Python's own clocks.

As a program it is karat with the clock of the file that is named first.
"""

from __future__ import annotations

import datetime
import sys
import time
from pathlib import Path
from typing import Any

_DAY = 86_400.0
_LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
KIND = "libfaketime" if _LIBRARIES else "Python's clocks"


class Clock:
    """A file that says how many days ahead or behind a process is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set(0)

    def set(self, days: int) -> None:
        """Let the clock jump to so many days from now."""
        # At once, or who looks meanwhile finds nothing.
        part = self.path.with_name(f"{self.path.name}.{days}")
        part.write_text(f"{days:+}d\n")
        part.replace(self.path)

    def environment(self, *, jumps: bool) -> dict[str, str]:
        """What a process needs to live by this clock, which jumps meanwhile, or stays with it.

        What only counts seconds goes on as it does.
        """
        if not _LIBRARIES:
            return {}
        again = {"FAKETIME_NO_CACHE": "1"} if jumps else {}
        return again | {
            "LD_PRELOAD": str(_LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self.path),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            # Files are as old as they are.
            "NO_FAKE_STAT": "1",
        }

    @property
    def command(self) -> list[str]:
        """How karat is called by this clock."""
        if _LIBRARIES:
            return [sys.executable, "-m", "karat"]
        return [sys.executable, __file__, str(self.path)]


def main(clock: Path, arguments: list[str]) -> int:
    true, real = time.time, datetime.datetime

    def ahead() -> float:
        return float(clock.read_text().strip().removesuffix("d")) * _DAY

    class Moved(real):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(true() + ahead(), tz)

    time.time = lambda: true() + ahead()
    datetime.datetime = Moved
    from karat.cli.main import main as karat

    return karat(arguments)


if __name__ == "__main__":
    # The folder of this file has no place among those of modules.
    sys.path[0] = str(Path.cwd())
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
