"""bm25: words ranked by BM25 over the corpus (bm25s)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from karat.errors import UsageError, missing_extra, unknown
from karat.formats.settings import Form
from karat.retrieve.build_context import BuildContext, Items
from karat.retrieve.protocol import Answer, Finder, Query
from karat.retrieve.system_config import Title
from karat.retrieve.text_rules import TextRules
from karat.retrieve.user_code import import_library, library_versions
from karat.retrieve.vectors import top_rows

# Words of two letters and more, as the library has them.
WORD = re.compile(r"(?u)\b\w\w+\b")


class Bm25Options(Form):
    """BM25's parameters, and how texts are split into words."""

    method: Literal["lucene", "robertson", "atire", "bm25l", "bm25+"] = Field(
        "lucene", description="lucene, robertson, atire, bm25l or bm25+"
    )
    k1: Annotated[float, Field(ge=0, le=100)] = Field(1.5, description="a number from 0")
    b: Annotated[float, Field(ge=0, le=1)] = Field(0.75, description="a share from 0 to 1")
    stopwords: str | list[str] = Field(
        "none", description="none, a language such as english, or a list of words"
    )
    stemmer: str = Field("none", description="none, or a language such as english")
    title: Title = True


Options = Bm25Options


def make(options: Bm25Options, context: BuildContext, parts: Mapping[str, Finder]) -> Bm25:
    """Return the index over the corpus."""
    return Bm25(options, context.items, context.rules)


class Bm25:
    """An index of words: ties are in corpus order, items without a query word are left out."""

    batch = 1
    concurrency = 1
    deep = True

    def __init__(self, options: Bm25Options, items: Items, rules: TextRules) -> None:
        bm25s = _library()
        if options.k1 == 0 and options.method in ("bm25l", "bm25+"):
            # Its scores would be nan or equal.
            raise UsageError(
                f"k1 is 0, and method {options.method} needs more; give k1 above 0, or method "
                "lucene"
            )
        self.items = items
        self._libraries = library_versions("bm25s")
        self._stemmer = _stemmer(options.stemmer)
        self._dropped = _stopwords(options.stopwords)
        texts = items.titled if options.title else items.texts
        texts = rules.apply_all(texts)
        words = bm25s.tokenize(
            texts,
            token_pattern=WORD.pattern,
            stopwords=sorted(self._dropped),
            stemmer=self._stemmer,
            show_progress=False,
        )
        self._index = bm25s.BM25(method=options.method, k1=options.k1, b=options.b)
        # The library cannot index texts of which not one has a word.
        self._empty = not any(word for word in words.vocab)
        if not self._empty:
            self._index.index(words, show_progress=False)

    @property
    def index(self) -> Any:
        """The library's index; None if no text has a word."""
        return None if self._empty else self._index

    @property
    def meta(self) -> Mapping[str, Any]:
        """The size of the index, and the library's version."""
        arrays = [] if self._empty else self._index.scores.values()
        size = sum(part.nbytes for part in arrays if isinstance(part, np.ndarray))
        return {"index_bytes": size, "libraries": self._libraries}

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """Return the items that share words with each query, best first."""
        return [self._search_one(self._words(query.text), k) for query in queries]

    def _words(self, text: str) -> list[str]:
        """Return a query's words as the library would split them, without its start-up time."""
        words = [word for word in WORD.findall(text.lower()) if word not in self._dropped]
        return words if self._stemmer is None else list(self._stemmer.stemWords(words))

    def _search_one(self, words: list[str], k: int) -> Answer:
        ids = [] if self._empty else self._index.get_tokens_ids(words)
        if not ids:
            return Answer([])
        scores = self._index.get_scores_from_ids(ids)
        # Some methods give every item a little for a word that it lacks.
        lacking = self._index.nonoccurrence_array
        base = 0.0 if lacking is None else float(lacking[ids].sum())
        sharing = np.flatnonzero(scores > base)
        rows = sharing[top_rows(scores[sharing], k)]
        return Answer(self.items.hits(rows, scores[rows]))


def _library() -> Any:
    return import_library("bm25s", "retriever bm25", "bm25s", "bm25")


def _stopwords(stopwords: str | list[str]) -> frozenset[str]:
    """Return the words to leave out: a list, or the library's for a language."""
    if isinstance(stopwords, list):
        return frozenset(stopwords)
    if stopwords == "none":
        return frozenset()
    from bm25s.tokenization import _infer_stopwords

    try:
        return frozenset(_infer_stopwords(stopwords))
    except ValueError:
        raise UsageError(
            f"stopwords: no list for {stopwords!r}; give none, english or a list of words"
        ) from None


def _stemmer(language: str) -> Any:
    if language == "none":
        return None
    try:
        import Stemmer
    except ImportError:
        raise missing_extra(f"stemmer: {language}", "PyStemmer", "bm25") from None
    if language not in Stemmer.algorithms():
        raise unknown("stemmer", language, ["none", *Stemmer.algorithms()])
    return Stemmer.Stemmer(language)
