"""What the adapters of vector stores share: the query's vector, the call, and fields of records."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field

from karat.errors import CallError, InputError
from karat.retrieve.build_context import BuildContext
from karat.retrieve.models import Embedder, ModelOptions, QueryModelOptions
from karat.retrieve.protocol import Answer, Hit, Hits, Query
from karat.retrieve.system_config import Text
from karat.retrieve.user_code import UserCode, hits_from, text_of
from karat.retrieve.vectors import Floats

# How many calls a store that is a server is asked at once.
SERVER_CONCURRENCY = 4


class FieldsOptions(QueryModelOptions):
    """Which fields of a store's records hold what."""

    id: Text | None = Field(None, description="the name of the field that holds the item's id")
    text: Text | None = Field(None, description="the name of the field that holds the text")
    doc_id: Text | None = Field(None, description="the name of the field that holds the document")
    version: Text | None = Field(None, description="the name of the field that holds the version")
    source: Text | None = Field(None, description="the name of the field that holds the source")


def query_model(options: QueryModelOptions, context: BuildContext) -> Embedder:
    """Return the model that options name; vectors keep their length, as those in the store may."""
    settings = options.model_dump(include=set(QueryModelOptions.model_fields))
    # The model's folder has another name here, where path is the store's.
    settings["path"] = settings.pop("model_path")
    return Embedder(ModelOptions.model_validate(settings), context, unit=False)


class CollectionOptions(FieldsOptions):
    """A collection of a store that is a server or, with a path, a folder."""

    collection: Text = Field(description="the collection's name")
    path: Text | None = Field(None, description="the folder that the store keeps its files in")
    where: dict[str, Any] | None = Field(
        None, description="a filter as the store writes it; {column} in it stands for the query's"
    )


class VectorStore(Protocol):
    """A vector store: how to connect to it, ask it, and tell why it fails."""

    def connect(self) -> Any:
        """Return a client; called once, when the first query comes."""

    def look_up(self, client: Any) -> Any:
        """Return what each call must know of the collection; called again after a failure."""

    def ask(
        self, client: Any, collection: Any, query: Query, vector: Floats | None, k: int
    ) -> Hits:
        """Return the nearest records as hits."""

    def failure(self, error: Exception) -> CallError:
        """Return what went wrong, and whether it may pass."""


def collection_finder(
    name: str, store: VectorStore, options: CollectionOptions, context: BuildContext
) -> StoreFinder:
    """Return a finder over a collection."""
    return StoreFinder(
        store,
        query_model(options, context),
        UserCode(name, context.timeout, context.redact, again=True),
        meta={"store": name, "collection": options.collection},
        folder=options.path is not None,
    )


class StoreFinder:
    """Embeds the query and asks the store, both within the time limit."""

    batch = 1
    deep = False

    def __init__(
        self,
        store: VectorStore,
        model: Embedder | None,
        code: UserCode,
        *,
        meta: Mapping[str, Any],
        folder: bool = False,
    ) -> None:
        self.concurrency = 1 if folder else SERVER_CONCURRENCY
        self._store = store
        self._model = model
        self._code = code
        self._meta = meta
        self._client: Any = None
        self._collection: Any = None
        self._connecting = threading.Lock()
        self._embedding = threading.Lock()
        if folder:
            # A folder takes a while to open, and no query's time should hold that.
            code.load(self._connected, done="opened")

    @property
    def meta(self) -> Mapping[str, Any]:
        """The store and the model."""
        return {**self._meta, **({} if self._model is None else self._model.meta)}

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """Return the nearest records to each query."""
        return [self._code.call(partial(self._find, query, k)) for query in queries]

    def _find(self, query: Query, k: int) -> Answer:
        vector, answer = None, Answer([])
        if self._model is not None:
            # A model uses every core by itself, and a callable may not bear company.
            with self._embedding:
                rows, (answer,) = self._model.answers([query])
            vector = rows[0]
        start = time.perf_counter()
        answer.hits = self._ask(query, vector, k)[:k]
        answer.latency["search"] = (time.perf_counter() - start) * 1000
        return answer

    def _ask(self, query: Query, vector: Floats | None, k: int) -> Hits:
        try:
            client = self._connected()
            with self._connecting:
                if self._collection is None:
                    self._collection = self._store.look_up(client)
                collection = self._collection
            return self._store.ask(client, collection, query, vector, k)
        except CallError:
            raise
        except Exception as error:
            self._collection = None
            raise self._store.failure(error) from error

    def _connected(self) -> Any:
        with self._connecting:
            if self._client is None:
                self._client = self._store.connect()
            return self._client


def store_folder(folder: Path, file: str, made_by: str) -> str:
    """Return the path of a store's folder; refuse one without the file that shows what it is."""
    if not (folder / file).is_file():
        problem = "holds no collections" if folder.is_dir() else "no such folder"
        raise InputError(f"{problem}; path must be a folder that {made_by} made", where=str(folder))
    return str(folder.resolve())


def hit_of(
    fields: Mapping[str, Any],
    options: FieldsOptions,
    *,
    name: str,
    item: Any,
    score: float,
    similarity: float | None = None,
    text: str | None = None,
) -> Hit:
    """Return a record as a hit; ``item`` is its id in the store, for when no field is named."""
    if options.id is not None:
        item = field_of(fields, options.id)
        if item is None:
            keys = ", ".join(fields) or "nothing"
            raise CallError(f"{name} has a record without {options.id!r}; it has {keys}")
    details: dict[str, Any] = {"text": text}
    for key in ("doc_id", "version", "source", "text"):
        if (field := getattr(options, key)) is not None:
            details[key] = text_of(field_of(fields, field))
    return hits_from([Hit(item, score, similarity=similarity, **details)], 1, name)[0]


def field_of(fields: Mapping[str, Any], name: str) -> Any:
    """Return a field by its name or its dotted path, such as ``metadata.chunk_id``."""
    if name in fields:
        return fields[name]
    value: Any = fields
    for step in name.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value
