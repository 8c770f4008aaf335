"""Qdrant as a server: one that answers as its documentation says; the real one is no wheel."""

from __future__ import annotations

import json

import pytest
import small_corpus
from small_corpus import ask, embed, ids
from store_servers import free_port

from karat.errors import CallError


def spec(tmp_path, more: str, **shop):
    small_corpus.write_embed(tmp_path)
    shop = small_corpus.context(tmp_path, **shop)
    return small_corpus.system(shop, f'{{retriever: qdrant, {more}, embed: "embed.py:embed"}}')


COLLECTION = {
    "result": {
        "status": "green",
        "optimizer_status": "ok",
        "segments_count": 1,
        "config": {
            "params": {"vectors": {"size": small_corpus.SIZE, "distance": "Cosine"}},
            "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10000},
            "optimizer_config": {
                "deleted_threshold": 0.2,
                "vacuum_min_vector_number": 1000,
                "default_segment_number": 0,
                "flush_interval_sec": 5,
            },
        },
        "payload_schema": {},
    },
    "status": "ok",
    "time": 0.1,
}
POINTS = {
    "result": {
        "points": [
            {"id": 1, "version": 1, "score": 0.9, "payload": {"item_id": "b"}},
            {"id": 2, "version": 1, "score": 0.4, "payload": {"item_id": "a"}},
        ]
    },
    "status": "ok",
    "time": 0.1,
}
KEY = {"KEY": "s3cret-k3y"}
QUERY = "/collections/items/points/query"


@pytest.fixture
def remote(told, tmp_path):
    """A system on a server that answers as Qdrant's documentation says."""
    told.answers = {"/collections/items": COLLECTION, QUERY: POINTS}

    def make(**shop):
        more = f'url: "{told.url}", collection: items, api_key: "${{KEY}}"'
        return spec(tmp_path, more, environment=KEY, **shop)

    return make


def test_a_server_is_asked_with_the_key_and_the_vector(remote, told):
    hits = ask(remote(), "gravel roads", 2)
    assert [(hit.item_id, hit.score) for hit in hits] == [("b", 0.9), ("a", 0.4)]
    path, headers, body = told.asked[-1]
    assert path == QUERY
    assert {name.lower(): value for name, value in headers.items()}["api-key"] == KEY["KEY"]
    sent = json.loads(body)
    assert sent["limit"] == 2
    assert sent["query"]["nearest"] == pytest.approx(embed("gravel roads").tolist())


def test_what_the_log_says_holds_no_key(remote):
    assert KEY["KEY"] not in json.dumps(dict(remote().meta))
    assert remote().meta["collection"] == "items"


@pytest.mark.parametrize(
    ("status", "body", "headers", "message", "passes"),
    [
        (401, b"Must provide an API key", {}, "qdrant refused the key (401)", False),
        (403, {"status": {"error": "no"}}, {}, "qdrant refused the key (403)", False),
        (404, {"status": {"error": "Not found"}}, {}, "no collection 'items'", False),
        (400, {"status": {"error": "Wrong: s3cret-k3y"}}, {}, "Wrong: ${KEY}", False),
        (429, {"status": {"error": "slow down"}}, {"Retry-After": "7"}, "limits the rate", True),
        (429, b"", {}, "limits the rate", True),
        (500, {"status": {"error": "disk\nfull"}}, {}, "qdrant answered 500: ", True),
        (503, b"<html>busy</html>", {}, "answered 503: <html>busy</html>", True),
        (200, b"<html>a page</html>", {}, "qdrant cannot be searched", False),
    ],
)  # fmt: skip
def test_a_server_s_refusal_is_one_line(remote, told, status, body, headers, message, passes):
    told.status, told.body, told.headers, told.answers = status, body, headers, {}
    with pytest.raises(CallError) as caught:
        ask(remote(), "x")
    assert message in str(caught.value)
    assert caught.value.may_pass is passes
    assert caught.value.wait == (7 if headers else None)
    assert "\n" not in str(caught.value)
    assert KEY["KEY"] not in str(caught.value)


def test_a_server_that_is_down_may_be_up_later(tmp_path):
    found = spec(tmp_path, f'url: "http://127.0.0.1:{free_port()}", collection: items')
    with pytest.raises(CallError, match="qdrant cannot be searched: ConnectError") as caught:
        ask(found, "x")
    assert caught.value.may_pass


def test_a_server_that_comes_up_is_used(remote, told):
    found = remote()
    told.status = 503
    with pytest.raises(CallError):
        ask(found, "x")
    told.status = 200
    assert ids(ask(found, "x")) == ["b", "a"]


def test_a_slow_server_is_given_up(remote, told):
    told.wait = 3.0
    with pytest.raises(CallError, match=r"qdrant took longer than 0\.3 s") as caught:
        ask(remote(timeout=0.3), "x")
    assert caught.value.may_pass
