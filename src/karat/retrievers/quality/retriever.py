"""The engine of ``karat ab`` as a kind of retriever: a config of it, searched with like any other.

So that two configs get intervals, tests and a verdict, and stand beside systems of other kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from pydantic import Field

from karat.columns import Source
from karat.formats.forms import Form
from karat.retrievers.forms import Text
from karat.retrievers.items import Items
from karat.retrievers.protocol import Answer, Finder, Hits, Query
from karat.retrievers.quality.pipeline import Quality, Ranking, Trail
from karat.retrievers.quality.settings import Config, read_config
from karat.retrievers.quality.words import word_rules
from karat.retrievers.workshop import Workshop
from karat.tables import Corpus


class Options(Form):
    """Which config to search with."""

    config: Text = Field(description="a YAML file with t2.quality settings, as karat ab takes it")


def files(options: Options, workshop: Workshop) -> list[str]:
    """What the config names in its turn: the aliases, as seen from the karat.yaml's folder."""
    settings = _read(options, workshop).settings
    # Aliases that cannot be meant are told before any system is asked.
    word_rules(settings, workshop.folder)
    named = settings.alias_file
    return [] if named is None else [str(named)]


def make(options: Options, workshop: Workshop, parts: Mapping[str, Finder]) -> Engine:
    """The engine over the corpus."""
    config = _read(options, workshop)
    items = workshop.items
    texts = pl.Series("text", workshop.rules.apply_all(items.texts), dtype=pl.String)
    corpus = Corpus(items.frame.with_columns(texts), Source(workshop.corpus_name or "corpus"))
    quality = Quality(corpus, config.settings, folder=workshop.folder)
    return Engine(options.config, config, quality, items)


def _read(options: Options, workshop: Workshop) -> Config:
    return read_config(str(workshop.path(options.config)))


class Engine:
    """A config's engine over the corpus.

    A list that was made diverse is in no order of any score, so its hits count 1/rank. The
    rankings that a list is made of are logged as ``base`` and ``lexical``.
    """

    batch = 1
    concurrency = 1
    deep = True

    def __init__(self, path: str, config: Config, quality: Quality, items: Items) -> None:
        self.items = items
        self._path = path
        self._config = config
        self._quality = quality

    @property
    def meta(self) -> Mapping[str, Any]:
        """The config as the karat.yaml names it, what it says, and what of it changes nothing."""
        notes = [*self._config.notes, *self._quality.rules.notes()]
        return {
            "config_path": self._path,
            "settings_digest": self._config.document.digest,
            **({"notes": notes} if notes else {}),
            "index_bytes": self._quality.index_bytes,
        }

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """The best items for each query, and the rankings that they come from."""
        return [self._one(query.text, k) for query in queries]

    def _one(self, text: str, k: int) -> Answer:
        trail = self._quality.trail(text, k)
        return Answer(self._final(trail), lists=self._lists(trail, k))

    def _final(self, trail: Trail) -> Hits:
        in_force = trail.base if trail.fused is None else trail.fused
        scores = in_force.scores[trail.rows]
        if self._quality.settings.diversifies:
            scores = 1.0 / np.arange(1, len(trail.rows) + 1)
        return self.items.hits(trail.rows, scores)

    def _lists(self, trail: Trail, k: int) -> dict[str, Hits]:
        """The rankings behind the list, where it is another one than theirs."""
        settings = self._quality.settings
        behind: dict[str, Ranking | None] = {}
        if settings.fuses or settings.diversifies:
            behind |= {"base": trail.base, "lexical": trail.lexical}
        return {
            name: self.items.hits(ranking.rows[:k], ranking.scores[ranking.rows[:k]])
            for name, ranking in behind.items()
            if ranking is not None
        }
