"""A case for every kind of retriever: the real thing over the small corpus, and how to break it.

Each is a context that gives what a karat.yaml would say. Live kinds also say how a broken
back end looks, and how one that returns an item twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import model_folders
import small_corpus
from small_corpus import TEXTS
from store_servers import fill_chroma, fill_qdrant, fill_table, free_port

SECRET = "s3cret-v4lue"
TWICE = "plain-4"


@dataclass(frozen=True)
class Case:
    """Specs of systems; ``broken`` fails every call, ``twice`` has one item two times.

    ``latin`` is for what reads words of ASCII letters only, as its definition has it. Without
    ``searches``, lists may begin with any item: it does not rank by how well a text matches.
    What ``embeds`` reads items as they are; others follow the system's rules for texts in them.
    """

    spec: str
    broken: str | None = None
    twice: str | None = None
    environment: dict[str, str] = field(default_factory=lambda: {"SECRET": SECRET})
    latin: bool = False
    searches: bool = True
    embeds: bool = False

    def reads(self, text: str) -> bool:
        return not self.latin or re.search("[a-z]", text) is not None


Fixture = Callable[[str], Any]
CASES: dict[str, Callable[[Path, Fixture], AbstractContextManager[Case]]] = {}

Making = Callable[[Path, Fixture], Iterator[Case]]


def case(kind: str) -> Callable[[Making], Making]:
    def register(make: Making) -> Making:
        CASES[kind] = contextmanager(make)
        return make

    return register


@case("bm25")
def bm25(folder: Path, fixture: Fixture) -> Iterator[Case]:
    yield Case("{retriever: bm25}")


@case("bow")
def bow(folder: Path, fixture: Fixture) -> Iterator[Case]:
    yield Case("{retriever: bow}", latin=True)


@case("vsa")
def vsa(folder: Path, fixture: Fixture) -> Iterator[Case]:
    yield Case("{retriever: vsa}", latin=True)


@case("dense")
def dense(folder: Path, fixture: Fixture) -> Iterator[Case]:
    yield Case('{retriever: dense, embed: "embed.py:embed"}', embeds=True)


@case("sparse")
def sparse(folder: Path, fixture: Fixture) -> Iterator[Case]:
    model = f'model: {model_folders.SPLADE}, path: "{fixture("splade")}"'
    yield Case(f"{{retriever: sparse, {model}}}", embeds=True)


@case("fuse")
def fuse(folder: Path, fixture: Fixture) -> Iterator[Case]:
    yield Case('{retriever: fuse, of: [bm25, {retriever: dense, embed: "embed.py:embed"}]}')


@case("route")
def route(folder: Path, fixture: Fixture) -> Iterator[Case]:
    yield Case(
        "{retriever: route, of: {words: bm25, counts: bow}, "
        "rules: [{match: pie, to: counts}], default: words}"
    )


@case("quality")
def quality(folder: Path, fixture: Fixture) -> Iterator[Case]:
    words_alone = "t2: {quality: {enabled: true, fusion: {alpha_semantic: 0}}}\n"
    (folder / "words.yaml").write_text(words_alone, encoding="utf-8")
    yield Case("{retriever: quality, config: words.yaml}", latin=True)


FIND = f"""\
TEXTS = {TEXTS!r}


def find(text, k):
    words = set(text.lower().split())
    shared = {{item: len(words & set(body.lower().split())) for item, body in TEXTS.items()}}
    found = sorted((item for item in shared if shared[item]), key=lambda item: -shared[item])
    return [(item, shared[item]) for item in found[:k]]


def broken(text, k, key):
    raise ConnectionError(f"no answer for\\n{{key}}")


def twice(text, k):
    return ["{TWICE}", "café#1", "{TWICE}"]
"""


@case("python")
def python(folder: Path, fixture: Fixture) -> Iterator[Case]:
    (folder / "find.py").write_text(FIND, encoding="utf-8")
    key = 'options: {key: "${SECRET}"}'
    yield Case(
        '{retriever: python, call: "find.py:find"}',
        broken=f'{{retriever: python, call: "find.py:broken", {key}}}',
        twice='{retriever: python, call: "find.py:twice"}',
    )


@case("http")
def http(folder: Path, fixture: Fixture) -> Iterator[Case]:
    import servers
    from fastapi import FastAPI
    from fastapi.responses import JSONResponse

    finding: dict[str, Any] = {}
    exec(FIND, finding)
    app = FastAPI()

    @app.post("/search")
    def search(body: dict[str, Any]) -> Any:
        found = finding["find"](body["query"], body["top_k"])
        return {"hits": [{"chunk_id": item, "score": score} for item, score in found]}

    @app.post("/twice")
    def twice(body: dict[str, Any]) -> Any:
        return {"hits": [{"chunk_id": item} for item in finding["twice"]("", 3)]}

    @app.post("/broken")
    def broken(body: dict[str, Any]) -> Any:
        return JSONResponse({"detail": f"no answer for {SECRET}"}, status_code=500)

    with servers.served(app) as url:
        rest = 'body: {query: "{query}", top_k: "{k}"}, headers: {Authorization: "${SECRET}"}'
        spec = f'{{retriever: http, url: "{url}/PLACE", {rest}, hits: "hits[]", item_id: chunk_id}}'
        places = [spec.replace("PLACE", one) for one in ("search", "broken", "twice")]
        yield Case(places[0], broken=places[1], twice=places[2])


STORE = f"""\
from embed import embed
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore

TEXTS = {TEXTS!r}


class Grams(Embeddings):
    def embed_documents(self, texts):
        return embed(texts)

    def embed_query(self, text):
        # A text without grams has no direction, and the library would divide by its length.
        return embed([text or " "])[0]


def make():
    store = InMemoryVectorStore(Grams())
    store.add_documents([Document(id=item, page_content=TEXTS[item]) for item in TEXTS])
    return store


class Twice(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(id="{TWICE}", page_content=str(at)) for at in range(2)]


class Broken(BaseRetriever):
    key: str

    def _get_relevant_documents(self, query, *, run_manager):
        raise ConnectionError(f"no answer for {{self.key}}")
"""


@case("langchain")
def langchain(folder: Path, fixture: Fixture) -> Iterator[Case]:
    (folder / "store.py").write_text(STORE, encoding="utf-8")
    yield Case(
        '{retriever: langchain, call: "store.py:make"}',
        broken='{retriever: langchain, call: "store.py:Broken", options: {key: "${SECRET}"}}',
        twice='{retriever: langchain, call: "store.py:Twice"}',
    )


@case("qdrant")
def qdrant(folder: Path, fixture: Fixture) -> Iterator[Case]:
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(folder / "kept"))
    fill_qdrant(client, "items")
    again = small_corpus.embed(TEXTS[TWICE]).tolist()
    fill_qdrant(client, "twice")
    client.upsert("twice", [models.PointStruct(id=99, vector=again, payload={"item_id": TWICE})])
    client.close()
    model = 'embed: "embed.py:embed"'
    url = f'url: "http://127.0.0.1:{free_port()}", api_key: "${{SECRET}}"'
    yield Case(
        f"{{retriever: qdrant, path: kept, collection: items, {model}}}",
        broken=f"{{retriever: qdrant, {url}, collection: items, {model}}}",
        twice=f"{{retriever: qdrant, path: kept, collection: twice, {model}}}",
    )


@case("pgvector")
def pgvector(folder: Path, fixture: Fixture) -> Iterator[Case]:
    import psycopg

    server = fixture("pg_server")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS conformance CASCADE; CREATE SCHEMA conformance")
        fill_table(connection, TEXTS, "conformance.items")
        fill_table(connection, TEXTS, "conformance.twice")
        fill = "INSERT INTO conformance.twice SELECT * FROM conformance.items WHERE item = %s"
        connection.execute(fill, (TWICE,))
    rest = 'id: item, embedding: place, embed: "embed.py:embed"'
    dsn = '{retriever: pgvector, dsn: "${DATABASE_URL}", table: conformance.'
    dead = f"postgresql://ann:${{SECRET}}@127.0.0.1:{free_port()}/db"
    yield Case(
        f"{dsn}items, {rest}}}",
        broken=f'{{retriever: pgvector, dsn: "{dead}", table: items, {rest}}}',
        twice=f"{dsn}twice, {rest}}}",
        environment={"SECRET": SECRET, "DATABASE_URL": server.get_uri()},
    )


@case("chroma")
def chroma(folder: Path, fixture: Fixture) -> Iterator[Case]:
    server = fixture("chroma_server")
    client = server.client()
    fill_chroma(client, "twice-cosine")
    again = client.get_collection("twice-cosine", embedding_function=None)
    again.add(
        ids=["another"],
        embeddings=[small_corpus.embed(TEXTS[TWICE]).tolist()],
        documents=[""],
        metadatas=[{"chunk": f"m {TWICE}"}],
    )
    server.close(client)
    model = 'token: "${SECRET}", embed: "embed.py:embed"'
    at = f"{{retriever: chroma, host: 127.0.0.1, port: {server.port}, {model}, collection: "
    dead = (
        f"{{retriever: chroma, host: 127.0.0.1, port: {free_port()}, {model}, collection: items}}"
    )
    yield Case(f"{at}items-cosine}}", broken=dead, twice=f"{at}twice-cosine, id: chunk}}")
