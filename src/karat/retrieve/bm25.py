"""bm25: words ranked by BM25 over the corpus (bm25s)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Annotated, Any, Literal

from pydantic import Field

from karat.errors import UsageError, missing_extra, unknown
from karat.formats.settings import ConfigModel
from karat.retrieve.build_context import BuildContext
from karat.retrieve.index_cache import WORD, WordIndex
from karat.retrieve.protocol import Answer, Finder, Query, QueryFinder
from karat.retrieve.system_config import Title
from karat.retrieve.user_code import import_library, library_versions

_WORD = re.compile(WORD)


class Bm25Options(ConfigModel):
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


def make(options: Bm25Options, context: BuildContext, parts: Mapping[str, Finder]) -> QueryFinder:
    """Return a finder over words: ties are in corpus order, items without a query word left out."""
    if options.k1 == 0 and options.method in ("bm25l", "bm25+"):
        # Its scores would be nan or equal.
        raise UsageError(
            f"k1 is 0, and method {options.method} needs more; give k1 above 0, or method lucene"
        )
    items = context.items
    rules, stemmer = context.rules, stemmer_of(options.stemmer)
    # Those of the index of triage and reports, which has no settings.
    settings: dict[str, Any] = options.model_dump(exclude_defaults=True)
    settings |= {} if rules.empty else {"rules": repr(rules)}
    settings |= {} if stemmer is None else {"stems": library_versions("PyStemmer")}

    def build(texts: list[str]) -> WordIndex:
        return bm25_index(rules.apply_all(texts), options, stemmer)

    index = items.stored.index(
        settings, lambda: items.titled if options.title else items.texts, build
    )

    def search(query: Query, k: int) -> Answer:
        words = query_words(query.text, index.dropped, stemmer)
        known = [index.numbers[word] for word in words if word in index.numbers]
        return Answer(items.hits(*index.best(known, k)) if known else [])

    meta = {"index_bytes": index.nbytes, "libraries": library_versions("bm25s")}
    return QueryFinder(search, meta)


def bm25_index(texts: list[str], options: Bm25Options, stemmer: Any = None) -> WordIndex:
    """Return the index that the library makes of texts."""
    dropped = stop_words(options.stopwords)
    bm25s = import_library("bm25s", "retriever bm25", "bm25s", "bm25")
    words = bm25s.tokenize(
        texts,
        token_pattern=WORD,
        stopwords=sorted(dropped),
        stemmer=stemmer,
        show_progress=False,
    )
    # The library cannot index texts without a word.
    if not any(words.vocab):
        return WordIndex.of(None, len(texts), dropped)
    index = bm25s.BM25(method=options.method, k1=options.k1, b=options.b)
    index.index(words, show_progress=False)
    return WordIndex.of(index, len(texts), dropped)


def query_words(text: str, dropped: Set[str], stemmer: Any) -> list[str]:
    """Return a query's words as the library would split them, without its start-up time."""
    words = [word for word in _WORD.findall(text.lower()) if word not in dropped]
    return words if stemmer is None else list(stemmer.stemWords(words))


def stop_words(stopwords: str | list[str]) -> frozenset[str]:
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


def stemmer_of(language: str) -> Any:
    if language == "none":
        return None
    try:
        import Stemmer
    except ImportError:
        raise missing_extra(f"stemmer: {language}", "PyStemmer", "bm25") from None
    if language not in Stemmer.algorithms():
        raise unknown("stemmer", language, ["none", *Stemmer.algorithms()])
    return Stemmer.Stemmer(language)
