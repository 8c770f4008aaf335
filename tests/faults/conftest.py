"""Two forms of trying faults: short in every test run, and in full with KARAT_FAULTS=full."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from store.conftest import postgres, server  # noqa: F401 - a PostgreSQL to kill clients of

from .killing import FULL, Going
from .results import PAGE, Row, machine, refreshed

_ROWS: list[Row] = []
_MACHINE = machine() if FULL else ""


@pytest.fixture(scope="session")
def times() -> Callable[[int, int], int]:
    """How often to try something: so many times in the short form, so many in full."""
    return lambda short, full: full if FULL else short


@pytest.fixture(scope="session")
def told() -> Callable[[str, str, int, str], None]:
    """Keep what came of a fault for the page: the fault, during what, how often, the outcome."""

    def keep(fault: str, during: str, times: int, outcome: str) -> None:
        assert not any("|" in text or "\n" in text for text in (fault, during, outcome))
        _ROWS.append(Row(fault, during, times, outcome))

    return keep


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Going]]:
    """Start karat as a process that can be killed; ``cwd`` is the test's folder unless given."""
    begun: list[Going] = []

    def begin(*arguments: str, cwd: Path = tmp_path, **more: Any) -> Going:
        begun.append(Going(*arguments, cwd=cwd, **more))
        return begun[-1]

    yield begin
    for one in begun:
        one.kill()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write the table when all went well in one process; parts of the folder keep the others."""
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    if FULL and alone and exitstatus == 0 and _ROWS:
        named = [Path(one.partition("::")[0]).resolve() for one in session.config.args]
        whole = named == [Path(__file__).parent] and "::" not in "".join(session.config.args)
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(refreshed(page, _ROWS, whole=whole, machine=_MACHINE), encoding="utf-8")
