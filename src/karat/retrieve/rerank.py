"""rerank: a model or a callable scores the top of a list again; the rest is dropped.

What stands below the top is dropped, since its old scores say nothing beside the new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from karat.errors import CallError, UsageError
from karat.formats.settings import preview
from karat.jobs.cache import file_sha256
from karat.retrieve.build_context import BuildContext, Items
from karat.retrieve.models import Embedder, ModelForm, load_model, valid_unicode
from karat.retrieve.protocol import Hit, Hits, Query
from karat.retrieve.python import fits, parameters
from karat.retrieve.stages import Stage
from karat.retrieve.system_config import LocalModelForm, RerankForm
from karat.retrieve.user_code import (
    UserCode,
    finite_number,
    load_callable,
    source_of,
    takes_first,
)
from karat.retrieve.vectors import Floats

# Vectors of texts that are remembered; the same items are near the top again and again.
_REMEMBERED = 50_000
# A query and the texts of its hits in, one finite score per text out.
Score = Callable[[Query, list[str]], list[float]]


def reranker(form: RerankForm, items: Items | None, context: BuildContext) -> Stage:
    """Return the reranker of a form."""
    if form.call is not None:
        score, meta = _by_callable(form.call, context)
    elif form.kind == "bi":
        score, meta = _by_vectors(form, context)
    else:
        score, meta = _by_cross_encoder(form, context)
    return Reranker(score, items, form.top, meta, cosine=form.call is None and form.kind == "bi")


@dataclass(frozen=True)
class Reranker:
    """Ranks the top of a list by new scores; without hits nothing is scored."""

    score: Score
    items: Items | None
    top: int | None
    meta: Mapping[str, Any]
    cosine: bool = False
    name: str = "rerank"

    def apply(self, query: Query, hits: Hits) -> Hits:
        """Return the top of the list by the new scores."""
        top = hits[: self.top]
        if not top:
            return []
        scores = self.score(query, [self._text(hit) for hit in top])
        scored = [
            hit._replace(score=score, similarity=score if self.cosine else hit.similarity)
            for hit, score in zip(top, scores, strict=True)
        ]
        return sorted(scored, key=lambda hit: -(hit.score or 0.0))

    def _text(self, hit: Hit) -> str:
        """Return a hit's own text, else the corpus's with its title."""
        if hit.text is not None:
            return hit.text
        row = None if self.items is None else self.items.rows.get(hit.item_id)
        if self.items is None or row is None:
            where = "no corpus is named" if self.items is None else "the corpus does not have it"
            raise CallError(
                f"item {hit.item_id!r} has no text to rerank by: {where}; name a corpus that "
                "holds it, or let the retriever return texts"
            )
        return self.items.titled[row]


def _by_callable(name: str, context: BuildContext) -> tuple[Score, dict[str, Any]]:
    """Return the scores of a callable: a query and its texts in, one number per text out."""
    code = UserCode(f"rerank {name}", context.timeout, context.redact)
    call = code.load(lambda: load_callable(name, context.folder), done="loaded")
    if not fits(call, ("", []), {}):
        raise UsageError(f"{name} takes {parameters(call)}; it must take (query, texts)")
    takes_query = takes_first(call, Query)

    def score(query: Query, texts: list[str]) -> list[float]:
        argument = query if takes_query else query.text
        return code.call(lambda: _numbers(call(argument, texts), len(texts), code.name))

    sha256 = file_sha256(source_of(name, context.folder))
    about = {"name": name, "call": name, "kind": "call", "sha256": sha256}
    return score, {"reranker_model": about}


def _numbers(returned: Any, expected: int, name: str) -> list[float]:
    """Return one finite number per text."""
    if not isinstance(returned, Iterable) or isinstance(returned, str | bytes | Mapping | set):
        raise CallError(f"{name} gave {type(returned).__name__}, not a list")
    scores = list(returned)
    if len(scores) != expected:
        raise CallError(f"{name} gave {len(scores)} scores for {expected} texts")
    numbers = [finite_number(score) for score in scores]
    for place, (score, number) in enumerate(zip(scores, numbers, strict=True), start=1):
        if number is None:
            raise CallError(
                f"{name} gave {preview(score)} for text {place} of {expected}; "
                "a finite number is expected"
            )
    return [number for number in numbers if number is not None]


def _by_cross_encoder(form: RerankForm, context: BuildContext) -> tuple[Score, dict[str, Any]]:
    """Return the scores of a model that reads query and text together; they have no bounds."""
    model = load_model("TextCrossEncoder", form, context)

    def score(query: Query, texts: list[str]) -> list[float]:
        valid = [valid_unicode(text) for text in texts]
        made = model.run("rerank", valid_unicode(query.text), valid, batch_size=1)
        return _numbers([float(value) for value in made], len(texts), f"model {model.name}")

    # A folder with some other model in it is known before the first query.
    score(Query("", "word"), ["word"])
    return score, {"reranker_model": {**model.meta, "kind": "cross"}, "libraries": model.libraries}


def _by_vectors(form: RerankForm, context: BuildContext) -> tuple[Score, dict[str, Any]]:
    """Return the scores of a model that makes vectors: the cosine of query and text."""
    model = Embedder(
        ModelForm.model_validate(form.model_dump(include=set(LocalModelForm.model_fields))), context
    )

    @lru_cache(maxsize=_REMEMBERED)
    def vector(text: str) -> Floats:
        row: Floats = model.items([text])[0]
        return row

    def score(query: Query, texts: list[str]) -> list[float]:
        query_vector = model.queries([query.text])[0].astype(np.float64)
        products = [float((vector(valid_unicode(text)) * query_vector).sum()) for text in texts]
        return [min(1.0, max(-1.0, product)) for product in products]

    about = {**model.meta["embedding_model"], "kind": "bi"}
    return score, {"reranker_model": about, "libraries": model.meta["libraries"]}
