"""A corpus with its BM25 index, for what looks single items up: triage, diagnose and reports."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from karat.data.columns import Source, has_places
from karat.data.tables import Corpus
from karat.formats.field_mapping import Fields
from karat.retrieve.index_cache import WORD, WordIndex, open_corpus, titled_texts

_NO_HITS = pl.DataFrame(schema={"query": pl.Int64, "rank": pl.Int64, "score": pl.Float64})


@dataclass(frozen=True, eq=False)
class CorpusIndex:
    """A corpus as it was read, the length of each text, and its BM25 index.

    Of a kept corpus the items stay on disk until a column is looked at.
    """

    items: pl.DataFrame
    tokens: npt.NDArray[np.int64]
    index: WordIndex
    source: Source

    @property
    def ids(self) -> pl.Series:
        """The id of every item, in corpus order."""
        return self.items["item_id"]

    def __len__(self) -> int:
        return self.items.height

    def corpus(self) -> Corpus:
        """Return the corpus as it was read."""
        return Corpus(self.items, source=self.source)

    def without_texts(self) -> Corpus:
        """Return the corpus with the length of each text instead of the text, which is fast."""
        frame = self.items.drop("text").with_columns(pl.Series("tokens", self.tokens))
        return Corpus(frame, source=self.source)

    def rows(self, ids: Sequence[str], *, by: str = "item_id") -> pl.DataFrame:
        """Return the rows of some items (or documents, by ``doc_id``), in corpus order."""
        rows = self.items[by].is_in(list(ids)).arg_true().to_list()
        return self.items[rows].with_columns(pl.Series("tokens", self.tokens[rows]))

    def bm25(self, texts: Sequence[str], k: int) -> pl.DataFrame:
        """Search each text as ``retriever: bm25`` would; ties are in corpus order.

        One row per hit: ``query`` (the place of its text), ``rank``, ``item_id``, ``score``,
        ``doc_id``, and ``start`` and ``end`` where the corpus has them.
        """
        texts_words = [re.findall(WORD, text.lower()) for text in texts]
        numbers = self.index.numbers_of(list({word for words in texts_words for word in words}))
        places = ("start", "end") if has_places(self.items) else ()
        columns = self.items.select("item_id", "doc_id", *places)
        frames = [_NO_HITS.hstack(columns[:0])]
        for query, words in enumerate(texts_words):
            known = [numbers[word] for word in words if word in numbers]
            rows, scores = self.index.best(known, k)
            ranks = np.arange(1, len(rows) + 1)
            facts = {"query": np.full(len(rows), query), "rank": ranks, "score": scores}
            frames.append(pl.DataFrame(facts, schema=_NO_HITS.schema).hstack(columns[rows]))
        return pl.concat(frames)


def open_index(
    corpus: str | Path,
    cache: Path,
    *,
    building: Callable[[], None] = lambda: None,
    fields: Fields | None = None,
) -> CorpusIndex:
    """Open the index of a corpus, from the cache or built and kept there.

    It is the index of ``retriever: bm25`` without any option. ``building`` is called before an
    index that is kept is made, which takes a while.
    """
    stored = open_corpus(corpus, cache, fields=fields)
    frame = stored.corpus.frame

    def build(texts: list[str]) -> WordIndex:
        from karat.retrieve.bm25 import Bm25Options, bm25_index

        if stored.folder is not None:
            building()
        return bm25_index(texts, Bm25Options.model_validate({}))

    index = stored.index({}, lambda: titled_texts(frame), build)
    return CorpusIndex(frame, stored.tokens, index, stored.corpus.source)
