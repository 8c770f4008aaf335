"""Models and callables that score the top of a list anew, each text beside its query.

What stands below the top is dropped, since its old scores say nothing beside the new ones.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from karat.errors import CallError, UsageError
from karat.retrievers.callables import load_callable, takes, told
from karat.retrievers.embedding import Embedder, ModelForm, embedder
from karat.retrievers.foreign import Foreign
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
    if form.call is not None:
        return Scorer(form.call, items, form.top, workshop)
    if form.kind == "bi":
        wanted = ModelForm.model_validate(form.model_dump(include=_SHARED))
        return BiEncoder(embedder(wanted, workshop), items, form.top)
    model = load_model(
        "TextCrossEncoder",
        form.model or "",
        folder=None if form.path is None else workshop.path(form.path),
        max_length=form.max_length,
        threads=form.threads,
    )
    return CrossEncoder(model, items, form.top)


class Scorer:
    """A callable of the user's: a query and its texts in, a number for each text out."""

    name = "rerank"

    def __init__(self, call: str, items: Items | None, top: int | None, workshop: Workshop) -> None:
        self._foreign = Foreign(f"rerank {call}", workshop.timeout, workshop.redact)
        self._call = self._foreign.load(lambda: load_callable(call, workshop.folder), done="loaded")
        _check_arguments(self._call, call)
        self._whole = takes(self._call, Query)
        self._items = items
        self._top = top
        self.meta: Mapping[str, Any] = {
            "reranker_model": {"name": call, "call": call, "kind": "call", **_digest(self._call)}
        }

    def apply(self, query: Query, hits: Hits) -> Hits:
        """The top of the list by what the callable makes of it; without hits it is not asked."""
        top = hits[: self._top]
        if not top:
            return []
        texts = [_text(hit, self._items) for hit in top]
        asked = query if self._whole else query.text
        scores = self._foreign.call(lambda: self._numbers(self._call(asked, texts), len(top)))
        return _by_score([hit._replace(score=s) for hit, s in zip(top, scores, strict=True)])

    def _numbers(self, given: Any, wanted: int) -> list[float]:
        """One finite number a text, or the reason why the call failed."""
        if not isinstance(given, Iterable) or isinstance(given, (str, bytes, Mapping, set)):
            raise CallError(f"{self._foreign.name} gave {type(given).__name__}, not a list")
        scores = list(given)
        if len(scores) != wanted:
            raise CallError(f"{self._foreign.name} gave {len(scores)} scores for {wanted} texts")
        return [self._number(one, place, wanted) for place, one in enumerate(scores, start=1)]

    def _number(self, given: Any, place: int, wanted: int) -> float:
        told = type(given).__name__
        if isinstance(given, Real) and not isinstance(given, bool):
            try:
                number = float(given)
            except OverflowError:
                number, told = math.inf, "a number beyond all bounds"
            else:
                told = str(number)
            if math.isfinite(number):
                return number
        raise CallError(
            f"{self._foreign.name} gave {told} for text {place} of {wanted};"
            " a finite number is expected"
        )


def _check_arguments(call: Callable[..., Any], name: str) -> None:
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):
        return  # nobody can tell; the call itself will
    try:
        signature.bind("", [])
    except TypeError:
        own = signature.replace(return_annotation=inspect.Signature.empty)
        raise UsageError(f"{name} takes {own}; it must take (query, texts)") from None


def _digest(call: Callable[..., Any]) -> dict[str, str]:
    """The sha256 of the file that a callable stands in, where there is one."""
    try:
        file = inspect.getsourcefile(inspect.unwrap(call))
    except TypeError:
        return {}
    if file is None or not Path(file).is_file():
        return {}
    return {"sha256": hashlib.sha256(Path(file).read_bytes()).hexdigest()}


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
