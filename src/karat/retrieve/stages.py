"""Stages around retrieving, one query or list at a time: rewrite, filters, reranker, diversity."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from karat.data.columns import doc_of_text
from karat.errors import CallError, UsageError, unknown
from karat.formats.settings import preview
from karat.jobs.cache import file_sha256
from karat.measure.kernels.lists import in_time
from karat.retrieve.bow import word_bags
from karat.retrieve.build_context import BuildContext, Items
from karat.retrieve.models import Embedder, ModelOptions, load_model, valid_unicode
from karat.retrieve.placeholders import fill_placeholders
from karat.retrieve.protocol import Hit, Hits, Query
from karat.retrieve.system_config import (
    LocalModelOptions,
    MmrOptions,
    RerankOptions,
    RewriteOptions,
)
from karat.retrieve.user_code import (
    UserCode,
    finite_number,
    fits,
    load_callable,
    parameters,
    source_of,
    takes_first,
)

Floats = npt.NDArray[np.float64]

# Vectors of texts that a reranker remembers; the same items are near the top again and again.
_REMEMBERED = 50_000
# A query and the texts of its hits in, one finite score per text out.
Score = Callable[[Query, list[str]], list[float]]

# What a hit can tell of itself, with or without a corpus.
_HIT_FIELDS = ("item_id", "doc_id", "version", "source")
_WORD = re.compile(r"\w+")
_ASCII_WORD = re.compile(r"[0-9a-z]+")
BASIC_STOP_WORDS = frozenset(("a", "an", "the", "of", "to", "in", "and", "or"))


class Stage(Protocol):
    """A stage that turns a list into a new list: a filter, or one that reorders."""

    @property
    def name(self) -> str: ...
    def apply(self, query: Query, hits: Hits) -> Hits: ...


class Filter:
    """Keeps items with the given attributes; a value ``{column}`` is the query's."""

    name = "filter"

    def __init__(self, required: Mapping[str, Any], items: Items | None) -> None:
        self._required = {name: _listed(value) for name, value in required.items()}
        self._items = items
        columns = [] if items is None else items.frame.columns
        names = tuple(dict.fromkeys((*columns, *_HIT_FIELDS)))
        for name, values in self._required.items():
            if name not in names:
                raise unknown("attribute of the items", name, names, inside="filter")
            if not values:
                raise UsageError(f"filter has no value for {name}, so nothing would pass it")

    def apply(self, query: Query, hits: Hits) -> Hits:
        """Return the hits of which every attribute has one of its values, compared as text."""
        for name, values in self._required.items():
            filled = [fill_placeholders(value, query, {}) for value in values]
            allowed = set[str]().union(*map(_spelled, filled))
            hits = [hit for hit in hits if allowed & _spelled(_fact(hit, name, self._items))]
        return hits


@dataclass(frozen=True)
class AsOf:
    """Keeps items no newer than the query's as_of; ``strict`` drops unknown versions too."""

    strict: bool
    items: Items | None
    name: str = "as_of"

    def apply(self, query: Query, hits: Hits) -> Hits:
        """Return the hits that existed at the query's time; all of them without a time."""
        as_of = query.as_of
        if as_of is None:
            return hits
        if in_time(as_of, as_of, ()) != 1:
            raise CallError(f"as_of is {as_of!r}; a date such as 2026-03-31 is expected")
        return [hit for hit in hits if self._existed(hit, as_of)]

    def _existed(self, hit: Hit, as_of: str) -> bool:
        version = _fact(hit, "version", self.items)
        age = in_time(None if version is None else str(version), as_of, ())
        return age == 1 if self.strict else age != 0


@dataclass(frozen=True)
class Threshold:
    """Keeps hits of at least this score; a hit without a score is an error."""

    least: float
    name: str = "threshold"

    def apply(self, query: Query, hits: Hits) -> Hits:
        """Return the hits whose score is high enough."""
        return [hit for hit in hits if _score(hit, self.name) >= self.least]

    def ends(self, hit: Hit) -> bool:
        """Return whether, in a list by falling score, no hit after this one is kept."""
        return hit.score is not None and hit.score < self.least


@dataclass(frozen=True)
class DistinctDocs:
    """Adds a bonus to the first item of each document, then ranks by the new scores."""

    bonus: float
    items: Items | None
    name: str = "distinct_docs"

    def apply(self, query: Query, hits: Hits) -> Hits:
        """Return the list by the new scores; equal scores keep their order."""
        seen: set[str] = set()
        scored: list[tuple[float, Hit]] = []
        for hit in hits:
            score = _score(hit, self.name)
            doc = str(_fact(hit, "doc_id", self.items))
            if doc not in seen:
                score += self.bonus
            seen.add(doc)
            scored.append((score, hit))
        scored.sort(key=lambda pair: -pair[0])
        return [hit._replace(score=score) for score, hit in scored]


def _score(hit: Hit, stage: str) -> float:
    if hit.score is None:
        raise CallError(f"item {hit.item_id!r} has no score, and {stage} needs one")
    return hit.score


def _text_of(hit: Hit, items: Items | None, stage: str, *, title: bool = False) -> str:
    """Return a hit's own text, else the corpus's, with its title or without."""
    text = hit.text if items is None else items.text(hit, title=title)
    if text is None:
        raise CallError(
            f"item {hit.item_id!r} has no text, and {stage} needs one: name a corpus that holds "
            "it, or let the retriever return texts"
        )
    return text


def _fact(hit: Hit, name: str, items: Items | None) -> Any:
    """Return an attribute of a hit: its own, else that of the corpus."""
    value = getattr(hit, name) if name in _HIT_FIELDS else None
    if value is None and items is not None:
        value = items.value(hit.item_id, name)
    return doc_of_text(hit.item_id) if value is None and name == "doc_id" else value


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _spelled(value: Any) -> set[str]:
    """Return a value, or each of several, as text; 1.0 is spelled 1."""
    return {_text(item) for item in _listed(value) if item is not None}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


@dataclass(frozen=True)
class Rewrite:
    """A callable from a text or a Query to a text; ``both`` searches for both texts."""

    call: Callable[..., Any]
    both: bool
    takes_query: bool
    code: UserCode

    @classmethod
    def of(cls, options: RewriteOptions, context: BuildContext) -> Rewrite:
        """Load the callable; one whose argument is a Query gets the whole query."""
        call = load_callable(options.call, context.folder)
        code = UserCode(f"rewrite {options.call}", context.timeout, context.redact)
        return cls(call, options.both, takes_query=takes_first(call, Query), code=code)

    def apply(self, query: Query) -> Query:
        """Return the query with its new text."""
        text = self.code.call(lambda: self.call(query if self.takes_query else query.text))
        if not isinstance(text, str):
            raise CallError(f"rewrite gave {type(text).__name__} instead of text")
        if not text.strip():
            raise CallError("rewrite gave a blank text; to leave a query as it is, return its own")
        return replace(query, text=text)


def reranker(options: RerankOptions, items: Items | None, context: BuildContext) -> Stage:
    """Return the reranker that options describe."""
    if options.call is not None:
        score, meta = _by_callable(options.call, context)
    elif options.kind == "bi":
        score, meta = _by_vectors(options, context)
    else:
        score, meta = _by_cross_encoder(options, context)
    return Reranker(
        score, items, options.top, meta, cosine=options.call is None and options.kind == "bi"
    )


@dataclass(frozen=True)
class Reranker:
    """Ranks the top of a list by new scores; without hits nothing is scored.

    Lower items are dropped, since old and new scores are not comparable.
    """

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
        scores = self.score(
            query, [_text_of(hit, self.items, self.name, title=True) for hit in top]
        )
        scored = [
            hit._replace(score=score, similarity=score if self.cosine else hit.similarity)
            for hit, score in zip(top, scores, strict=True)
        ]
        return sorted(scored, key=lambda hit: -(hit.score or 0.0))


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


def _by_cross_encoder(
    options: RerankOptions, context: BuildContext
) -> tuple[Score, dict[str, Any]]:
    """Return the scores of a model that reads query and text together; they have no bounds."""
    model = load_model("TextCrossEncoder", options, context)

    def score(query: Query, texts: list[str]) -> list[float]:
        valid = [valid_unicode(text) for text in texts]
        made = model.run("rerank", valid_unicode(query.text), valid, batch_size=1)
        return _numbers([float(value) for value in made], len(texts), f"model {model.name}")

    # A folder with some other model in it is known before the first query.
    score(Query("", "word"), ["word"])
    return score, {"reranker_model": {**model.meta, "kind": "cross"}, "libraries": model.libraries}


def _by_vectors(options: RerankOptions, context: BuildContext) -> tuple[Score, dict[str, Any]]:
    """Return the scores of a model that makes vectors: the cosine of query and text."""
    model = Embedder(
        ModelOptions.model_validate(
            options.model_dump(include=set(LocalModelOptions.model_fields))
        ),
        context,
    )

    @lru_cache(maxsize=_REMEMBERED)
    def vector(text: str) -> npt.NDArray[np.float32]:
        row: npt.NDArray[np.float32] = model.items([text])[0]
        return row

    def score(query: Query, texts: list[str]) -> list[float]:
        query_vector = model.queries([query.text])[0].astype(np.float64)
        products = [float((vector(valid_unicode(text)) * query_vector).sum()) for text in texts]
        return [min(1.0, max(-1.0, product)) for product in products]

    about = {**model.meta["embedding_model"], "kind": "bi"}
    return score, {"reranker_model": about, "libraries": model.meta["libraries"]}


def ab_words(text: str) -> AbstractSet[str]:
    """Return the words of variant ab: ASCII after NFKC, without a few stop words."""
    return set(_ASCII_WORD.findall(unicodedata.normalize("NFKC", text).lower())) - BASIC_STOP_WORDS


@dataclass(frozen=True)
class Mmr:
    """Maximal marginal relevance: a list reordered so that its top is diverse; scores stay.

    Two hits are alike by the share of words that their texts have in common (Jaccard).
    """

    options: MmrOptions
    items: Items | None
    name: str = "mmr"

    def apply(self, query: Query, hits: Hits) -> Hits:
        """Return the list in its new order."""
        options = self.options
        relevance = [_score(hit, self.name) for hit in hits]
        texts = [_text_of(hit, self.items, self.name) for hit in hits]
        top = len(hits) if options.top is None else options.top
        if options.variant == "ab":
            ids, similarity = [hit.item_id for hit in hits], Jaccard(map(ab_words, texts))
            order = ab_order(ids, relevance, similarity.to, options.weight, top)
        else:
            similarity = Jaccard(set(_WORD.findall(text.lower())) for text in texts)
            order = textbook_order(relevance, similarity.to, options.weight, top)
        return [hits[at] for at in order]


# Gives the similarity of one position of a list to every position.
Similarity = Callable[[int], Floats]


def textbook_order(
    relevance: Sequence[float], similarity: Similarity, weight: float, top: int
) -> list[int]:
    """Order by ``weight × relevance − (1 − weight) × similarity to any chosen``.

    Relevance is scaled to 0..1 over the list. Ties, and what follows the top, keep their order.
    """
    scores = np.array(relevance, dtype=np.float64)
    spread = scores.max(initial=-np.inf) - scores.min(initial=np.inf)
    scaled = (scores - scores.min()) / spread if spread > 0 else np.ones_like(scores)
    nearest = np.zeros(len(scores))

    def value(last: int) -> Floats:
        np.maximum(nearest, similarity(last), out=nearest)
        return weight * scaled - (1 - weight) * nearest

    chosen = _greedy(weight * scaled, value, top)
    return chosen + sorted(set(range(len(scores))) - set(chosen))


def ab_order(
    ids: Sequence[str],
    relevance: Sequence[float],
    similarity: Similarity,
    weight: float,
    top: int,
) -> list[int]:
    """Order by ``weight × distance + (1 − weight) × relevance``.

    Here the weight is that of diversity, relevance is the score as it is, and the distance is
    the greatest to any chosen one. The first choice is by relevance alone. Ties go by id, and
    what follows the top by falling relevance, then id.
    """
    by_id = np.array(sorted(range(len(ids)), key=lambda at: ids[at]), dtype=np.intp)
    scores = np.array(relevance, dtype=np.float64)[by_id]
    farthest = np.zeros(len(scores))

    def value(last: int) -> Floats:
        np.maximum(farthest, 1 - similarity(int(by_id[last]))[by_id], out=farthest)
        return weight * farthest + (1 - weight) * scores

    chosen: list[int] = by_id[_greedy(scores, value, top)].tolist()
    remaining = set(range(len(ids))) - set(chosen)
    return chosen + sorted(remaining, key=lambda at: (-relevance[at], ids[at], at))


def _greedy(values: Floats, revalued: Callable[[int], Floats], count: int) -> list[int]:
    """Choose the best value again and again; each choice changes the remaining values."""
    free = np.ones(len(values), dtype=bool)
    chosen: list[int] = []
    for _ in range(min(count, len(values))):
        best = int(np.argmax(np.where(free, values, -np.inf)))
        chosen.append(best)
        free[best] = False
        values = revalued(best)
    return chosen


class Jaccard:
    """Jaccard similarity of sets of words, one against all."""

    def __init__(self, sets: Iterable[AbstractSet[str]]) -> None:
        self._bags = word_bags(sets)
        self._ends = np.cumsum(self._bags.lengths)
        self._owners = np.repeat(np.arange(len(self._ends)), self._bags.lengths)
        self.nbytes = self._bags.words.nbytes + self._ends.nbytes + self._owners.nbytes

    def to(self, row: int) -> Floats:
        """Return the Jaccard index of every set with this one; two empty sets are equal."""
        sizes, words = self._bags.lengths, self._bags.words
        has = np.zeros(len(self._bags.vocabulary), dtype=bool)
        has[words[self._ends[row] - sizes[row] : self._ends[row]]] = True
        shared = np.bincount(self._owners[has[words]], minlength=len(sizes))
        either = sizes + sizes[row] - shared
        similarity: Floats = np.ones(len(sizes))
        np.divide(shared, either, out=similarity, where=either > 0)
        return similarity
