"""Take a new user's first steps with an installed karat in an empty folder."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urljoin
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

EVALUATE = """\
import karat
gold = karat.read_gold("qrels.txt")
scores = karat.evaluate(karat.read_run("bm25.trec"), gold, ["nDCG@5", "R@5"])
print(round(scores.means()["nDCG@5"], 4))
print(karat.__file__)
"""
MEASURES = "nDCG@5, RR, R@{1,5}, P@5"
LAY_DOWN = """\
from karat.cli.main import main
for recipe in ("first", "minimal", "rag", "story", "memory", "ab"):
    assert main(["init", recipe, "recipe-" + recipe]) == 0, recipe
"""
# The time limit for a server to start; long, because machines may be busy.
PATIENCE = 120.0


class Steps:
    """karat as installed into a virtual environment, called from one folder."""

    def __init__(self, environment: Path, folder: Path, variables: dict[str, str]) -> None:
        self.bin = environment / "bin"
        self.folder = folder
        self.variables = {**variables, "PATH": f"{self.bin}:/usr/bin:/bin", "NO_COLOR": "1"}

    def karat(self, *words: str, folder: Path | None = None, code: int = 0) -> str:
        """Return what a command prints; an unexpected exit code is an error."""
        return self._said([str(self.bin / "karat"), *words], folder, code)

    def python(self, program: str, folder: Path | None = None) -> str:
        return self._said([str(self.bin / "python"), "-c", program], folder, 0)

    def _said(self, words: list[str], folder: Path | None, code: int) -> str:
        done = subprocess.run(  # noqa: S603  our own words
            words,
            cwd=folder or self.folder,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode != code:
            called = " ".join([Path(words[0]).name, *words[1:]])
            raise RuntimeError(
                f"{called} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done.stdout + done.stderr

    @contextmanager
    def served(self, *words: str) -> Iterator[str]:
        """Yield the link that karat serve prints, while it runs."""
        log = self.folder / "serve.txt"
        with log.open("w") as kept:
            process = subprocess.Popen(  # noqa: S603  our own words
                [str(self.bin / "karat"), "serve", "--port", "0", *words],
                cwd=self.folder,
                env=self.variables,
                stdin=subprocess.DEVNULL,
                stdout=kept,
                stderr=kept,
            )
        try:
            yield _address(process, log)
        finally:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + PATIENCE
    while (told := re.search(r"karat serves (http://\S+)", log.read_text())) is None:
        if time.monotonic() > until or process.poll() is not None:
            raise RuntimeError(f"karat serve did not start:\n{log.read_text()}")
        time.sleep(0.05)
    return told[1]


def take(steps: Steps) -> None:
    """What README.md begins with, with the core alone; raises where something is not as it says."""
    _expect("karat", steps.karat("--version"))
    _expect("first", steps.karat("init", "first"))
    first = steps.folder / "first"
    runs = ("bm25.trec", "dense.jsonl", "--gold", "qrels.txt", "-m", MEASURES)
    _expect("0.5277 [0.26, 0.78]", steps.karat("eval", *runs, "-o", "r.html", folder=first))
    _expect("<!doctype html>", (first / "r.html").read_text("utf-8").lower())
    _expect("0.5277", steps.python(EVALUATE, folder=first))
    steps.karat("demo")
    steps.python(LAY_DOWN)


def serve(steps: Steps) -> None:
    """An evaluation that is kept, in the browser; needs the extra web."""
    steps.karat("eval", "bm25.trec", "--gold", "qrels.txt", "--save", folder=steps.folder / "first")
    with steps.served("--store", "first/.karat/history.db") as link:
        # The first answer puts the link's token into a cookie.
        browser = build_opener(HTTPCookieProcessor())
        page = _read(browser, link)
        _expect("bm25", page)
        sheet = re.search(r'href="(/[^"]+\.css[^"]*)"', page)
        if sheet is None:
            raise RuntimeError("the workbench has no style sheet")
        _expect("{", _read(browser, urljoin(link, sheet[1])))


def _read(browser: OpenerDirector, url: str) -> str:
    with browser.open(url, timeout=PATIENCE) as reply:
        return str(reply.read().decode())


def _expect(text: str, said: str) -> None:
    if text not in said:
        raise RuntimeError(f"expected {text!r} in:\n{said}")
