"""Which item has which words: BM25 over some of the items, and how far items lie apart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

# Keeps the logarithm finite where every candidate has a word.
_NEVER_ZERO = 1e-9


class Lexical(NamedTuple):
    """The lexical score of every item, and how many distinct words of the query it has."""

    scores: Floats
    hits: npt.NDArray[np.int64]


class Lexicon:
    """The words of every item, by word."""

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        counted = [Counter(words) for words in texts]
        numbers: dict[str, int] = {}
        pairs = [
            (numbers.setdefault(word, len(numbers)), row, count)
            for row, words in enumerate(counted)
            for word, count in words.items()
        ]
        table = np.array(pairs, dtype=np.int64).reshape(-1, 3)
        self.lengths = np.array([len(words) for words in texts], dtype=np.float64)
        self.distinct = np.array([len(words) for words in counted], dtype=np.int64)
        self._ends = np.concatenate(([0], np.cumsum(self.distinct)))
        self._words_of = table[:, 0]
        by_word = table[np.argsort(table[:, 0], kind="stable")]
        self._starts = np.searchsorted(by_word[:, 0], np.arange(len(numbers) + 1))
        self._rows: Rows = by_word[:, 1].astype(np.intp)
        self._counts = by_word[:, 2].astype(np.float64)
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def nbytes(self) -> int:
        """How much memory the numbers take."""
        tables = (self.lengths, self.distinct, self._ends, self._words_of)
        by_word = (self._starts, self._rows, self._counts)
        return sum(array.nbytes for array in (*tables, *by_word))

    def _having(self, number: int) -> slice:
        return slice(int(self._starts[number]), int(self._starts[number + 1]))

    def bm25(self, asked: Sequence[str], among: Mask, *, k1: float, b: float) -> Lexical:
        """BM25 with counts and lengths taken over the marked items alone.

        A word that more than half of them have counts against an item; a word that the
        query repeats counts as often.
        """
        scores = np.zeros(len(self))
        hits = np.zeros(len(self), dtype=np.int64)
        number = int(among.sum())
        if not number:
            return Lexical(scores, hits)
        mean = float(self.lengths[among].sum()) / number or 1.0
        seen: set[str] = set()
        for word in asked:
            if word not in self._numbers:
                continue
            place = self._having(self._numbers[word])
            kept = among[self._rows[place]]
            rows, counts = self._rows[place][kept], self._counts[place][kept]
            rarity = math.log((number - len(rows) + 0.5) / (len(rows) + 0.5) + _NEVER_ZERO)
            length = k1 * (1 - b + b * (self.lengths[rows] / mean))
            scores[rows] += rarity * ((counts * (k1 + 1.0)) / (counts + length))
            hits[rows] += word not in seen
            seen.add(word)
        return Lexical(scores, hits)

    def distances(self, row: int) -> Floats:
        """The Jaccard distance of every item's set of words to one item's."""
        shared = np.zeros(len(self), dtype=np.int64)
        for number in self._words_of[self._ends[row] : self._ends[row + 1]]:
            shared[self._rows[self._having(int(number))]] += 1
        either = self.distinct + self.distinct[row] - shared
        # Two items without a word are no distance apart.
        return np.where(either > 0, 1.0 - shared / np.maximum(either, 1), 0.0)
