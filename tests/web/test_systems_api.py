"""The configured systems asked live: the same answers as elsewhere, and nothing else let out."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from contextlib import ExitStack

import pytest

from karat.data.tables import Queries
from karat.formats.readers import read_queries
from karat.jobs.redaction import redactor
from karat.project.systems import read_systems
from karat.web.server import create_app
from karat.web.settings import Settings, secrets_of

from .benches import bench_in_process, bench_listening, bench_served, ended, lay
from .test_serve import awaited

BM25 = "bm25: {retriever: bm25}"
HYBRID = "hybrid: {retriever: fuse, of: [bm25, {retriever: bow}], k: 2}"


@pytest.fixture
def bench(tmp_path):
    config = lay(tmp_path / "set", BM25, HYBRID)
    with bench_in_process(config, tmp_path / "h.db") as made:
        yield made


def found(bench, system: str, text: str, k: int = 10) -> dict:
    answer = bench.post("/api/search", {"system": system, "text": text, "k": k})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("system", ["bm25", "hybrid"])
@pytest.mark.parametrize("text", ["pay an invoice", "parcel number", "bank"])
def test_an_answer_is_what_the_system_itself_finds(bench, tmp_path, system, text):
    queries = Queries.from_dict({"x": text})
    run = read_systems(tmp_path / "set" / "karat.yaml")[system].search(queries, k=10)
    final = run.at("final") if run.staged else run
    own = [(row["item_id"], row["score"]) for row in final.hits.iter_rows(named=True)]
    hits = found(bench, system, text)["hits"]
    assert [(hit["item_id"], hit["score"]) for hit in hits] == own
    assert [hit["rank"] for hit in hits] == list(range(1, len(own) + 1))


def test_k_cuts_the_list_and_a_system_that_sets_its_own_gives_no_more(bench):
    assert len(found(bench, "bm25", "invoice parcel bank", k=1)["hits"]) == 1
    assert len(found(bench, "hybrid", "invoice parcel bank", k=50)["hits"]) == 2
    assert len(found(bench, "hybrid", "invoice parcel bank", k=1)["hits"]) == 1


def test_gold_is_marked_for_a_question_of_the_eval_set_and_for_no_other(bench):
    known = found(bench, "bm25", " track my parcel ", k=5)
    assert known["query_id"] == "q2"
    assert {hit["item_id"]: hit["grade"] for hit in known["hits"]}["ship#2"] == 1.0
    assert all(hit["grade"] is None for hit in known["hits"] if hit["item_id"] != "ship#2")
    at = [hit["item_id"] for hit in known["hits"]].index("ship#2") + 1
    assert known["gold"] == [
        {"item_id": "ship#2", "grade": 1.0, "rank": at},
        {"item_id": "ship#9", "grade": 1.0, "rank": None},
    ]
    other = found(bench, "bm25", "track a parcel")
    assert other["query_id"] is None
    assert other["gold"] == []
    assert {hit["grade"] for hit in other["hits"]} == {None}


def test_where_documents_count_a_chunk_has_its_documents_grade(tmp_path):
    config = lay(tmp_path / "set", BM25, more="settings: {level: doc}")
    with bench_in_process(config, tmp_path / "h.db") as bench:
        hits = found(bench, "bm25", "pay an invoice")["hits"]
    grades = {hit["item_id"]: hit["grade"] for hit in hits}
    assert grades["pay#1"] == 1.0
    assert grades["ship#2"] is None


def test_a_question_of_the_eval_set_is_asked_with_all_that_it_says(tmp_path):
    config = lay(tmp_path / "set", "strict: {retriever: bm25, as_of: strict}")
    corpus = [
        {"id": "new#1", "text": "pay an invoice now", "version": "2026-05-01"},
        {"id": "old#1", "text": "pay an invoice then", "version": "2024-05-01"},
    ]
    asked = {"id": "q1", "query": "pay an invoice", "relevant_chunk_ids": ["old#1"]}
    asked["as_of"] = "2025-01-01"
    folder = config.parent
    (folder / "corpus.jsonl").write_text("".join(json.dumps(one) + "\n" for one in corpus))
    (folder / "eval.jsonl").write_text(json.dumps(asked) + "\n")
    run = read_systems(config)["strict"].search(read_queries(folder / "eval.jsonl"), k=5)
    assert run.at("final").hits["item_id"].to_list() == ["old#1"]
    with bench_in_process(config, tmp_path / "h.db") as bench:
        hits = found(bench, "strict", "pay an invoice")["hits"]
    assert [hit["item_id"] for hit in hits] == ["old#1"]


def test_texts_come_as_they_are_but_for_control_characters(bench):
    hits = found(bench, "bm25", "HYPERLINK alert")["hits"]
    expected = "<script>alert('parcel')</script> =HYPERLINK(parcel) \ufffd bell"
    assert hits[0]["text"] == expected
    raw = bench.post("/api/search", {"system": "bm25", "text": "HYPERLINK", "k": 5})
    assert b"<script" not in raw.content


def test_a_text_of_100_kb_is_cut_and_says_so(tmp_path):
    config = lay(tmp_path / "set", BM25)
    with (config.parent / "corpus.jsonl").open("a") as corpus:
        corpus.write(json.dumps({"id": "long#1", "text": "zebra " + "é" * 100_000}) + "\n")
    with bench_in_process(config, tmp_path / "h.db") as bench:
        [hit] = found(bench, "bm25", "zebra")["hits"]
    assert hit["cut"] is True
    assert hit["text"].startswith("zebra é")
    assert len(hit["text"]) < 5_000


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"system": "bm26", "text": "x"}, "unknown system 'bm26'; did you mean bm25?"),
        ({"system": "../../etc/passwd", "text": "x"}, "unknown system"),
        ({"system": "bm25", "text": "   "}, "the query is empty"),
        ({"system": "bm25", "text": "x" * 2_001}, "2000"),
        ({"system": "bm25", "text": "x", "k": 0}, "k:"),
        ({"system": "bm25", "text": "x", "k": 51}, "k:"),
        ({"system": "bm25", "text": "x", "k": "3"}, "k:"),
        ({"system": "bm25", "text": "x", "k": True}, "k:"),
        ({"system": "b" * 201, "text": "x"}, "200 characters"),
        ({"text": "x"}, "system:"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_sentence(bench, body, told):
    answer = bench.post("/api/search", body)
    assert answer.status_code == 400
    assert told in answer.json()["error"]


def test_a_system_that_fails_is_told_without_stack_or_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("DOOR_KEY", "swordfish-42")
    dead = 'dead: {retriever: http, url: "http://127.0.0.1:9/search", '
    dead += 'headers: {Authorization: "Bearer ${DOOR_KEY}"}, body: {q: "{query}"}}'
    config = lay(tmp_path / "set", dead, 'broken: {retriever: python, call: "calls.py:broken"}')
    with bench_in_process(config, tmp_path / "h.db") as bench:
        for system in ("dead", "broken"):
            answer = bench.post("/api/search", {"system": system, "text": "pay", "k": 3})
            assert answer.status_code == 502
            told = answer.json()
            assert told["hits"] == []
            assert told["error"]
            assert "Traceback" not in told["error"]
            assert "swordfish" not in answer.text
        listed = bench.get("/api/systems")
        assert [one["name"] for one in listed.json()["systems"]] == ["dead", "broken"]
        for text in (listed.text, bench.get("/explore").text, bench.get("/new").text):
            assert "swordfish" not in text
            assert "127.0.0.1:9/" not in text
            assert "Bearer" not in text


def test_a_secret_that_another_system_names_is_not_told_either(tmp_path, monkeypatch):
    monkeypatch.setenv("DOOR_KEY", "swordfish-42")
    dead = 'dead: {retriever: http, url: "http://127.0.0.1:9/${DOOR_KEY}", body: {q: "{query}"}}'
    config = lay(tmp_path / "set", dead, 'broken: {retriever: python, call: "calls.py:broken"}')
    with bench_in_process(config, tmp_path / "h.db") as bench:
        answer = bench.post("/api/search", {"system": "broken", "text": "pay"})
    assert "no entry with ${DOOR_KEY}" in answer.json()["error"]
    assert "swordfish" not in answer.text


def test_the_password_of_the_store_and_the_token_are_hidden():
    store = "postgresql://ann:s3cret%2Fword@127.0.0.1:9/karat?sslpassword=second-one"
    told = redactor(secrets_of(Settings(store=store, token="correct-horse")))
    assert told(f"no s3cret/word at {store} for correct-horse") == (
        "no ${KARAT_STORE:password} at postgresql://ann:${KARAT_STORE:password}@127.0.0.1:9/karat"
        "?sslpassword=${KARAT_STORE:password-1} for ${KARAT_TOKEN}"
    )


def test_a_system_that_does_not_answer_holds_up_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr("karat.web.live._MOST_AT_ONCE", 2)
    config = lay(tmp_path / "set", BM25, 'stuck: {retriever: python, call: "calls.py:stuck"}')
    app = create_app(Settings(store=str(tmp_path / "h.db"), config=config))
    places = app.state.live._places

    def searching() -> int:
        return 2 - places["stuck"]._value if "stuck" in places else 0

    with bench_listening(app) as bench, ExitStack() as clients:
        csrf = re.search(r'data-csrf="([^"]+)"', bench.get("/explore").text)[1]
        body = b'{"system": "stuck", "text": "x"}'
        cookie = "; ".join(f"{name}={value}" for name, value in bench.client.cookies.items())
        head = f"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n"
        head += f"X-Karat-CSRF: {csrf}\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        place = (bench.client.base_url.host, bench.client.base_url.port)
        leaving = []
        for at in (1, 2):
            leaving.append(clients.enter_context(socket.create_connection(place)))
            leaving[-1].sendall(head.encode() + body)
            awaited(lambda at=at: searching() == at)
        answer = bench.post("/api/search", {"system": "stuck", "text": "x"})
        assert answer.status_code == 503
        assert "stuck has 2 searches" in answer.json()["error"]
        assert found(bench, "bm25", "parcel")["hits"]
        # The second waits for the first; once its client has left, there is nothing to wait for.
        for one in leaving:
            one.close()
        awaited(lambda: searching() == 1)


def test_systems_are_built_at_the_first_question(bench):
    def built() -> dict[str, bool]:
        return {one["name"]: one["built"] for one in bench.get("/api/systems").json()["systems"]}

    assert built() == {"bm25": False, "hybrid": False}
    found(bench, "bm25", "pay")
    assert built() == {"bm25": True, "hybrid": False}


def test_many_questions_at_once_build_a_system_once(tmp_path, monkeypatch):
    config = lay(tmp_path / "set", BM25)
    from karat.project import systems

    built, real = [], systems.build_system

    def slowly(system_config, context):
        built.append(system_config.name)
        time.sleep(0.2)
        return real(system_config, context)

    monkeypatch.setattr(systems, "build_system", slowly)
    with bench_in_process(config, tmp_path / "h.db") as bench:
        lists = []
        # One session for all of them.
        bench.get("/explore")
        asking = [
            threading.Thread(target=lambda: lists.append(found(bench, "bm25", "parcel")["hits"]))
            for _ in range(6)
        ]
        for one in asking:
            one.start()
        for one in asking:
            one.join()
    assert built == ["bm25"]
    assert len(lists) == 6
    assert all(one == lists[0] for one in lists)


def test_a_karat_yaml_that_changed_is_read_again(bench, tmp_path):
    found(bench, "bm25", "pay")
    config = tmp_path / "set" / "karat.yaml"
    config.write_text(config.read_text().replace("hybrid:", "mixed:"))
    names = [one["name"] for one in bench.get("/api/systems").json()["systems"]]
    assert names == ["bm25", "mixed"]
    config.write_text("systems: [")
    answer = bench.get("/api/systems")
    assert answer.status_code == 400
    assert "karat.yaml" in answer.json()["error"]
    assert "cannot be used" in bench.get("/explore").text


def test_queries_are_offered_by_their_words(bench):
    answer = bench.get("/api/queries", params={"search": "MY parcel"}).json()
    assert answer == {"queries": [{"query_id": "q2", "text": "track my parcel"}], "total": 1}
    assert bench.get("/api/queries", params={"limit": 2}).json()["total"] == 3
    assert len(bench.get("/api/queries", params={"limit": 2}).json()["queries"]) == 2
    assert bench.get("/api/queries", params={"limit": 1000}).status_code == 400


def test_without_a_karat_yaml_the_pages_say_how_to_start_with_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with bench_in_process(None, tmp_path / "h.db") as bench:
        for page in ("/explore", "/new"):
            assert "karat serve karat.yaml" in bench.get(page).text
        answer = bench.get("/api/systems")
        assert answer.status_code == 400
        assert "start it with one" in answer.json()["error"]


def test_a_missing_corpus_is_told_and_the_rest_goes_on(tmp_path):
    config = lay(tmp_path / "set", BM25, 'slow: {retriever: python, call: "calls.py:slow"}')
    (config.parent / "corpus.jsonl").unlink()
    with bench_in_process(config, tmp_path / "h.db") as bench:
        answer = bench.post("/api/search", {"system": "bm25", "text": "pay"})
        assert answer.status_code == 502
        assert "corpus.jsonl" in answer.json()["error"]


def test_a_service_that_a_system_starts_ends_with_the_server(tmp_path):
    service = """
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

class Answers(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.dumps({"hits": [{"id": "pay#1"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

Path("pid").write_text(str(os.getpid()))
HTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
"""
    live = 'live: {retriever: http, start: ["{python}", service.py, "{port}"], '
    live += 'url: "http://127.0.0.1:{port}/", body: {q: "{query}"}, hits: "hits[]", item_id: id}'
    config = lay(tmp_path / "set", live)
    (config.parent / "service.py").write_text(service)
    with bench_served(config, tmp_path / "h.db", tmp_path) as bench:
        hits = found(bench, "live", "pay")["hits"]
        assert [(hit["item_id"], hit["score"]) for hit in hits] == [("pay#1", None)]
        assert hits[0]["text"].startswith("How to pay")
        pid = int((config.parent / "pid").read_text())
        assert ended(bench, within=20) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_server_ends_while_a_system_does_not_answer(tmp_path):
    config = lay(tmp_path / "set", 'stuck: {retriever: python, call: "calls.py:stuck"}')
    with bench_served(config, tmp_path / "h.db", tmp_path) as bench:
        answers = []
        asking = threading.Thread(
            target=lambda: answers.append(
                bench.post("/api/search", {"system": "stuck", "text": "x"})
            )
        )
        asking.start()
        until = time.monotonic() + 30
        while not (config.parent / "stuck").exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        begun = time.monotonic()
        assert ended(bench, within=20) == 0
        assert time.monotonic() - begun < 10
        asking.join(10)
        assert answers[0].status_code == 503
