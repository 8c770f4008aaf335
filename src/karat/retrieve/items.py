"""The corpus by row, as retrievers need it: ids, texts, attributes, and hits from rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy.typing as npt
import polars as pl

from karat.data.columns import doc_of
from karat.data.tables import Corpus
from karat.errors import InputError
from karat.retrieve.protocol import Hit, Hits


class Items:
    """The items of a corpus, one row each."""

    def __init__(self, corpus: Corpus) -> None:
        frame = corpus.frame
        if not frame.height:
            raise InputError("holds no items; there is nothing to search", where=corpus.source.name)
        self.frame = frame
        self.ids: list[str] = frame["item_id"].to_list()
        self.texts: list[str] = frame["text"].to_list()
        usual = frame.select(own=doc_of(pl.col("item_id")) == pl.col("doc_id"))["own"].all()
        self._places = _places(frame)
        # A place is one in a document, so its name goes with it.
        shows_docs = self._places is not None or not usual
        self._docs: list[str] | None = frame["doc_id"].to_list() if shows_docs else None
        self._versions = _texts(frame, "version")
        self._sources = _texts(frame, "source")

    def settle(self) -> None:
        """Compute what is cached, so that no query's time includes it."""
        _ = self.rows, self.tokens

    def __len__(self) -> int:
        return len(self.ids)

    def hits(
        self,
        rows: npt.NDArray[Any],
        scores: npt.NDArray[Any],
        similarities: npt.NDArray[Any] | None = None,
    ) -> Hits:
        """Return the items of some rows as hits, with a score for each."""
        places = rows.tolist()
        similarity = repeat(None) if similarities is None else similarities.tolist()
        starts, ends = (None, None) if self._places is None else self._places
        return list(
            map(
                Hit,
                _at(self.ids, places),
                scores.tolist(),
                _at(self._docs, places),
                _at(self._versions, places),
                _at(self._sources, places),
                similarity,
                repeat(None),
                _at(starts, places),
                _at(ends, places),
            )
        )

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """The row of each item."""
        return {item_id: row for row, item_id in enumerate(self.ids)}

    @cached_property
    def tokens(self) -> list[int]:
        """The length of each text: the corpus's ``tokens`` where it has them, else words."""
        return token_counts(self.frame).to_list()

    @cached_property
    def titled(self) -> list[str]:
        """Each text with its title in front, where the corpus has titles."""
        if "title" not in self.frame.columns:
            return self.texts
        title = pl.col("title").cast(pl.String).fill_null("").str.strip_chars()
        joined = pl.concat_str(title, pl.col("text"), separator=" ")
        full_text = pl.when(title == "").then(pl.col("text")).otherwise(joined)
        return self.frame.select(full_text.alias("text"))["text"].to_list()

    def text(self, hit: Hit) -> str | None:
        """Return a hit's text, its own or the corpus's; None if neither has one."""
        if hit.text is not None:
            return hit.text
        row = self.rows.get(hit.item_id)
        return None if row is None else self.texts[row]


def _at(column: list[Any] | None, places: list[int]) -> Iterable[Any]:
    return repeat(None) if column is None else [column[place] for place in places]


def _places(frame: pl.DataFrame) -> tuple[list[int], list[int]] | None:
    """Return where chunks begin and end in their documents, None if the corpus does not say."""
    if not {"start", "end"} <= set(frame.columns):
        return None
    places = frame.select("start", "end")
    whole = all(kind.is_integer() for kind in places.dtypes)
    if not whole or places.null_count().sum_horizontal()[0]:
        return None
    return places["start"].to_list(), places["end"].to_list()


def _texts(frame: pl.DataFrame, name: str) -> list[str] | None:
    return frame[name].cast(pl.String).to_list() if name in frame.columns else None


def token_counts(frame: pl.DataFrame) -> pl.Series:
    """Return the length of each text: the ``tokens`` column where it has numbers, else words."""
    counts = [pl.col("text").str.count_matches(r"\S+").cast(pl.Int64)]
    if "tokens" in frame.columns and frame["tokens"].dtype.is_numeric():
        counts.insert(0, pl.col("tokens").cast(pl.Int64, strict=False))
    return frame.select(pl.coalesce(counts))[:, 0]
