"""sparse: weighted terms of a fastembed model, searched exactly."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from karat.errors import CallError
from karat.retrieve.build_context import BuildContext
from karat.retrieve.models import Model, load_model, valid_unicode
from karat.retrieve.protocol import Answer, Finder, Query, QueryFinder
from karat.retrieve.system_config import BatchSize, LocalModelOptions, Text, Title
from karat.retrieve.vectors import Vector, VectorCache, top_rows


class SparseOptions(LocalModelOptions):
    """Which model weighs the terms of texts, and how."""

    model: Text = Field(description="the name of a sparse model of fastembed")
    batch_size: BatchSize = 1
    title: Title = True


# A sparse vector: term numbers and their weights.
TERMS = np.dtype([("id", np.int64), ("weight", np.float32)])

Options = SparseOptions


def make(options: SparseOptions, context: BuildContext, parts: Mapping[str, Finder]) -> QueryFinder:
    """Return a finder over weighted terms: ties in corpus order, items without a term left out."""
    model = load_model("SparseTextEmbedding", options, context)
    items = context.items
    vectors = [np.empty(0, dtype=TERMS)] * len(items)

    def put(rows: list[int], terms: Vector) -> None:
        for row in rows:
            vectors[row] = terms

    def embed(texts: Sequence[str]) -> list[Vector]:
        valid = [valid_unicode(text) for text in texts]
        return _terms(model, model.run("embed", valid, batch_size=options.batch_size))

    decisive = json.dumps([model.digest, options.batch_size])
    digest = hashlib.sha256(decisive.encode()).hexdigest()
    updates = VectorCache(context.cache, digest).fill(
        items.titled if options.title else items.texts,
        embed,
        put,
        step=options.batch_size,
        progress=context.progress,
    )

    index = TermIndex(vectors, idf=model.needs_idf)

    def search(query: Query, k: int) -> Answer:
        start = time.perf_counter()
        (terms,) = _terms(model, model.run("query_embed", valid_unicode(query.text)))
        embedded = time.perf_counter()
        scores = index.scores(terms)
        sharing = np.flatnonzero(scores)
        rows = sharing[top_rows(scores[sharing], k)]
        hits = items.hits(rows, scores[rows])
        searched = time.perf_counter()
        return Answer(
            hits,
            latency={"embed": (embedded - start) * 1000, "search": (searched - embedded) * 1000},
            cost={"query_tokens": float(model.tokens(query.text))},
        )

    meta = {
        "embedding_model": model.meta,
        "libraries": model.libraries,
        "index_bytes": index.nbytes,
        "embedding_updates": updates,
    }
    return QueryFinder(search, meta)


class TermIndex:
    """The items that have each term, with its weight; ``idf`` weighs rare terms more."""

    def __init__(self, vectors: Sequence[Vector], *, idf: bool) -> None:
        from scipy.sparse import csr_array

        entries = np.concatenate(vectors)
        self._terms, columns = np.unique(entries["id"], return_inverse=True)
        ends = np.concatenate([[0], np.cumsum([len(vector) for vector in vectors])])
        shape = (len(vectors), len(self._terms))
        # Turned around, since a query asks for the items of a few terms.
        self._postings = csr_array((entries["weight"].copy(), columns, ends), shape=shape).T.tocsr()
        in_items = np.bincount(columns, minlength=len(self._terms))
        rare = np.log1p((len(vectors) - in_items + 0.5) / (in_items + 0.5))
        self._importance = rare if idf else np.ones(len(self._terms))
        inside = (self._postings.data, self._postings.indices, self._postings.indptr)
        self.nbytes = sum(array.nbytes for array in inside)

    def scores(self, query: Vector) -> npt.NDArray[np.float64]:
        """Return the sum over shared terms for every item, in double precision."""
        places = np.searchsorted(self._terms, query["id"])
        in_index = places < len(self._terms)
        in_index[in_index] = self._terms[places[in_index]] == query["id"][in_index]
        rows = places[in_index]
        weights = query["weight"][in_index] * self._importance[rows]
        scores: npt.NDArray[np.float64] = self._postings[rows].astype(np.float64).T @ weights
        return scores


def _terms(model: Model, vectors: Iterable[Any]) -> list[Vector]:
    """Return the library's vectors as terms and weights."""
    terms = []
    for vector in vectors:
        entries = np.empty(len(vector.indices), dtype=TERMS)
        entries["id"], entries["weight"] = vector.indices, vector.values
        terms.append(entries)
    if not all(np.isfinite(entries["weight"]).all() for entries in terms):
        raise CallError(f"model {model.name} gave nan or inf for a text; check the model")
    return terms
