"""Chunkers: documents in, chunks out, each with its place in its document."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import polars as pl
from pydantic import Field

from karat.columns import Source, doc_of
from karat.errors import InputError, UsageError, unknown
from karat.formats.forms import Form, fill
from karat.formats.yamls import Place
from karat.retrievers import chunking
from karat.retrievers.chunking import Chunk, Limits, Unit
from karat.tables import Corpus

Algo = Literal["fixed", "sentence", "heading"]

# A word is about five characters and a space.
_SIZES: Mapping[Unit, int] = {"chars": 1200, "words": 240}
_OVERLAP = 6
_WHOLE = re.compile(r"-?[0-9]{1,15}")

ALGOS: Mapping[Algo, tuple[str, Callable[[str, Limits], Iterator[Chunk]]]] = {
    "fixed": ("windows of one size", chunking.fixed),
    "sentence": ("as many whole sentences as fit", chunking.sentence),
    "heading": ("sections under Markdown headings", chunking.heading),
}


class ChunkerForm(Form):
    """How documents are cut: a chunk's size, and how much of it the next one repeats."""

    algo: Algo = Field(description="fixed, sentence or heading")
    size: Annotated[int, Field(ge=1, le=10**9)] | None = Field(
        None,
        description="a whole number from 1; 1200 characters or 240 words if absent",
    )
    overlap: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="a whole number from 0, below size; a sixth of size if absent",
    )
    unit: Unit = Field("chars", description="chars or words")


@dataclass(frozen=True)
class Chunker:
    """One way to cut documents, with everything about it decided."""

    algo: Algo
    size: int
    overlap: int
    unit: Unit

    @classmethod
    def of(cls, given: Mapping[str, Any], place: Place | None = None) -> Chunker:
        """The chunker that a mapping describes, as in ``{algo: fixed, size: 800}``.

        >>> Chunker.of({"algo": "fixed"})
        Chunker(algo='fixed', size=1200, overlap=200, unit='chars')
        """
        try:
            form = fill(ChunkerForm, given, place or Place("chunker"))
        except InputError as error:
            if place is not None:
                raise
            raise UsageError(str(error)) from None
        size = form.size or _SIZES[form.unit]
        overlap = size // _OVERLAP if form.overlap is None else form.overlap
        if overlap >= size:
            what = f"overlap is {overlap} and size is {size}; overlap must be below size"
            raise UsageError(f"chunker: {what}") if place is None else place.error(what)
        return cls(form.algo, size, overlap, form.unit)

    @classmethod
    def parse(cls, text: str) -> Chunker:
        """A chunker as it is written on the command line, by its name or key by key.

        >>> Chunker.parse("fixed:size=800,overlap=100") == Chunker.parse("fixed:800/100")
        True
        """
        algo, _, rest = text.partition(":")
        if algo.strip() not in ALGOS:
            raise unknown("chunker", algo.strip(), ALGOS, inside=text)
        given: dict[str, Any] = {"algo": algo.strip()}
        for key, value in _settings(rest, text):
            if key in given:
                raise UsageError(f"chunker {text!r}: {key} is given twice; keep one")
            given[key] = value
        try:
            return cls.of(given)
        except UsageError as error:
            told = str(error).removeprefix("chunker: ")
            raise UsageError(f"chunker {text!r}: {told}") from None

    @property
    def name(self) -> str:
        """What reports call it, and what the command line takes: ``fixed:1200/200``."""
        unit = "" if self.unit == "chars" else f",unit={self.unit}"
        return f"{self.algo}:{self.size}/{self.overlap}{unit}"

    def document(self) -> dict[str, Any]:
        """The chunker as it stands in a log."""
        return asdict(self)

    def cut(self, text: str) -> Iterator[Chunk]:
        """The chunks of one text, in order; a blank text has none."""
        if text.strip():
            yield from ALGOS[self.algo][1](text, Limits(self.size, self.overlap, self.unit))


def chunk_corpus(corpus: Corpus, chunker: Mapping[str, Any] | Chunker) -> Corpus:
    """Every document cut into chunks ``doc#00000``, ``doc#00001`` …, with ``start`` and ``end``.

    A chunk's text is its document's from start to end, counted in characters. Attributes of
    the document are carried over, except for ``tokens``, which counts the whole of it. An
    item is a document of its own, called by its id unless a ``doc_id`` says otherwise.

    >>> corpus = Corpus.from_dict({"faq": {"text": "By card. By app.", "version": "v2"}})
    >>> chunk_corpus(corpus, {"algo": "sentence", "size": 8, "overlap": 0}).frame.rows()
    [('faq#00000', 'faq', 'By card.', 0, 8, 'v2'), ('faq#00001', 'faq', 'By app.', 9, 16, 'v2')]
    """
    way = chunker if isinstance(chunker, Chunker) else Chunker.of(chunker)
    columns = _Columns()
    names = documents(corpus)
    for row, (name, text) in enumerate(zip(names, corpus.frame["text"], strict=True)):
        columns.add(row, name, text, way.cut(text))
    own = ("item_id", "doc_id", "text", "tokens", *(["section"] if way.algo == "heading" else []))
    carried = corpus.frame.drop(own, strict=False)[pl.Series(columns.rows, dtype=pl.UInt32)]
    source = Source(f"{corpus.source.name} cut by {way.name}")
    return Corpus(pl.concat([columns.frame(way.algo), carried], how="horizontal"), source=source)


class _Columns:
    """Chunks on their way to a table."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self._ids: list[str] = []
        self._docs: list[str] = []
        self._texts: list[str] = []
        self._chunks: list[Chunk] = []

    def add(self, row: int, name: str, text: str, chunks: Iterator[Chunk]) -> None:
        """The chunks of one document; ``row`` is where its attributes are."""
        for number, chunk in enumerate(chunks):
            self.rows.append(row)
            self._ids.append(f"{name}#{number:05d}")
            self._docs.append(name)
            self._texts.append(text[chunk.start : chunk.end])
            self._chunks.append(chunk)

    def frame(self, algo: Algo) -> pl.DataFrame:
        """The chunks as a table."""
        columns = {
            "item_id": pl.Series(self._ids, dtype=pl.String),
            "doc_id": pl.Series(self._docs, dtype=pl.String),
            "text": pl.Series(self._texts, dtype=pl.String),
            "start": pl.Series([chunk.start for chunk in self._chunks], dtype=pl.Int64),
            "end": pl.Series([chunk.end for chunk in self._chunks], dtype=pl.Int64),
        }
        if algo == "heading":
            columns["section"] = pl.Series(
                [chunk.section for chunk in self._chunks], dtype=pl.String
            )
        return pl.DataFrame(columns)


def documents(corpus: Corpus) -> list[str]:
    """What whole documents are called: their item ids, or the doc_id where it is another."""
    for name in ("start", "end"):
        if name in corpus.frame.columns:
            raise InputError(
                f"its items have {name!r}, so they are chunks already; a chunker cuts whole"
                " documents: give those",
                where=corpus.source.name,
            )
    told = pl.col("doc_id") != doc_of(pl.col("item_id"))
    named = corpus.frame.select("item_id", doc_id=pl.when(told).then("doc_id").otherwise("item_id"))
    shared = named.filter(pl.col("doc_id").is_duplicated())
    if shared.height:
        doc = shared["doc_id"][0]
        one, other = shared.filter(pl.col("doc_id") == doc)["item_id"].to_list()[:2]
        raise InputError(
            f"items {one!r} and {other!r} are both of document {doc!r}; a chunker cuts whole"
            " documents: join their texts, or leave doc_id out",
            where=corpus.source.name,
        )
    return named["doc_id"].to_list()


def _settings(text: str, whole: str) -> Iterator[tuple[str, Any]]:
    """The keys and values of ``size=800,overlap=100`` or ``800/100``."""
    for part in text.split(",") if text.strip() else ():
        key, equals, value = (one.strip() for one in part.partition("="))
        if equals:
            yield key, int(value) if _WHOLE.fullmatch(value) else value
            continue
        for name, number in zip(("size", "overlap"), key.split("/", 1), strict=False):
            if not _WHOLE.fullmatch(number):
                raise UsageError(
                    f"chunker {whole!r}: {key!r} is not understood; write KEY=VALUE, or size and"
                    " overlap as in fixed:1200/200"
                )
            yield name, int(number)
