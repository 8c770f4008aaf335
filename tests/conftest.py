"""Ways to call karat, for all tests, and how tests are shared out among processes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest
from xdist.scheduler import LoadScopeScheduling

from karat.cli.main import main
from lanes import is_slow, is_wholly_slow

# Tests that share what is dear to make (browsers, servers, models, evaluations) stay together,
# else every process makes its own; the longest begin first, so that no process ends alone.
TOGETHER = (
    "tests/browser/",
    "tests/retrievers/",
    "tests/recipes/test_rag",
    "tests/web/",
    "tests/store/",
    "tests/engines/",
)


class Together(LoadScopeScheduling):
    """Gives a process a whole file at a time, or all files that share something dear."""

    def _split_scope(self, nodeid: str) -> str:
        shared = (one for one in TOGETHER if nodeid.startswith(one))
        return next(shared, nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    if config.getvalue("dist") != "load":
        return None
    # In the order of the collection, see below, not by how many tests there are.
    config.option.loadscopereorder = False
    return Together(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is loaded by now stays: no search for garbage need look through it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path, config):
    if config.option.markexpr != "not slow" or not collection_path.is_file():
        return None
    return is_wholly_slow(collection_path.relative_to(config.rootpath).as_posix()) or None


def pytest_itemcollected(item):
    if is_slow(item.nodeid):
        item.add_marker("slow")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    def place(item):
        places = (at for at, one in enumerate(TOGETHER) if item.nodeid.startswith(one))
        return next(places, len(TOGETHER))

    items.sort(key=place)


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]):
    """Call karat in this process."""

    def call(*arguments: str) -> Result:
        capfd.readouterr()
        code = main(arguments)
        out, err = capfd.readouterr()
        return Result(code, out, err)

    return call


@pytest.fixture
def spawn():
    """Call karat as a process of its own."""

    def call(*arguments: str, stdin: bytes | None = None, **environment: str) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "karat", *arguments],
            input=stdin,
            capture_output=True,
            env={**os.environ, **environment},
            timeout=60,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call
