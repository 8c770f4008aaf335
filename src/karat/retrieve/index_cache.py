"""A corpus file and its BM25 indexes, kept on disk: made once, then opened at once.

The items lie in ``KEY.arrow`` and ``KEY.npz``, each index in ``KEY-SETTINGS.npz`` beside them.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from karat.data.columns import Source
from karat.data.tables import Corpus
from karat.errors import InputError
from karat.formats.field_mapping import Fields, FileMapping
from karat.formats.files import atomic_write, unreadable
from karat.formats.readers import read_corpus
from karat.formats.registry import file_in
from karat.jobs.cache import ignore_in_git
from karat.retrieve.user_code import error_line, library_versions
from karat.retrieve.vectors import read_cached, sharing_rows

# Counts up when the files change, or when the same corpus file would be read differently.
LAYOUT = 5
HOME = "index"
# Words of two letters and more, as the library has them.
WORD = r"(?u)\b\w\w+\b"
_SCORES = ("data", "indices", "indptr")
_log = logging.getLogger("karat")


@dataclass(frozen=True, eq=False)
class WordIndex:
    """A bm25s index as arrays: the scores of the items that hold each word.

    ``words`` numbers the words, ``lacking`` has what an item gets for each word that it lacks,
    ``dropped`` are words that were left out. Searching needs neither the library nor the time
    that it takes to load.
    """

    items: int
    words: pl.DataFrame
    scores: Mapping[str, npt.NDArray[Any]]
    lacking: npt.NDArray[Any] | None = None
    dropped: frozenset[str] = frozenset()

    @classmethod
    def of(cls, index: Any, items: int, dropped: frozenset[str] = frozenset()) -> WordIndex:
        """Return the library's index as arrays; None, of texts without a word, finds nothing."""
        numbers: Mapping[str, int] = {} if index is None else index.vocab_dict
        words = {"word": list(numbers), "number": list(numbers.values())}
        empty = {"data": np.empty(0, np.float32), "indices": np.empty(0, np.int32)}
        scores = empty | {"indptr": np.empty(0, np.int32)} if index is None else index.scores
        return cls(
            items,
            pl.DataFrame(words, schema={"word": pl.String, "number": pl.Int64}),
            {name: scores[name] for name in _SCORES},
            None if index is None else index.nonoccurrence_array,
            dropped,
        )

    @property
    def nbytes(self) -> int:
        """The size of the scores."""
        return sum(array.nbytes for array in self.scores.values())

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of every word."""
        return dict(zip(self.words["word"].to_list(), self.words["number"].to_list(), strict=True))

    def numbers_of(self, words: Sequence[str]) -> dict[str, int]:
        """Return the numbers of some words, as far as an item holds them."""
        known = self.words.filter(pl.col("word").is_in(words))
        return dict(zip(known["word"].to_list(), known["number"].to_list(), strict=True))

    def best(self, words: Sequence[int], k: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[Any]]:
        """Return the rows of the k best items and their scores; ties are in corpus order."""
        data, indices, indptr = (self.scores[name] for name in _SCORES)
        scores = np.zeros(self.items, dtype=data.dtype)
        for word in words:
            entries = slice(indptr[word], indptr[word + 1])
            # Added word by word in single precision, as the library does: the same bits.
            scores[indices[entries]] += data[entries]
        if self.lacking is None or not words:
            rows = sharing_rows(scores, k)
        else:
            # Some methods give every item a little for a word that it lacks.
            lacking = self.lacking[list(words)].sum()
            scores += lacking
            rows = sharing_rows(scores, k, above=float(lacking))
        return rows, scores[rows]


class StoredCorpus:
    """A corpus with the length of each text, and the folder where its indexes are kept.

    Without a folder nothing is kept. ``key`` is a digest of the file and of how it is read; items
    that have none are not kept, and their indexes go by their texts.
    """

    def __init__(
        self,
        corpus: Corpus,
        tokens: npt.NDArray[np.int64] | None = None,
        *,
        folder: Path | None = None,
        key: str | None = None,
    ) -> None:
        if not corpus.frame.height:
            raise InputError("holds no items; there is nothing to search", where=corpus.source.name)
        self.corpus = corpus
        self.folder = folder
        self._kept = tokens is not None
        self._key = key
        # Several systems may search with the same settings.
        self._last: tuple[str, WordIndex] | None = None
        self.tokens = token_counts(corpus.frame).to_numpy() if tokens is None else tokens

    def index(
        self, settings: Mapping[str, Any], texts: Callable[[], list[str]], build: Build
    ) -> WordIndex:
        """Return the index that ``settings`` decide, from the folder or built and kept there."""
        # What splits and compares words depends on the versions, too.
        versions = {**library_versions("bm25s"), "unicode": unicodedata.unidata_version}
        decisive = _digest([LAYOUT, WORD, versions, dict(settings)])
        if self._last is None or self._last[0] != decisive:
            self._last = decisive, self._opened(decisive, texts, build)
        return self._last[1]

    def _opened(self, decisive: str, texts: Callable[[], list[str]], build: Build) -> WordIndex:
        folder, items = self.folder, self.corpus.frame.height
        if folder is None:
            return build(texts())
        content = self._key or _digest(texts())
        path = folder / f"{content}-{decisive}.npz"
        index = read_cached(path, lambda arrays: _read_index(arrays, items), "it is built again")
        writes: list[Callable[[], None]] = []
        if self._key is not None and not self._kept:
            items_path = folder / self._key
            writes.append(lambda: _write_corpus(items_path, self.corpus.frame, self.tokens))
        if index is None:
            built = index = build(texts())
            writes.append(lambda: _write_index(path, built))
        try:
            for write in writes:
                folder.mkdir(parents=True, exist_ok=True)
                ignore_in_git(folder)
                write()
            self._kept = True
        except (OSError, InputError, pl.exceptions.PolarsError) as error:
            _log.warning(
                "the index of %s cannot be kept in %s (%s); karat rebuilds it each time",
                self.corpus.source.name,
                folder,
                error_line(error),
            )
            # It is said once, and not tried again.
            self.folder = None
        return index


Build = Callable[[list[str]], WordIndex]


def open_corpus(
    corpus: str | Path, cache: Path | None, *, fields: Fields | None = None
) -> StoredCorpus:
    """Open a corpus: the items from the cache if they are there, else read from the file.

    Standard input is not kept. Of folders of text files and of files whose columns have other
    names by ``fields`` only the indexes are.
    """
    if cache is None or str(corpus) == "-":
        return StoredCorpus(read_corpus(corpus, fields=fields))
    folder, path = cache / HOME, Path(corpus)
    file = file_in(path, "corpus.jsonl") if path.is_dir() else path
    mapped = fields is not None and FileMapping.of(fields, "corpus")
    if file is None or not file.is_file() or mapped:
        return StoredCorpus(read_corpus(corpus, fields=fields), folder=folder)
    try:
        source = Source.of(file)
        source = replace(source, sha256=source.digest())
    except OSError as error:
        raise unreadable(str(corpus), error) from None
    # The file, and its suffixes, which say how it is read.
    endings = "".join(Path(source.name).suffixes[-2:]).lower()
    key = _digest([LAYOUT, source.sha256, endings])
    kept = read_cached(
        folder / f"{key}.npz",
        lambda arrays: _read_corpus(folder / key, arrays),
        "the corpus is read again",
    )
    if kept is not None:
        return StoredCorpus(Corpus(kept[0], source=source), kept[1], folder=folder, key=key)
    with source.unchanged():
        frame = read_corpus(corpus, fields=fields).frame
    return StoredCorpus(Corpus(frame, source=source), folder=folder, key=key)


def token_counts(frame: pl.DataFrame) -> pl.Series:
    """Return the length of each text: the ``tokens`` column where it has numbers, else words."""
    counts = [pl.col("text").str.count_matches(r"\S+").cast(pl.Int64)]
    if "tokens" in frame.columns and frame["tokens"].dtype.is_numeric():
        counts.insert(0, pl.col("tokens").cast(pl.Int64, strict=False))
    return frame.select(pl.coalesce(counts))[:, 0]


def titled_texts(frame: pl.DataFrame) -> list[str]:
    """Return each text with its title in front, where the corpus has titles."""
    if "title" not in frame.columns:
        return frame["text"].to_list()
    title = pl.col("title").cast(pl.String).fill_null("").str.strip_chars()
    joined = pl.concat_str(title, pl.col("text"), separator=" ")
    full_text = pl.when(title == "").then(pl.col("text")).otherwise(joined)
    return frame.select(full_text.alias("text"))["text"].to_list()


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def _read_corpus(
    kept: Path, arrays: Mapping[str, npt.NDArray[Any]]
) -> tuple[pl.DataFrame, npt.NDArray[np.int64]]:
    items = kept.with_suffix(".arrow")
    if _checksum(items) != arrays["checksum"].tolist():
        raise ValueError(f"{items.name} is not what was written")
    return pl.read_ipc(items), arrays["tokens"]


def _write_corpus(kept: Path, frame: pl.DataFrame, tokens: npt.NDArray[np.int64]) -> None:
    """Write the items, then what shows that they are whole."""
    with atomic_write(kept.with_suffix(".arrow")) as items:
        frame.write_ipc(items, compression="uncompressed")
        checksum = np.array(_checksum(items), dtype=np.uint64)
    _write_arrays(kept.with_suffix(".npz"), {"checksum": checksum, "tokens": tokens})


def _read_index(arrays: Mapping[str, npt.NDArray[Any]], items: int) -> WordIndex:
    if arrays["items"].tolist() != items:
        raise ValueError(f"it is of {arrays['items']} items, and the corpus has {items}")
    return WordIndex(
        items,
        pl.read_ipc(io.BytesIO(arrays["words"].tobytes())),
        {name: arrays[name] for name in _SCORES},
        arrays.get("lacking"),
        frozenset(arrays["dropped"].tolist()),
    )


def _write_index(path: Path, index: WordIndex) -> None:
    words = np.frombuffer(index.words.write_ipc(None).getbuffer(), dtype=np.uint8)
    dropped = np.array(sorted(index.dropped), dtype=np.str_)
    more = {} if index.lacking is None else {"lacking": index.lacking}
    facts = {"items": np.array(index.items), "words": words, "dropped": dropped}
    _write_arrays(path, {**facts, **index.scores, **more})


def _write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def _checksum(path: Path) -> list[int]:
    """Return the size of a file and a checksum that is fast to compute."""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    even = len(data) // 8 * 8
    remainder = int.from_bytes(data[even:].tobytes(), "little")
    return [len(data), int(np.add.reduce(data[:even].view("<u8"))), remainder]
