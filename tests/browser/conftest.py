"""A real browser, the demo's report, and a workbench that really serves."""

from __future__ import annotations

import io
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect, sync_playwright

from karat.cli.main import main
from karat.reports.document import Report
from karat.web.server import create_app, options
from karat.web.settings import Settings

from .checks import DESKTOP, PATIENCE, Pages

BROWSER = "chromium-headless-shell"
INSTALL = f"sudo apt-get install {BROWSER}"
READY_IN = 60.0
expect.set_options(timeout=PATIENCE * 1_000)


# For the package, not the session: while Playwright runs, no other test of this process could
# start an event loop.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Debian's Chromium; Playwright's own is never downloaded."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        yield started
        started.close()


def program() -> str:
    """Where the browser is; a test that needs one fails without it, and says what to do."""
    found = shutil.which(BROWSER)
    if found is None:
        pytest.fail(f"{BROWSER} is not installed; run: {INSTALL}", pytrace=False)
    return found


@pytest.fixture
def pages(browser: Browser) -> Iterator[Pages]:
    """Makes pages; at the end, nothing may have failed on any of them."""
    made = Pages(browser)
    yield made
    made.close()


@pytest.fixture
def page(pages: Pages) -> Page:
    """A page with the network cut, for a report as a file."""
    return pages.new()


@pytest.fixture
def open_report(pages: Pages, tmp_path: Path) -> Callable[..., Page]:
    """Open a report as a file with the network cut: ``open_report(Report or path, scheme=…)``."""

    def open_it(source: Report | Path | str, *, ready: bool = True, **options) -> Page:
        path = Path(source) if isinstance(source, Path | str) else tmp_path / "report.html"
        if isinstance(source, Report):
            from karat.reports.html.render import to_html

            path.write_bytes(to_html(source))
        opened = pages.new(**options)
        opened.goto(path.resolve().as_uri())
        if ready:
            opened.locator("main").wait_for()
        return opened

    return open_it


@pytest.fixture(scope="package")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the demo, taken once; to be read, and left as it is."""
    place = tmp_path_factory.mktemp("demo") / "help-centre"
    said = io.StringIO()
    with redirect_stdout(said):
        assert main(["demo", str(place), "--quiet"]) == 0
    assert said.getvalue() == ""
    return place


@dataclass(frozen=True)
class Workbench:
    """A server: where it answers, the folder that it serves, and its store."""

    url: str
    folder: Path
    store: Path

    def at(self, path: str) -> str:
        return self.url + path


@pytest.fixture(scope="package")
def workbench(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    """``karat serve`` over a store with the demo's evaluations; it ends with 0 at Ctrl-C."""
    folder = Path(shutil.copytree(demo, tmp_path_factory.mktemp("workbench") / "help-centre"))
    store = folder / "history.db"
    _fill(folder, store)
    with serving(str(folder / "karat.yaml"), store=store, cwd=folder) as url:
        yield Workbench(url, folder, store)


@pytest.fixture
def open_workbench(pages: Pages, workbench: Workbench) -> Callable[..., Page]:
    """Open a page of the workbench: ``open_workbench("/label", scheme="dark", size=PHONE)``."""

    def open_it(path: str = "/", *, size: dict[str, int] = DESKTOP, **options) -> Page:
        opened = pages.new(workbench.url, size=size, **options)
        opened.goto(workbench.at(path))
        opened.locator("main").wait_for()
        return opened

    return open_it


def _fill(folder: Path, store: Path) -> None:
    """Two systems saved together, and each by itself: ids 1 and 2, then 3 and 4."""
    kept = ["--save", "--store", str(store), "--quiet"]
    # The demo's gates fail, which is its story.
    assert main(["run", str(folder / "karat.yaml"), *kept, "--tag", "main"]) == 1
    of = ["--gold", str(folder / "dataset.jsonl"), "--corpus", str(folder / "corpus.jsonl")]
    of += ["--profile", "rag", "--by", "language", "-m", "nDCG@5", "-m", "R@5"]
    for name in ("bm25", "reranked"):
        run = str(folder / "runs" / f"{name}.jsonl")
        assert main(["eval", run, *of, *kept, "--tag", "nightly"]) == 0


@contextmanager
def serving(*arguments: str, store: Path | str, cwd: Path) -> Iterator[str]:
    """``karat serve`` on a free port, ended as a user ends it: the address that it answers at."""
    words = [sys.executable, "-m", "karat", "serve", *arguments]
    words += ["--store", str(store), "--port", "0", "--no-token"]
    said = cwd / "serve.err"
    with said.open("wb") as kept:
        # To a file, since a pipe that nobody reads would make it wait.
        process = subprocess.Popen(
            words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=kept, stderr=kept
        )
    try:
        yield _address(process, said)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0, said.read_text()
        assert "Traceback" not in said.read_text(), said.read_text()
    finally:
        process.kill()
        process.wait()


@contextmanager
def listening(**settings: Path | str) -> Iterator[str]:
    """What ``karat serve`` serves, by a thread of this process: it starts in no time."""
    app = create_app(Settings(**settings))
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(options(app))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
    assert not thread.is_alive()


def _address(process: subprocess.Popen[bytes], said: Path) -> str:
    """Where it says that it answers, as soon as it does."""
    until = time.monotonic() + READY_IN
    while time.monotonic() < until and process.poll() is None:
        if told := re.search(r"karat serves (http://\S+)", said.read_text()):
            return told[1].rstrip("/")
        time.sleep(0.05)
    pytest.fail(f"karat serve did not start:\n{said.read_text()}", pytrace=False)
