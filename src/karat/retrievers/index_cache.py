"""A corpus and its BM25 index kept on disk: read once, then opened in a moment.

What is kept is a folder of files that never change, named by a digest of the corpus file and of
all that decides what is made of it. A folder that is damaged is told of and made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from karat.columns import Source
from karat.errors import InputError, MissingExtraError
from karat.formats import read_corpus
from karat.formats.beir import Folder
from karat.formats.field_mapping import Fields
from karat.formats.files import replacing, unreadable
from karat.retrievers.callables import told
from karat.retrievers.corpus_index import CorpusIndex, Postings, Texts
from karat.retrievers.libraries import ABSENT, versions
from karat.tables import Corpus

# Counts up when the files change, or when the same corpus file would be read differently.
LAYOUT = 2
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
    """The corpus of a file with its index, from the cache where it is there, else made and kept.

    Standard input, folders of text files and files whose columns have other names by ``fields``
    are read each time. ``building`` is called before
    an index that is kept is made, which takes a while.
    """
    file = _file_of(corpus)
    if file is None or (fields is not None and fields.renames("corpus")):
        return _made(read_corpus(corpus, fields=fields))
    try:
        source = Source.of(file)
        source = replace(source, sha256=source.digest())
    except OSError as error:
        raise unreadable(str(corpus), error) from None
    home = cache / HOME / _key(source)
    kept = _kept(home, source)
    if kept is not None:
        return kept
    building()
    index = replace(_made(read_corpus(corpus)), source=source)
    source.check()
    # A library that is there and does not work may work the next time.
    if index.postings is not None or _library_version() == ABSENT:
        _keep(index, home)
    return index


def _file_of(corpus: str | Path) -> Path | None:
    """The one file that a corpus is in, in a BEIR folder too; None where there is no such file."""
    path = Path(corpus)
    if str(corpus) == "-":
        return None
    if path.is_dir():
        return Folder(path).find("corpus.jsonl")
    return path if path.is_file() else None


def _key(source: Source) -> str:
    """A digest of the file, of what its name says of its layout, and of what reads it."""
    endings = "".join(Path(source.name).suffixes[-2:]).lower()
    decisive = [LAYOUT, source.sha256, endings, _library_version()]
    return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:32]


def _library_version() -> str:
    return versions("bm25s")["bm25s"]


def _made(corpus: Corpus) -> CorpusIndex:
    """The index of a corpus that has been read."""
    from karat.retrievers.bm25 import WORD, Bm25, Options
    from karat.retrievers.items import Items
    from karat.retrievers.texts import TextRules

    items = Items(corpus)
    postings = None
    with contextlib.suppress(MissingExtraError):
        finder = Bm25(Options.model_validate({}), items, TextRules())
        postings = Postings.of(finder.index, WORD.pattern)
    return CorpusIndex(
        items=corpus.frame.drop("text"),
        texts=Texts.of(corpus.frame["text"]),
        tokens=_tokens(corpus.frame),
        postings=postings,
        source=corpus.source,
    )


def _tokens(frame: pl.DataFrame) -> npt.NDArray[np.int64]:
    """How long each text is: the corpus's own count where it is one, else words."""
    counts = [pl.col("text").str.count_matches(r"\S+").cast(pl.Int64)]
    if "tokens" in frame.columns and frame["tokens"].dtype.is_numeric():
        counts.insert(0, pl.col("tokens").cast(pl.Int64, strict=False))
    return frame.select(pl.coalesce(counts))[:, 0].to_numpy()


def _kept(home: Path, source: Source) -> CorpusIndex | None:
    """The index that was kept; None where there is none, or none that is whole."""
    if not home.is_dir():
        return None
    try:
        return _read(home, source)
    except MemoryError:
        raise
    except Exception as error:
        # Damaged files can fail in any way at all.
        _log.warning("%s is damaged (%s); the index is made again", home, told(error))
        _discard(home)
        return None


def _read(home: Path, source: Source) -> CorpusIndex:
    meta = json.loads((home / _META).read_bytes())
    for name, expected in meta["files"].items():
        if _sum(home / name) != expected:
            raise ValueError(f"{name} is not what was written")

    def array(name: str) -> npt.NDArray[Any]:
        return np.load(home / f"{name}.npy", mmap_mode="r")  # type: ignore[no-any-return]

    postings = None
    if meta["pattern"] is not None:
        words = pl.read_ipc(home / _WORDS)
        arrays = (array(name) for name in ("data", "indices", "indptr"))
        postings = Postings(meta["pattern"], words, *arrays)
    texts = Texts(array("texts"), array("ends"))
    return CorpusIndex(pl.read_ipc(home / _ITEMS), texts, array("tokens"), postings, source)


def _sum(path: Path) -> list[int]:
    """The size of a file, and the sum of its bytes, eight at a time: damage shows in no time."""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    even = len(data) // 8 * 8
    rest = int.from_bytes(data[even:].tobytes(), "little")
    return [len(data), int(np.add.reduce(data[:even].view("<u8"))), rest]


def _discard(home: Path) -> None:
    """Take a folder away at once, so that no other process meets half of it."""
    away = _unique(home)
    with contextlib.suppress(OSError):
        home.rename(away)
        shutil.rmtree(away, ignore_errors=True)


def _unique(home: Path) -> Path:
    return home.with_name(f".{home.name}.{secrets.token_hex(6)}.part")


def _keep(index: CorpusIndex, home: Path) -> None:
    """Put the index where others look for it: whole, or not at all."""
    part = _unique(home)
    try:
        part.mkdir(parents=True)
        _write(index, part)
        _ignore(home.parent)
        _settle(part, home)
    except (OSError, InputError, pl.exceptions.PolarsError) as error:
        _log.warning(
            "the index of %s cannot be kept in %s (%s); it is made again each time",
            index.source.name,
            home.parent,
            told(error),
        )
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _settle(part: Path, home: Path) -> None:
    """Rename the folder to its place; where another process was faster, its folder stays."""
    try:
        part.rename(home)
    except OSError:
        if not home.is_dir():
            raise


def _ignore(folder: Path) -> None:
    note = folder / ".gitignore"
    if not note.exists():
        # Whole or not at all: half of it would stay.
        with replacing(note) as temporary:
            temporary.write_text("*\n")


def _write(index: CorpusIndex, folder: Path) -> None:
    postings = index.postings
    arrays: Mapping[str, npt.NDArray[Any]] = {
        "texts": index.texts.data,
        "ends": index.texts.ends,
        "tokens": index.tokens,
    }
    index.items.write_ipc(folder / _ITEMS, compression="uncompressed")
    if postings is not None:
        postings.words.write_ipc(folder / _WORDS, compression="uncompressed")
        words = {"data": postings.data, "indices": postings.indices, "indptr": postings.indptr}
        arrays = {**arrays, **words}
    for name, own in arrays.items():
        np.save(folder / f"{name}.npy", own, allow_pickle=False)
    files = sorted(path.name for path in folder.iterdir())
    meta = {
        "layout": LAYOUT,
        "pattern": None if postings is None else postings.pattern,
        "files": {name: _sum(folder / name) for name in files},
    }
    (folder / _META).write_text(json.dumps(meta))
