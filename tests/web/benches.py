"""A workbench over a folder: in this process, or ``karat serve`` as a user has it."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from karat.web.server import create_app, options
from karat.web.settings import Settings

READY_IN = 60.0


@dataclass(frozen=True)
class Bench:
    """Asks a workbench as its own pages do."""

    client: httpx.Client
    process: subprocess.Popen[bytes] | None = None

    def get(self, path: str, **options) -> httpx.Response:
        return self.client.get(path, **options)

    def post(self, path: str, body: object = None) -> httpx.Response:
        csrf = re.search(r'data-csrf="([^"]+)"', self.client.get("/explore").text)[1]
        return self.client.post(path, json=body or {}, headers={"X-Karat-CSRF": csrf})


@contextmanager
def bench_in_process(config: Path | None, store: Path) -> Iterator[Bench]:
    app = create_app(Settings(store=str(store), config=config))
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        yield Bench(client)


@contextmanager
def bench_listening(app: FastAPI) -> Iterator[Bench]:
    """The application behind a real server of this process, so that both sides can be seen."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1_000)
    server = uvicorn.Server(options(app))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with httpx.Client(base_url=address, timeout=60) as client:
            yield Bench(client)
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()


@contextmanager
def bench_served(config: Path | None, store: Path, cwd: Path) -> Iterator[Bench]:
    """``karat serve`` on a free port; ended by the test, or killed after it."""
    words = [sys.executable, "-m", "karat", "serve", *([] if config is None else [str(config)])]
    said = cwd / "serve.err"
    with said.open("wb") as kept:
        process = subprocess.Popen(
            [*words, "--store", str(store), "--port", "0", "--no-token"],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=kept,
            stderr=kept,
        )
    try:
        until = time.monotonic() + READY_IN
        while (told := re.search(r"karat serves (http://\S+)", said.read_text())) is None:
            if time.monotonic() > until or process.poll() is not None:
                pytest.fail(f"karat serve did not start:\n{said.read_text()}", pytrace=False)
            time.sleep(0.05)
        with httpx.Client(base_url=told[1].rstrip("/"), timeout=60) as client:
            yield Bench(client, process)
    finally:
        process.kill()
        process.wait()


def ended(bench: Bench, *, within: float) -> int:
    """Ctrl-C, and the exit code."""
    bench.process.send_signal(signal.SIGINT)
    return bench.process.wait(timeout=within)


def lay(folder: Path, *systems: str, more: str = "") -> Path:
    """A folder with a corpus, an eval set and a karat.yaml with these systems."""
    folder.mkdir(parents=True, exist_ok=True)
    corpus = {
        "pay#1": "How to pay an invoice by card or by bank transfer",
        "pay#2": "A refund takes five days to reach your bank",
        "ship#1": "Parcels are shipped every weekday from the warehouse",
        "ship#2": "Track a parcel with the number on the invoice",
        "bad#1": "<script>alert('parcel')</script> =HYPERLINK(parcel) \x07 bell",
    }
    queries = [
        {"id": "q1", "query": "pay an invoice", "relevant_chunk_ids": ["pay#1"], "kind": "pay"},
        {"id": "q2", "query": "track my parcel", "relevant_chunk_ids": ["ship#2", "ship#9"]},
        {"id": "q3", "query": "when is my refund", "relevant_chunk_ids": ["pay#2"]},
    ]
    lines = [json.dumps({"id": key, "text": text}) for key, text in corpus.items()]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "eval.jsonl").write_text("".join(json.dumps(one) + "\n" for one in queries))
    (folder / "calls.py").write_text(CALLS)
    (folder / "deaf.py").write_text(DEAF)
    keys = ["queries: eval.jsonl", "corpus: corpus.jsonl", "measures: [R@1, RR]"]
    text = "\n".join([*keys, *([more] if more else []), "systems:", *(f"  {s}" for s in systems)])
    (folder / "karat.yaml").write_text(text + "\n")
    return folder / "karat.yaml"


CALLS = """\
import os, time
from pathlib import Path


def slow(text, k):
    Path(__file__).with_name("slow").touch()
    time.sleep(0.4)
    return ["pay#1", "ship#1"][:k]


def stuck(text, k):
    Path(__file__).with_name("stuck").touch()
    time.sleep(600)


def broken(text, k):
    raise RuntimeError(f"no entry with {os.environ.get('DOOR_KEY', '')} at {__file__}")
"""

DEAF = """\
import ctypes, signal, time
from pathlib import Path


def search(text, k):
    # As a library in the middle of something may; Python lets no thread but the main one.
    ctypes.CDLL(None).signal(int(signal.SIGINT), ctypes.c_void_p(1))
    Path(__file__).with_name("deaf").touch()
    time.sleep(600)
"""
