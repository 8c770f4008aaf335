"""rerank: a model or a callable scores the top of a list again; the rest is dropped.

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
from karat.retrieve.build_context import BuildContext
from karat.retrieve.items import Items
from karat.retrieve.models import Embedder, Model, ModelForm, embedder, load_model, valid_unicode
from karat.retrieve.protocol import Hit, Hits, Query
from karat.retrieve.stages import Stage
from karat.retrieve.system_config import RerankForm
from karat.retrieve.user_code import UserCode, load_callable, takes_first
from karat.retrieve.vectors import Floats

# Vectors of texts that are remembered; the same items are near the top again and again.
_REMEMBERED = 50_000
_SHARED = {"model", "path", "max_length", "threads"}


def reranker(form: RerankForm, items: Items | None, context: BuildContext) -> Stage:
    """Return the reranker of a form."""
    if form.call is not None:
        return Scorer(form.call, items, form.top, context)
    if form.kind == "bi":
        model_form = ModelForm.model_validate(form.model_dump(include=_SHARED))
        return BiEncoder(embedder(model_form, context), items, form.top)
    model = load_model(
        "TextCrossEncoder",
        form.model or "",
        folder=None if form.path is None else context.path(form.path),
        max_length=form.max_length,
        threads=form.threads,
    )
    return CrossEncoder(model, items, form.top)


class Scorer:
    """A callable of the user: a query and its texts in, one number per text out."""

    name = "rerank"

    def __init__(
        self, call: str, items: Items | None, top: int | None, context: BuildContext
    ) -> None:
        self._code = UserCode(f"rerank {call}", context.timeout, context.redact)
        self._call = self._code.load(lambda: load_callable(call, context.folder), done="loaded")
        _check_arguments(self._call, call)
        self._takes_query = takes_first(self._call, Query)
        self._items = items
        self._top = top
        self.meta: Mapping[str, Any] = {
            "reranker_model": {"name": call, "call": call, "kind": "call", **_digest(self._call)}
        }

    def apply(self, query: Query, hits: Hits) -> Hits:
        """Return the top of the list by the callable's scores; it is not called without hits."""
        top = hits[: self._top]
        if not top:
            return []
        texts = [_text(hit, self._items) for hit in top]
        argument = query if self._takes_query else query.text
        scores = self._code.call(lambda: self._numbers(self._call(argument, texts), len(top)))
        return _by_score([hit._replace(score=s) for hit, s in zip(top, scores, strict=True)])

    def _numbers(self, returned: Any, expected: int) -> list[float]:
        """Return one finite number per text."""
        if not isinstance(returned, Iterable) or isinstance(returned, (str, bytes, Mapping, set)):
            raise CallError(f"{self._code.name} gave {type(returned).__name__}, not a list")
        scores = list(returned)
        if len(scores) != expected:
            raise CallError(f"{self._code.name} gave {len(scores)} scores for {expected} texts")
        return [self._number(score, place, expected) for place, score in enumerate(scores, start=1)]

    def _number(self, score: Any, place: int, expected: int) -> float:
        shown = type(score).__name__
        if isinstance(score, Real) and not isinstance(score, bool):
            try:
                number = float(score)
            except OverflowError:
                number, shown = math.inf, "a number beyond all bounds"
            else:
                shown = str(number)
            if math.isfinite(number):
                return number
        raise CallError(
            f"{self._code.name} gave {shown} for text {place} of {expected};"
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
        shown = signature.replace(return_annotation=inspect.Signature.empty)
        raise UsageError(f"{name} takes {shown}; it must take (query, texts)") from None


def _digest(call: Callable[..., Any]) -> dict[str, str]:
    """Return the sha256 of a callable's file, where there is one."""
    try:
        file = inspect.getsourcefile(inspect.unwrap(call))
    except TypeError:
        return {}
    if file is None or not Path(file).is_file():
        return {}
    return {"sha256": hashlib.sha256(Path(file).read_bytes()).hexdigest()}


class CrossEncoder:
    """A model that reads query and text together; its scores have no bounds."""

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
        """Return the top of the list by the model's scores."""
        top = hits[: self._top]
        scores = self._scores(valid_unicode(query.text), _texts(top, self._items))
        return _by_score([hit._replace(score=s) for hit, s in zip(top, scores, strict=True)])

    def _scores(self, query: str, texts: list[str]) -> list[float]:
        scores = [float(value) for value in self._model.run("rerank", query, texts, batch_size=1)]
        if len(scores) != len(texts) or not all(math.isfinite(score) for score in scores):
            raise CallError(f"model {self._model.name} gave no finite score for every text")
        return scores


class BiEncoder:
    """A model that makes vectors; the score is the cosine of query and text."""

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
        """Return the top of the list by cosine."""
        query_vector = self._model.queries([query.text])[0].astype(np.float64)
        scored: Hits = []
        top = hits[: self._top]
        for hit, text in zip(top, _texts(top, self._items), strict=True):
            cosine = min(1.0, max(-1.0, float((self._vector(text) * query_vector).sum())))
            scored.append(hit._replace(score=cosine, similarity=cosine))
        return _by_score(scored)

    def _embedded(self, text: str) -> Floats:
        row: Floats = self._model.items([text])[0]
        return row


def _texts(hits: Sequence[Hit], items: Items | None) -> list[str]:
    return [valid_unicode(_text(hit, items)) for hit in hits]


def _text(hit: Hit, items: Items | None) -> str:
    """Return a hit's own text, else the corpus's with its title."""
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
    return sorted(hits, key=lambda hit: -(hit.score or 0.0))
