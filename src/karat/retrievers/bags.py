"""Texts as bags of words: which words each holds, and how often."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_WORD = re.compile(r"\w+", re.ASCII)

Ints = npt.NDArray[np.int64]


def words(text: str) -> list[str]:
    """A text's words in lower case: runs of ASCII letters, digits and ``_``.

    >>> words("The SilverKey, été")
    ['the', 'silverkey', 't']
    """
    return _WORD.findall(text.lower())


class Bags(NamedTuple):
    """Bags laid end to end: ``lengths`` entries each, a word's number and its count.

    ``vocabulary`` numbers the words in the order of their first occurrence.
    """

    vocabulary: dict[str, int]
    lengths: Ints
    words: Ints
    counts: Ints


def bags_of(texts: Iterable[str]) -> Bags:
    """The bag of each text.

    >>> bags_of(["to be or not to be", "", "not"]).counts.tolist()
    [2, 2, 1, 1, 1]
    """
    vocabulary: dict[str, int] = {}
    lengths, numbers, counts = list[int](), list[int](), list[int]()
    for text in texts:
        bag = Counter(words(text))
        lengths.append(len(bag))
        numbers += [vocabulary.setdefault(word, len(vocabulary)) for word in bag]
        counts += bag.values()
    return Bags(vocabulary, *(np.array(column, np.int64) for column in (lengths, numbers, counts)))
