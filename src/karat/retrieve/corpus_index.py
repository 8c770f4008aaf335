"""A corpus with its BM25 index, kept on disk: built once, then opened at once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from karat.data.columns import Source
from karat.data.tables import Corpus
from karat.errors import InputError, MissingExtraError, missing_extra
from karat.formats import read_corpus
from karat.formats.field_mapping import Fields, FileMapping
from karat.formats.files import unreadable
from karat.formats.jsonl import Folder
from karat.jobs.cache import ignore_in_git
from karat.retrieve.user_code import ABSENT, error_line, library_versions
from karat.retrieve.vectors import top_rows

_PLACES = ("start", "end")
_NO_HITS = pl.DataFrame(schema={"query": pl.Int64, "rank": pl.Int64, "score": pl.Float64})

# The rows of items, best first, and their scores.
Ranking = tuple[npt.NDArray[np.intp], npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Postings:
    """A bm25s index as arrays: for each word, the scores of the items that hold it.

    Searching them needs neither the library nor the time that it takes to load.
    """

    pattern: str
    words: pl.DataFrame
    data: npt.NDArray[Any]
    indices: npt.NDArray[Any]
    indptr: npt.NDArray[Any]

    @classmethod
    def of(cls, index: Any, pattern: str) -> Postings:
        """Take the arrays of a library index; None is the index of texts without a word."""
        schema = {"word": pl.String, "number": pl.Int64}
        if index is None:
            nothing = np.empty(0, dtype=np.int32)
            words = pl.DataFrame(schema=schema)
            return cls(pattern, words, np.empty(0, np.float32), nothing, np.zeros(1, np.int32))
        known = index.vocab_dict
        words = pl.DataFrame({"word": list(known), "number": list(known.values())}, schema=schema)
        return cls(pattern, words, *(index.scores[name] for name in ("data", "indices", "indptr")))

    def find(self, texts: Sequence[str], k: int, items: int) -> list[Ranking]:
        """Return the k best of ``items`` items for each text; ties are in corpus order."""
        cut = re.compile(self.pattern)
        split = [cut.findall(text.lower()) for text in texts]
        vocabulary = list({word for words in split for word in words})
        known = self.words.filter(pl.col("word").is_in(vocabulary))
        numbers = dict(zip(known["word"].to_list(), known["number"].to_list(), strict=True))
        return [
            self._search_one([numbers[w] for w in words if w in numbers], k, items)
            for words in split
        ]

    def _search_one(self, words: list[int], k: int, items: int) -> Ranking:
        scores = np.zeros(items, dtype=self.data.dtype)
        for word in words:
            entries = slice(self.indptr[word], self.indptr[word + 1])
            # Added word by word in single precision, as the library does: the same bits.
            scores[self.indices[entries]] += self.data[entries]
        sharing = np.flatnonzero(scores > 0)
        rows = sharing[top_rows(scores[sharing], k)]
        return rows, scores[rows]


@dataclass(frozen=True, eq=False)
class CorpusIndex:
    """A corpus and, where bm25s is installed, its words.

    ``items`` is the corpus as it was read; of a kept index the file stays on disk until a column
    is looked at. ``postings`` are None where BM25 cannot search, and ``lacks`` says why.
    """

    items: pl.DataFrame
    tokens: npt.NDArray[np.int64]
    postings: Postings | None
    source: Source

    @property
    def lacks(self) -> str | None:
        """Why BM25 cannot search; None if it can."""
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
        """Search each text as ``retriever: bm25`` would.

        One row a hit: ``query`` (the place of its text), ``rank``, ``item_id``, ``score``,
        ``doc_id``, and ``start`` and ``end`` where the corpus has them.
        """
        if self.postings is None:
            raise MissingExtraError(self.lacks or "the corpus has no index")
        columns = self.items.select("item_id", "doc_id", *self._places())
        frames = [_NO_HITS.hstack(columns[:0])]
        for number, (rows, scores) in enumerate(self.postings.find(texts, k, len(self))):
            ranks = np.arange(1, len(rows) + 1)
            facts = {"query": np.full(len(rows), number), "rank": ranks, "score": scores}
            frames.append(pl.DataFrame(facts, schema=_NO_HITS.schema).hstack(columns[rows]))
        return pl.concat(frames)

    def _places(self) -> tuple[str, ...]:
        complete = _PLACES if set(_PLACES) <= set(self.items.columns) else ()
        columns = [self.items[name] for name in complete]
        integers = all(column.dtype.is_integer() and not column.null_count() for column in columns)
        return complete if integers else ()


# Counts up when the files change, or when the same corpus file would be read differently.
LAYOUT = 3
HOME = "index"
_META, _ITEMS, _WORDS = "meta.json", "items.arrow", "words.arrow"
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
    are read each time. ``building`` is called before
    an index that is kept is made, which takes a while.
    """
    file = _file_of(corpus)
    if file is None or (fields is not None and FileMapping.of(fields, "corpus")):
        return _build(read_corpus(corpus, fields=fields))
    try:
        source = Source.of(file)
        source = replace(source, sha256=source.digest())
    except OSError as error:
        raise unreadable(str(corpus), error) from None
    folder = cache / HOME / _key(source)
    cached = _cached(folder, source)
    if cached is not None:
        return cached
    building()
    index = replace(_build(read_corpus(corpus)), source=source)
    source.check()
    # A library that is there and does not work may work the next time.
    if index.postings is not None or _library_version() == ABSENT:
        _save(index, folder)
    return index


def _file_of(corpus: str | Path) -> Path | None:
    """Return the one file that holds a corpus, also in a BEIR folder; None if there is none."""
    path = Path(corpus)
    if str(corpus) == "-":
        return None
    if path.is_dir():
        return Folder(path).find("corpus.jsonl")
    return path if path.is_file() else None


def _key(source: Source) -> str:
    """Return a digest of the file, its suffixes, and the library that indexes it."""
    endings = "".join(Path(source.name).suffixes[-2:]).lower()
    decisive = [LAYOUT, source.sha256, endings, _library_version()]
    return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:32]


def _library_version() -> str:
    return library_versions("bm25s")["bm25s"]


def _build(corpus: Corpus) -> CorpusIndex:
    from karat.retrieve.bm25 import WORD, Bm25, Bm25Options
    from karat.retrieve.build_context import Items, token_counts
    from karat.retrieve.text_rules import TextRules

    items = Items(corpus)
    postings = None
    with contextlib.suppress(MissingExtraError):
        retriever = Bm25(Bm25Options.model_validate({}), items, TextRules())
        postings = Postings.of(retriever.index, WORD.pattern)
    return CorpusIndex(
        items=corpus.frame,
        tokens=token_counts(corpus.frame).to_numpy(),
        postings=postings,
        source=corpus.source,
    )


def _cached(folder: Path, source: Source) -> CorpusIndex | None:
    """Return the cached index; None if there is none, or none that is intact."""
    if not folder.is_dir():
        return None
    try:
        return _read(folder, source)
    except MemoryError:
        raise
    except Exception as error:
        # Damaged files can fail in any way at all.
        _log.warning("%s is damaged (%s); the index is made again", folder, error_line(error))
        _discard(folder)
        return None


def _read(folder: Path, source: Source) -> CorpusIndex:
    meta = json.loads((folder / _META).read_bytes())
    for name, expected in meta["files"].items():
        if _checksum(folder / name) != expected:
            raise ValueError(f"{name} is not what was written")

    def array(name: str) -> npt.NDArray[Any]:
        return np.load(folder / f"{name}.npy", mmap_mode="r")  # type: ignore[no-any-return]

    postings = None
    if meta["pattern"] is not None:
        words = pl.read_ipc(folder / _WORDS)
        arrays = (array(name) for name in ("data", "indices", "indptr"))
        postings = Postings(meta["pattern"], words, *arrays)
    items = pl.read_ipc(folder / _ITEMS)
    return CorpusIndex(items, array("tokens"), postings, source)


def _checksum(path: Path) -> list[int]:
    """Return the size of a file and a checksum that is fast to compute."""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    even = len(data) // 8 * 8
    remainder = int.from_bytes(data[even:].tobytes(), "little")
    return [len(data), int(np.add.reduce(data[:even].view("<u8"))), remainder]


def _discard(folder: Path) -> None:
    """Rename a folder before deleting it, so that no other process meets half of it."""
    renamed = _unique(folder)
    with contextlib.suppress(OSError):
        folder.rename(renamed)
        shutil.rmtree(renamed, ignore_errors=True)


def _unique(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.{secrets.token_hex(6)}.part")


def _save(index: CorpusIndex, folder: Path) -> None:
    """Write the index to the cache: complete, or not at all."""
    part = _unique(folder)
    try:
        part.mkdir(parents=True)
        _write(index, part)
        ignore_in_git(folder.parent)
        part.rename(folder)
    except (OSError, InputError, pl.exceptions.PolarsError) as error:
        # If another process was faster, its folder stays.
        if not folder.is_dir():
            _log.warning(
                "the index of %s cannot be kept in %s (%s); it is made again each time",
                index.source.name,
                folder.parent,
                error_line(error),
            )
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write(index: CorpusIndex, folder: Path) -> None:
    postings = index.postings
    arrays: dict[str, npt.NDArray[Any]] = {"tokens": index.tokens}
    index.items.write_ipc(folder / _ITEMS, compression="uncompressed")
    if postings is not None:
        postings.words.write_ipc(folder / _WORDS, compression="uncompressed")
        arrays |= {"data": postings.data, "indices": postings.indices, "indptr": postings.indptr}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    files = sorted(path.name for path in folder.iterdir())
    meta = {
        "layout": LAYOUT,
        "pattern": None if postings is None else postings.pattern,
        "files": {name: _checksum(folder / name) for name in files},
    }
    (folder / _META).write_text(json.dumps(meta))
