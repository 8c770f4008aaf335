"""Models that score the top of a list anew: each text with its query, or by their vectors.

What stands below the top is dropped, since its old scores say nothing beside the new ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from karat.errors import CallError
from karat.retrievers.callables import told
from karat.retrievers.embedding import Embedder, ModelForm, embedder
from karat.retrievers.forms import RerankForm
from karat.retrievers.items import Items
from karat.retrievers.models import Model, load_model, sound
from karat.retrievers.protocol import Hit, Hits, Query
from karat.retrievers.stages import Stage
from karat.retrievers.vectors import Floats
from karat.retrievers.workshop import Workshop

# Vectors of texts that are remembered; the same items are near the top again and again.
_REMEMBERED = 50_000
_SHARED = {"model", "path", "max_length", "threads"}


def reranker(form: RerankForm, items: Items | None, workshop: Workshop) -> Stage:
    """The reranker that the form asks for."""
    if form.kind == "bi":
        wanted = ModelForm.model_validate(form.model_dump(include=_SHARED))
        return BiEncoder(embedder(wanted, workshop), items, form.top)
    model = load_model(
        "TextCrossEncoder",
        form.model,
        folder=None if form.path is None else workshop.path(form.path),
        max_length=form.max_length,
        threads=form.threads,
    )
    return CrossEncoder(model, items, form.top)


class CrossEncoder:
    """A model that reads a query and a text together; its scores are of any size."""

    name = "rerank"

    def __init__(self, model: Model, items: Items | None, top: int | None) -> None:
        self._model = model
        self._items = items
        self._top = top
        self.meta: Mapping[str, Any] = {
            "reranker_model": {**model.meta, "kind": "cross"},
            "libraries": model.libraries,
        }
        # A folder with some other model in it is known before the first query.
        self._scores("word", ["word"])

    def apply(self, query: Query, hits: Hits) -> Hits:
        """The top of the list by the model's scores."""
        top = hits[: self._top]
        scores = self._scores(sound(query.text), _texts(top, self._items))
        return _by_score([hit._replace(score=s) for hit, s in zip(top, scores, strict=True)])

    def _scores(self, query: str, texts: list[str]) -> list[float]:
        try:
            scores = [float(one) for one in self._model.library.rerank(query, texts, batch_size=1)]
        except Exception as error:
            raise CallError(f"model {self._model.name} failed: {told(error)}") from error
        if len(scores) != len(texts) or not all(math.isfinite(score) for score in scores):
            raise CallError(f"model {self._model.name} gave no finite score for every text")
        return scores


class BiEncoder:
    """A model that makes vectors; the score is the cosine between query and text."""

    name = "rerank"

    def __init__(self, model: Embedder, items: Items | None, top: int | None) -> None:
        self._model = model
        self._items = items
        self._top = top
        self._vector = lru_cache(maxsize=_REMEMBERED)(self._embedded)
        inner = model.meta["embedding_model"]
        self.meta: Mapping[str, Any] = {
            "reranker_model": {**inner, "kind": "bi"},
            "libraries": model.meta["libraries"],
        }

    def apply(self, query: Query, hits: Hits) -> Hits:
        """The top of the list by cosine."""
        asked = self._model.query(query.text).astype(np.float64)
        scored: Hits = []
        top = hits[: self._top]
        for hit, text in zip(top, _texts(top, self._items), strict=True):
            cosine = min(1.0, max(-1.0, float((self._vector(text) * asked).sum())))
            scored.append(hit._replace(score=cosine, similarity=cosine))
        return _by_score(scored)

    def _embedded(self, text: str) -> Floats:
        row: Floats = self._model.items([text])[0]
        return row


def _texts(hits: Sequence[Hit], items: Items | None) -> list[str]:
    return [sound(_text(hit, items)) for hit in hits]


def _text(hit: Hit, items: Items | None) -> str:
    """A hit's own text, else that of the corpus with its title."""
    if hit.text is not None:
        return hit.text
    row = None if items is None else items.rows.get(hit.item_id)
    if items is None or row is None:
        where = "no corpus is named" if items is None else "the corpus does not have it"
        raise CallError(
            f"item {hit.item_id!r} has no text to rerank by: {where}; name a corpus that "
            "holds it, or let the retriever return texts"
        )
    return items.titled[row]


def _by_score(hits: Hits) -> Hits:
    """Best first; equal scores keep the order that they had."""
    return sorted(hits, key=lambda hit: -(hit.score or 0.0))
