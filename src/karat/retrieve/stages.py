"""Stages around retrieving, one query or list at a time: rewrite, filters, bonus, diversity."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from karat.data.columns import doc_of_text
from karat.errors import CallError, UsageError, unknown
from karat.measure.kernels.lists import in_time
from karat.retrieve.bow import word_bags
from karat.retrieve.build_context import BuildContext, Items
from karat.retrieve.placeholders import fill_placeholders
from karat.retrieve.protocol import Hit, Hits, Query
from karat.retrieve.system_config import MmrForm, RewriteForm
from karat.retrieve.user_code import UserCode, load_callable, takes_first

Floats = npt.NDArray[np.float64]

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
        self._facts = _Facts(items)
        for name, values in self._required.items():
            if name not in self._facts.names:
                raise unknown("attribute of the items", name, self._facts.names, inside="filter")
            if not values:
                raise UsageError(f"filter has no value for {name}, so nothing would pass it")

    def apply(self, query: Query, hits: Hits) -> Hits:
        """Return the hits of which every attribute has one of its values, compared as text."""
        for name, values in self._required.items():
            filled = [fill_placeholders(value, query, {}) for value in values]
            allowed = set[str]().union(*map(_spelled, filled))
            hits = [hit for hit in hits if allowed & _spelled(self._facts.of(hit, name))]
        return hits


class AsOf:
    """Keeps items no newer than the query's as_of; ``strict`` drops unknown versions too."""

    name = "as_of"

    def __init__(self, strict: bool, items: Items | None) -> None:
        self._strict = strict
        self._facts = _Facts(items)

    def apply(self, query: Query, hits: Hits) -> Hits:
        """Return the hits that existed at the query's time; all of them without a time."""
        as_of = query.as_of
        if as_of is None:
            return hits
        if in_time(as_of, as_of, ()) != 1:
            raise CallError(f"as_of is {as_of!r}; a date such as 2026-03-31 is expected")
        return [hit for hit in hits if self._existed(hit, as_of)]

    def _existed(self, hit: Hit, as_of: str) -> bool:
        version = self._facts.of(hit, "version")
        age = in_time(None if version is None else str(version), as_of, ())
        return age == 1 if self._strict else age != 0


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


class DistinctDocs:
    """Adds a bonus to the first item of each document, then ranks by the new scores."""

    name = "distinct_docs"

    def __init__(self, bonus: float, items: Items | None) -> None:
        self._bonus = bonus
        self._facts = _Facts(items)

    def apply(self, query: Query, hits: Hits) -> Hits:
        """Return the list by the new scores; equal scores keep their order."""
        seen: set[str] = set()
        scored: list[tuple[float, Hit]] = []
        for hit in hits:
            score = _score(hit, self.name)
            doc = str(self._facts.of(hit, "doc_id"))
            if doc not in seen:
                score += self._bonus
            seen.add(doc)
            scored.append((score, hit))
        scored.sort(key=lambda pair: -pair[0])
        return [hit._replace(score=score) for score, hit in scored]


def _score(hit: Hit, stage: str) -> float:
    if hit.score is None:
        raise CallError(f"item {hit.item_id!r} has no score, and {stage} needs one")
    return hit.score


class _Facts:
    """Attributes of hits: their own, else those of the corpus."""

    def __init__(self, items: Items | None) -> None:
        self._items = items
        self._columns: dict[str, list[Any]] = {}
        columns = [] if items is None else items.frame.columns
        self.names = tuple(dict.fromkeys((*columns, *_HIT_FIELDS)))

    def of(self, hit: Hit, name: str) -> Any:
        hit_value = getattr(hit, name) if name in _HIT_FIELDS else None
        value = hit_value if hit_value is not None else self._in_corpus(hit.item_id, name)
        return doc_of_text(hit.item_id) if value is None and name == "doc_id" else value

    def _in_corpus(self, item_id: str, name: str) -> Any:
        row = None if self._items is None else self._items.rows.get(item_id)
        if self._items is None or row is None:
            return None
        if name not in self._columns:
            has = name in self._items.frame.columns
            self._columns[name] = self._items.frame[name].to_list() if has else []
        return self._columns[name][row] if self._columns[name] else None


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
    def of(cls, form: RewriteForm, context: BuildContext) -> Rewrite:
        """Load the callable of a form; one whose argument is a Query gets the whole query."""
        call = load_callable(form.call, context.folder)
        code = UserCode(f"rewrite {form.call}", context.timeout, context.redact)
        return cls(call, form.both, takes_query=takes_first(call, Query), code=code)

    def apply(self, query: Query) -> Query:
        """Return the query with its new text."""
        text = self.code.call(lambda: self.call(query if self.takes_query else query.text))
        if not isinstance(text, str):
            raise CallError(f"rewrite gave {type(text).__name__} instead of text")
        if not text.strip():
            raise CallError("rewrite gave a blank text; to leave a query as it is, return its own")
        return replace(query, text=text)


def ascii_words(text: str) -> AbstractSet[str]:
    """Return the words of variant ab: ASCII after NFKC, without a few stop words."""
    return set(_ASCII_WORD.findall(unicodedata.normalize("NFKC", text).lower())) - BASIC_STOP_WORDS


@dataclass(frozen=True)
class Mmr:
    """Maximal marginal relevance: a list reordered so that its top is diverse; scores stay.

    Two hits are alike by the share of words that their texts have in common (Jaccard).
    """

    form: MmrForm
    items: Items | None
    name: str = "mmr"

    def apply(self, query: Query, hits: Hits) -> Hits:
        """Return the list in its new order."""
        form = self.form
        relevance = [_score(hit, self.name) for hit in hits]
        texts = [self._text(hit) for hit in hits]
        top = len(hits) if form.top is None else form.top
        if form.variant == "ab":
            ids, similarity = [hit.item_id for hit in hits], Jaccard(map(ascii_words, texts))
            order = ab_order(ids, relevance, similarity.to, form.weight, top)
        else:
            similarity = Jaccard(set(_WORD.findall(text.lower())) for text in texts)
            order = textbook_order(relevance, similarity.to, form.weight, top)
        return [hits[at] for at in order]

    def _text(self, hit: Hit) -> str:
        text = hit.text if self.items is None else self.items.text(hit)
        if text is None:
            raise CallError(
                f"item {hit.item_id!r} has no text, and mmr needs one: name a corpus that holds "
                "it, or let the retriever return texts"
            )
        return text


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
