"""What chunkers made of documents: how many chunks, how long, and how large their index is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from karat.reports.figures import NOTHING, several
from karat.reports.outputs import write_stdout
from karat.retrievers.chunkers import Chunker
from karat.tables import Corpus


@dataclass(frozen=True)
class Cut:
    """What one chunker made of the documents."""

    chunker: Chunker
    chunks: int
    documents: int
    empty_documents: int
    mean_chars: float | None
    max_chars: int | None
    mean_words: float | None
    max_words: int | None
    index_bytes: int | None = None

    @classmethod
    def of(cls, chunker: Chunker, docs: Corpus, chunks: Corpus) -> Cut:
        """Count the chunks and measure them."""
        text = pl.col("text")
        lengths = chunks.frame.select(
            chars=text.str.len_chars(), words=text.str.count_matches(r"\S+")
        )
        chars, words = (_mean_and_max(column.to_numpy()) for column in lengths)
        whole = docs.frame.height
        empty = whole - chunks.frame["doc_id"].n_unique()
        return cls(chunker, chunks.frame.height, whole, empty, *chars, *words)

    def document(self) -> dict[str, Any]:
        """The figures as plain data."""
        return asdict(self) | {"chunker": self.chunker.document()}


def _mean_and_max(lengths: np.typing.NDArray[Any]) -> tuple[float | None, int | None]:
    return (float(lengths.mean()), int(lengths.max())) if len(lengths) else (None, None)


def show_cuts(cuts: Sequence[Cut], *, as_json: bool) -> None:
    """Say how many chunks there are and how long they are."""
    if as_json:
        told = [cut.document() for cut in cuts]
        write_stdout((json.dumps(told, ensure_ascii=False, indent=2) + "\n").encode())
        return
    from karat.reports.terminal import show_grid, standard_console

    console = standard_console()
    show_grid(_grid(cuts), console)
    empty, whole = cuts[0].empty_documents, cuts[0].documents
    if empty:
        verb = "is blank and has" if empty == 1 else "are blank and have"
        console.print(f"{empty:,} of {several(whole, 'document')} {verb} no chunk", soft_wrap=True)
        console.print()


def _grid(cuts: Sequence[Cut]) -> list[list[str]]:
    heads = ["chunking", "chunks", "mean chars", "max", "mean words", "max", "index bytes"]
    rows = [
        [
            cut.chunker.name,
            f"{cut.chunks:,}",
            *map(_shown, (cut.mean_chars, cut.max_chars, cut.mean_words, cut.max_words)),
            _shown(cut.index_bytes),
        ]
        for cut in cuts
    ]
    if all(cut.index_bytes is None for cut in cuts):
        return [row[:-1] for row in (heads, *rows)]
    return [heads, *rows]


def _shown(number: float | None) -> str:
    if number is None:
        return NOTHING
    return f"{number:,}" if isinstance(number, int) else f"{number:,.1f}"
