"""Where a corpus comes from: its file, or its kept index where single items are looked up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from karat.formats import read_corpus
from karat.formats.field_mapping import Fields
from karat.measures.names import Measure
from karat.tables import Corpus

if TYPE_CHECKING:
    from karat.retrievers.corpus_index import CorpusIndex

# A smaller corpus is indexed before one could read that it is.
_LONG_BYTES = 5_000_000


@dataclass
class Shelf:
    """A corpus to be read; with a ``cache`` its index is opened there, or made and kept."""

    cache: Path | None = None
    quiet: bool = False
    fields: Fields = field(default_factory=Fields)
    index: CorpusIndex | None = None

    def read(self, name: str, measures: Iterable[Measure]) -> Corpus:
        """The corpus; from an index with all texts only where a measure is of these."""
        if self.cache is None:
            return read_corpus(name, fields=self.fields)
        from karat.retrievers.index_cache import open_index

        self.index = open_index(
            name, self.cache, building=lambda: self._say(name), fields=self.fields
        )
        of_texts = any("texts" in measure.definition.needs for measure in measures)
        return self.index.corpus() if of_texts else self.index.without_texts()

    def _say(self, name: str) -> None:
        if not self.quiet and Path(name).stat().st_size >= _LONG_BYTES:
            typer.echo(f"indexing {name}, which is done once", err=True)
