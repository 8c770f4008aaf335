"""vsa: hypervectors of words (a vector symbolic architecture), ranked by cosine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from karat.formats.settings import ConfigModel
from karat.retrieve.bow import ascii_words, word_bags
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Answer, Finder, Query, QueryFinder
from karat.retrieve.system_config import Title
from karat.retrieve.vectors import top_rows

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
    """Return the 32-bit FNV-1a hash, continued from another state if one is given.

    >>> hex(fnv1a("42:storm"))
    '0x2647d7fc'
    """
    for code in text.encode():
        state = (state ^ code) * _PRIME & _MASK
    return state


class HypervectorEncoder:
    """Makes hypervectors of ``dim`` components of +1 and -1, determined by ``seed``."""

    def __init__(self, dim: int = 1000, seed: int = 42) -> None:
        self.dim = dim
        self.seed = seed
        self._salted = fnv1a(f"{seed}:")

    def encode(self, texts: Sequence[str]) -> Bits:
        """Return one row per text: components as packed bits, 1 for +1, padded to 16 bits.

        A text's vector is the sign of the sum of its words' vectors, each as often as it
        occurs; where the sum is 0, and in a text without words, the sign is +1.
        """
        from scipy.sparse import csr_array

        bags = word_bags(map(ascii_words, texts))
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
        used = np.zeros(rows.shape[1] * 8, np.uint8)
        used[: self.dim] = 1
        return rows & np.packbits(used)

    def cosines(self, vector: Bits, many: Bits) -> npt.NDArray[np.float64]:
        """Return the cosine of one vector with each row of ``many``."""
        differing = _ONES[many.view(np.uint16) ^ vector.view(np.uint16)].sum(axis=1, dtype=np.int64)
        # The product of two norms, whose last bit may differ from that of dim.
        norms = np.sqrt(self.dim) * np.sqrt(self.dim)
        cosines: npt.NDArray[np.float64] = (self.dim - 2 * differing) / norms
        return cosines

    def _vectors(self, vocabulary: Collection[str]) -> Bits:
        """Return the vectors of words.

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


@lru_cache(maxsize=4)
def _emitted(dim: int) -> Bits:
    """Return what the generator emits for each single bit of its state, one row per bit."""
    state = np.uint32(1) << np.arange(_STATE_BITS, dtype=np.uint32)
    emitted = np.zeros((dim + -dim % _UNIT_BITS, _STATE_BITS), np.uint8)
    for component in emitted[:dim]:
        state ^= state << 13
        # The sign is carried along, as where the state is a signed number.
        state ^= (state.view(np.int32) >> 17).view(np.uint32)
        state ^= state << 5
        component[:] = state & 1
    return np.packbits(emitted.T, axis=1)


MOST_DIM = 100_000
# Beyond it whole numbers are spelled differently from language to language.
MOST_SEED = 2**53 - 1


class VsaOptions(ConfigModel):
    """The length and the seed of the vectors, and which texts of items are read."""

    dim: Annotated[int, Field(ge=1, le=MOST_DIM)] = Field(
        1000, description=f"a whole number from 1 to {MOST_DIM:,}"
    )
    seed: Annotated[int, Field(ge=-MOST_SEED, le=MOST_SEED)] = Field(
        42, description=f"a whole number from -{MOST_SEED} to {MOST_SEED}"
    )
    title: Title = True


Options = VsaOptions


def make(options: VsaOptions, context: BuildContext, parts: Mapping[str, Finder]) -> QueryFinder:
    """Return a finder over hypervectors: every item has a score, ties are in corpus order.

    Texts of an even number of words lean towards +1, and a text without words is +1
    throughout: a short query may find an empty item more alike than a related one.
    """
    items = context.items
    encoder = HypervectorEncoder(options.dim, options.seed)
    texts = context.rules.apply_all(items.titled if options.title else items.texts)
    vectors = encoder.encode(texts)

    def search(query: Query, k: int) -> Answer:
        scores = encoder.cosines(encoder.encode([query.text])[0], vectors)
        rows = top_rows(scores, k)
        return Answer(items.hits(rows, scores[rows], scores[rows]))

    about = {"name": "vsa", "dim": options.dim, "seed": options.seed}
    return QueryFinder(search, {"index_bytes": vectors.nbytes, "embedding_model": about})
