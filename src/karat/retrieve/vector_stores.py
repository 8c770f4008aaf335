"""What the adapters of vector stores share: the query's vector, the call, and fields of records.

How each store is asked is the business of its own module.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pydantic import Field

from karat.errors import CallError, InputError, UsageError
from karat.formats.settings import Form
from karat.retrieve.build_context import BuildContext
from karat.retrieve.models import Embedder, ModelForm, embedder
from karat.retrieve.placeholders import ENVIRONMENT_VARIABLE, fill_placeholders
from karat.retrieve.protocol import Answer, Hit, Hits, Query
from karat.retrieve.system_config import Count, Text
from karat.retrieve.user_code import UserCode, hits_from, text_of
from karat.retrieve.vectors import Floats

# How many calls a store that is a server is asked at once.
SERVER_CONCURRENCY = 4

# A query, its vector if there is one, and k in; hits out.
Ask = Callable[[Query, Floats | None, int], Hits]


class QueryModelForm(Form):
    """Which model makes the vectors of queries: the one that made those in the store."""

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
    """Which fields of a store's records hold what."""

    id: Text | None = Field(None, description="the name of the field that holds the item's id")
    text: Text | None = Field(None, description="the name of the field that holds the text")
    doc_id: Text | None = Field(None, description="the name of the field that holds the document")
    version: Text | None = Field(None, description="the name of the field that holds the version")
    source: Text | None = Field(None, description="the name of the field that holds the source")


def wrong_model(form: QueryModelForm) -> str | None:
    """Return why a form names no model, or two."""
    if (form.model is None) == (form.embed is None):
        both_or_neither = "both model and embed are" if form.model else "neither model nor embed is"
        return f"{both_or_neither} given; give the one that made the vectors in the store"
    if form.embed is not None and form.model_path is not None:
        return "model_path is for a model; with embed leave it out"
    return None


def query_model(form: QueryModelForm, context: BuildContext) -> Embedder:
    """Return the model of a form; vectors keep their length, as those in the store may."""
    model_form = ModelForm.model_validate(
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
        return embedder(model_form, context, unit=False)
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
    """The options that such stores have in common."""

    path: str | None
    collection: str


def collection_finder(
    store: str, collection: Collection, options: Any, context: BuildContext
) -> StoreFinder:
    """Return a finder over a collection."""
    named: CollectionForm = options
    code = UserCode(store, context.timeout, context.redact, again=True)
    if named.path is not None:
        # A folder takes a while to open, and no query's time should hold that.
        code.load(collection.connected, done="opened")
    return StoreFinder(
        collection.hits,
        query_model(options, context),
        code,
        concurrency=SERVER_CONCURRENCY if named.path is None else 1,
        meta={"store": store, "collection": named.collection},
    )


class StoreFinder:
    """Embeds the query and asks the store, both within the time limit."""

    batch = 1
    deep = False

    def __init__(
        self,
        ask: Ask,
        model: Embedder | None,
        code: UserCode,
        *,
        concurrency: int,
        meta: Mapping[str, Any],
    ) -> None:
        self.concurrency = concurrency
        self._ask = ask
        self._model = model
        self._code = code
        self._meta = meta
        self._one_text = threading.Lock()

    @property
    def meta(self) -> Mapping[str, Any]:
        """The store and the model."""
        return {**self._meta, **({} if self._model is None else self._model.meta)}

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """Return the nearest records to each query."""
        return [self._find(query, k) for query in queries]

    def _find(self, query: Query, k: int) -> Answer:
        answer = Answer([])

        def work() -> Hits:
            vector = self._vector(query.text, answer)
            start = time.perf_counter()
            hits = self._ask(query, vector, k)[:k]
            answer.latency["search"] = (time.perf_counter() - start) * 1000
            return hits

        answer.hits = self._code.call(work)
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
    """Return a record as a hit; ``item`` is its id in the store, for when no field is named."""
    if form.id is not None:
        item = field_of(fields, form.id)
        if item is None:
            raise CallError(
                f"{name} has a record without {form.id!r}; it has {', '.join(fields) or 'nothing'}"
            )
    hit = Hit(
        item,
        score,
        doc_id=_text_field(fields, form.doc_id),
        version=_text_field(fields, form.version),
        source=_text_field(fields, form.source),
        similarity=similarity,
        text=text if form.text is None else _text_field(fields, form.text),
    )
    return hits_from([hit], 1, name)[0]


def _text_field(fields: Mapping[str, Any], name: str | None) -> str | None:
    return None if name is None else text_of(field_of(fields, name))


def field_of(fields: Mapping[str, Any], name: str) -> Any:
    """Return a field by its name or its dotted path, such as ``metadata.chunk_id``."""
    if name in fields:
        return fields[name]
    value: Any = fields
    for step in name.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def is_plain(where: Any) -> bool:
    """Return whether a filter has no placeholders."""
    try:
        return bool(fill_placeholders(where, Query("", ""), {"k": 1}) == where)
    except CallError:
        return False


def literal(value: str | None, key: str) -> str | None:
    """Return why a secret is refused that is written out in the file."""
    if value is None or ENVIRONMENT_VARIABLE.fullmatch(value):
        return None
    return f"{key} is written out; keep it in the environment: {key}: ${{NAME}}"
