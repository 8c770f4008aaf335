"""mmr: maximal marginal relevance, a list reordered so that its top is diverse.

Two hits are alike by the share of words that their texts have in common (Jaccard).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from karat.errors import CallError
from karat.retrieve.items import Items
from karat.retrieve.protocol import Hit, Hits, Query
from karat.retrieve.system_config import MmrForm

Floats = npt.NDArray[np.float64]

_WORD = re.compile(r"\w+")
_ASCII_WORD = re.compile(r"[0-9a-z]+")
_STOPWORDS = frozenset(("a", "an", "the", "of", "to", "in", "and", "or"))


def words(text: str) -> AbstractSet[str]:
    """Return the words of a text in any script, in lower case."""
    return set(_WORD.findall(text.lower()))


def ascii_words(text: str) -> AbstractSet[str]:
    """Return the words of variant ab: ASCII after NFKC, without a few stop words."""
    return set(_ASCII_WORD.findall(unicodedata.normalize("NFKC", text).lower())) - _STOPWORDS


@dataclass(frozen=True)
class Mmr:
    """Reorders a list by relevance and by similarity to the hits above; scores stay."""

    form: MmrForm
    items: Items | None
    words: Callable[[str], AbstractSet[str]]
    name: str = "mmr"

    @classmethod
    def of(cls, form: MmrForm, items: Items | None) -> Mmr:
        """Return the stage of a form."""
        return cls(form, items, ascii_words if form.variant == "ab" else words)

    def apply(self, query: Query, hits: Hits) -> Hits:
        """Return the list in its new order."""
        relevance = [_score(hit) for hit in hits]
        sets = [self.words(self._text(hit)) for hit in hits]
        top = len(hits) if self.form.top is None else self.form.top
        if self.form.variant == "ab":
            ids = [hit.item_id for hit in hits]
            order = ab_order(ids, relevance, sets, self.form.weight, top)
        else:
            order = textbook_order(relevance, sets, self.form.weight, top)
        return [hits[at] for at in order]

    def _text(self, hit: Hit) -> str:
        text = hit.text if self.items is None else self.items.text(hit)
        if text is None:
            raise CallError(
                f"item {hit.item_id!r} has no text, and mmr needs one: name a corpus that holds "
                "it, or let the retriever return texts"
            )
        return text


def textbook_order(
    relevance: Sequence[float], sets: Sequence[AbstractSet[str]], weight: float, top: int
) -> list[int]:
    """Order by ``weight × relevance − (1 − weight) × similarity to any chosen``.

    Relevance is scaled to 0..1 over the list. Ties, and what follows the top, keep their order.
    """
    scaled = _to_unit(np.array(relevance, dtype=np.float64))
    nearest = np.zeros(len(sets))

    def value(likeness: Floats) -> Floats:
        np.maximum(nearest, likeness, out=nearest)
        return weight * scaled - (1 - weight) * nearest

    chosen = _greedy(weight * scaled, value, sets, top)
    rest = set(range(len(sets))) - set(chosen)
    return chosen + sorted(rest)


def ab_order(
    ids: Sequence[str],
    relevance: Sequence[float],
    sets: Sequence[AbstractSet[str]],
    weight: float,
    top: int,
) -> list[int]:
    """Order by ``weight × distance + (1 − weight) × relevance``.

    Here the weight is that of diversity, relevance is the score as it is, and the distance is
    the greatest to any chosen one. The first choice is by relevance alone. Ties go by id, and
    what follows the top by falling relevance, then id.
    """
    by_id = sorted(range(len(ids)), key=lambda at: ids[at])
    scores = np.array([relevance[at] for at in by_id], dtype=np.float64)
    farthest = np.zeros(len(ids))

    def value(likeness: Floats) -> Floats:
        np.maximum(farthest, 1 - likeness, out=farthest)
        return weight * farthest + (1 - weight) * scores

    picked = _greedy(scores, value, [sets[at] for at in by_id], top)
    chosen = [by_id[at] for at in picked]
    rest = set(range(len(ids))) - set(chosen)
    return chosen + sorted(rest, key=lambda at: (-relevance[at], ids[at], at))


def _greedy(
    values: Floats,
    revalued: Callable[[Floats], Floats],
    sets: Sequence[AbstractSet[str]],
    count: int,
) -> list[int]:
    """Choose the best value again and again; each choice changes the remaining values."""
    likeness = _Likeness(sets)
    free = np.ones(len(sets), dtype=bool)
    chosen: list[int] = []
    for _ in range(min(count, len(sets))):
        best = int(np.argmax(np.where(free, values, -np.inf)))
        chosen.append(best)
        free[best] = False
        values = revalued(likeness.to(best))
    return chosen


class _Likeness:
    """Jaccard similarity of sets of words, one against all."""

    def __init__(self, sets: Sequence[AbstractSet[str]]) -> None:
        numbers: dict[str, int] = {}
        entries = [numbers.setdefault(word, len(numbers)) for some in sets for word in some]
        self._words: npt.NDArray[Any] = np.array(entries, dtype=np.intp)
        self._sizes = np.array([len(some) for some in sets], dtype=np.intp)
        self._owners = np.repeat(np.arange(len(sets)), self._sizes)
        self._known = len(numbers)

    def to(self, row: int) -> Floats:
        """Return the Jaccard index of every set with this one; two empty sets are equal."""
        has = np.zeros(self._known, dtype=bool)
        has[self._words[self._owners == row]] = True
        shared = np.bincount(self._owners[has[self._words]], minlength=len(self._sizes))
        either = self._sizes + self._sizes[row] - shared
        similarity: Floats = np.ones(len(self._sizes))
        np.divide(shared, either, out=similarity, where=either > 0)
        return similarity


def _to_unit(scores: Floats) -> Floats:
    """Scale from 0 for the least to 1 for the best; if all are equal, all are 1."""
    if not scores.size or scores.max() == scores.min():
        return np.ones_like(scores)
    scaled: Floats = (scores - scores.min()) / (scores.max() - scores.min())
    return scaled


def _score(hit: Hit) -> float:
    if hit.score is None:
        raise CallError(f"item {hit.item_id!r} has no score, and mmr needs one")
    return hit.score
