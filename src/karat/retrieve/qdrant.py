"""qdrant: a Qdrant collection on a server, or in a folder (local mode)."""

from __future__ import annotations

import math
import re
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from karat.errors import CallError, UsageError
from karat.retrieve.build_context import BuildContext
from karat.retrieve.models import model_problem
from karat.retrieve.placeholders import fill_placeholders, literal_in_url, literal_inside
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
# The payload field of the item's id, unless configured; without it the point's id.
_ITEM = "item_id"
# By these the nearest has the lowest score.
_DISTANCES = ("Euclid", "Manhattan")
_SLOWEST_CLOSE = 30.0
_LONGEST = 200
_URL = re.compile(r"https?://|\$\{")


class QdrantOptions(CollectionOptions):
    """Where the collection is, and what its points hold."""

    url: Text | None = Field(None, description="the server's URL, such as http://127.0.0.1:6333")
    vector_name: Text | None = Field(None, description="which of the collection's named vectors")
    api_key: Text | None = Field(None, description="${NAME} of the variable that holds the key")

    @model_validator(mode="after")
    def _agree(self) -> QdrantOptions:
        one_place = (self.url is None) != (self.path is None)
        server = _URL.match(self.url or "http://")
        refuse(
            None if one_place else "give url, of a server, or path, of a folder in local mode",
            literal_in_url(self.url or ""),
            None if server else "url must begin with http:// or https://",
            self.path and self.api_key and "api_key is for a server; with path leave it out",
            literal_inside({"api_key": self.api_key}, ""),
            model_problem(self),
        )
        return self


Options = QdrantOptions


def make(options: QdrantOptions, context: BuildContext, parts: Mapping[str, Finder]) -> StoreFinder:
    """Prepare the collection; nothing is asked yet."""
    _library()
    if options.path is None:
        connect = _server_client(options, context)
    else:
        connect = _folder_client(context.path(options.path))
    return collection_finder(
        "qdrant", QdrantStore(options, connect, context.redact), options, context
    )


def _library() -> Any:
    return import_library("qdrant_client", "retriever qdrant", "qdrant-client", "qdrant")


def _filter(where: Any) -> Any:
    from qdrant_client import models

    try:
        return models.Filter.model_validate(where)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"][:3])
        raise UsageError(
            f"where is not a filter of Qdrant's: {place or 'it'}: {first['msg']}"
        ) from None


@dataclass(eq=False)
class _Client:
    """A client; in local mode only one call may use it at a time."""

    calls: Any
    turn: Any = field(default_factory=nullcontext)


# Local mode locks its folder, so systems that use the same one share a client.
_open: weakref.WeakValueDictionary[str, _Client] = weakref.WeakValueDictionary()
# Set when the folder's last client is closed, which may be in another thread.
_free: dict[str, threading.Event] = {}
_opening_lock = threading.Lock()


def _folder_client(folder: Path) -> Callable[[], _Client]:
    """Return how to open a folder of local mode."""
    where = store_folder(folder, "meta.json", "Qdrant's local mode")

    def connect() -> _Client:
        with _opening_lock:
            client = _open.get(where)
            if client is None:
                if where in _free:
                    _free[where].wait(_SLOWEST_CLOSE)
                new_client = _new_client(path=where, force_disable_check_same_thread=True)
                client = _Client(new_client, threading.Lock())
                _open[where] = client
                _free[where] = threading.Event()
                # At once, and not when the garbage collector comes to it.
                weakref.finalize(client, _close, new_client, _free[where])
            return client

    return connect


def _close(client: Any, closed: threading.Event) -> None:
    try:
        client.close()
    finally:
        closed.set()


def _server_client(options: QdrantOptions, context: BuildContext) -> Callable[[], _Client]:
    """Return how to reach a server."""
    url = context.expand(options.url or "")
    key = None if options.api_key is None else context.expand(options.api_key)
    # The library takes whole seconds; the call as a whole has its own limit.
    seconds = math.ceil(context.timeout)
    return lambda: _Client(
        _new_client(url=url, api_key=key, timeout=seconds, check_compatibility=False)
    )


def _new_client(**arguments: Any) -> Any:
    with warnings.catch_warnings():
        # That a key goes over plain HTTP, or that a folder is large, the user knows.
        warnings.simplefilter("ignore", UserWarning)
        return _library().QdrantClient(**arguments)


@dataclass(frozen=True, eq=False)
class QdrantStore:
    """Asks a collection of Qdrant."""

    options: QdrantOptions
    connect: Callable[[], _Client]
    redact: Callable[[str], str]

    def look_up(self, client: _Client) -> tuple[int, str]:
        """Return the length of the collection's vectors and their metric."""
        collection, name = self.options.collection, self.options.vector_name
        with client.turn:
            vectors = client.calls.get_collection(collection).config.params.vectors
        named = vectors if isinstance(vectors, Mapping) else {}
        settings = named.get(name) if named or name is not None else vectors
        if settings is None:
            raise CallError(
                f"collection {collection!r} has {', '.join(named) or 'no named vectors'}; "
                + ("set vector_name to one of them" if named else "leave out vector_name")
            )
        return int(settings.size), str(settings.distance.value)

    def ask(
        self,
        client: _Client,
        collection: tuple[int, str],
        query: Query,
        vector: Floats | None,
        k: int,
    ) -> Hits:
        """Return the nearest points as hits."""
        size, metric = collection
        values = [] if vector is None else vector.tolist()
        if size != len(values):
            raise CallError(
                f"collection {self.options.collection!r} holds vectors of {size} numbers, "
                f"and the model makes {len(values)}; use the model that made them"
            )
        where = fill_placeholders(self.options.where, query, {"k": k})
        with client.turn:
            response = client.calls.query_points(
                self.options.collection,
                query=values,
                using=self.options.vector_name,
                query_filter=None if where is None else _filter(where),
                limit=k,
                with_payload=True,
            )
        hits = []
        for point in response.points:
            payload, score = point.payload or {}, float(point.score)
            payload_id = payload.get(_ITEM)
            hit = hit_of(
                payload,
                self.options,
                name=f"collection {self.options.collection!r}",
                item=point.id if payload_id is None else payload_id,
                score=-score if metric in _DISTANCES else score,
                similarity=score if metric == "Cosine" else None,
            )
            hits.append(hit)
        return hits

    def failure(self, error: Exception) -> CallError:
        """Return what went wrong, and whether it may pass."""
        name = self.options.collection
        status = getattr(error, "status_code", None)
        cause = getattr(error, "source", error)
        wait = getattr(error, "retry_after_s", None)
        if isinstance(error, UsageError):
            return CallError(str(error))
        if status in (401, 403):
            return CallError(f"qdrant refused the key ({status}); check api_key")
        if status == 404 or (isinstance(error, ValueError) and "not found" in str(error)):
            at = "url" if self.options.path is None else "path"
            return CallError(f"qdrant has no collection {name!r}; check collection and {at}")
        if wait is not None or status == 429:
            return CallError("qdrant limits the rate of calls", may_pass=True, wait=wait)
        if status is not None:
            content = getattr(error, "content", b"").decode("utf-8", "replace")
            reason = " ".join(self.redact(content).split())[:_LONGEST]
            return CallError(f"qdrant answered {status}: {reason}", may_pass=status >= 500)
        return CallError(
            f"qdrant cannot be searched: {error_line(cause, self.redact)}",
            may_pass=may_pass(cause),
        )
