"""The examples of docs/connect-a-store.md, run as they stand there against the real stores."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import servers
from store_servers import ChromaServer

from karat.formats.settings import parse_yaml
from karat.retrieve.system_config import KINDS, maker, parse_systems

PAGE = Path(__file__).parents[2] / "docs" / "connect-a-store.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(yaml|python)\n(.*?)```", TEXT, re.DOTALL)
YAMLS = [text for kind, text in BLOCKS if kind == "yaml"]
ITEMS = {
    "faq#1": ("How to pay an invoice", "en"),
    "faq#2": ("How to return a parcel", "en"),
    "faq#3": ("Comment payer une facture", "fr"),
}
QUERIES = {"q1": "pay an invoice", "q2": "return a parcel"}


def block(system: str) -> str:
    """The karat.yaml in which a system of this name stands."""
    return next(text for text in YAMLS if f"\n  {system}:" in text)


@pytest.fixture
def folder(tmp_path):
    """A folder with the page's Python files and some queries; later files replace earlier ones."""
    for kind, text in BLOCKS:
        name = re.match(r"# (\w+\.py)", text)
        if kind == "python" and not (tmp_path / name[1]).exists():
            (tmp_path / name[1]).write_text(text, encoding="utf-8")
    queries = [
        json.dumps({"query_id": name, "text": text, "language": "en"})
        for name, text in QUERIES.items()
    ]
    (tmp_path / "queries.jsonl").write_text("\n".join(queries) + "\n", encoding="utf-8")
    return tmp_path


def searched(folder: Path, yaml: str, system: str, **environment: str) -> list[list[str]]:
    """The ids that karat search logs for each query."""
    (folder / "karat.yaml").write_text(yaml, encoding="utf-8")
    done = servers.karat("search", "--system", system, folder=folder, **environment)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "failed" not in done.stdout
    log = servers.logged(folder / "runs" / f"{system}.jsonl")
    return [[hit["chunk_id"] for hit in call["topk"]] for call in log]


def vectors(folder: Path) -> dict[str, list[float]]:
    """The vectors of the items, made by the page's own file."""
    made: dict = {}
    exec((folder / "embed.py").read_text(encoding="utf-8"), made)
    return {item: made["embed"]([text])[0] for item, (text, _) in ITEMS.items()}


def test_a_function(folder):
    assert searched(folder, block("mine"), "mine") == [["faq#1", "faq#2"], ["faq#2", "faq#1"]]


def test_an_object_with_options(folder):
    second = [text for kind, text in BLOCKS if kind == "python" and "class Index" in text]
    (folder / "search.py").write_text(second[0], encoding="utf-8")
    assert searched(folder, block("small"), "small") == [["faq#1"]] * 2
    assert searched(folder, block("small"), "large") == [["faq#1", "faq#2"]] * 2
    log = servers.logged(folder / "runs" / "large.jsonl")
    assert log[0]["embedding_model"] == {"name": "toy-2"}


def test_langchain(folder):
    assert searched(folder, block("chain"), "chain") == [["faq#1", "faq#2"], ["faq#2", "faq#1"]]


def test_qdrant(folder):
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(folder / "qdrant_data"))
    size = models.VectorParams(size=64, distance=models.Distance.COSINE)
    client.create_collection("faq", vectors_config=size)
    points = [
        models.PointStruct(id=at, vector=vector, payload={"item_id": item, "language": lang})
        for at, (item, vector, lang) in enumerate(
            (item, vector, ITEMS[item][1]) for item, vector in vectors(folder).items()
        )
    ]
    client.upsert("faq", points)
    client.close()
    found = searched(folder, block("points"), "points")
    assert found == [["faq#1", "faq#2"], ["faq#2", "faq#1"]]


def test_pgvector(folder, pg):
    pg.execute("CREATE TABLE faq (chunk_id TEXT, body TEXT, language TEXT, vector vector(64))")
    for item, vector in vectors(folder).items():
        pg.execute("INSERT INTO faq VALUES (%s, %s, %s, %s)", (item, *ITEMS[item], str(vector)))
    found = searched(folder, block("table"), "table", DATABASE_URL=pg.dsn)
    assert found == [["faq#1", "faq#2"], ["faq#2", "faq#1"]]
    hybrid = searched(folder, block("hybrid"), "hybrid", DATABASE_URL=pg.dsn)
    assert [hits[0] for hits in hybrid] == ["faq#1", "faq#2"]
    assert [len(hits) for hits in hybrid] == [3, 3]


def test_chroma(folder, chroma_server):
    import chromadb
    from chromadb.config import Settings

    kept = chromadb.PersistentClient(
        str(folder / "chroma_data"), settings=Settings(anonymized_telemetry=False)
    )
    remote = chroma_server.client()
    for client in (kept, remote):
        made = client.create_collection("faq-items", embedding_function=None)
        made.add(
            ids=list(ITEMS),
            embeddings=list(vectors(folder).values()),
            documents=[text for text, _ in ITEMS.values()],
            metadatas=[{"language": lang} for _, lang in ITEMS.values()],
        )
    kept.close()
    ChromaServer.close(chroma_server, remote)
    yaml = block("server").replace("port: 8000", f"port: {chroma_server.port}")
    assert searched(folder, yaml, "server") == [["faq#1", "faq#2"], ["faq#2", "faq#1"]]
    assert [hits[0] for hits in searched(folder, yaml, "folder")] == ["faq#1", "faq#2"]


@pytest.mark.parametrize("text", YAMLS)
def test_every_example_is_a_system_that_karat_knows(text):
    file = parse_yaml(text, PAGE.name)
    assert parse_systems(file.data["systems"], file.place.at("systems"))


def test_every_key_of_these_retrievers_is_on_the_page():
    for kind in ("python", "langchain", "qdrant", "pgvector", "chroma"):
        assert f"`{kind}`" in TEXT
        assert KINDS[kind].live
        for name in maker(kind).Options.model_fields:
            assert re.search(rf"`{name}\b|\b{name}:", TEXT), f"{kind}: {name}"
