"""karat as a program that kills itself just before one of the statements that it has a store do.

``python fatal_sql.py N COUNTED …`` dies before the Nth statement or commit. With 0 it lives, and
writes to the file COUNTED how many there were.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from sqlalchemy import Engine, event


def main(fatal: int, counted: str, arguments: list[str]) -> int:
    from karat.cli.main import main as karat

    done = 0

    def hear(*_: object) -> None:
        nonlocal done
        done += 1
        if done == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", hear)
    event.listen(Engine, "commit", hear)
    code = karat(arguments)
    if not fatal:
        Path(counted).write_text(f"{done}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
