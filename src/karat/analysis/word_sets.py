"""Texts as words: folded, cut into words, and as sets that can be compared by the million."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

# A text of fewer words is compared as it stands, not by its words.
FEWEST_WORDS = 3

# Scripts that put no space between words: each of their characters is taken for a word.
UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = rf"[[{UNSPACED}]&&\w]|[\w--[{UNSPACED}]]+"


_ROWS_AT_ONCE = 20_000
_BITS = 64
_LOW_BITS = 2**32 - 1

# Some texts: how many different words each has, and the codes of these words
Chunk = tuple[Ints, NDArray[np.int32]]


def folded(texts: pl.Series) -> pl.Series:
    """Each text without what a reader does not see: compatible forms, case, runs of space."""
    fold = (" ".join(unicodedata.normalize("NFKC", text).casefold().split()) for text in texts)
    return pl.Series(texts.name, list(fold), dtype=pl.String)


def words_of(texts: pl.Series) -> pl.Series:
    """The words of each text in their order, folded; a list of text for each."""
    return folded(texts).str.extract_all(_WORD)


@dataclass(frozen=True, eq=False)
class WordSets:
    """Texts as sets of words, each set once, its words from the rarest to the most frequent.

    ``same`` gives for each text the first that holds the same words. The rest describes these
    firsts, from the smallest set to the largest: ``row`` is the text, ``size`` its number of
    words, ``words[first[i]:first[i + 1]]`` those that occur elsewhere too, and ``bits`` a
    digest of them.
    """

    same: Ints
    row: Ints
    size: Ints
    first: Ints
    words: NDArray[np.int32]
    bits: NDArray[np.uint64]


def word_sets(texts: pl.Series) -> WordSets:
    """Read each text as a set of words; done once, however often the sets are compared."""
    chunks = list(_distinct_words(texts))
    size = np.concatenate([np.empty(0, dtype=np.int64), *(lengths for lengths, _ in chunks)])
    kept, words = _shared_words(chunks)
    first = _offsets(kept)
    same = _firsts_of_short(texts, size)
    whole = np.flatnonzero((size >= FEWEST_WORDS) & (kept == size))
    same[whole] = _firsts(whole, size, first, words)
    row = np.flatnonzero((same == np.arange(len(texts))) & (size >= FEWEST_WORDS))
    row = row[np.argsort(size[row], kind="stable")]
    words, first = gathered(row, first, words), _offsets(kept[row])
    return WordSets(same, row, size[row], first, words, _digests(first, words))


def _distinct_words(texts: pl.Series) -> Iterator[Chunk]:
    """Some texts at a time: how many different words each has, and their codes."""
    coded = pl.Series([], dtype=pl.Categorical(pl.Categories.random()))
    for start in range(0, len(texts), _ROWS_AT_ONCE):
        lists = words_of(texts.slice(start, _ROWS_AT_ONCE))
        row = np.repeat(np.arange(len(lists)), lists.list.len().to_numpy())
        # Codes are forgotten with the last column that has them: one is held from turn to turn.
        coded = lists.explode(empty_as_null=False).cast(coded.dtype)
        codes = coded.to_physical().to_numpy().astype(np.int64)
        keys = distinct(row << 32 | codes)
        yield np.bincount(keys >> 32, minlength=len(lists)), (keys & _LOW_BITS).astype(np.int32)


def _shared_words(chunks: list[Chunk]) -> tuple[Ints, NDArray[np.int32]]:
    """The words that occur in several texts: how many each text has, and which, rarest first."""
    frequency = _frequency([codes for _, codes in chunks])
    # Numbered from the rarest, so that sorted words begin with the words that tell most.
    number = np.empty(len(frequency), dtype=np.int64)
    number[np.argsort(frequency, kind="stable")] = np.arange(len(frequency))
    counts, words = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int32)]
    for lengths, codes in chunks:
        shared = frequency[codes] > 1
        row = np.repeat(np.arange(len(lengths)), lengths)[shared]
        keys = np.sort(row << 32 | number[codes[shared]])
        counts.append(np.bincount(row, minlength=len(lengths)))
        words.append((keys & _LOW_BITS).astype(np.int32))
    return np.concatenate(counts), np.concatenate(words)


def _frequency(chunks: list[NDArray[np.int32]]) -> Ints:
    """In how many texts each word occurs."""
    width = 1 + max((int(codes.max(initial=-1)) for codes in chunks), default=-1)
    frequency = np.zeros(width, dtype=np.int64)
    for codes in chunks:
        frequency += np.bincount(codes, minlength=width)
    return frequency


def _firsts_of_short(texts: pl.Series, size: Ints) -> Ints:
    """For each text itself, or the first that is the same where it has too few words to compare."""
    same = np.arange(len(texts))
    short = np.flatnonzero(size < FEWEST_WORDS)
    table = pl.DataFrame({"row": short, "text": folded(texts.gather(short))})
    table = table.filter(pl.col("text") != "").with_columns(first=pl.col("row").min().over("text"))
    same[table["row"].to_numpy()] = table["first"].to_numpy()
    return same


def _firsts(rows: Ints, size: Ints, first: Ints, words: NDArray[np.int32]) -> Ints:
    """For each of the rows the first with the same words; sets of one sum are compared in full."""
    draw = np.random.default_rng(0).integers(2**63, size=words.max(initial=-1) + 1, dtype=np.uint64)
    sums = np.empty(len(rows), dtype=np.uint64)
    for at in slices(len(rows)):
        length = size[rows[at]]
        total = np.cumsum(draw[gathered(rows[at], first, words)], dtype=np.uint64)
        ends = np.cumsum(length)
        before = np.where(ends > length, total[ends - length - 1], 0)
        sums[at] = total[ends - 1] - before
    order = np.lexsort((rows, sums, size[rows]))
    ordered = rows[order]
    one, other = ordered[:-1], ordered[1:]
    alike = (size[one] == size[other]) & (sums[order[:-1]] == sums[order[1:]])
    alike[alike] = _equal(one[alike], other[alike], size, first, words)
    begins = np.concatenate(([True], ~alike))[: len(rows)]
    firsts = np.empty(len(rows), dtype=np.int64)
    firsts[order] = ordered[begins][np.cumsum(begins) - 1]
    return firsts


def _equal(one: Ints, other: Ints, size: Ints, first: Ints, words: NDArray[np.int32]) -> Mask:
    """Whether two sets of one size hold the same words."""
    equal = np.empty(len(one), dtype=np.bool_)
    for at in slices(len(one)):
        differ = gathered(one[at], first, words) != gathered(other[at], first, words)
        pair, _ = ranges(size[one[at]])
        equal[at] = np.bincount(pair, weights=differ, minlength=len(equal[at])) == 0
    return equal


def _digests(first: Ints, words: NDArray[np.int32]) -> NDArray[np.uint64]:
    """For each set some bits, the more the larger the sets: bits that differ are words that do."""
    n = len(first) - 1
    width = int(np.clip(len(words) // (16 * max(n, 1)) + 1, 1, 8))
    digests = np.zeros((n, width), dtype=np.uint64)
    some = np.flatnonzero(np.diff(first))
    if len(some):
        bit = words % (_BITS * width)
        for column in range(width):
            here = (bit // _BITS == column).astype(np.uint64)
            ones = here << (bit % _BITS).astype(np.uint64)
            digests[some, column] = np.bitwise_or.reduceat(ones, first[some])
    return digests


def ranges(lengths: Ints) -> tuple[Ints, Ints]:
    """For each length its number that many times, and beside it 0, 1, 2, …"""
    own = np.repeat(np.arange(len(lengths)), lengths)
    return own, np.arange(len(own)) - (np.cumsum(lengths) - lengths)[own]


def gathered(rows: Ints, first: Ints, words: NDArray[np.int32]) -> NDArray[np.int32]:
    """The words of these rows, one row after another."""
    parts = []
    for at in slices(len(rows)):
        own, step = ranges(first[rows[at] + 1] - first[rows[at]])
        parts.append(words[first[rows[at]][own] + step])
    return np.concatenate([*parts, np.empty(0, dtype=np.int32)])


def distinct(keys: Ints) -> Ints:
    """Each key once, sorted; several times as fast as ``np.unique``."""
    keys = np.sort(keys)
    first: Ints = keys[np.diff(keys, prepend=-1) != 0]
    return first


def _offsets(lengths: Ints) -> Ints:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def slices(n: int) -> Iterator[slice]:
    """So many rows at a time that what is made of them fits into little memory."""
    return (slice(start, start + _ROWS_AT_ONCE) for start in range(0, n, _ROWS_AT_ONCE))
