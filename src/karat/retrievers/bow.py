"""Bags of words: the cosine of term counts over the corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from karat.formats.forms import Form
from karat.retrievers.bags import bags_of, words
from karat.retrievers.items import Items
from karat.retrievers.protocol import Answer, Finder, Query
from karat.retrievers.ranking import top_rows
from karat.retrievers.texts import TextRules
from karat.retrievers.workshop import Workshop


class Options(Form):
    """What of an item is read."""

    title: bool = Field(True, description="true to put an item's title before its text, or false")


def make(options: Options, workshop: Workshop, parts: Mapping[str, Finder]) -> Bow:
    """The index over the corpus."""
    return Bow(options, workshop.items, workshop.rules)


class Bow:
    """An index of word counts: ties are in corpus order.

    Items that share no word with the query follow at score 0, so that the list is the whole
    corpus; ``threshold: 0.001`` leaves them out.
    """

    batch = 1
    concurrency = 1
    deep = True

    def __init__(self, options: Options, items: Items, rules: TextRules) -> None:
        self.items = items
        texts = rules.apply_all(items.titled if options.title else items.texts)
        bags = bags_of(texts)
        self._ids = bags.vocabulary
        # The items of each word and how often each holds it, one word after the other.
        by_word = np.argsort(bags.words, kind="stable")
        self._rows = np.repeat(np.arange(len(texts)), bags.lengths)[by_word]
        self._counts = bags.counts[by_word]
        self._ends = np.cumsum(np.bincount(bags.words, minlength=len(bags.vocabulary)))
        squares = np.bincount(self._rows, self._counts.astype(float) ** 2, minlength=len(texts))
        self._norms = np.sqrt(squares)

    @property
    def meta(self) -> Mapping[str, Any]:
        """The size of the index."""
        arrays = (self._rows, self._counts, self._ends, self._norms)
        return {"index_bytes": sum(array.nbytes for array in arrays)}

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """The items nearest to each query, best first."""
        return [self._one(query.text, k) for query in queries]

    def _one(self, text: str, k: int) -> Answer:
        scores = self._scores(Counter(words(text)))
        rows = top_rows(scores, k)
        return Answer(self.items.hits(rows, scores[rows], scores[rows]))

    def _scores(self, asked: Mapping[str, int]) -> npt.NDArray[np.float64]:
        """The cosines; 0 where either side has no words."""
        products = np.zeros(len(self.items))
        for word, count in asked.items():
            at = self._ids.get(word)
            if at is not None:
                part = slice(self._ends[at - 1] if at else 0, self._ends[at])
                products[self._rows[part]] += count * self._counts[part]
        norms = self._norms * np.sqrt(float(sum(count**2 for count in asked.values())))
        cosines: npt.NDArray[np.float64] = np.zeros(len(self.items))
        np.divide(products, norms, out=cosines, where=norms > 0)
        return cosines
