"""sparse: weighted terms of a fastembed model, searched exactly."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from karat.errors import CallError
from karat.formats.settings import Form
from karat.retrieve.build_context import BuildContext
from karat.retrieve.items import Items
from karat.retrieve.models import Model, load_model, valid_unicode
from karat.retrieve.protocol import Answer, Finder, Query
from karat.retrieve.system_config import Count, Text
from karat.retrieve.user_code import error_line
from karat.retrieve.vectors import Arrays, VectorCache, top_rows


class SparseOptions(Form):
    """Which model weighs the terms of texts, and how."""

    model: Text = Field(description="the name of a sparse model of fastembed")
    path: Text | None = Field(
        None, description="a folder that holds the model's files; nothing is fetched then"
    )
    max_length: Count | None = Field(
        None, description="how many tokens of a text are read, from 1; the model's limit if absent"
    )
    threads: Count | None = Field(None, description="how many threads the model may use, from 1")
    batch_size: Count = Field(1, description="how many texts go through the model at once, from 1")
    title: bool = Field(True, description="true to put an item's title before its text, or false")


class Terms(NamedTuple):
    """A sparse vector: term numbers and their weights."""

    ids: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32]


Options = SparseOptions


def make(options: SparseOptions, context: BuildContext, parts: Mapping[str, Finder]) -> Sparse:
    """Return the index over the corpus, its vectors cached or computed."""
    model = load_model(
        "SparseTextEmbedding",
        options.model,
        folder=None if options.path is None else context.path(options.path),
        max_length=options.max_length,
        threads=options.threads,
    )
    items = context.items
    encoder = _Encoder(model, options.batch_size)
    vectors: list[Terms] = [_NONE] * len(items)

    def put(rows: list[int], terms: Terms) -> None:
        for row in rows:
            vectors[row] = terms

    updates = VectorCache(context.cache, encoder.digest, TermLists()).fill(
        items.titled if options.title else items.texts,
        encoder.items,
        put,
        step=options.batch_size,
        progress=context.progress,
    )
    return Sparse(items, encoder, vectors, updates)


class Sparse:
    """An index of weighted terms: ties are in corpus order, items without a term left out."""

    batch = 1
    concurrency = 1
    deep = True

    def __init__(
        self, items: Items, encoder: _Encoder, vectors: Sequence[Terms], updates: int
    ) -> None:
        from scipy.sparse import csr_array

        self.items = items
        self._encoder = encoder
        sizes = [len(terms.ids) for terms in vectors]
        self._terms, columns = np.unique(
            np.concatenate([terms.ids for terms in vectors]), return_inverse=True
        )
        weights = np.concatenate([terms.weights for terms in vectors])
        ends = np.concatenate([[0], np.cumsum(sizes)])
        shape = (len(items), len(self._terms))
        # Turned around, since a query asks for the items of a few terms.
        self._postings = csr_array((weights, columns, ends), shape=shape).T.tocsr()
        in_items = np.bincount(columns, minlength=len(self._terms))
        rare = np.log1p((len(items) - in_items + 0.5) / (in_items + 0.5))
        self._importance = rare if encoder.needs_idf else np.ones(len(self._terms))
        inside = (self._postings.data, self._postings.indices, self._postings.indptr)
        self.meta: Mapping[str, Any] = {
            "embedding_model": encoder.meta,
            "libraries": encoder.libraries,
            "index_bytes": sum(array.nbytes for array in inside),
            "embedding_updates": updates,
        }

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """Return the items with the highest weight for each query."""
        return [self._search_one(query, k) for query in queries]

    def _search_one(self, query: Query, k: int) -> Answer:
        start = time.perf_counter()
        terms = self._encoder.query(query.text)
        embedded = time.perf_counter()
        scores = self._scores(terms)
        sharing = np.flatnonzero(scores)
        rows = sharing[top_rows(scores[sharing], k)]
        hits = self.items.hits(rows, scores[rows])
        searched = time.perf_counter()
        return Answer(
            hits,
            latency={"embed": (embedded - start) * 1000, "search": (searched - embedded) * 1000},
            cost={"query_tokens": float(self._encoder.tokens(query.text))},
        )

    def _scores(self, query: Terms) -> npt.NDArray[np.float64]:
        """Return the sum over shared terms for every item, in double precision."""
        places = np.searchsorted(self._terms, query.ids)
        known = places < len(self._terms)
        known[known] = self._terms[places[known]] == query.ids[known]
        rows = places[known]
        weights = query.weights[known] * self._importance[rows]
        scores: npt.NDArray[np.float64] = self._postings[rows].astype(np.float64).T @ weights
        return scores


class _Encoder:
    """Texts as weighted terms; queries and items may be weighed differently."""

    def __init__(self, model: Model, batch_size: int) -> None:
        self._library = model.library
        self._name = model.name
        self._batch = batch_size
        self.needs_idf = model.needs_idf
        self.meta = model.meta
        self.libraries = model.libraries
        decisive = json.dumps([model.digest, batch_size])
        self.digest = hashlib.sha256(decisive.encode()).hexdigest()

    def items(self, texts: Sequence[str]) -> list[Terms]:
        texts = [valid_unicode(text) for text in texts]
        try:
            made = list(self._library.embed(texts, batch_size=self._batch))
        except Exception as error:
            raise CallError(f"model {self._name} failed: {error_line(error)}") from error
        return self._terms(made)

    def query(self, text: str) -> Terms:
        try:
            made = list(self._library.query_embed(valid_unicode(text)))
        except Exception as error:
            raise CallError(f"model {self._name} failed: {error_line(error)}") from error
        return self._terms(made)[0]

    def tokens(self, text: str) -> int:
        return int(self._library.token_count([valid_unicode(text)]))

    def _terms(self, made: Iterable[Any]) -> list[Terms]:
        terms = [
            Terms(vector.indices.astype(np.int64), vector.values.astype(np.float32))
            for vector in made
        ]
        if not all(np.isfinite(vector.weights).all() for vector in terms):
            raise CallError(f"model {self._name} gave nan or inf for a text; check the model")
        return terms


class TermLists:
    """How sparse vectors are stored in a file: one after the other."""

    def pack(self, vectors: Sequence[Terms]) -> Arrays:
        """Return all terms, all weights, and the length of each vector."""
        return {
            "sizes": np.array([len(terms.ids) for terms in vectors], dtype=np.int64),
            "ids": np.concatenate([terms.ids for terms in vectors]),
            "weights": np.concatenate([terms.weights for terms in vectors]),
        }

    def unpack(self, arrays: Arrays, count: int) -> Sequence[Terms]:
        """Return the vectors one by one."""
        sizes, ids, weights = (arrays[name] for name in ("sizes", "ids", "weights"))
        kinds = [str(array.dtype) for array in (sizes, ids, weights)]
        if kinds != ["int64", "int64", "float32"] or len(sizes) != count:
            raise ValueError(f"arrays are {kinds}")
        if not len(ids) == len(weights) == sizes.sum() or not np.isfinite(weights).all():
            raise ValueError("terms and weights do not fit")
        ends = np.cumsum(sizes)[:-1]
        pieces = zip(np.split(ids, ends), np.split(weights, ends), strict=True)
        return [Terms(*piece) for piece in pieces]


_NONE = Terms(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))
