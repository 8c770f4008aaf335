"""Near-duplicate texts: every pair with overlapping sets of words, for up to a million texts.

The join is exact. Two sets that are near enough share at least threshold * size words of either,
rounded up. So they share at least c of a set's rarest words. Only texts that share that many
rare words are compared in full.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.errors import UsageError

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

THRESHOLD = 0.8
# A text of fewer words is compared as a whole, not by its words.
FEWEST_WORDS = 3
# The limits of one comparison: a minute or two of candidates, and the number of pairs.
MOST_CANDIDATES = 1_000_000_000
MOST_PAIRS = 1_000_000

# Scripts that put no space between words: each of their characters is taken for a word.
UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = rf"[[{UNSPACED}]&&\w]|[\w--[{UNSPACED}]]+"

# Limits in memory: texts to read, and words to compare.
_ROWS_AT_ONCE = 20_000
_BLOCK = 4_000_000
# Two near sets must share one in so many of their words among the rarest, and at least one.
_ONE_IN = 20


def folded(texts: pl.Series) -> pl.Series:
    """Return each text with compatible forms, case and runs of space made equal."""
    fold = (" ".join(unicodedata.normalize("NFKC", text).casefold().split()) for text in texts)
    return pl.Series(texts.name, list(fold), dtype=pl.String)


def words_of(texts: pl.Series) -> pl.Series:
    """Return the words of each text in their order, folded; a list of text for each."""
    return folded(texts).str.extract_all(_WORD)


@dataclass(frozen=True, eq=False)
class WordSets:
    """Texts as sets of words, each set once.

    ``same`` gives for each text the first that holds the same words. The rest describes these
    firsts, from the smallest set to the largest: ``row`` is the text, ``size`` its number of
    words, and ``words`` a sparse matrix of ones with a column per word, the rarest first.
    """

    same: Ints
    row: Ints
    size: Ints
    words: Any


def word_sets(texts: pl.Series) -> WordSets:
    """Read each text as a set of words."""
    from scipy.sparse import csr_array

    blocks: list[pl.DataFrame] = []
    codes: list[NDArray[np.uint32]] = []
    coded = pl.Series([], dtype=pl.Categorical(pl.Categories.random()))
    for start in range(0, max(len(texts), 1), _ROWS_AT_ONCE):
        block = folded(texts.slice(start, _ROWS_AT_ONCE))
        words = block.str.extract_all(_WORD).list.unique()
        words_each = pl.col("words").list.len()
        # A set's key is the sum of the hashes of its words, in any order.
        sums = pl.col("words").list.eval(_hash(pl.element())).list.sum()
        key = pl.when(words_each < FEWEST_WORDS).then(_hash(pl.col("text"))).otherwise(sums)
        frame = pl.DataFrame({"text": block, "words": words})
        blocks.append(frame.select(size=words_each, key=key, blank=pl.col("text") == ""))
        # Codes are lost with the last column that has them, so one column is always kept.
        coded = words.explode(empty_as_null=False).cast(coded.dtype)
        codes.append(coded.to_physical().to_numpy())
    sets = pl.concat(blocks).with_row_index("row").cast({"row": pl.Int64, "size": pl.Int64})
    first = pl.when("blank").then("row").otherwise(pl.col("row").first().over("key"))
    same, size = (sets.select(column).to_series().to_numpy() for column in (first, "size"))
    code = np.concatenate(codes)
    frequency = np.bincount(code)
    number = np.empty(len(frequency), dtype=np.int32)
    number[np.argsort(frequency, kind="stable")] = np.arange(len(frequency), dtype=np.int32)
    ends = np.concatenate(([0], np.cumsum(size)))
    ones = np.ones(len(code), dtype=np.int32)
    matrix = csr_array((ones, number[code], ends), shape=(len(texts), len(frequency)))
    matrix.sort_indices()
    row = np.flatnonzero((same == np.arange(len(texts))) & (size >= FEWEST_WORDS))
    row = row[np.argsort(size[row], kind="stable")]
    return WordSets(same, row, size[row], matrix[row])


def _hash(texts: pl.Expr) -> pl.Expr:
    return texts.hash().cast(pl.Int64, wrap_numerical=True)


@dataclass(frozen=True, eq=False)
class NearDuplicates:
    """Which texts are nearly the same.

    ``same`` gives for each text the first with the same words. ``left`` and ``right`` are
    firsts whose words differ, though not by much. If there is too much to compare, ``complete``
    is false and pairs are missing.
    """

    same: Ints
    left: Ints
    right: Ints
    similarity: NDArray[np.float64]
    complete: bool

    def taking_part(self) -> Mask:
        """Return which texts have a near-duplicate."""
        near = np.bincount(self.same, minlength=len(self.same)) > 1
        near[self.left] = near[self.right] = True
        return near[self.same]

    @property
    def count(self) -> int:
        """How many ``pairs`` there are."""
        return int((self.same != np.arange(len(self.same))).sum()) + len(self.left)

    def pairs(self) -> Iterator[tuple[int, int, float]]:
        """Yield each text with the first of the same words, then the pairs of different words."""
        for row in np.flatnonzero(self.same != np.arange(len(self.same))).tolist():
            yield int(self.same[row]), row, 1.0
        yield from zip(
            self.left.tolist(), self.right.tolist(), self.similarity.tolist(), strict=True
        )

    def near(self) -> dict[int, list[int]]:
        """Return the other firsts near each first that has any."""
        neighbours: dict[int, list[int]] = {}
        for left, right in zip(self.left.tolist(), self.right.tolist(), strict=True):
            neighbours.setdefault(left, []).append(right)
            neighbours.setdefault(right, []).append(left)
        return neighbours


def near_duplicates(
    texts: pl.Series,
    *,
    threshold: float = THRESHOLD,
    most_candidates: int = MOST_CANDIDATES,
    most_pairs: int = MOST_PAIRS,
) -> NearDuplicates:
    """Return every pair of texts whose words have a Jaccard similarity of at least ``threshold``.

    Two texts are a candidate for each of their rarest words that they share.

    >>> texts = pl.Series(["how to pay by card", "How to pay by card?", "how can I pay by card"])
    >>> near_duplicates(texts).same.tolist(), list(near_duplicates(texts, threshold=0.5).pairs())
    ([0, 0, 2], [(0, 1, 1.0), (0, 2, 0.5714285714285714)])
    """
    if not 0.5 <= threshold <= 1:
        raise UsageError(f"threshold is {threshold!r}; give a share from 0.5 to 1, such as 0.8")
    sets = word_sets(texts)
    # A share such as 0.8 as people mean it: sizes are multiplied by it, and must stay whole.
    share = Fraction(threshold).limit_denominator(1_000_000)
    parts = [np.empty((3, 0), dtype=np.int64)]
    candidates = pairs = 0
    complete = True
    for count, smaller, larger in _candidates(sets, share):
        candidates += count
        if candidates > most_candidates or pairs > most_pairs:
            complete = False
            break
        overlap = _overlaps(sets, smaller, larger)
        both = sets.size[smaller] + sets.size[larger]
        near = overlap * (share.numerator + share.denominator) >= share.numerator * both
        parts.append(np.stack([smaller, larger, overlap])[:, near])
        pairs += int(near.sum())
    smaller, larger, overlap = np.concatenate(parts, axis=1)
    similarity = overlap / (sets.size[smaller] + sets.size[larger] - overlap)
    left, right = np.sort([sets.row[smaller], sets.row[larger]], axis=0)
    order = np.lexsort((right, left))[:most_pairs]
    complete = complete and pairs <= most_pairs
    return NearDuplicates(sets.same, left[order], right[order], similarity[order], complete)


def _candidates(sets: WordSets, share: Fraction) -> Iterator[tuple[int, Ints, Ints]]:
    """Yield sets that share enough rare words: candidates counted, smaller and larger sets."""
    from scipy.sparse import csr_array

    size, words = sets.size, sets.words
    # The smallest set that can be near enough; two near sets share as many words.
    least = -(-share.numerator * size // share.denominator)
    needed = np.maximum(size // _ONE_IN, 1)
    length = np.minimum(size - least + needed, size)
    position = np.arange(words.nnz) - np.repeat(words.indptr[:-1], size)
    rare = words.indices[position < np.repeat(length, size)]
    first = np.concatenate(([0], np.cumsum(length)))
    view = csr_array((np.ones(len(rare), dtype=np.int32), rare, first), shape=words.shape)
    sets_of_word = view.T.tocsr()
    meetings = view @ np.bincount(rare, minlength=words.shape[1])
    for block in _blocks(meetings):
        met = (view[block] @ sets_of_word).tocoo()
        smaller, larger = met.coords[1].astype(np.int64), block.start + met.coords[0]
        # A pair is met from both sides.
        enough = (smaller < larger) & (met.data >= needed[smaller])
        enough &= size[smaller] >= least[larger]
        yield int(meetings[block].sum()), smaller[enough], larger[enough]


def _overlaps(sets: WordSets, left: Ints, right: Ints) -> Ints:
    """Return how many words each pair of sets has in common."""
    overlaps = np.empty(len(left), dtype=np.int64)
    for block in _blocks(sets.size[left] + sets.size[right]):
        both = sets.words[left[block]].multiply(sets.words[right[block]])
        overlaps[block] = both.sum(axis=1)
    return overlaps


def _blocks(work: Ints) -> Iterator[slice]:
    """Yield stretches whose work adds up to at most a block, or a single element."""
    done = np.cumsum(work)
    start = 0
    while start < len(work):
        before = int(done[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(done, before + _BLOCK, side="right")))
        yield slice(start, end)
        start = end
