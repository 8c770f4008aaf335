"""A corpus with its BM25 index, kept on disk: built once, then opened at once."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from karat.data.columns import Source, has_places
from karat.data.tables import Corpus
from karat.errors import InputError
from karat.formats.field_mapping import Fields, FileMapping
from karat.formats.files import atomic_write, unreadable
from karat.formats.readers import read_corpus
from karat.formats.registry import file_in
from karat.jobs.cache import ignore_in_git
from karat.retrieve.user_code import error_line, library_versions
from karat.retrieve.vectors import read_cached, sharing_rows

_NO_HITS = pl.DataFrame(schema={"query": pl.Int64, "rank": pl.Int64, "score": pl.Float64})
_SCORES = ("data", "indices", "indptr")


@dataclass(frozen=True, eq=False)
class CorpusIndex:
    """A corpus as it was read, and its bm25s index as arrays.

    Of a kept index the items stay on disk until a column is looked at. ``scores`` are the scores
    of the items that hold each word, ``words`` numbers the words; searching them needs neither
    the library nor the time that it takes to load.
    """

    items: pl.DataFrame
    tokens: npt.NDArray[np.int64]
    pattern: str
    words: pl.DataFrame
    scores: Mapping[str, npt.NDArray[Any]]
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
        texts_words = [re.findall(self.pattern, text.lower()) for text in texts]
        vocabulary = list({word for words in texts_words for word in words})
        known = self.words.filter(pl.col("word").is_in(vocabulary))
        numbers = dict(zip(known["word"].to_list(), known["number"].to_list(), strict=True))
        places = ("start", "end") if has_places(self.items) else ()
        columns = self.items.select("item_id", "doc_id", *places)
        frames = [_NO_HITS.hstack(columns[:0])]
        for query, words in enumerate(texts_words):
            scores = self._scores([numbers[word] for word in words if word in numbers])
            rows = sharing_rows(scores, k)
            ranks = np.arange(1, len(rows) + 1)
            facts = {"query": np.full(len(rows), query), "rank": ranks, "score": scores[rows]}
            frames.append(pl.DataFrame(facts, schema=_NO_HITS.schema).hstack(columns[rows]))
        return pl.concat(frames)

    def _scores(self, words: Sequence[int]) -> npt.NDArray[Any]:
        data, indices, indptr = (self.scores[name] for name in _SCORES)
        scores = np.zeros(len(self), dtype=data.dtype)
        for word in words:
            entries = slice(indptr[word], indptr[word + 1])
            # Added word by word in single precision, as the library does: the same bits.
            scores[indices[entries]] += data[entries]
        return scores


# Counts up when the files change, or when the same corpus file would be read differently.
LAYOUT = 4
HOME = "index"
_log = logging.getLogger("karat")


def open_index(
    corpus: str | Path,
    cache: Path,
    *,
    building: Callable[[], None] = lambda: None,
    fields: Fields | None = None,
) -> CorpusIndex:
    """Open the index of a corpus file, from the cache or built and kept there.

    Standard input, folders of text files and files whose columns have other names by ``fields``
    are read each time. ``building`` is called before an index that is kept is made, which takes
    a while.
    """
    path = Path(corpus)
    file = file_in(path, "corpus.jsonl") if path.is_dir() else path
    unnamed = str(corpus) == "-" or file is None or not file.is_file()
    if file is None or unnamed or (fields is not None and FileMapping.of(fields, "corpus")):
        return _build(read_corpus(corpus, fields=fields))
    try:
        source = Source.of(file)
        source = replace(source, sha256=source.digest())
    except OSError as error:
        raise unreadable(str(corpus), error) from None
    # The file, its suffixes, and the library that indexes it.
    endings = "".join(Path(source.name).suffixes[-2:]).lower()
    decisive = [LAYOUT, source.sha256, endings, library_versions("bm25s")["bm25s"]]
    key = hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:32]
    kept = cache / HOME / f"{key}.npz"
    index = read_cached(kept, lambda arrays: _read(arrays, kept, source), "the index is made again")
    if index is None:
        building()
        with source.unchanged():
            index = replace(_build(read_corpus(corpus)), source=source)
        _save(index, kept)
    return index


def _build(corpus: Corpus) -> CorpusIndex:
    from karat.retrieve.bm25 import WORD, Bm25Options, bm25_index
    from karat.retrieve.build_context import Items, token_counts

    index = bm25_index(Items(corpus).titled, Bm25Options.model_validate({}))
    # The library has no index of texts without a word.
    numbers: Mapping[str, int] = {} if index is None else index.vocab_dict
    words = {"word": list(numbers), "number": list(numbers.values())}
    empty = {"data": np.empty(0, np.float32), "indices": np.empty(0, np.int32)}
    scores = empty | {"indptr": np.zeros(1, np.int32)} if index is None else index.scores
    return CorpusIndex(
        items=corpus.frame,
        tokens=token_counts(corpus.frame).to_numpy(),
        pattern=WORD.pattern,
        words=pl.DataFrame(words, schema={"word": pl.String, "number": pl.Int64}),
        scores={name: scores[name] for name in _SCORES},
        source=corpus.source,
    )


def _read(arrays: Mapping[str, npt.NDArray[Any]], kept: Path, source: Source) -> CorpusIndex:
    items = kept.with_suffix(".arrow")
    if _checksum(items) != arrays["checksum"].tolist():
        raise ValueError(f"{items.name} is not what was written")
    return CorpusIndex(
        items=pl.read_ipc(items),
        tokens=arrays["tokens"],
        pattern=str(arrays["pattern"]),
        words=pl.read_ipc(io.BytesIO(arrays["words"].tobytes())),
        scores={name: arrays[name] for name in _SCORES},
        source=source,
    )


def _checksum(path: Path) -> list[int]:
    """Return the size of a file and a checksum that is fast to compute."""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    even = len(data) // 8 * 8
    remainder = int.from_bytes(data[even:].tobytes(), "little")
    return [len(data), int(np.add.reduce(data[:even].view("<u8"))), remainder]


def _save(index: CorpusIndex, kept: Path) -> None:
    """Write the index to the cache: the items, then all else."""
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        ignore_in_git(kept.parent)
        with atomic_write(kept.with_suffix(".arrow")) as items:
            index.items.write_ipc(items, compression="uncompressed")
            checksum = np.array(_checksum(items), dtype=np.uint64)
        words = np.frombuffer(index.words.write_ipc(None).getbuffer(), dtype=np.uint8)
        arrays: dict[str, Any] = {"checksum": checksum, "words": words, **index.scores}
        with atomic_write(kept) as temporary, temporary.open("wb") as file:
            np.savez(file, tokens=index.tokens, pattern=np.array(index.pattern), **arrays)
    except (OSError, InputError, pl.exceptions.PolarsError) as error:
        _log.warning(
            "the index of %s cannot be kept in %s (%s); karat rebuilds it each time",
            index.source.name,
            kept.parent,
            error_line(error),
        )
