"""A Qdrant collection: on a server, or in a folder (Qdrant's local mode)."""

from __future__ import annotations

import json
import math
import re
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from karat.errors import CallError, InputError, UsageError, missing_extra
from karat.retrievers.foreign import may_pass, said
from karat.retrievers.forms import Text
from karat.retrievers.protocol import Finder, Hit, Hits, Query
from karat.retrievers.secrets import literal_in_url
from karat.retrievers.stores import (
    FieldsForm,
    StoreFinder,
    collection_finder,
    hit_of,
    is_plain,
    literal,
    refuse,
    wrong_model,
)
from karat.retrievers.templates import filled
from karat.retrievers.vectors import Floats
from karat.retrievers.workshop import Workshop

# Opening the folder changes its files, so that no digest can be taken of it.
STORES = ("path",)
# Where an item's id is if nobody says where it is; else it is the point's own.
_ITEM = "item_id"
# By these the nearest has the lowest score.
_DISTANCES = ("Euclid", "Manhattan")
_LONGEST = 200
_SLOWEST_CLOSE = 30.0
_URL = re.compile(r"https?://|\$\{")


class Options(FieldsForm):
    """Where the collection is, and what its points hold."""

    url: Text | None = Field(None, description="the server's URL, such as http://127.0.0.1:6333")
    path: Text | None = Field(None, description="the folder that local mode keeps its files in")
    collection: Text = Field(description="the collection's name")
    vector_name: Text | None = Field(None, description="which of the collection's named vectors")
    api_key: Text | None = Field(None, description="${NAME} of the variable that holds the key")
    where: dict[str, Any] | None = Field(
        None, description="a filter as Qdrant writes it; {column} in it stands for the query's"
    )

    @model_validator(mode="after")
    def _agree(self) -> Options:
        one = (self.url is None) != (self.path is None)
        server = _URL.match(self.url or "http://")
        refuse(
            None if one else "give url, of a server, or path, of a folder in local mode",
            literal_in_url(self.url or ""),
            None if server else "url must begin with http:// or https://",
            self.path and self.api_key and "api_key is for a server; with path leave it out",
            literal(self.api_key, "api_key"),
            wrong_model(self),
        )
        return self


def make(options: Options, workshop: Workshop, parts: Mapping[str, Finder]) -> StoreFinder:
    """The collection; it is not asked anything yet."""
    _library()
    redact = workshop.redact
    if options.path is None:
        connect = _connecting(options, workshop)
    else:
        connect = _opening(workshop.path(options.path))
    if options.where is not None and is_plain(options.where):
        _filter(options.where)
    asked = _Collection(options, connect, redact)
    return collection_finder("qdrant", asked, options, workshop)


def _library() -> Any:
    try:
        import qdrant_client
    except ImportError:
        raise missing_extra("retriever qdrant", "qdrant-client", "qdrant") from None
    return qdrant_client


def _filter(where: Any) -> Any:
    """The filter as the library has it."""
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
_open: weakref.WeakValueDictionary[Path, _Client] = weakref.WeakValueDictionary()
# Set when the folder's last client is closed, which may be in another thread.
_free: dict[Path, threading.Event] = {}
_opening_one = threading.Lock()


def _opening(folder: Path) -> Callable[[], _Client]:
    """How to open a folder of local mode."""
    where = folder.resolve()
    if not (where / "meta.json").is_file():
        what = "holds no collections" if where.is_dir() else "no such folder"
        raise InputError(
            f"{what}; path must be a folder that Qdrant's local mode made", where=str(folder)
        )

    def connect() -> _Client:
        with _opening_one:
            client = _open.get(where)
            if client is None:
                if where in _free:
                    _free[where].wait(_SLOWEST_CLOSE)
                made = _made(path=str(where), force_disable_check_same_thread=True)
                client = _Client(made, threading.Lock())
                _open[where] = client
                _free[where] = threading.Event()
                # At once, and not when the garbage collector comes to it.
                weakref.finalize(client, _close, made, _free[where])
            return client

    return connect


def _close(client: Any, closed: threading.Event) -> None:
    try:
        client.close()
    finally:
        closed.set()


def _connecting(options: Options, workshop: Workshop) -> Callable[[], _Client]:
    """How to reach a server."""
    url = workshop.expand(options.url or "")
    key = None if options.api_key is None else workshop.expand(options.api_key)
    # The library takes whole seconds; the call as a whole has its own limit.
    seconds = math.ceil(workshop.timeout)
    return lambda: _Client(_made(url=url, api_key=key, timeout=seconds, check_compatibility=False))


def _made(**given: Any) -> Any:
    with warnings.catch_warnings():
        # That a key goes over plain HTTP, or that a folder is large, the user knows.
        warnings.simplefilter("ignore", UserWarning)
        return _library().QdrantClient(**given)


class _Collection:
    """Asks a collection; what it is like is looked up once."""

    def __init__(
        self, options: Options, connect: Callable[[], _Client], redact: Callable[[str], str]
    ) -> None:
        self._options = options
        self._connect = connect
        self._redact = redact
        self._client: _Client | None = None
        self._about: tuple[int, str] | None = None
        self._first = threading.Lock()

    def hits(self, query: Query, vector: Floats | None, k: int) -> Hits:
        """The nearest points, as hits."""
        if vector is None:
            raise AssertionError("every query has a vector here")
        try:
            where = self._where(query, k)
            client, (size, metric) = self._ready()
            if size != len(vector):
                raise CallError(
                    f"collection {self._options.collection!r} holds vectors of {size} numbers, "
                    f"and the model makes {len(vector)}; use the model that made them"
                )
            with client.turn:
                found = client.calls.query_points(
                    self._options.collection,
                    query=vector.tolist(),
                    using=self._options.vector_name,
                    query_filter=where,
                    limit=k,
                    with_payload=True,
                )
        except CallError:
            raise
        except Exception as error:
            raise self._told(error) from error
        return [self._hit(point, metric) for point in found.points]

    def _where(self, query: Query, k: int) -> Any:
        if self._options.where is None:
            return None
        try:
            return _filter(filled(self._options.where, query, {"k": k}))
        except UsageError as error:
            raise CallError(str(error)) from None

    def connected(self) -> _Client:
        """The client, which is made once."""
        with self._first:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _ready(self) -> tuple[_Client, tuple[int, str]]:
        client = self.connected()
        with self._first:
            if self._about is None:
                with client.turn:
                    told = client.calls.get_collection(self._options.collection)
                self._about = self._vectors(told.config.params.vectors)
            return client, self._about

    def _vectors(self, told: Any) -> tuple[int, str]:
        """How long the vectors are, and by what they are compared."""
        name = self._options.vector_name
        named = told if isinstance(told, Mapping) else None
        if name is None and named is None and told is not None:
            return int(told.size), str(told.distance.value)
        if name is not None and named is not None and name in named:
            return int(named[name].size), str(named[name].distance.value)
        has = ", ".join(named) if named else "no named vectors"
        raise CallError(
            f"collection {self._options.collection!r} has {has}; "
            + ("leave out vector_name" if not named else "set vector_name to one of them")
        )

    def _hit(self, point: Any, metric: str) -> Hit:
        payload = point.payload or {}
        own = payload.get(_ITEM)
        score = float(point.score)
        return hit_of(
            payload,
            self._options,
            f"collection {self._options.collection!r}",
            item=point.id if own is None else own,
            score=-score if metric in _DISTANCES else score,
            similarity=score if metric == "Cosine" else None,
        )

    def _told(self, error: Exception) -> CallError:
        """What went wrong, and whether it may pass."""
        name = self._options.collection
        status = getattr(error, "status_code", None)
        cause = getattr(error, "source", error)
        wait = getattr(error, "retry_after_s", None)
        if status in (401, 403):
            return CallError(f"qdrant refused the key ({status}); check api_key")
        if status == 404 or (isinstance(error, ValueError) and "not found" in str(error)):
            at = "url" if self._options.path is None else "path"
            return CallError(f"qdrant has no collection {name!r}; check collection and {at}")
        if wait is not None or status == 429:
            return CallError("qdrant asks to be called less often", may_pass=True, wait=wait)
        if status is not None:
            told = _reason(error, self._redact)
            return CallError(f"qdrant answered {status}: {told}", may_pass=status >= 500)
        return CallError(
            f"qdrant cannot be asked: {said(cause, self._redact)}", may_pass=may_pass(cause)
        )


def _reason(error: Exception, redact: Callable[[str], str]) -> str:
    """What a server says went wrong, out of the JSON that Qdrant answers with."""
    content = getattr(error, "content", b"").decode("utf-8", "replace")
    with suppress(ValueError, TypeError, KeyError):
        content = str(json.loads(content)["status"]["error"])
    return " ".join(redact(content).split())[:_LONGEST]
