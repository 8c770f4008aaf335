"""``karat serve`` as a process: it starts, says where it is, refuses what cannot work, ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

READY_IN = 60.0


@contextmanager
def served(
    *words: str, cwd: Path, **environment: str
) -> Iterator[tuple[str, subprocess.Popen[str], Path]]:
    """A server on a free port: its address, its process, and what it says."""
    said = cwd / "said.txt"
    with said.open("w") as kept:
        process = subprocess.Popen(
            [sys.executable, "-m", "karat", "serve", "--port", "0", *words],
            cwd=cwd,
            env={**_environment(), **environment},
            stdin=subprocess.DEVNULL,
            stdout=kept,
            stderr=kept,
            text=True,
        )
    try:
        yield _ready(process, said), process, said
    finally:
        process.kill()
        process.wait()


def _ready(process: subprocess.Popen[str], said: Path) -> str:
    until = time.monotonic() + READY_IN
    while (told := re.search(r"karat serves (http://\S+)", said.read_text())) is None:
        if time.monotonic() > until or process.poll() is not None:
            pytest.fail(f"karat serve did not start:\n{said.read_text()}", pytrace=False)
        time.sleep(0.05)
    return told[1]


def awaited(condition: Callable[[], bool], within: float = READY_IN) -> None:
    until = time.monotonic() + within
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def _environment() -> dict[str, str]:
    return {key: one for key, one in os.environ.items() if not key.startswith("KARAT_")}


def refused(run, *words: str) -> str:
    result = run("serve", "--port", "0", *words)
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1
    return result.err


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_answers_and_ends_with_0(saved, tmp_path, how):
    store = str(saved / "history.db")
    with served("--no-token", "--store", store, cwd=tmp_path) as (url, process, said):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
        assert httpx.get(f"{url}/").status_code == 200
        # A browser keeps its connection open; that must not keep the server.
        with httpx.Client(base_url=url) as idle:
            assert idle.get("/api/evaluations").json()["total"] == 6
            process.send_signal(how)
            assert process.wait(timeout=20) == 0
        told = said.read_text()
        assert told == f"karat serves {url} (store {store}); Ctrl-C ends it\n"


def test_only_this_machine_reaches_it(saved, tmp_path):
    words = ["--no-token", "--store", str(saved / "history.db")]
    with served(*words, cwd=tmp_path) as (url, _, _):
        port = int(url.rpartition(":")[2])
        listening = [
            line.split()[1]
            for name in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
            if line.split()[3] == "0A" and int(line.split()[1].rpartition(":")[2], 16) == port
        ]
        assert listening == [f"0100007F:{port:04X}"]


def test_a_port_that_is_taken_is_told(run, saved):
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        result = run("serve", "--port", port, "--store", str(saved / "history.db"))
    assert result.code == 2
    assert f"port {port} of 127.0.0.1 is in use" in result.err
    assert "--port" in result.err


@pytest.mark.parametrize("words", [[], ["--no-token"]])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "workbench.example"])
def test_an_address_for_others_needs_a_token(run, monkeypatch, host, words):
    monkeypatch.delenv("KARAT_TOKEN", raising=False)
    told = refused(run, "--host", host, *words)
    assert "--token" in told
    assert "KARAT_TOKEN" in told


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--host", "no-such-host.invalid", "--token", "x" * 20], "cannot listen at no-such-host"),
        (["--host", "192.0.2.1", "--token", "x" * 20], "cannot listen at 192.0.2.1"),
        (["--token", "two words"], "the token may only have"),
        (["--token", ""], "the token may only have"),
        (["--token", "x" * 20, "--no-token"], "--no-token"),
        (["nowhere.yaml"], "nowhere.yaml"),
        (["--pool", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["--store", "postgres:/ann:secret@db"], "looks like a URL"),
        (["--store", "mongodb://ann:secret@db/karat"], "kind of store"),
    ],
)
def test_what_cannot_work_is_refused_before_it_starts(run, words, says):
    told = refused(run, *words)
    assert says in told
    assert "secret" not in told


@pytest.mark.parametrize("port", ["65536", "-1", "http", "80.5", "9" * 30])
def test_a_port_that_is_none_is_refused(run, port):
    result = run("serve", "--port", port)
    assert result.code == 2
    assert "--port" in result.err


def test_a_config_that_cannot_be_read_is_refused_with_its_line(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "karat.yaml").write_text("queries: q.jsonl\nmesures: [RR]\n")
    assert "karat.yaml:2" in refused(run)


def test_a_store_of_a_newer_karat_is_refused(run, saved, tmp_path):
    newer = tmp_path / "newer.db"
    with (
        closing(sqlite3.connect(saved / "history.db")) as old,
        closing(sqlite3.connect(newer)) as new,
    ):
        old.backup(new)
        new.execute("UPDATE karat_store SET version = 99")
        new.commit()
    assert "newer karat" in refused(run, "--store", str(newer))


def test_a_token_opens_it_and_is_never_written_down(saved, tmp_path):
    token = "a-token-that-nobody-writes-down"
    words = ["--store", str(saved / "history.db")]
    with served(*words, cwd=tmp_path, KARAT_TOKEN=token) as (url, process, said):
        assert httpx.get(f"{url}/").status_code == 401
        with httpx.Client(base_url=url, follow_redirects=True) as client:
            answer = client.get(f"/?token={token}")
            assert answer.status_code == 200
            assert token not in str(answer.url)
            assert token not in answer.text
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{url}/api/names", headers=headers).status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert token not in said.read_text()


def link_of(said: Path) -> tuple[str, str]:
    """The address and the token of the link that was printed."""
    told = re.search(r"karat serves (http://127\.0\.0\.1:\d+)/\?token=(\S+)", said.read_text())
    return told[1], told[2]


@pytest.mark.parametrize("words", [[], ["--quiet"]])
def test_only_who_knows_the_printed_link_reads_or_writes(saved, tmp_path, words):
    store = ["--store", str(saved / "history.db")]
    with served(*words, *store, cwd=tmp_path) as (link, process, said):
        address, token = link_of(said)
        assert len(token) >= 32
        for path in ("/", "/api/evaluations", "/api/openapi.json"):
            assert httpx.get(address + path).status_code == 401
        tags = {"tags": ["release"]}
        assert httpx.post(f"{address}/api/evaluations/1/tags", json=tags).status_code == 401
        with httpx.Client(base_url=address) as browser:
            answer = browser.get(link)
            assert (answer.status_code, answer.headers["location"]) == (303, "/")
            assert {"HttpOnly", "SameSite=Strict"} <= set(answer.headers["set-cookie"].split("; "))
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert token not in str(answer.headers)
            assert browser.get("/").status_code == 200
            assert token not in browser.get("/").text
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{address}/api/names", headers=headers).status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert said.read_text().count(token) == 1


def test_every_start_has_a_token_of_its_own(saved, tmp_path):
    tokens = set()
    for _ in range(2):
        with served("--store", str(saved / "history.db"), cwd=tmp_path) as (_, _, said):
            tokens.add(link_of(said)[1])
    assert len(tokens) == 2


def test_no_token_goes_before_the_environment(saved, tmp_path):
    words = ["--no-token", "--store", str(saved / "history.db")]
    with served(*words, cwd=tmp_path, KARAT_TOKEN="x" * 20) as (url, _, _):
        assert httpx.get(f"{url}/").status_code == 200


def test_the_browser_is_opened_with_the_token_in_no_command(saved, tmp_path):
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f'#!/bin/sh\necho "$@" > {seen}.part\nmv {seen}.part {seen}\n')
    browser.chmod(0o755)
    words = ["--open", "--store", str(saved / "history.db")]
    with served(*words, cwd=tmp_path, BROWSER=str(browser)) as (link, process, said):
        awaited(seen.exists)
        opened = Path(seen.read_text().strip().removeprefix("file://"))
        assert link_of(said)[1] not in seen.read_text()
        assert f"url={link}" in opened.read_text()
        assert opened.parent.stat().st_mode & 0o077 == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert not opened.exists()


def test_a_short_token_is_said_to_be_one(saved, tmp_path):
    words = ["--store", str(saved / "history.db"), "--token", "short"]
    with served(*words, cwd=tmp_path) as (_, _, said):
        assert "fewer than 16 characters" in said.read_text()


def test_headers_without_end_and_half_a_request_end_it_not(saved, tmp_path):
    words = ["--no-token", "--store", str(saved / "history.db")]
    with served(*words, cwd=tmp_path) as (url, process, _):
        place = ("127.0.0.1", int(url.rpartition(":")[2]))
        with closing(socket.create_connection(place)) as flood:
            flood.settimeout(10)
            flood.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            with suppress(ConnectionError):
                for at in range(2000):
                    flood.sendall(b"X-%d: %s\r\n" % (at, b"y" * 100))
            with suppress(ConnectionError):
                assert b" 200 " not in flood.recv(1000)[:20]
        with closing(socket.create_connection(place)) as half:
            half.sendall(b"POST /api/evaluations/1/tags HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            assert httpx.get(f"{url}/").status_code == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0


def test_what_runs_here_sees_neither_the_token_nor_the_store(saved, tmp_path):
    token, store = "a-token-that-nobody-writes-down", str(saved / "history.db")
    (tmp_path / "told.py").write_text(
        "import os\ndef search(text, k):\n"
        "    names = [one for one in os.environ if one.startswith('KARAT_')]\n"
        "    raise RuntimeError(f'sees {names} and knows a-token-that-nobody-writes-down')\n"
    )
    (tmp_path / "karat.yaml").write_text(
        'systems:\n  told: {retriever: python, call: "told.py:search"}\n'
    )
    with served(cwd=tmp_path, KARAT_TOKEN=token, KARAT_STORE=store) as (url, _, said):
        headers = {"Authorization": f"Bearer {token}"}
        assert f"(store {store})" in said.read_text()
        body = {"system": "told", "text": "x"}
        answer = httpx.post(f"{url}/api/search", json=body, headers=headers, timeout=30)
    assert answer.status_code == 502
    assert "sees [] and knows ${KARAT_TOKEN}" in answer.json()["error"]


def test_the_charts_script_is_made_before_anybody_asks(saved, tmp_path):
    pytest.importorskip("vl_convert")
    folder = tmp_path / "cache"
    words = ["--no-token", "--store", str(saved / "history.db")]
    with served(*words, cwd=tmp_path, XDG_CACHE_HOME=str(folder)) as (url, process, _):
        awaited(lambda: any(folder.glob("karat/vega-*.js")))
        assert httpx.get(f"{url}/", timeout=5).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
