"""Hypervectors of words (a vector symbolic architecture), ranked by cosine over the corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from karat.formats.forms import Form
from karat.retrievers.hypervectors import Encoder
from karat.retrievers.items import Items
from karat.retrievers.protocol import Answer, Finder, Query
from karat.retrievers.ranking import top_rows
from karat.retrievers.texts import TextRules
from karat.retrievers.workshop import Workshop

MOST_DIM = 100_000
# Beyond it whole numbers are spelled differently from language to language.
MOST_SEED = 2**53 - 1


class Options(Form):
    """How long the vectors are, which ones, and what of an item is read."""

    dim: Annotated[int, Field(ge=1, le=MOST_DIM)] = Field(
        1000, description=f"a whole number from 1 to {MOST_DIM:,}"
    )
    seed: Annotated[int, Field(ge=-MOST_SEED, le=MOST_SEED)] = Field(
        42, description=f"a whole number from -{MOST_SEED} to {MOST_SEED}"
    )
    title: bool = Field(True, description="true to put an item's title before its text, or false")


def make(options: Options, workshop: Workshop, parts: Mapping[str, Finder]) -> Vsa:
    """The index over the corpus."""
    return Vsa(options, workshop.items, workshop.rules)


class Vsa:
    """An index of hypervectors: every item has a score, ties are in corpus order.

    Texts of an even number of words lean towards +1, and a text without words is +1
    throughout: a short query may find an empty item more alike than a related one.
    """

    batch = 1
    concurrency = 1
    deep = True

    def __init__(self, options: Options, items: Items, rules: TextRules) -> None:
        self.items = items
        self._encoder = Encoder(options.dim, options.seed)
        texts = rules.apply_all(items.titled if options.title else items.texts)
        self._vectors = self._encoder.encode(texts)

    @property
    def meta(self) -> Mapping[str, Any]:
        """The size of the index, and what its vectors are."""
        about = {"name": "vsa", "dim": self._encoder.dim, "seed": self._encoder.seed}
        return {"index_bytes": self._vectors.nbytes, "embedding_model": about}

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """The items nearest to each query, best first."""
        asked = self._encoder.encode([query.text for query in queries])
        return [self._one(row, k) for row in asked]

    def _one(self, asked: Any, k: int) -> Answer:
        scores = self._encoder.cosines(asked, self._vectors)
        rows = top_rows(scores, k)
        return Answer(self.items.hits(rows, scores[rows], scores[rows]))
