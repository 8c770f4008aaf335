"""What the adapters to vector stores share: the query's vector, the call, and where ids are.

How each store is asked is the business of its own module.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pydantic import Field

from karat.errors import CallError, InputError, UsageError
from karat.formats.forms import Form, refused
from karat.retrievers.embedding import Embedder, ModelForm, embedder
from karat.retrievers.foreign import Foreign
from karat.retrievers.forms import Count, Text
from karat.retrievers.protocol import Answer, Hit, Hits, Query
from karat.retrievers.returned import hits_of, text_of
from karat.retrievers.secrets import FROM_ENVIRONMENT
from karat.retrievers.templates import filled
from karat.retrievers.vectors import Floats
from karat.retrievers.workshop import Workshop

# How many calls a store that is a server is asked at once.
SERVER_CONCURRENCY = 4

# A query, its vector if there is one, and k in; hits out.
Ask = Callable[[Query, Floats | None, int], Hits]


class QueryModelForm(Form):
    """Which model makes vectors of queries: the one that made those in the store."""

    model: Text | None = Field(None, description="the name of a fastembed model")
    model_path: Text | None = Field(
        None, description="a folder that holds the model's files; nothing is fetched then"
    )
    embed: Text | None = Field(
        None, description="file.py:callable or module:callable that makes vectors of texts"
    )
    max_length: Count | None = Field(
        None, description="how many tokens of a text are read; the model's own limit if absent"
    )
    query_prefix: str = Field("", description="text to put before every query")
    threads: Count | None = Field(None, description="how many threads the model may use")


class FieldsForm(QueryModelForm):
    """Where a store's records have what a hit tells."""

    id: Text | None = Field(None, description="the name of the field that holds the item's id")
    text: Text | None = Field(None, description="the name of the field that holds the text")
    doc_id: Text | None = Field(None, description="the name of the field that holds the document")
    version: Text | None = Field(None, description="the name of the field that holds the version")
    source: Text | None = Field(None, description="the name of the field that holds the source")


def refuse(*whys: str | None) -> None:
    """Refuse a form for the first reason there is."""
    why = next(filter(None, whys), None)
    if why is not None:
        raise refused(why)


def wrong_model(form: QueryModelForm) -> str | None:
    """Why a form names no model, or two."""
    if (form.model is None) == (form.embed is None):
        given = "both model and embed are" if form.model else "neither model nor embed is"
        return f"{given} given; give the one that made the vectors in the store"
    if form.embed is not None and form.model_path is not None:
        return "model_path is for a model; with embed leave it out"
    return None


def query_model(form: QueryModelForm, workshop: Workshop) -> Embedder:
    """The model of a form; no vector is made unit length, since those stored may not be."""
    wanted = ModelForm.model_validate(
        {
            "model": form.model,
            "path": form.model_path,
            "embed": form.embed,
            "max_length": form.max_length,
            "query_prefix": form.query_prefix,
            "threads": form.threads,
        }
    )
    try:
        return embedder(wanted, workshop, unit=False)
    # The model's folder has another name here, where path is the store's.
    except InputError as error:
        what = error.what.replace("path must", "model_path must")
        raise InputError(what, where=error.where, line=error.line) from None
    except UsageError as error:
        raise UsageError(str(error).replace("give path:", "give model_path:")) from None


class Collection(Protocol):
    """A collection of a store that is a server or a folder."""

    def hits(self, query: Query, vector: Floats | None, k: int) -> Hits: ...
    def connected(self) -> Any: ...


class CollectionForm(Protocol):
    """What the options of such a store have in common."""

    path: str | None
    collection: str


def collection_finder(
    store: str, asked: Collection, options: Any, workshop: Workshop
) -> StoreFinder:
    """A finder over a collection; ``options`` name it, its folder if it has one, and a model."""
    named: CollectionForm = options
    foreign = Foreign(store, workshop.timeout, workshop.redact, again=True)
    if named.path is not None:
        # A folder takes a while to open, and no query's time should hold that.
        foreign.load(asked.connected, done="opened")
    return StoreFinder(
        asked.hits,
        query_model(options, workshop),
        foreign,
        concurrency=SERVER_CONCURRENCY if named.path is None else 1,
        meta={"store": store, "collection": named.collection},
    )


class StoreFinder:
    """Makes the query's vector and asks the store; both together within the time-out."""

    batch = 1
    deep = False

    def __init__(
        self,
        ask: Ask,
        model: Embedder | None,
        foreign: Foreign,
        *,
        concurrency: int,
        meta: Mapping[str, Any],
    ) -> None:
        self.concurrency = concurrency
        self._ask = ask
        self._model = model
        self._foreign = foreign
        self._meta = meta
        self._one_text = threading.Lock()

    @property
    def meta(self) -> Mapping[str, Any]:
        """The store and the model."""
        return {**self._meta, **({} if self._model is None else self._model.meta)}

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """What is near each query, nearest first."""
        return [self._find(query, k) for query in queries]

    def _find(self, query: Query, k: int) -> Answer:
        answer = Answer([])

        def work() -> Hits:
            vector = self._vector(query.text, answer)
            start = time.perf_counter()
            hits = self._ask(query, vector, k)[:k]
            answer.latency["search"] = (time.perf_counter() - start) * 1000
            return hits

        answer.hits = self._foreign.call(work)
        return answer

    def _vector(self, text: str, answer: Answer) -> Floats | None:
        if self._model is None:
            return None
        # A model uses every core by itself, and a callable may not bear company.
        with self._one_text:
            start = time.perf_counter()
            vector = self._model.query(text)
            answer.latency["embed"] = (time.perf_counter() - start) * 1000
        tokens = self._model.tokens(text)
        if tokens is not None:
            answer.cost["query_tokens"] = float(tokens)
        return vector


def hit_of(
    fields: Mapping[str, Any],
    form: FieldsForm,
    name: str,
    *,
    item: Any,
    score: float,
    similarity: float | None = None,
    text: str | None = None,
) -> Hit:
    """A record as a hit; ``item`` is its id in the store, used where no field is named."""
    if form.id is not None:
        item = field_of(fields, form.id)
        if item is None:
            raise CallError(
                f"{name} has a record without {form.id!r}; it has {', '.join(fields) or 'nothing'}"
            )
    hit = Hit(
        item,
        score,
        doc_id=_told(fields, form.doc_id),
        version=_told(fields, form.version),
        source=_told(fields, form.source),
        similarity=similarity,
        text=text if form.text is None else _told(fields, form.text),
    )
    return hits_of([hit], 1, name)[0]


def _told(fields: Mapping[str, Any], name: str | None) -> str | None:
    return None if name is None else text_of(field_of(fields, name))


def field_of(fields: Mapping[str, Any], name: str) -> Any:
    """A field by its name, or by the names on the way to it: ``metadata.chunk_id``."""
    if name in fields:
        return fields[name]
    found: Any = fields
    for step in name.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def is_plain(where: Any) -> bool:
    """Whether a filter holds nothing that is filled in query by query."""
    try:
        return bool(filled(where, Query("", ""), {"k": 1}) == where)
    except CallError:
        return False


def literal(value: str | None, key: str) -> str | None:
    """Why a secret is refused that stands in the file itself."""
    if value is None or FROM_ENVIRONMENT.fullmatch(value):
        return None
    return f"{key} is written out; keep it in the environment: {key}: ${{NAME}}"
