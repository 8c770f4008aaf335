"""bow: the cosine of word counts over the corpus."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from karat.formats.settings import ConfigModel
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Answer, Finder, Query, QueryFinder
from karat.retrieve.system_config import Title
from karat.retrieve.vectors import top_rows

_WORD = re.compile(r"\w+", re.ASCII)

Ints = npt.NDArray[np.int64]


def ascii_words(text: str) -> list[str]:
    """Return the words of a text in lower case: runs of ASCII letters, digits and ``_``.

    >>> ascii_words("The SilverKey, été")
    ['the', 'silverkey', 't']
    """
    return _WORD.findall(text.lower())


class WordBags(NamedTuple):
    """Bags of words in a row: ``lengths`` entries each, a word's number and its count.

    ``vocabulary`` numbers the words in the order of their first occurrence.
    """

    vocabulary: dict[str, int]
    lengths: Ints
    words: Ints
    counts: Ints


def word_bags(texts: Iterable[Iterable[str]]) -> WordBags:
    """Return the bag of words of each text, which is given as its words.

    >>> word_bags([["to", "be", "or", "not", "to", "be"], [], ["not"]]).counts.tolist()
    [2, 2, 1, 1, 1]
    """
    vocabulary: dict[str, int] = {}
    lengths, numbers, counts = list[int](), list[int](), list[int]()
    for words in texts:
        bag = Counter(words)
        lengths.append(len(bag))
        numbers += [vocabulary.setdefault(word, len(vocabulary)) for word in bag]
        counts += bag.values()
    return WordBags(
        vocabulary, *(np.array(column, np.int64) for column in (lengths, numbers, counts))
    )


class WordIndex:
    """The texts that hold each word, and how often."""

    def __init__(self, bags: WordBags) -> None:
        by_word = np.argsort(bags.words, kind="stable")
        self._vocabulary = bags.vocabulary
        self.rows = np.repeat(np.arange(len(bags.lengths)), bags.lengths)[by_word]
        self.counts = bags.counts[by_word]
        self._ends = np.cumsum(np.bincount(bags.words, minlength=len(bags.vocabulary)))
        self.nbytes = sum(array.nbytes for array in (self.rows, self.counts, self._ends))

    def entries(self, word: str) -> tuple[Ints, Ints]:
        """Return the texts that hold a word, and its count in each."""
        number = self._vocabulary.get(word)
        if number is None:
            return self.rows[:0], self.counts[:0]
        part = slice(self._ends[number - 1] if number else 0, self._ends[number])
        return self.rows[part], self.counts[part]


class BowOptions(ConfigModel):
    """Which texts of items are read."""

    title: Title = True


Options = BowOptions


def make(options: BowOptions, context: BuildContext, parts: Mapping[str, Finder]) -> QueryFinder:
    """Return a finder over the counts of words; ties are in corpus order.

    Items that share no word with the query follow at score 0, so that the list is the whole
    corpus; ``threshold: 0.001`` leaves them out.
    """
    items = context.items
    texts = context.rules.apply_all(items.titled if options.title else items.texts)
    index = WordIndex(word_bags(map(ascii_words, texts)))
    squares = np.bincount(index.rows, index.counts.astype(float) ** 2, minlength=len(items))
    item_norms = np.sqrt(squares)

    def search(query: Query, k: int) -> Answer:
        words = Counter(ascii_words(query.text))
        products = np.zeros(len(items))
        for word, count in words.items():
            rows, counts = index.entries(word)
            products[rows] += count * counts
        norms = item_norms * np.sqrt(float(sum(count**2 for count in words.values())))
        # The cosine is 0 if either side has no words.
        cosines = np.zeros(len(items))
        np.divide(products, norms, out=cosines, where=norms > 0)
        rows = top_rows(cosines, k)
        return Answer(items.hits(rows, cosines[rows], cosines[rows]))

    return QueryFinder(search, {"index_bytes": index.nbytes + item_norms.nbytes})
