"""chroma: a Chroma collection on a server, or in a folder (a persistent client).

Queries are embedded here, never by Chroma, and its telemetry is off.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, model_validator

from karat.errors import CallError
from karat.jobs.redaction import Redact
from karat.retrieve.build_context import BuildContext
from karat.retrieve.models import model_problem
from karat.retrieve.placeholders import fill_placeholders, literal_in_headers
from karat.retrieve.protocol import Finder, Hits, Query
from karat.retrieve.system_config import Text, refuse
from karat.retrieve.user_code import error_line, import_library, may_pass
from karat.retrieve.vector_stores import (
    CollectionOptions,
    StoreFinder,
    collection_finder,
    hit_of,
    store_folder,
)
from karat.retrieve.vectors import Floats

# Opening the folder changes its files, so that no digest can be taken of it.
STORES = ("path",)
_TOKEN = "x-chroma-token"  # noqa: S105 - the name of a header
_OF_A_SERVER = ("host", "port", "ssl", "token", "headers")
# The library's ValueError when nothing listens.
_NO_LISTENER = "Could not connect"


class ChromaOptions(CollectionOptions):
    """Where the collection is, and what its records hold."""

    host: Text | None = Field(None, description="the server's name, such as 127.0.0.1")
    port: Annotated[int, Field(ge=1, le=65_535)] = Field(
        8000, description="the server's port, from 1 to 65535"
    )
    ssl: bool = Field(False, description="true to use HTTPS, or false")
    token: Text | None = Field(None, description="${NAME} of the variable that holds the token")
    headers: dict[str, str] = Field(
        default_factory=dict, description="a mapping of HTTP headers, secrets in it as ${NAME}"
    )
    tenant: Text = Field("default_tenant", description="the tenant's name")
    database: Text = Field("default_database", description="the database's name")

    @model_validator(mode="after")
    def _agree(self) -> ChromaOptions:
        one_place = (self.host is None) != (self.path is None)
        bare_host = not set("/@") & set(self.host or "")
        idle = sorted(set(_OF_A_SERVER) & self.model_fields_set) if self.path else []
        refuse(
            None if one_place else "give host, of a server, or path, of a folder",
            f"{idle[0]} is for a server; with path leave it out" if idle else None,
            None if bare_host else "host must be a name alone; set port and ssl separately",
            literal_in_headers({"token": self.token, **self.headers}),
            model_problem(self),
        )
        return self


Options = ChromaOptions


def make(options: ChromaOptions, context: BuildContext, parts: Mapping[str, Finder]) -> StoreFinder:
    """Prepare the collection; nothing is asked yet."""
    import_library("chromadb", "retriever chroma", "chromadb", "chroma")
    store = ChromaStore(options, _client_maker(options, context), context.redact)
    return collection_finder("chroma", store, options, context)


def _client_maker(options: ChromaOptions, context: BuildContext) -> Callable[[], Any]:
    """Return how to open a folder or reach a server; no .env file here changes its settings."""
    settings: dict[str, Any] = {
        "_env_file": None,
        "anonymized_telemetry": False,
        "chroma_otel_collection_endpoint": "",
    }
    where: dict[str, Any] = {"tenant": options.tenant, "database": options.database}
    if options.path is not None:
        where["path"] = store_folder(context.path(options.path), "chroma.sqlite3", "Chroma")
    else:
        host = context.expand(options.host or "")
        headers = {name: context.expand(value) for name, value in options.headers.items()}
        if options.token is not None:
            headers[_TOKEN] = context.expand(options.token)
        settings |= {"chroma_server_host": host, "chroma_server_http_port": options.port}
        where |= {"host": host, "port": options.port, "ssl": options.ssl, "headers": headers}

    def connect() -> Any:
        import chromadb

        kind = chromadb.HttpClient if options.path is None else chromadb.PersistentClient
        return kind(settings=chromadb.config.Settings(**settings), **where)

    return connect


@dataclass(frozen=True, eq=False)
class ChromaStore:
    """Asks a collection of Chroma."""

    options: ChromaOptions
    make_client: Callable[[], Any]
    redact: Redact

    def connect(self) -> Any:
        """Return the client; it is closed when this store is no longer used."""
        client = self.make_client()
        weakref.finalize(self, _close, client)
        return client

    def look_up(self, client: Any) -> Any:
        """Return the collection; the library embeds nothing with a model that it fetches."""
        return client.get_collection(self.options.collection, embedding_function=None)

    def ask(
        self, client: Any, collection: Any, query: Query, vector: Floats | None, k: int
    ) -> Hits:
        """Return the nearest records as hits."""
        response = collection.query(
            query_embeddings=[[] if vector is None else vector.tolist()],
            n_results=k,
            where=fill_placeholders(self.options.where, query, {"k": k}),
            include=["metadatas", "documents", "distances"],
        )
        cosine = _space(collection) == "cosine"
        columns = ("ids", "distances", "metadatas", "documents")
        return [
            hit_of(
                metadata or {},
                self.options,
                name=f"collection {self.options.collection!r}",
                item=item,
                score=-distance,
                # A distance may be a little below 0, so that this may be a little above 1.
                similarity=1 - distance if cosine else None,
                text=document,
            )
            for item, distance, metadata, document in zip(
                *(response[name][0] for name in columns), strict=True
            )
        ]

    def failure(self, error: Exception) -> CallError:
        """Return what went wrong, and whether it may pass."""
        text, status = error_line(error, self.redact), _status(error)
        if type(error).__name__ == "NotFoundError":
            missing = f"no collection {self.options.collection!r}"
            problem = missing if "Collection" in text else text
            return CallError(f"chroma: {problem}; check collection, tenant and database")
        if status in (401, 403):
            return CallError(f"chroma refused the call ({text}); check token or headers")
        if "dimension" in text:
            return CallError(f"chroma: {text}; use the model that made the vectors")
        if status is not None:
            passes = status == 429 or status >= 500
            return CallError(f"chroma answered {status}: {text}", may_pass=passes)
        if _NO_LISTENER in text or may_pass(error):
            return CallError(f"chroma cannot be reached: {text}", may_pass=True)
        return CallError(f"chroma: {text}")


def _status(error: BaseException | None) -> int | None:
    """Return the HTTP status behind an error of the library."""
    while error is not None:
        if callable(code := getattr(error, "code", None)):
            return int(code())
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status is not None:
            return int(status)
        error = error.__context__
    return None


def _close(client: Any) -> None:
    client.close()
    # The library leaves its connections to the garbage collector.
    for each_client in (client, getattr(client, "_admin_client", None)):
        session = getattr(getattr(each_client, "_server", None), "_session", None)
        if session is not None:
            session.close()


def _space(collection: Any) -> str:
    """Return the collection's metric."""
    configuration: Mapping[str, Any] = collection.configuration_json
    index = configuration.get("hnsw") or configuration.get("spann") or {}
    return str(index.get("space") or (collection.metadata or {}).get("hnsw:space") or "l2")
