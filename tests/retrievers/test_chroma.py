from __future__ import annotations

import gc
import json
import socket

import numpy as np
import pytest
import small_corpus
from small_corpus import BEST, TEXTS, ask, by_cosine, cosine, embed, ids
from store_servers import ChromaServer, fill_chroma, free_port

from karat.errors import CallError, InputError, KaratError
from karat.retrieve.protocol import Query
from karat.retrieve.search import CallRunner, FailedCall
from karat.retrieve.system import build_system
from karat.retrieve.system_config import run_digest

# A client that could not be made leaves its connection to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(autouse=True)
def _nothing_left():
    yield
    gc.collect()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Collections that a persistent client keeps on disk."""
    import chromadb
    from chromadb.config import Settings

    place = tmp_path_factory.mktemp("chroma-kept")
    client = chromadb.PersistentClient(
        str(place / "kept"), settings=Settings(anonymized_telemetry=False)
    )
    fill_chroma(client, "items-cosine")
    client.create_collection("with-a-model")  # Chroma's own, which it would have to fetch
    client.close()
    (place / "three.py").write_text("def embed(texts):\n    return [[1, 0.5, 0]]\n")
    small_corpus.write_embed(place)
    return place


def spec(place, where: str, more: str = "collection: items-cosine", **shop):
    embedded = "" if "embed:" in more else ', embed: "embed.py:embed"'
    return small_corpus.system(
        small_corpus.context(place, **shop), f"{{retriever: chroma, {where}, {more}{embedded}}}"
    )


@pytest.fixture(params=["server", "folder"])
def made(request, folder):
    """A system on a collection, in both ways of reaching one."""
    if request.param == "server":
        server = request.getfixturevalue("chroma_server")
        where = f"host: 127.0.0.1, port: {server.port}"
    else:
        where = "path: kept"
    return lambda *more, **shop: spec(folder, where, *more, **shop)


@pytest.mark.parametrize("text", BEST)
def test_cosine_ranks_and_scores_as_numpy_does(made, text):
    hits = ask(made(), text)
    assert ids(hits) == by_cosine(text)
    expected = [cosine(embed(text), embed(TEXTS[item])) for item in ids(hits)]
    assert [hit.similarity for hit in hits] == pytest.approx(expected, abs=1e-6)
    assert [hit.score for hit in hits] == pytest.approx([near - 1 for near in expected], abs=1e-6)
    assert hits[0].text == TEXTS[BEST[text]]


def test_a_distance_just_below_zero_is_kept(made):
    hits = ask(made(), TEXTS["plain-4"], 1)
    assert hits[0].item_id == "plain-4"
    assert hits[0].score == pytest.approx(0, abs=1e-5)
    assert hits[0].similarity == pytest.approx(1, abs=1e-5)


def test_l2_and_ip_are_told_by_distance(chroma_server, folder):
    where = f"host: 127.0.0.1, port: {chroma_server.port}"
    text = "gravel roads"
    far = ask(spec(folder, where, "collection: items-l2"), text)
    squares = {
        item: float(np.sum((embed(text) - embed(body)) ** 2)) for item, body in TEXTS.items()
    }
    assert {hit.item_id: -hit.score for hit in far} == pytest.approx(squares)
    assert far[0].similarity is None
    product = ask(spec(folder, where, "collection: items-ip"), text)
    products = {item: float(embed(text) @ embed(body)) for item, body in TEXTS.items()}
    assert {hit.item_id: 1 + hit.score for hit in product} == pytest.approx(products)
    assert product[0].item_id == max(products, key=lambda item: products[item])


def test_metadata_brings_id_and_version(made):
    hit = ask(made("collection: items-cosine, id: chunk, version: version, source: lang"),
              "gravel roads", 1)[0]  # fmt: skip
    assert (hit.item_id, hit.version, hit.source) == ("m plain-4", "3", "en")


def test_a_filter_of_chroma_s_own_takes_the_query_s_attributes(made):
    found = made('collection: items-cosine, where: {lang: "{language}"}')
    assert ids(ask(found, "gravel roads", language="en")) == ["plain-4"]
    assert len(ask(found, "gravel roads", language="other")) == 5
    with pytest.raises(CallError, match=r"\{language\} is neither"):
        ask(found, "gravel roads")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("collection: gone-away", "no collection 'gone-away'; check collection, tenant"),
        ("collection: items-cosine, embed: three.py:embed", "dimension of 64, got 3"),
        ("collection: items-cosine, id: uid", "has a record without 'uid'; it has"),
        ('collection: items-cosine, where: {lang: {$nope: "{query}"}}', "got $nope"),
    ],
)
def test_what_does_not_fit_is_a_failed_call_that_says_what_to_do(made, more, told):
    found = made(more)
    with pytest.raises(CallError) as caught:
        ask(found, "x")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not caught.value.may_pass


def test_a_database_that_is_not_there_is_told(folder, chroma_server):
    more = "collection: items-cosine, database: nope"
    with pytest.raises(CallError, match=r"Database .*; check collection, tenant and database"):
        ask(spec(folder, f"host: 127.0.0.1, port: {chroma_server.port}", more), "x")
    with pytest.raises(KaratError, match="chroma failed while it was opened"):
        spec(folder, "path: kept", more)


def test_many_calls_at_once_give_what_one_gives(made):
    found = made()
    queries = [Query(f"q{at}", text) for at, text in enumerate([*BEST] * 5)]
    runner = CallRunner(found.find, 3, concurrency=4, retries=0)
    for query, outcome in runner.outcomes(queries):
        assert not isinstance(outcome, FailedCall)
        assert ids(outcome.hits) == by_cosine(query.text)[:3]


def test_a_collection_with_a_model_of_its_own_is_not_asked_to_embed(folder, monkeypatch):
    def refuse(*told, **more):
        raise AssertionError("a socket was opened")

    found = spec(folder, "path: kept", "collection: with-a-model")
    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert ask(found, "gravel roads") == []


def test_no_env_file_of_the_folder_changes_anything(folder, chroma_server, tmp_path, monkeypatch):
    (tmp_path / ".env").write_text("chroma_server_host=elsewhere.invalid\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHROMA_SERVER_HOST", "elsewhere.invalid")
    where = f"host: 127.0.0.1, port: {chroma_server.port}"
    assert len(ask(spec(folder, where), "x")) == len(TEXTS)


def test_a_server_that_goes_away_may_come_back(folder, tmp_path):
    server = ChromaServer(tmp_path)
    try:
        client = server.client()
        fill_chroma(client, "items-cosine")
        server.close(client)
        found = spec(folder, f"host: 127.0.0.1, port: {server.port}")
        assert len(ask(found, "x")) == len(TEXTS)
    finally:
        server.stop()
    with pytest.raises(CallError, match="chroma cannot be reached") as caught:
        ask(found, "x")
    assert caught.value.may_pass


def test_a_server_that_is_down_may_be_up_later(folder):
    found = spec(folder, f"host: 127.0.0.1, port: {free_port()}")
    with pytest.raises(CallError, match="chroma cannot be reached") as caught:
        ask(found, "x")
    assert caught.value.may_pass


TOKEN = {"TOKEN": "s3cret-t0ken"}


@pytest.mark.parametrize(
    "how", ['token: "${TOKEN}"', 'headers: {Authorization: "Bearer ${TOKEN}", X-Team: search}']
)
def test_secrets_go_to_the_server_and_nowhere_else(folder, told, how):
    told.status, told.body = 403, {"error": "AuthError", "message": "no s3cret-t0ken"}
    found = spec(folder, f"host: 127.0.0.1, port: {told.server_port}, {how}", environment=TOKEN)
    with pytest.raises(CallError) as caught:
        ask(found, "x")
    assert "refused the call" in str(caught.value)
    assert not caught.value.may_pass
    assert TOKEN["TOKEN"] in json.dumps(told.asked[0][1])
    assert TOKEN["TOKEN"] not in str(caught.value)
    assert TOKEN["TOKEN"] not in json.dumps(dict(found.meta))


@pytest.mark.parametrize(
    ("status", "body", "message", "passes"),
    [
        (401, {"error": "AuthorizationError", "message": "no"}, "refused the call", False),
        (403, b"no", "refused the call", False),
        (429, {"error": "RateLimitError", "message": "slow"}, "429: RateLimitError: slow", True),
        (500, {"error": "InternalError", "message": "a\nb"}, "500: InternalError: a b", True),
        (502, b"<html>bad\ngateway</html>", "<html>bad gateway</html>", True),
        (400, {"error": "InvalidArgumentError", "message": "odd"}, "answered 400: ", False),
        (200, b"<html>a page</html>", "chroma: ", False),
    ],
)
def test_a_server_s_refusal_is_one_line(folder, told, status, body, message, passes):
    told.status, told.body = status, body
    with pytest.raises(CallError) as caught:
        ask(spec(folder, f"host: 127.0.0.1, port: {told.server_port}"), "x")
    assert message in str(caught.value)
    assert caught.value.may_pass is passes
    assert "\n" not in str(caught.value)


def test_a_slow_server_is_given_up(folder, told):
    told.wait = 3.0
    with pytest.raises(CallError, match=r"chroma took longer than 0\.3 s") as caught:
        ask(spec(folder, f"host: 127.0.0.1, port: {told.server_port}", timeout=0.3), "x")
    assert caught.value.may_pass


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("ssl: true", "give host, of a server, or path"),
        ("host: h, path: p", "give host, of a server, or path"),
        ("path: kept, port: 8000", "port is for a server; with path leave it out"),
        ("path: kept, token: x", "token is for a server"),
        ("host: h, token: s3cret", "header token holds a credential"),
        ("host: h, headers: {Authorization: s3cret}", "header Authorization holds a credential"),
        ("host: 'http://h:8000'", "host must be a name alone; set port and ssl"),
        ("host: 'u:s3cret@h'", "host must be a name alone"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_any_call(folder, where, told):
    with pytest.raises(KaratError) as caught:
        spec(folder, where)
    assert told in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_folder_that_is_not_there_is_refused_and_not_made(folder, tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        spec(tmp_path, "path: gone", "collection: a")
    assert not (tmp_path / "gone").exists()


def test_asking_a_folder_changes_no_digest(folder):
    yaml = "{retriever: chroma, path: kept, collection: items-cosine, embed: 'embed.py:embed'}"
    asked_for = small_corpus.system_config(
        f"systems:\n  one: {{retriever: fuse, of: [two]}}\n  two: {yaml}\n"
    )
    shop = small_corpus.context(folder)
    before = run_digest(asked_for, shop, [], k=5)
    assert ask(build_system(asked_for, shop), "plain gravel roads")
    assert run_digest(asked_for, shop, [], k=5) == before
    (folder / "embed.py").write_text(small_corpus.EMBED + "\n")
    assert run_digest(asked_for, shop, [], k=5) != before


def test_clients_are_closed_with_the_system(folder):
    from chromadb.api.shared_system_client import SharedSystemClient

    gc.collect()
    before = set(SharedSystemClient._identifier_to_system)
    found = spec(folder, "path: kept")
    ask(found, "x")
    del found
    gc.collect()
    assert set(SharedSystemClient._identifier_to_system) <= before
