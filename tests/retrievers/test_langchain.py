from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import small_corpus
from small_corpus import BEST, TEXTS, ask, by_cosine, ids

from karat.errors import CallError, KaratError

STORE = (
    small_corpus.EMBED
    + f"""
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

TEXTS = {TEXTS!r}


class Grams(Embeddings):
    def embed_documents(self, texts):
        return embed(texts)

    def embed_query(self, text):
        return embed([text])[0]


def documents(**more):
    return [
        Document(id=item, page_content=text, metadata={{"chunk_id": f"m {{item}}", **more}})
        for item, text in TEXTS.items()
    ]


def make(**more):
    store = InMemoryVectorStore(Grams())
    store.add_documents(documents(**more))
    return store


def anonymous():
    store = InMemoryVectorStore(Grams())
    store.add_documents([Document(page_content=text) for text in TEXTS.values()])
    return store


class Distances(InMemoryVectorStore):
    def similarity_search_with_score(self, query, k=4, **more):
        found = super().similarity_search_with_score(query, k, **more)
        return [(document, 1 - score) for document, score in found]


def distances():
    store = Distances(Grams())
    store.add_documents(documents())
    return store


class Unscored(VectorStore):
    def similarity_search(self, query, k=4, **more):
        return make().similarity_search(query, k)

    @classmethod
    def from_texts(cls, texts, embedding, metadatas=None, **more):
        raise NotImplementedError


class Fixed(BaseRetriever):
    key: str = "chunk_id"

    def _get_relevant_documents(self, query, *, run_manager):
        if query == "fail":
            raise RuntimeError("the index is gone")
        return [Document(page_content=text, metadata={{self.key: item, "version": 3,
                "doc_id": "d"}}) for item, text in TEXTS.items()]


class Bare(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(page_content="x", metadata={{"page": 3, "title": "t"}})]


fixed = Fixed()
as_retriever = make().as_retriever()
with_own_k = make().as_retriever(search_kwargs={{"k": 2}})
chain = make().as_retriever() | (lambda documents: documents[::-1])
words = make().as_retriever() | (lambda documents: "some words")
"""
)


@pytest.fixture
def made(tmp_path):
    (tmp_path / "store.py").write_text(STORE, encoding="utf-8")

    def make(call: str, more: str = "", **shop):
        spec = f'{{retriever: langchain, call: "store.py:{call}"{more}}}'
        return small_corpus.system(small_corpus.context(tmp_path, **shop), spec)

    return make


@pytest.mark.parametrize("text", BEST)
def test_a_vector_store_ranks_as_exact_cosine_does(made, text):
    found = made("make")
    hits = ask(found, text)
    assert ids(hits) == by_cosine(text)
    expected = small_corpus.cosine(small_corpus.embed(text), small_corpus.embed(TEXTS[BEST[text]]))
    assert hits[0].score == pytest.approx(expected)
    assert hits[0].text == TEXTS[BEST[text]]


def test_a_retriever_gives_documents_without_scores(made):
    hits = ask(made("Fixed"), "x", 3)
    assert ids(hits) == list(TEXTS)[:3]
    assert {(hit.score, hit.version, hit.doc_id) for hit in hits} == {(None, "3", "d")}


@pytest.mark.parametrize("call", ["Fixed", "fixed"])
def test_a_class_or_an_object_can_be_named(made, call):
    found = made(call)
    assert len(ask(found, "x")) == len(TEXTS)
    assert found.meta == {"call": f"store.py:{call}", "class": "Fixed", "retriever": "langchain"}


def test_a_retriever_of_a_store_is_asked_for_k(made):
    assert len(ask(made("as_retriever"), "gravel roads", 6)) == 6
    assert len(ask(made("as_retriever"), "gravel roads", 1)) == 1


def test_a_k_of_the_retriever_s_own_is_kept(made):
    assert len(ask(made("with_own_k"), "gravel roads", 6)) == 2


def test_a_chain_that_ends_in_documents_works(made):
    assert ids(ask(made("chain"), "gravel roads", 6))[3] == "plain-4"


def test_the_id_comes_from_the_document_unless_a_key_is_set(made):
    assert ids(ask(made("make"), "gravel roads", 1)) == ["plain-4"]
    assert ids(ask(made("make", ", id: chunk_id"), "gravel roads", 1)) == ["m plain-4"]


def test_arguments_go_to_what_makes_it(made):
    hits = ask(made("make", ", options: {version: 2024-05-01}"), "gravel roads", 1)
    assert hits[0].version == "2024-05-01"
    key = made("Fixed", ", options: {key: mine}, id: mine")
    assert ids(ask(key, "x", 1)) == ["café#1"]


def test_the_source_stands_in_where_there_is_no_other_id(made):
    assert ids(ask(made("Fixed", ", options: {key: source}"), "x", 1)) == ["d"]  # doc_id is one
    assert ids(ask(made("Fixed", ", options: {key: source}, id: source"), "x", 1)) == ["café#1"]


@pytest.mark.parametrize(
    ("call", "more", "told"),
    [
        ("Bare", "", "a document without 'id'; its metadata holds page, title: set id to the key"),
        ("Fixed", ", id: uid", "a document without 'uid'; its metadata holds"),
        ("words", "", "returned 'some words'; a list of documents is expected"),
        ("distances", "", "scores that are best for the last hit; set scores: distance"),
        ("make", ", scores: distance", "best for the last hit; set scores: similarity"),
    ],
)
def test_what_is_no_hit_is_a_failed_call_that_says_what_to_set(made, call, more, told):
    found = made(call, more)
    with pytest.raises(CallError) as caught:
        ask(found, "gravel roads")
    assert told in str(caught.value)
    assert str(caught.value).startswith(f"store.py:{call} ")
    assert "\n" not in str(caught.value)


def test_distances_become_scores_that_are_high_for_what_is_near(made):
    found = made("distances", ", scores: distance")
    hits = ask(found, "gravel roads")
    assert ids(hits) == by_cosine("gravel roads")
    near = small_corpus.cosine(
        small_corpus.embed("gravel roads"), small_corpus.embed(TEXTS["plain-4"])
    )
    assert hits[0].score == pytest.approx(near - 1)


def test_a_store_without_scores_is_searched_without_them(made):
    hits = ask(made("Unscored"), "gravel roads", 2)
    assert ids(hits) == by_cosine("gravel roads")[:2]
    assert hits[0].score is None


def test_an_exception_inside_is_a_failed_call(made):
    with pytest.raises(CallError, match=r"store\.py:fixed raised RuntimeError: the index is gone"):
        ask(made("fixed"), "fail")


@pytest.mark.parametrize(
    ("call", "more", "told"),
    [
        ("TEXTS", "", "is dict; a LangChain retriever or vector store is expected"),
        ("embed", "", "takes (texts); it must need no arguments"),
        ("fixed", ", options: {a: 1}", "takes no options; leave them out"),
        ("fixed", ", scores: distance", "is a retriever, which gives no scores"),
        ("Grams", "", "is Grams; a LangChain retriever"),
    ],
)
def test_what_is_no_retriever_is_refused_before_any_call(made, call, more, told):
    with pytest.raises(KaratError) as caught:
        made(call, more)
    assert told in str(caught.value)


class _Listener(BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.heard.append(self.path)
        self.send_response(200)
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *told):
        pass


@pytest.fixture
def listener():
    server = HTTPServer(("127.0.0.1", 0), _Listener)
    server.heard = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def test_nothing_is_traced_whatever_the_environment_says(made, listener, monkeypatch):
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    monkeypatch.setenv("LANGSMITH_API_KEY", "key")
    monkeypatch.setenv("LANGSMITH_ENDPOINT", f"http://127.0.0.1:{listener.server_port}")
    from langsmith import utils

    utils.get_env_var.cache_clear()
    traced = []
    from langchain_core.tracers import langchain as tracers

    monkeypatch.setattr(tracers, "get_client", lambda: traced.append("asked for a client"))
    try:
        found = made("Fixed")
        assert len(ask(found, "x")) == len(TEXTS)
    finally:
        utils.get_env_var.cache_clear()
    assert traced == []
    assert listener.heard == []


def test_meta_can_be_written_down(made):
    assert json.loads(json.dumps(dict(made("make").meta)))["class"] == "InMemoryVectorStore"


def test_no_call_leaves_the_machine(made, monkeypatch):
    def refuse(*told, **more):
        raise AssertionError("a socket was opened")

    found = made("make")
    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert ids(ask(found, "gravel roads", 1)) == ["plain-4"]
