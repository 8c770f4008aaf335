"""Connections that ask nothing, ask slowly, or ask for much at once: others are still answered."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing

import httpx
import pytest

from karat.web import server
from karat.web.server import create_app
from karat.web.settings import Settings

from .benches import Bench, bench_listening, lay
from .test_serve import awaited

HALF = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-More: "


@pytest.fixture
def listening(saved):
    with bench_listening(create_app(Settings(store=str(saved / "history.db")))) as bench:
        yield bench


def connected(bench: Bench, sent: bytes = b"") -> socket.socket:
    made = socket.create_connection((bench.client.base_url.host, bench.client.base_url.port))
    made.settimeout(10)
    made.sendall(sent)
    return made


def is_over(connection: socket.socket) -> bool:
    try:
        return connection.recv(1000) == b""
    except ConnectionError:
        return True


def test_those_who_are_silent_lock_nobody_out_and_are_let_go(listening, monkeypatch):
    monkeypatch.setattr(server, "HEADER_SECONDS", 1.5)
    with ExitStack() as stack:
        silent = [
            stack.enter_context(closing(connected(listening, sent)))
            for sent in [b""] * 250 + [HALF] * 100
        ]
        assert listening.get("/").status_code == 200
        assert all(map(is_over, silent))


def test_a_request_that_comes_a_byte_at_a_time_is_not_waited_for(listening, monkeypatch):
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.5)
    with closing(connected(listening, HALF)) as slow, pytest.raises(ConnectionError):
        trickle(slow, 5)


def test_later_requests_are_not_waited_for_either(listening, monkeypatch):
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.5)
    whole = b"GET /assets/api.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with closing(connected(listening, whole)) as kept:
        assert kept.recv(100_000).startswith(b"HTTP/1.1 200")
        with pytest.raises(ConnectionError):
            trickle(kept, 5)


def trickle(connection: socket.socket, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        connection.sendall(b"x")
        time.sleep(0.1)


def test_after_an_answer_the_next_request_has_its_own_time(saved, monkeypatch):
    monkeypatch.setattr(server, "HEADER_SECONDS", 3.0)
    whole = b"GET /assets/api.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    app = create_app(Settings(store=str(saved / "history.db")))
    with bench_listening(app) as listening, closing(connected(listening)) as kept:
        for _ in range(3):
            time.sleep(1.2)
            kept.sendall(whole)
            assert kept.recv(100_000).startswith(b"HTTP/1.1 200")
        time.sleep(0.1)
        kept.recv(100_000)
        assert is_over(kept)


def test_an_answer_may_take_longer_than_its_question(tmp_path, monkeypatch):
    config = lay(tmp_path / "set", 'slow: {retriever: python, call: "calls.py:slow"}')
    app = create_app(Settings(store=str(tmp_path / "h.db"), config=config))
    with bench_listening(app) as bench:
        monkeypatch.setattr(server, "HEADER_SECONDS", 0.2)
        assert bench.post("/api/search", {"system": "slow", "text": "x"}).status_code == 200


def test_too_many_requests_at_once_are_told_so(listening, monkeypatch):
    monkeypatch.setattr("karat.web.security._MOST_REQUESTS", 0)
    for path in ("/", "/api/names"):
        answer = listening.get(path)
        assert answer.status_code == 503
        assert "try again in a moment" in answer.text
        assert "content-security-policy" in answer.headers


def test_a_page_is_asked_for_by_head_as_by_get(listening):
    for path in ("/", "/evaluations/1", "/assets/api.js"):
        head, whole = listening.client.head(path), listening.get(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == whole.headers["content-length"]
    assert listening.client.head("/evaluations/99").status_code == 404


def test_many_costly_comparisons_stop_no_page(saved, monkeypatch):
    monkeypatch.setattr("karat.web.evaluations._COMPARISON_PATIENCE_SECONDS", 0.5)
    free, begun = threading.Event(), []

    def compare(*_, **__):
        begun.append(1)
        free.wait(20)
        raise RuntimeError("only the waiting matters")

    monkeypatch.setattr("karat.web.evaluations.compare_stored", compare)
    app = create_app(Settings(store=str(saved / "history.db")))
    with bench_listening(app) as bench:
        answers = []
        asking = [
            threading.Thread(
                target=lambda at=at: answers.append(
                    httpx.get(
                        f"{bench.client.base_url}/api/comparisons?ids=1,2&margin=0.{at}", timeout=30
                    )
                )
            )
            for at in range(100, 145)
        ]
        for one in asking:
            one.start()
        awaited(lambda: len(answers) >= 43)
        start = time.monotonic()
        assert bench.get("/api/evaluations").status_code == 200
        assert time.monotonic() - start < 3
        assert len(begun) == 2
        assert {one.status_code for one in answers} == {503}
        assert "other comparisons are being computed" in answers[0].json()["error"]
        free.set()
        for one in asking:
            one.join(30)


ENDING = """
import sys, time
from pathlib import Path
import karat.web.evaluations, karat.web.pages, karat.web.server as server
from karat.cli.main import main

def stuck(*_, **__):
    Path("stuck").touch()
    time.sleep(600)

server._LAST_SECONDS, server._GRACE_SECONDS = 3.0, 1
karat.web.evaluations.compare_stored = karat.web.pages._page = stuck
sys.exit(main(["serve", "--no-token", "--port", "0", "--store", sys.argv[1]]))
"""


@pytest.mark.parametrize("path", ["/compare?ids=1,2", "/"])
def test_the_end_waits_for_no_thread_longer_than_its_grace(saved, tmp_path, path):
    said = tmp_path / "said.txt"
    with said.open("w") as kept:
        words = [sys.executable, "-c", ENDING, str(saved / "history.db")]
        process = subprocess.Popen(words, cwd=tmp_path, stdout=kept, stderr=kept)
    try:
        awaited(lambda: "karat serves" in said.read_text(), within=60)
        url = said.read_text().split()[2]
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as asking:
            asking.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            awaited((tmp_path / "stuck").exists, within=20)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=10) == 0
    finally:
        process.kill()
        process.wait()
    assert said.read_text().count("\n") == 1
