"""karat as a program that kills itself just before one of the changes it makes to files.

``python fatal.py N COUNTED …`` dies before the Nth change, or with ``rename`` for N before the
first file gets its name. With 0 it lives, and writes to the file COUNTED how
many changes there were. Python tells of its own only: libraries write in between.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def main(fatal: str, counted: str, arguments: list[str]) -> int:
    from karat.cli.main import main as karat

    deaths = Deaths(fatal)
    sys.addaudithook(deaths.hear)
    code = karat(arguments)
    changes, deaths.fatal = deaths.changes, "never"
    if fatal == "0":
        Path(counted).write_text(f"{changes}\n")
    return code


class Deaths:
    """Counts changes, and dies before the one that is fatal."""

    def __init__(self, fatal: str) -> None:
        self.fatal, self.changes = fatal, 0

    def hear(self, event: str, details: tuple) -> None:
        changes = event in CHANGES or (event == "open" and details[2] & WRITES)
        if changes and _matters(details[0]):
            self.changes += 1
            if self.fatal in (str(self.changes), event.removeprefix("os.")):
                os.kill(os.getpid(), signal.SIGKILL)


def _matters(name: object) -> bool:
    # What is compiled for the next start is no output, and what has no name is none either.
    return isinstance(name, str | os.PathLike) and not any(
        part in str(name) for part in ("/dev/", "__pycache__")
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
