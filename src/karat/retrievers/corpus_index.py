"""A corpus of which a few items are looked up, and which BM25 can search."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from karat.columns import Source
from karat.errors import MissingExtraError, missing_extra
from karat.retrievers.ranking import top_rows
from karat.tables import Corpus

_PLACES = ("start", "end")
_FRONT = ("item_id", "doc_id", "text")

# The rows of items, best first, and their scores.
Found = tuple[npt.NDArray[np.intp], npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Postings:
    """An index of bm25s as arrays: the scores of the items that hold each word, word by word.

    Searching them needs neither the library nor the time that it takes to load.
    """

    pattern: str
    words: pl.DataFrame
    data: npt.NDArray[Any]
    indices: npt.NDArray[Any]
    indptr: npt.NDArray[Any]

    @classmethod
    def of(cls, index: Any, pattern: str) -> Postings:
        """Those of the library's index; None is one of texts without a word."""
        schema = {"word": pl.String, "number": pl.Int64}
        if index is None:
            nothing = np.empty(0, dtype=np.int32)
            words = pl.DataFrame(schema=schema)
            return cls(pattern, words, np.empty(0, np.float32), nothing, np.zeros(1, np.int32))
        known = index.vocab_dict
        words = pl.DataFrame({"word": list(known), "number": list(known.values())}, schema=schema)
        return cls(pattern, words, *(index.scores[name] for name in ("data", "indices", "indptr")))

    def find(self, texts: Sequence[str], k: int, items: int) -> list[Found]:
        """The k best of so many items for each text; ties are in corpus order."""
        cut = re.compile(self.pattern)
        asked = [cut.findall(text.lower()) for text in texts]
        wanted = list({word for words in asked for word in words})
        known = self.words.filter(pl.col("word").is_in(wanted))
        numbers = dict(zip(known["word"].to_list(), known["number"].to_list(), strict=True))
        return [self._one([numbers[w] for w in words if w in numbers], k, items) for words in asked]

    def _one(self, words: list[int], k: int, items: int) -> Found:
        scores = np.zeros(items, dtype=self.data.dtype)
        for word in words:
            own = slice(self.indptr[word], self.indptr[word + 1])
            # Added word by word in single precision, as the library does: the same bits.
            scores[self.indices[own]] += self.data[own]
        sharing = np.flatnonzero(scores > 0)
        rows = sharing[top_rows(scores[sharing], k)]
        return rows, scores[rows]


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts one after the other as UTF-8, and where each ends: a few are read, not all."""

    data: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int64]

    @classmethod
    def of(cls, texts: pl.Series) -> Texts:
        """A column of texts."""
        ends = np.cumsum(texts.str.len_bytes().cast(pl.Int64).to_numpy())
        joined = "".join(texts.to_list()).encode()
        return cls(np.frombuffer(joined, dtype=np.uint8), ends)

    def at(self, rows: Sequence[int]) -> pl.Series:
        """The texts of some rows."""
        ends = self.ends
        places = [(int(ends[row - 1]) if row else 0, int(ends[row])) for row in rows]
        found = [self.data[start:end].tobytes().decode() for start, end in places]
        return pl.Series("text", found, dtype=pl.String)


@dataclass(frozen=True, eq=False)
class CorpusIndex:
    """A corpus and, where bm25s is installed, its words.

    ``items`` has every column but the texts. ``postings`` are None where BM25 cannot search, and
    ``lacks`` says why.
    """

    items: pl.DataFrame
    texts: Texts
    tokens: npt.NDArray[np.int64]
    postings: Postings | None
    source: Source

    @property
    def lacks(self) -> str | None:
        """What BM25 lacks."""
        if self.postings is not None:
            return None
        return str(missing_extra("BM25's list", "bm25s", "bm25"))

    @property
    def ids(self) -> pl.Series:
        """The id of every item, in corpus order."""
        return self.items["item_id"]

    def __len__(self) -> int:
        return self.items.height

    def corpus(self) -> Corpus:
        """The corpus as it was read."""
        frame = self.items.with_columns(self.texts.at(range(len(self))))
        return Corpus(frame.select(*_FRONT, pl.exclude(_FRONT)), source=self.source)

    def without_texts(self) -> Corpus:
        """The corpus with the length of each text in its place, which costs no time."""
        frame = self.items.with_columns(pl.Series("tokens", self.tokens))
        return Corpus(frame, source=self.source)

    def rows(self, ids: Sequence[str], *, by: str = "item_id") -> pl.DataFrame:
        """All that the corpus says of some items (or, by ``doc_id``, documents), in its order."""
        rows = self.items[by].is_in(list(ids)).arg_true().to_list()
        lengths = pl.Series("tokens", self.tokens[rows])
        frame = self.items[rows].with_columns(self.texts.at(rows), lengths)
        return frame.select(*_FRONT, pl.exclude(_FRONT))

    def bm25(self, texts: Sequence[str], k: int) -> pl.DataFrame:
        """What BM25 finds for each text, as ``retriever: bm25`` would.

        One row a hit: ``query`` (the place of its text), ``rank``, ``item_id``, ``score``,
        ``doc_id``, and ``start`` and ``end`` where the corpus has them.
        """
        if self.postings is None:
            raise MissingExtraError(self.lacks or "the corpus has no index")
        found = self.postings.find(texts, k, len(self))
        sizes = [len(rows) for rows, _ in found]
        rows = np.concatenate([np.empty(0, dtype=np.intp), *(rows for rows, _ in found)])
        scores = np.concatenate([np.empty(0, dtype=np.float32), *(own for _, own in found)])
        ranks = np.concatenate([np.empty(0, dtype=np.int64), *(np.arange(n) for n in sizes)]) + 1
        return pl.DataFrame(
            {
                "query": np.repeat(np.arange(len(sizes)), sizes),
                "rank": ranks,
                "score": scores.astype(np.float64),
            }
        ).hstack(self.items.select("item_id", "doc_id", *self._places())[rows])

    def _places(self) -> list[str]:
        """The columns that say where items lie in their documents, if they say it of all."""
        named = [name for name in _PLACES if name in self.items.columns]
        own = [self.items[name] for name in named]
        whole = all(one.dtype.is_integer() and not one.null_count() for one in own)
        return named if whole and len(named) == len(_PLACES) else []
