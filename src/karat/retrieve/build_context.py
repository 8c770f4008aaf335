"""What systems are built with: the items of the corpus by row, and the build context."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy.typing as npt
import polars as pl

from karat.data.columns import Source, doc_of, has_places
from karat.data.tables import Corpus
from karat.errors import UsageError
from karat.jobs.cache import CACHE_FOLDER
from karat.jobs.redaction import Redact, redactor
from karat.retrieve.chunking import chunk_corpus
from karat.retrieve.index_cache import StoredCorpus, titled_texts
from karat.retrieve.protocol import Answer, Hit, Hits, Progress
from karat.retrieve.text_rules import TextRules

_SECRET = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

# Shorter words may well occur in ids by chance.
_SHORTEST_IN_HITS = 6


class Items:
    """The items of a corpus, one row each.

    ``rows`` has the row of each item by its id, ``tokens`` the length of each text, ``stored``
    keeps their indexes.
    """

    def __init__(self, corpus: Corpus | StoredCorpus) -> None:
        self.stored = corpus if isinstance(corpus, StoredCorpus) else StoredCorpus(corpus)
        self.frame = frame = self.stored.corpus.frame
        self.ids: list[str] = frame["item_id"].to_list()
        self.rows = {item_id: row for row, item_id in enumerate(self.ids)}
        self.tokens: list[int] = self.stored.tokens.tolist()
        usual = frame.select(own=doc_of(pl.col("item_id")) == pl.col("doc_id"))["own"].all()
        placed = has_places(frame)
        self._starts: list[int] | None = frame["start"].to_list() if placed else None
        self._ends: list[int] | None = frame["end"].to_list() if placed else None
        # A place is one in a document, so its name goes with it.
        shows_docs = placed or not usual
        self._docs: list[str] | None = frame["doc_id"].to_list() if shows_docs else None
        self._columns: dict[str, list[Any]] = {}
        self._versions = _texts(frame, "version")
        self._sources = _texts(frame, "source")

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
                _at(self._starts, places),
                _at(self._ends, places),
            )
        )

    @cached_property
    def texts(self) -> list[str]:
        """Each text."""
        texts: list[str] = self.frame["text"].to_list()
        return texts

    @cached_property
    def titled(self) -> list[str]:
        """Each text with its title in front, where the corpus has titles."""
        return titled_texts(self.frame) if "title" in self.frame.columns else self.texts

    def value(self, item_id: str, column: str) -> Any:
        """Return what the corpus says of an item in a column, if it has both."""
        if column not in self._columns:
            has_column = column in self.frame.columns
            self._columns[column] = self.frame[column].to_list() if has_column else []
        row, values = self.rows.get(item_id), self._columns[column]
        return values[row] if values and row is not None else None

    def text(self, hit: Hit, *, title: bool = False) -> str | None:
        """Return a hit's own text, else the corpus's, with its title or without; None if none."""
        row = self.rows.get(hit.item_id)
        if hit.text is not None or row is None:
            return hit.text
        return (self.titled if title else self.texts)[row]


def _at(column: list[Any] | None, places: list[int]) -> Iterable[Any]:
    return repeat(None) if column is None else [column[place] for place in places]


def _texts(frame: pl.DataFrame, name: str) -> list[str] | None:
    return frame[name].cast(pl.String).to_list() if name in frame.columns else None


@dataclass(frozen=True, eq=False)
class BuildContext:
    """What a system is built with.

    ``corpus`` gives the items when a retriever first needs them, ``reading`` says which of its
    columns have other names, ``folder`` is where the
    names in the karat.yaml begin, ``cache`` is where vectors are kept, if anywhere. ``timeout``,
    ``rules`` and ``chunker`` are those of the system being built.
    """

    corpus: Callable[[], Corpus | StoredCorpus] | None = None
    reading: Mapping[str, str] = field(default_factory=dict)
    folder: Path = field(default_factory=Path)
    cache: Path | None = Path(CACHE_FOLDER)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    progress: Progress = lambda what, done, total: None
    timeout: float = 30.0
    timeout_given: float | None = None
    rules: TextRules = field(default_factory=TextRules)
    chunker: Mapping[str, Any] | None = None
    secrets: dict[str, str] = field(default_factory=dict)
    # Callables and objects that stand in for the names that systems call.
    objects: Mapping[str, Any] = field(default_factory=dict)
    # The variables among them that hold credentials, not settings.
    credentials: set[str] = field(default_factory=set)
    # What is read once for all systems: the corpus, and its items under each chunker.
    kept: dict[str, Any] = field(default_factory=dict, repr=False)
    # What a system starts, such as a service, is stopped when this is closed.
    ending: ExitStack = field(default_factory=ExitStack, repr=False)

    @contextmanager
    def open(self) -> Iterator[BuildContext]:
        """Yield the same context; what its systems start is stopped at the end of the block."""
        with ExitStack() as ending:
            yield replace(self, ending=ending)

    @property
    def corpus_source(self) -> Source | None:
        """The corpus file; None without a corpus."""
        return self._stored().corpus.source if self.corpus is not None else None

    @property
    def items(self) -> Items:
        """The items of the corpus, chunked if the system has a chunker."""
        key = f"items {sorted((self.chunker or {}).items())}"
        if key not in self.kept:
            stored = self._stored()
            if self.chunker is not None:
                chunks = chunk_corpus(stored.corpus, self.chunker)
                stored = StoredCorpus(chunks, folder=stored.folder)
            self.kept[key] = Items(stored)
        items: Items = self.kept[key]
        return items

    def _stored(self) -> StoredCorpus:
        if self.corpus is None:
            raise UsageError("a corpus is needed; name one in karat.yaml: corpus: items.jsonl")
        if "corpus" not in self.kept:
            corpus = self.corpus()
            stored = corpus if isinstance(corpus, StoredCorpus) else StoredCorpus(corpus)
            self.kept["corpus"] = stored
        whole: StoredCorpus = self.kept["corpus"]
        return whole

    def path(self, name: str) -> Path:
        """Return the path of a file that a karat.yaml names."""
        return self.folder / name

    def expand(self, text: str) -> str:
        """Return the text with each ``${NAME}`` replaced by that environment variable."""
        return _SECRET.sub(self._secret, text)

    def _secret(self, match: re.Match[str]) -> str:
        name = match[1]
        value = self.environment.get(name)
        if not value:
            raise UsageError(
                f"environment variable {name} is not set; it is needed for ${{{name}}}"
            )
        self.secrets[name] = value
        return value

    def redact(self, text: str) -> str:
        """Return the text with every secret replaced by its name."""
        return redactor(self.secrets)(text)

    def hide(self, answers: Iterable[Answer]) -> None:
        """Replace credentials that a service repeats in its answers by their names."""
        credentials = {name: self.secrets[name] for name in self.credentials & self.secrets.keys()}
        if credentials:
            redact = _credential_redactor(tuple(sorted(credentials.items())))
            for answer in answers:
                answer.hits = _redacted(answer.hits, redact)
                answer.lists = {
                    name: _redacted(hits, redact) for name, hits in answer.lists.items()
                }
                answer.rewritten = answer.rewritten and redact(answer.rewritten)
                answer.source = answer.source and redact(answer.source)


@lru_cache(maxsize=16)
def _credential_redactor(credentials: tuple[tuple[str, str], ...]) -> Redact:
    return redactor(dict(credentials), shortest=_SHORTEST_IN_HITS)


def _redacted(hits: Hits, redact: Redact) -> Hits:
    return [
        Hit._make(redact(value) if isinstance(value, str) else value for value in hit)
        for hit in hits
    ]
