"""Embeddings searched exactly: of a model, of a callable, or kept in files."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np
from pydantic import Field

from karat.errors import CallError, InputError, UsageError
from karat.retrievers.embedding import Embedder, ModelForm, embedder
from karat.retrievers.exact import Exact, Metric
from karat.retrievers.forms import Text
from karat.retrievers.items import Items
from karat.retrievers.protocol import Answer, Finder, Query
from karat.retrievers.vector_cache import DenseRows, VectorCache
from karat.retrievers.vectors import Floats, Kept, read_vectors
from karat.retrievers.workshop import Workshop

_QUERIES_AT_ONCE = 64


class Options(ModelForm):
    """Where vectors come from, and how they are compared."""

    vectors: Text | None = Field(
        None,
        description="a .npy file of the items' vectors in corpus order, or .npz with ids, vectors",
    )
    query_vectors: Text | None = Field(
        None, description="a .npz file with ids (of queries) and vectors"
    )
    metric: Metric = Field("cosine", description="cosine or dot")
    title: bool = Field(True, description="true to put an item's title before its text, or false")


def make(options: Options, workshop: Workshop, parts: Mapping[str, Finder]) -> Dense:
    """The vectors of the corpus, read or made, and what gives those of queries."""
    _check(options)
    items = workshop.items

    @cache
    def model() -> Embedder:
        return embedder(options, workshop, unit=options.metric == "cosine")

    told: dict[str, Any] = {"embedding_updates": 0}
    if options.vectors is None:
        texts = items.titled if options.title else items.texts
        rows, told["embedding_updates"] = embedded(model(), texts, workshop)
    else:
        kept = read_vectors(workshop.path(options.vectors))
        rows, told["vectors"] = kept.of_items(items.ids), kept.meta
    asker: _Asker
    if options.query_vectors is None:
        asker = _ByModel(model())
    else:
        asker = _ByFile(read_vectors(workshop.path(options.query_vectors)))
    _check_width(rows.shape[1], asker, options, workshop)
    if options.vectors is None or options.query_vectors is None:
        told |= model().meta
    return Dense(items, Exact(rows, options.metric), asker, {**told, **asker.meta})


def embedded(model: Embedder, texts: Sequence[str], workshop: Workshop) -> tuple[Floats, int]:
    """One row a text, from the cache where it has them; and how many were made now."""
    rows = np.empty((len(texts), model.dim), dtype=np.float32)

    def put(where: list[int], vector: Floats) -> None:
        rows[where] = vector

    cache = VectorCache(workshop.cache, model.digest, DenseRows(model.dim))
    updates = cache.fill(texts, model.items, put, step=model.batch_size, progress=workshop.progress)
    return rows, updates


class Dense:
    """An index of vectors; every item has a score, ties are in corpus order."""

    batch = _QUERIES_AT_ONCE
    concurrency = 1
    deep = True

    def __init__(self, items: Items, index: Exact, asker: _Asker, told: Mapping[str, Any]) -> None:
        self.items = items
        self.meta: Mapping[str, Any] = {**told, "index_bytes": index.rows.nbytes}
        self._index = index
        self._asker = asker

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """The nearest items to each query."""
        asked = [self._asker.ask(some) for some in self._asker.portions(queries)]
        answers = [answer for _, some in asked for answer in some]
        start = time.perf_counter()
        found = self._index.top(np.concatenate([rows for rows, _ in asked]), k)
        for answer, one in zip(answers, found, strict=True):
            answer.hits = self.items.hits(*one)
        share = (time.perf_counter() - start) * 1000 / len(queries)
        for answer in answers:
            answer.latency["search"] = share
            answer.spent = sum(answer.latency.values())
        return answers


class _Asker(Protocol):
    """What gives the vectors of queries, and answers that say what it took."""

    dim: int
    meta: Mapping[str, Any]

    def portions(self, queries: Sequence[Query]) -> Iterator[Sequence[Query]]: ...
    def ask(self, queries: Sequence[Query]) -> tuple[Floats, list[Answer]]: ...


class _ByModel:
    """Queries embedded as they come."""

    def __init__(self, model: Embedder) -> None:
        self._model = model
        self.dim = model.dim
        self.meta: Mapping[str, Any] = {}

    def portions(self, queries: Sequence[Query]) -> Iterator[Sequence[Query]]:
        """As many as go through the model at once, so that each has its own time."""
        step = self._model.batch_size
        return (queries[start : start + step] for start in range(0, len(queries), step))

    def ask(self, queries: Sequence[Query]) -> tuple[Floats, list[Answer]]:
        """The vectors, with the share of the time and the tokens that were read."""
        start = time.perf_counter()
        rows = self._model.queries([query.text for query in queries])
        share = (time.perf_counter() - start) * 1000 / len(queries)
        answers = [Answer([], latency={"embed": share}) for _ in queries]
        for query, answer in zip(queries, answers, strict=True):
            tokens = self._model.tokens(query.text)
            if tokens is not None:
                answer.cost["query_tokens"] = float(tokens)
        return rows, answers


class _ByFile:
    """Queries whose vectors are in a file."""

    def __init__(self, kept: Kept) -> None:
        if kept.ids is None:
            raise InputError(
                "holds no ids; query_vectors needs a .npz with ids and vectors", where=kept.name
            )
        self._kept = kept
        self._ids = kept.ids
        self.dim = kept.rows.shape[1]
        self.meta: Mapping[str, Any] = {"query_vectors": kept.meta}

    def portions(self, queries: Sequence[Query]) -> Iterator[Sequence[Query]]:
        """All at once."""
        yield queries

    def ask(self, queries: Sequence[Query]) -> tuple[Floats, list[Answer]]:
        """The vectors, looked up by the queries' ids."""
        missing = [query.query_id for query in queries if query.query_id not in self._ids]
        if missing:
            raise CallError(f"{self._kept.name}: has no vector for query {missing[0]!r}")
        rows = self._kept.rows[[self._ids[query.query_id] for query in queries]]
        return rows, [Answer([]) for _ in queries]


def _check(options: Options) -> None:
    """Refuse what has no vectors, and what would have no effect."""
    for whose, key in (("items", "vectors"), ("queries", "query_vectors")):
        if (options.model, options.embed, getattr(options, key)) == (None, None, None):
            raise UsageError(f"{whose} have no vectors; give model, embed or {key}")
    idle: set[str] = set()
    if options.vectors is not None:
        idle |= {"item_prefix", "title"}
    if options.query_vectors is not None:
        idle |= {"query_prefix"}
    if options.vectors is not None and options.query_vectors is not None:
        idle |= set(ModelForm.model_fields)
    for key in sorted(idle & options.model_fields_set):
        raise UsageError(f"{key} has no effect beside kept vectors; leave it out")


def _check_width(width: int, asker: _Asker, options: Options, workshop: Workshop) -> None:
    """Refuse items and queries whose vectors are of different lengths."""
    file = options.vectors or options.query_vectors
    if asker.dim != width and file is not None:
        raise InputError(
            f"vectors of items have {width} numbers and those of queries {asker.dim}; "
            "both must come from one model",
            where=str(workshop.path(file)),
        )
