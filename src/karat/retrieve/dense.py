"""dense: embeddings of a model, a callable or a file, searched exactly."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from pydantic import Field

from karat.errors import CallError, InputError, UsageError
from karat.retrieve.build_context import BuildContext, Items
from karat.retrieve.models import Embedder, ModelOptions
from karat.retrieve.protocol import Answer, Finder, Query
from karat.retrieve.system_config import Text, Title
from karat.retrieve.vectors import (
    ExactIndex,
    Floats,
    Metric,
    VectorCache,
    VectorFile,
    read_vectors,
)

_QUERIES_AT_ONCE = 64
# Gives the vectors of queries, with answers that hold their times and costs.
Ask = Callable[[Sequence[Query]], tuple[Floats, list[Answer]]]


class DenseOptions(ModelOptions):
    """Where vectors come from, and how they are compared."""

    vectors: Text | None = Field(
        None,
        description="a .npy file of the items' vectors in corpus order, or .npz with ids, vectors",
    )
    query_vectors: Text | None = Field(
        None, description="a .npz file with ids (of queries) and vectors"
    )
    metric: Metric = Field("cosine", description="cosine or dot")
    title: Title = True


Options = DenseOptions


def make(options: DenseOptions, context: BuildContext, parts: Mapping[str, Finder]) -> Dense:
    """Read or compute the vectors of the corpus, and prepare those of queries."""
    _check(options)
    items = context.items

    @cache
    def model() -> Embedder:
        return Embedder(options, context, unit=options.metric == "cosine")

    meta: dict[str, Any] = {"embedding_updates": 0}
    if options.vectors is None:
        texts = items.titled if options.title else items.texts
        rows, meta["embedding_updates"] = embedded(model(), texts, context)
    else:
        file = read_vectors(context.path(options.vectors))
        rows, meta["vectors"] = file.of_items(items.ids), file.meta
    if options.query_vectors is None:
        ask: Ask = model().answers
        step, dim = model().batch_size, model().dim
    else:
        file = read_vectors(context.path(options.query_vectors))
        ask, step, dim = partial(_known_queries, file), _QUERIES_AT_ONCE, file.rows.shape[1]
        meta["query_vectors"] = file.meta
        if file.ids is None:
            raise InputError(
                "holds no ids; query_vectors needs a .npz with ids and vectors", where=file.name
            )
    named = options.vectors or options.query_vectors
    if dim != rows.shape[1] and named is not None:
        raise InputError(
            f"vectors of items have {rows.shape[1]} numbers and those of queries {dim}; "
            "both must come from one model",
            where=str(context.path(named)),
        )
    if options.vectors is None or options.query_vectors is None:
        meta |= model().meta
    return Dense(items, ExactIndex(rows, options.metric), ask, step, meta)


def embedded(model: Embedder, texts: Sequence[str], context: BuildContext) -> tuple[Floats, int]:
    """Return one row per text, cached or computed, and how many were computed."""
    rows = np.empty((len(texts), model.dim), dtype=np.float32)

    def put(where: list[int], vector: Floats) -> None:
        rows[where] = vector

    cache = VectorCache(context.cache, model.digest)
    updates = cache.fill(texts, model.items, put, step=model.batch_size, progress=context.progress)
    return rows, updates


class Dense:
    """An index of vectors: every item has a score, ties are in corpus order."""

    batch = _QUERIES_AT_ONCE
    concurrency = 1
    deep = True

    def __init__(
        self, items: Items, index: ExactIndex, ask: Ask, step: int, meta: Mapping[str, Any]
    ) -> None:
        self.items = items
        self.meta: Mapping[str, Any] = {**meta, "index_bytes": index.rows.nbytes}
        self._index = index
        self._ask = ask
        self._step = step

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """Return the nearest items to each query."""
        embedded_queries = [
            self._ask(queries[start : start + self._step])
            for start in range(0, len(queries), self._step)
        ]
        answers = [answer for _, portion in embedded_queries for answer in portion]
        start = time.perf_counter()
        nearest = self._index.top(np.concatenate([rows for rows, _ in embedded_queries]), k)
        for answer, result in zip(answers, nearest, strict=True):
            answer.hits = self.items.hits(*result)
        share = (time.perf_counter() - start) * 1000 / len(queries)
        for answer in answers:
            answer.latency["search"] = share
            answer.spent = sum(answer.latency.values())
        return answers


def _known_queries(file: VectorFile, queries: Sequence[Query]) -> tuple[Floats, list[Answer]]:
    """Look up the vectors of queries in a file."""
    ids = file.ids or {}
    missing = [query.query_id for query in queries if query.query_id not in ids]
    if missing:
        raise CallError(f"{file.name}: has no vector for query {missing[0]!r}")
    return file.rows[[ids[query.query_id] for query in queries]], [Answer([]) for _ in queries]


def _check(options: DenseOptions) -> None:
    """Refuse options without vectors, and options without effect."""
    for whose, key in (("items", "vectors"), ("queries", "query_vectors")):
        if (options.model, options.embed, getattr(options, key)) == (None, None, None):
            raise UsageError(f"{whose} have no vectors; give model, embed or {key}")
    idle: set[str] = set()
    if options.vectors is not None:
        idle |= {"item_prefix", "title"}
    if options.query_vectors is not None:
        idle |= {"query_prefix"}
    if options.vectors is not None and options.query_vectors is not None:
        idle |= set(ModelOptions.model_fields)
    for key in sorted(idle & options.model_fields_set):
        raise UsageError(f"{key} has no effect with vectors from a file; leave it out")
