"""Hypervectors: texts as long vectors of +1 and -1, one fixed random vector a word.

The same words give the same bits on every machine: words are hashed with FNV-1a, and a
xorshift generator makes components of the hash. No retriever lives here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from karat.retrievers.bags import bags_of

Bits = npt.NDArray[np.uint8]

_OFFSET, _PRIME, _MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF
_STATE_BITS = 32
# Vectors are packed, and compared, so many bits at a time.
_UNIT_BITS = 16
# Bytes of all words' vectors that are summed up at once, and of all texts': few enough to
# stay in cache.
_AT_ONCE = 1 << 17
# How many bits are set in each number of 16 bits.
_ONES = np.array([value.bit_count() for value in range(1 << _UNIT_BITS)], np.uint8)


def fnv1a(text: str, state: int = _OFFSET) -> int:
    """The 32-bit FNV-1a hash, going on from another state where one is given.

    >>> hex(fnv1a("42:storm"))
    '0x2647d7fc'
    """
    for code in text.encode():
        state = (state ^ code) * _PRIME & _MASK
    return state


class Encoder:
    """Makes hypervectors of ``dim`` components; another ``seed`` gives other ones."""

    def __init__(self, dim: int = 1000, seed: int = 42) -> None:
        self.dim = dim
        self.seed = seed
        self._salted = fnv1a(f"{seed}:")

    def encode(self, texts: Sequence[str]) -> Bits:
        """One row a text: its components as packed bits, 1 for +1, and zeros to the next 16.

        A text's vector is the sign of the sum of its words' vectors, each as often as it
        occurs; where the sum is 0, and in a text without words, the sign is +1.
        """
        from scipy.sparse import csr_array

        bags = bags_of(texts)
        starts = np.concatenate([[0], np.cumsum(bags.lengths)])
        shape = (len(texts), len(bags.vocabulary))
        counts = csr_array((bags.counts.astype(np.int32), bags.words, starts), shape)
        totals = counts.sum(axis=1)[:, None]
        of_words = self._vectors(bags.vocabulary)
        rows = np.empty((len(texts), of_words.shape[1]), np.uint8)
        width = max(1, _AT_ONCE // max(1, *counts.shape))
        for start in range(0, rows.shape[1], width):
            part = slice(start, start + width)
            positive = counts @ np.unpackbits(of_words[:, part], axis=1).astype(np.int32)
            rows[:, part] = np.packbits(2 * positive >= totals, axis=1)
        return self._trimmed(rows)

    def cosines(self, one: Bits, many: Bits) -> npt.NDArray[np.float64]:
        """How alike the vector in ``one`` is to each row of ``many``, from -1 to 1."""
        differing = _ONES[many.view(np.uint16) ^ one.view(np.uint16)].sum(axis=1, dtype=np.int64)
        # The product of two norms, whose last bit may differ from that of dim.
        norms = np.sqrt(self.dim) * np.sqrt(self.dim)
        cosines: npt.NDArray[np.float64] = (self.dim - 2 * differing) / norms
        return cosines

    def _vectors(self, vocabulary: Collection[str]) -> Bits:
        """The vectors of words.

        A step of the generator only moves bits and xors them, so what it emits for a state
        is what it emits for each bit that is set there, xored: 32 such rows serve all words.
        """
        # At 0 a generator would stay for ever.
        states = np.array([fnv1a(word, self._salted) or 1 for word in vocabulary], np.uint32)
        rows = _emitted(self.dim)
        vectors = np.zeros((len(states), rows.shape[1]), np.uint8)
        for bit, row in enumerate(rows):
            vectors[states >> bit & 1 == 1] ^= row
        return vectors

    def _trimmed(self, rows: Bits) -> Bits:
        """The rows with every bit past the last component at 0."""
        used = np.zeros(rows.shape[1] * 8, np.uint8)
        used[: self.dim] = 1
        return rows & np.packbits(used)


@lru_cache(maxsize=4)
def _emitted(dim: int) -> Bits:
    """What the generator emits when a single bit of its state is set: one row a bit."""
    state = np.uint32(1) << np.arange(_STATE_BITS, dtype=np.uint32)
    emitted = np.zeros((dim + -dim % _UNIT_BITS, _STATE_BITS), np.uint8)
    for component in emitted[:dim]:
        state ^= state << 13
        # The sign is carried along, as where the state is a signed number.
        state ^= (state.view(np.int32) >> 17).view(np.uint32)
        state ^= state << 5
        component[:] = state & 1
    return np.packbits(emitted.T, axis=1)
