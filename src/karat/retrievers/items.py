"""The corpus as retrievers want it: ids, texts and attributes by row, and hits made of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy.typing as npt
import polars as pl

from karat.columns import doc_of
from karat.errors import InputError
from karat.retrievers.protocol import Hit, Hits
from karat.tables import Corpus


class Items:
    """What can be found, one row an item."""

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
        told = self._places is not None or not usual
        self._docs: list[str] | None = frame["doc_id"].to_list() if told else None
        self._versions = _texts(frame, "version")
        self._sources = _texts(frame, "source")

    def settle(self) -> None:
        """Look everything up once, so that no query's time holds it."""
        _ = self.rows, self.tokens

    def __len__(self) -> int:
        return len(self.ids)

    def hits(
        self,
        rows: npt.NDArray[Any],
        scores: npt.NDArray[Any],
        similarities: npt.NDArray[Any] | None = None,
    ) -> Hits:
        """The items of some rows as a list of hits, with a score for each."""
        places = rows.tolist()
        alike = repeat(None) if similarities is None else similarities.tolist()
        starts, ends = (None, None) if self._places is None else self._places
        return list(
            map(
                Hit,
                _at(self.ids, places),
                scores.tolist(),
                _at(self._docs, places),
                _at(self._versions, places),
                _at(self._sources, places),
                alike,
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
        """How long each text is: the corpus's own count where it has one, else words."""
        words = pl.col("text").str.count_matches(r"\S+").cast(pl.Int64)
        if "tokens" in self.frame.columns:
            words = pl.coalesce(pl.col("tokens").cast(pl.Int64), words)
        return self.frame.select(words.alias("tokens"))["tokens"].to_list()

    @cached_property
    def titled(self) -> list[str]:
        """Each text with its title in front, where the corpus has titles."""
        if "title" not in self.frame.columns:
            return self.texts
        title = pl.col("title").cast(pl.String).fill_null("").str.strip_chars()
        joined = pl.concat_str(title, pl.col("text"), separator=" ")
        told = pl.when(title == "").then(pl.col("text")).otherwise(joined)
        return self.frame.select(told.alias("text"))["text"].to_list()

    def text(self, hit: Hit) -> str | None:
        """A hit's text: its own, else that of the corpus; None where neither has it."""
        if hit.text is not None:
            return hit.text
        row = self.rows.get(hit.item_id)
        return None if row is None else self.texts[row]


def _at(column: list[Any] | None, places: list[int]) -> Iterable[Any]:
    """The values of a column at some rows; nothing, over and over, where there is no column."""
    return repeat(None) if column is None else [column[place] for place in places]


def _places(frame: pl.DataFrame) -> tuple[list[int], list[int]] | None:
    """Where chunks begin and end in their documents, or None where the corpus does not say."""
    if not {"start", "end"} <= set(frame.columns):
        return None
    places = frame.select("start", "end")
    whole = all(kind.is_integer() for kind in places.dtypes)
    if not whole or places.null_count().sum_horizontal()[0]:
        return None
    return places["start"].to_list(), places["end"].to_list()


def _texts(frame: pl.DataFrame, name: str) -> list[str] | None:
    """A column as text, or None where the corpus does not have it."""
    return frame[name].cast(pl.String).to_list() if name in frame.columns else None
